//! Gates that warn wrongly.

use std::collections::BTreeSet;

use serde_json::Value;
use tidegate_guest_protocol::{Answer, Gated, Judged, Reply};

/// What warns of a charge: the parts that it warns of. It also may change the level.
pub(super) type Warn = fn(&Charge, &mut Judged, &mut Warned);

/// The parts that senders were warned of, each by its sender, and tokens as if they were senders.
pub(super) type Warned = BTreeSet<(String, u8)>;

/// A request that was decided by a limit.
pub(super) struct Charge {
    /// What says who has sent it.
    sender: String,
    limit: u64,
    /// The parts of the limit.
    parts: Vec<u8>,
    /// What was used of the limit before it.
    before: u64,
    /// What is used since.
    used: u64,
    /// What it costs, also if it was not charged.
    cost: u64,
}

impl Charge {
    /// The parts that it has crossed.
    fn crossed(&self, crosses: impl Fn(&Self, u8) -> bool) -> Vec<u8> {
        self.parts.iter().copied().filter(|part| crosses(self, *part)).collect()
    }

    /// The least number of used units that is this part of the limit.
    fn needed(&self, part: u8) -> u64 {
        (self.limit * u64::from(part)).div_ceil(100)
    }
}

/// Those of a right gate, computed as the mutants compute theirs.
pub(super) const RIGHT: Warn = |charge, judged, _| {
    judged.warned = charge.crossed(|of, part| of.before < of.needed(part) && of.needed(part) <= of.used);
};

/// The name, the title of a bug report, and what warns.
pub(super) const ALL: &[(&str, &str, Warn)] = &[
    ("never-warns", "no request is warned of a part of its limit", |_, judged, _| judged.warned.clear()),
    ("warns-twice", "each part is warned of twice", |_, judged, _| judged.warned.extend_from_within(..)),
    ("warns-above-the-part", "a part is crossed only when more than it is used", |charge, judged, _| {
        let crosses = |of: &Charge, part| of.before <= of.needed(part) && of.needed(part) < of.used;
        judged.warned = charge.crossed(crosses);
    }),
    ("warns-one-unit-early", "a part is crossed when one unit less than it is used", |charge, judged, _| {
        let crosses = |of: &Charge, part| of.before + 1 < of.needed(part) && of.needed(part) <= of.used + 1;
        judged.warned = charge.crossed(crosses);
    }),
    (
        "rounds-parts-down",
        "a part of a limit is rounded down, so that it is warned of before it is reached",
        |charge, judged, _| {
            let crosses = |of: &Charge, part| {
                let needed = of.limit * u64::from(part) / 100;
                of.before < needed && needed <= of.used
            };
            judged.warned = charge.crossed(crosses);
        },
    ),
    (
        "warns-at-each-request",
        "each request above a part is warned of it again, in the same window",
        |charge, judged, _| {
            if judged.passes {
                judged.warned = charge.crossed(|of, part| of.needed(part) <= of.used);
            }
        },
    ),
    ("warns-of-replays", "the repetition of a request that was charged warns again", |charge, judged, _| {
        if judged.passes {
            let before = charge.used.saturating_sub(charge.cost);
            judged.warned = charge.crossed(|of, part| before < of.needed(part) && of.needed(part) <= of.used);
        }
    }),
    ("warns-once-for-ever", "a sender is not warned again in the next window", |charge, judged, warned| {
        judged.warned.retain(|part| warned.insert((charge.sender.clone(), *part)));
    }),
    ("one-warning-for-all", "one sender's warning is that of all", |_, judged, warned| {
        judged.warned.retain(|part| warned.insert((String::new(), *part)));
    }),
    ("highest-part-only", "a charge that crosses several parts is warned of the highest", |_, judged, _| {
        judged.warned = judged.warned.iter().copied().max().into_iter().collect();
    }),
    ("warns-of-denials", "a request that is denied is warned of the whole limit", |_, judged, _| {
        if !judged.passes {
            judged.warned = vec![100];
        }
    }),
    ("level-of-the-warning", "a verdict has a level only if the request crosses a part", |_, judged, _| {
        judged.level = judged.warned.iter().copied().max();
    }),
    ("level-lags", "a verdict has the level of before the request", |charge, judged, _| {
        if judged.passes {
            judged.level = charge.crossed(|of, part| of.needed(part) <= of.before).into_iter().max();
        }
    }),
];

/// The reply of a gate that warns otherwise. That of rules whose first limit has no `warn_at`, and of a request that was not decided, stays.
pub(super) fn changed(warn: Warn, call: &Gated, reply: Reply, warned: &mut Warned) -> Reply {
    let Ok(Answer::Verdict(mut judged)) = Answer::from_body(&reply.body) else { return reply };
    // Nothing is charged again under a token.
    let is_repeated = call.token.as_ref().is_some_and(|token| !warned.insert((token.clone(), 0)));
    let Some(charge) = charge(call, &judged, is_repeated) else { return reply };
    warn(&charge, &mut judged, warned);
    let changed = Reply::new(reply.status, &Answer::Verdict(judged));
    Reply { headers: reply.headers, ..changed }
}

fn charge(call: &Gated, judged: &Judged, is_repeated: bool) -> Option<Charge> {
    let limit = call.rules["limits"].as_object()?.values().next()?;
    let of_tier = call.tier.as_ref().and_then(|tier| limit["tiers"].get(tier));
    let quota = &of_tier.unwrap_or(limit)["quotas"][0];
    let parts = quota["warn_at"].as_array()?.iter().filter_map(Value::as_u64);
    let limit = quota["limit"].as_u64()?;
    let used = limit.checked_sub(judged.remaining?)?;
    let cost = call.cost.unwrap_or(1);
    let before = if judged.passes && !is_repeated { used.saturating_sub(cost) } else { used };
    let parts = parts.filter_map(|part| u8::try_from(part).ok()).collect();
    Some(Charge { sender: format!("{:?}", call.sender), limit, parts, before, used, cost })
}
