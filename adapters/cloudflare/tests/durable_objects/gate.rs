//! Gates whose rules file has limits with and without a lease.

use pollster::block_on;
use tidegate_cloudflare::durable_objects::DurableObjects;
use tidegate_core::gate::{Gate, Request, Rules, Verdict};
use tidegate_core::{ClientIpSource, Origin, Platform};
use tidegate_testing::NOW;

use crate::support::{Rig, virtual_time};

const RULES: &str = r#"{
    "limits": {
        "api": {
            "quotas": [{ "algorithm": "fixed_window", "limit": 500, "window_ms": 60000 }],
            "lease": { "slice": 20, "lifetime_ms": 10000 }
        },
        "plain": { "quotas": [{ "algorithm": "fixed_window", "limit": 500, "window_ms": 60000 }] }
    },
    "rules": [{ "limits": ["api"] }, { "path": "/plain", "limits": ["plain"] }]
}"#;

fn gate(rig: &Rig) -> Gate<'_> {
    let store = DurableObjects::with_config(rig, virtual_time()).limiter();
    Gate::new(Rules::parse("rules.json", RULES).unwrap(), store, ClientIpSource::new(Platform::Cloudflare)).unwrap()
}

/// How many requests pass, and how many decisions were made from loans.
fn ask(gate: &Gate<'_>, path: &str, count: u64) -> (u64, u64) {
    let headers = [("cf-connecting-ip", "192.0.2.1")];
    let (mut passed, mut lent) = (0, 0);
    for _ in 0..count {
        let verdict = block_on(gate.check(&Request::new("GET", path, &headers, NOW)));
        passed += u64::from(matches!(verdict, Verdict::Pass(_)));
        lent += u64::from(verdict.decision().unwrap().origin() == Origin::Lease);
    }
    (passed, lent)
}

#[test]
fn a_limit_with_a_lease_is_decided_from_loans_and_another_never_is() {
    let rig = Rig::default();
    let gate = gate(&rig);
    let (passed, lent) = ask(&gate, "/", 200);
    assert!(passed == 200 && lent > 150, "{passed}, {lent} lent");
    assert!(rig.calls() < 50, "{} calls", rig.calls());
    assert_eq!(ask(&gate, "/plain", 200), (200, 0));
}

#[test]
fn gates_never_pass_more_than_the_limit_together() {
    let rig = Rig::default();
    let gates = [gate(&rig), gate(&rig)];
    let passed: u64 = (0..60).flat_map(|_| &gates).map(|gate| ask(gate, "/", 20).0).sum();
    assert!((500 - 2 * 40..=500).contains(&passed), "{passed}");
}
