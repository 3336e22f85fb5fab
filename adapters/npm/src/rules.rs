//! The gate: the core's own, whose stores are limiters of JavaScript.

mod call;
mod host;
mod host_request;
mod policies;
mod told;
mod verifier;
mod wire;

use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::rc::Rc;

use tidegate_core::gate::{Event, Events, Gate, Hold, OnWarning, Rules, Warning};
use tidegate_core::lending::Lease;
use tidegate_core::{Capabilities, ClientIpSource, ErasedLimiter, Error, Millis, Policy};
use wasm_bindgen::prelude::*;

pub use self::call::RulesCaller;
use self::host::{Host, capabilities};
use self::policies::Policies;
use self::told::text;
use self::verifier::Verifier;
use self::wire::{Wire, whole};
use crate::error::thrown;

/// The names of the stores, and how requests are read.
struct Settings {
    stores: Vec<(String, Rc<Cell<Capabilities>>)>,
    client_ip: ClientIpSource,
    settle_within: Millis,
}

/// What all calls of a gate share.
struct Shared {
    settings: Settings,
    wire: Rc<Wire>,
    policies: Rc<Policies>,
    /// What was charged under a token, and whether by one store.
    holds: RefCell<Vec<(Hold, bool)>>,
    verifier: Verifier,
    /// Events that the host has not got yet, as JSON with a comma after each.
    events: Rc<RefCell<String>>,
    /// Rules that were read and do not apply yet.
    read: RefCell<Option<Rules>>,
    gate: RefCell<Option<Rc<Gate<'static>>>>,
    /// The header fields that the host passes with each request, in its order.
    fields: RefCell<Rc<[Box<str>]>>,
}

/// A gate. The host reads rules with [`RulesGate::read`], tells what the stores support, and applies the rules with
/// [`RulesGate::load`].
#[wasm_bindgen]
pub struct RulesGate {
    shared: Rc<Shared>,
}

#[wasm_bindgen]
impl RulesGate {
    /// A gate without rules. `stores` are names, each but the last before a NUL. `settle_within` is zero for the default.
    #[wasm_bindgen(constructor)]
    pub fn new(
        stores: &str,
        platform: &str,
        ipv6_prefix: u32,
        trust_true_client_ip: bool,
        settle_within: f64,
    ) -> Result<RulesGate, JsValue> {
        let bits = u8::try_from(ipv6_prefix).unwrap_or(u8::MAX);
        let source = ClientIpSource::new(platform.parse().map_err(thrown)?).ipv6_prefix(bits).map_err(thrown)?;
        let unknown = || Rc::new(Cell::new(Capabilities::EXACT));
        let settings = Settings {
            stores: stores.split('\0').map(|name| (name.into(), unknown())).collect(),
            client_ip: source.trust_true_client_ip(trust_true_client_ip),
            settle_within: Millis::new(whole(settle_within)),
        };
        let shared = Shared {
            settings,
            wire: Rc::default(),
            policies: Rc::default(),
            holds: RefCell::default(),
            verifier: Verifier::default(),
            events: Rc::default(),
            read: RefCell::default(),
            gate: RefCell::default(),
            fields: RefCell::new(Rc::from([])),
        };
        Ok(Self { shared: Rc::new(shared) })
    }

