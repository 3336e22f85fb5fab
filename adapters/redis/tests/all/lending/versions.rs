//! Two versions of Tidegate that ask for other amounts, or lend others, share a server, as while a service is deployed.

use tidegate_core::lending::{Borrowers, Lease, Verdict};
use tidegate_core::{Check, Key, Millis, Operation, Policy, Quota};
use tidegate_redis::Clock;
use tidegate_redis::wire::{Call, Script};
use tidegate_testing::at;

use super::lent;
use super::load;
use crate::support::Server;

const LIMIT: u64 = 500;

/// A version's script.
fn lending(head_of_amount: &str) -> String {
    let (text, head) = (Script::Lending.text(false), "local function amount(asked, kept, left, shared_by, longest)\n");
    assert!(text.contains(head));
    text.replace(head, &format!("{head}{head_of_amount}\n"))
}

type Wants = fn(u64) -> u64;

/// What the other version's borrowers want in place of what this one's do, and how much its script lends.
const OTHERS: [(Wants, &str); 7] = [
    (|_| 0, ""),
    (|_| 1, ""),
    (|_| 50, ""),
    (|wanted| 1_000 * wanted, ""),
    (|wanted| wanted, "do return max(min(asked.wanted, left) - kept, 0), longest end"),
    (|wanted| wanted, "do return min(1, max(asked.wanted - kept, 0)), min(longest, 700) end"),
    (|wanted| wanted, "do return 0, 0 end"),
];

#[test]
fn borrowers_of_two_versions_that_ask_for_and_lend_other_amounts_stay_within_the_limit_together() {
    let server = Server::start();
    let mut connection = server.connection();
    let window = Millis::from_secs(3_600);
    let quotas = [
        Quota::fixed_window(LIMIT, window),
        Quota::sliding_window(LIMIT, window),
        Quota::token_bucket(LIMIT, 1, window),
    ]
    .map(Result::unwrap);
    for (other_nth, (wants, other)) in OTHERS.into_iter().enumerate() {
        let sha1s = [load(&mut connection, &lending("")), load(&mut connection, &lending(other))];
        for quota in &quotas {
            let policy = Policy::new("api", [quota.clone()]).unwrap();
            let key = Key::new(format!("{other_nth}-{}", policy.quotas()[0].rule().name()));
            let mut fleet = [(); 4].map(|()| Borrowers::new(Lease::new(50, Millis::from_secs(10))));
            let (mut admitted, mut asked_of) = (0, [0; 2]);
            for request in 0..1_000 {
                let (nth, now) = (request % fleet.len(), at(20 * request as u64));
                let check = Check::new(&policy, &key, now);
                let decision = match fleet[nth].decide(key.as_str(), &check, || ()) {
                    Verdict::Admit { .. } => true,
                    Verdict::Deny(_) => false,
                    Verdict::AskPlainly => unreachable!("{policy:?}"),
                    Verdict::Ask(mut asked) => {
                        asked_of[nth % 2] += 1;
                        if nth % 2 == 1 {
                            asked.question.wanted = wants(asked.question.wanted);
                        }
                        let call = Call::new(Operation::Lend(check, &asked.question), Clock::Caller, window).unwrap();
                        let mut words = Vec::new();
                        call.words(Script::Lending, |word| words.push(word.to_owned()));
                        let text: String =
                            redis::cmd("EVALSHA").arg(&sha1s[nth % 2]).arg(&words).query(&mut connection).unwrap();
                        let answer = lent(&call, &text).unwrap();
                        fleet[nth].answered(key.as_str(), asked.nth, Some(&answer));
                        answer.decision.is_allowed()
                    }
                };
                admitted += u64::from(decision);
            }
            assert!((LIMIT - 100..=LIMIT).contains(&admitted), "{admitted} by {other_nth} and {policy:?}");
            // Those that get less ask more often.
            let gets_less = [0, 1, 5, 6].contains(&other_nth);
            assert!(asked_of[0] < asked_of[1] || !gets_less, "{asked_of:?} by {other_nth} and {policy:?}");
        }
    }
}