    /// Reads a rules file. The result is JSON: `warnings`, and `tokens`, the algorithms of tokens, or null.
    pub fn read(&self, file: &str, text: &str) -> Result<String, JsValue> {
        let rules = Rules::parse(file, text).map_err(thrown)?;
        let mut out = String::from(r#"{"warnings":["#);
        listed(&mut out, rules.warnings());
        out.push_str(r#"],"tokens":"#);
        match rules.expected_tokens() {
            Some(tokens) => {
                out.push('[');
                listed(&mut out, tokens.algorithms());
                out.push(']');
            }
            None => out.push_str("null"),
        }
        out.push('}');
        *self.shared.read.borrow_mut() = Some(rules);
        Ok(out)
    }

    /// Tells what a store supports. See [`capabilities`] for the numbers.
    pub fn store(&self, place: usize, numbers: &[u32], formula: &str) {
        if let Some((_, can)) = self.shared.settings.stores.get(place) {
            can.set(capabilities(numbers, formula));
        }
    }

    /// Applies the rules that were read last. The result is JSON: `fields`, the header fields to pass with each request, and
    /// `policies`, for each policy of a rule the places of its store and its own, and the policy itself if it is new.
    pub fn load(&self) -> Result<String, JsValue> {
        let shared = &self.shared;
        let rules = shared.read.borrow_mut().take().unwrap_or_default();
        let fields = shared.fields_of(&rules);
        shared.apply(rules.verify_tokens(shared.verifier.clone())).map_err(thrown)?;
        let mut out = String::from(r#"{"fields":["#);
        listed(&mut out, &fields);
        *shared.fields.borrow_mut() = fields;
        out.push_str(r#"],"policies":["#);
        let mut comma = "";
        shared.each_policy(&mut |store, policy, lease| {
            let _ = write!(out, "{comma}[{store},");
            shared.policies.write_place(&mut out, policy, lease);
            out.push(']');
            comma = ",";
        });
        out.push_str("]}");
        Ok(out)
    }

    /// What proposed limits would have changed, as JSON: for each its store, the limit in whose place it is tried, and how often
    /// both admitted, both denied, only the proposal denied, only the current limit denied, and the proposal failed.
    pub fn shadows(&self) -> Result<String, JsValue> {
        let mut out = String::from("[");
        for (place, (store, limit, counts)) in self.shared.gate().map_err(thrown)?.shadows().into_iter().enumerate() {
            out.push_str(if place == 0 { "[" } else { ",[" });
            text(&mut out, &store);
            out.push(',');
            text(&mut out, &limit);
            let (one, other) = (counts.only_proposal_denies, counts.only_current_denies);
            let _ = write!(out, ",{},{},{one},{other},{}]", counts.both_admit, counts.both_deny, counts.failed);
        }
        out.push(']');
        Ok(out)
    }

    /// Gives the gate random bytes, before its first request. It then makes events of one in `every` allowed requests, or none
    /// if that is 0.
    pub fn seed(&self, random: &[u8], every: u32) {
        let mut whole = self.shared.gate.borrow_mut();
        let Some(gate) = whole.take().and_then(Rc::into_inner) else { return };
        let (secret, seed) = random.split_first_chunk::<16>().unwrap_or((&[0; 16], &[]));
        let seed = seed.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let mut gate = gate.seed(seed);
        if let Some(every) = std::num::NonZero::new(every) {
            let told = Rc::clone(&self.shared.events);
            let tell = move |line: String| {
                let mut told = told.borrow_mut();
                told.push_str(&line);
                told.push(',');
            };
            let warn = tell.clone();
            let events = Events::new((
                move |event: &Event<'_>| tell(event.to_json()),
                OnWarning(move |warning: &Warning<'_>| warn(warning.to_json())),
            ));
            gate = gate.events(events.key_secret(*secret).sample_allowed(every).timer(micros));
        }
        *whole = Some(Rc::new(gate));
    }

    /// A caller, which makes calls on this gate.
    pub fn caller(&self) -> RulesCaller {
        RulesCaller::new(&self.shared)
    }
}

impl Shared {
    fn gate(&self) -> Result<Rc<Gate<'static>>, Error> {
        let missing = || Error::new(tidegate_core::ErrorKind::Invalid, "rules: none were loaded");
        self.gate.borrow().clone().ok_or_else(missing)
    }

    fn fields_of(&self, rules: &Rules) -> Rc<[Box<str>]> {
        let own = ["host"].into_iter().chain(self.settings.client_ip.fields().iter().copied());
        let mut fields: Vec<Box<str>> = own.map(Into::into).collect();
        for name in rules.fields() {
            if !fields.iter().any(|known| **known == *name) {
                fields.push(name.into());
            }
        }
        fields.into()
    }

    /// Makes the gate, or gives it other rules.
    fn apply(&self, rules: Rules) -> Result<(), Error> {
        if let Ok(gate) = self.gate() {
            return gate.reload(rules);
        }
        let Settings { stores, client_ip, settle_within } = &self.settings;
        let stores = stores.iter().enumerate().map(|(place, (name, can))| {
            let (wire, policies) = (Rc::clone(&self.wire), Rc::clone(&self.policies));
            let host = Host { place, wire, policies, can: Rc::clone(can) };
            (name.as_str(), Box::new(host) as Box<dyn ErasedLimiter>)
        });
        let mut gate = Gate::with_stores(rules, stores, client_ip.clone())?;
        if *settle_within != Millis::ZERO {
            gate = gate.settle_within(*settle_within)?;
        }
        *self.gate.borrow_mut() = Some(Rc::new(gate));
        Ok(())
    }

    /// Calls `tell` with the place of the store and each policy of each rule, and its lease.
    fn each_policy(&self, tell: &mut dyn FnMut(usize, &Policy, Option<Lease>)) {
        let Ok(gate) = self.gate() else { return };
        for rule in gate.rules().rules() {
            let named = |name: &str| self.settings.stores.iter().position(|(known, _)| known == name);
            let store = rule.store().and_then(named).unwrap_or_default();
            rule.policies().for_each(|policy| tell(store, policy, rule.lease()));
        }
    }
}

/// Appends texts as the inside of a JSON list.
fn listed<T: AsRef<str>>(out: &mut String, texts: &[T]) {
    for (place, one) in texts.iter().enumerate() {
        if place > 0 {
            out.push(',');
        }
        text(out, one.as_ref());
    }
}

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_namespace = performance, js_name = now)]
    fn performance_now() -> f64;
}

fn micros() -> u64 {
    whole(performance_now() * 1_000.0)
}
