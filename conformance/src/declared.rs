//! What a limiter declares. The suite chooses the fixtures for it, and judges its answers, by that.

use serde::Deserialize;
use tidegate_core::internal::Suggestion;
use tidegate_core::{Accuracy, Capabilities, Ceiling, Dimensions, Drift, Floor, Millis, Policy};

use crate::fixture::{Disturb, Fixture};
use crate::json;
use crate::report::Cause;

/// Why a fixture in which time passes cannot be verified on some stores.
pub const OWN_CLOCK: &str = "the store uses its own clock, which virtual time does not advance";

/// Why a fixture in which a request has no token cannot be verified on some adapters.
pub const OWN_TOKENS: &str = "the adapter makes a token for each request that needs one";

/// The capabilities that a limiter declares, and properties that the suite cannot query.
#[derive(Clone, Copy, Debug)]
pub struct Declared {
    /// The capabilities. A server must report the same.
    pub capabilities: Capabilities,
    /// Whether idempotency tokens expire by the time in the request. If the store expires them by its own clock, fixtures that let a
    /// token expire are unverified.
    pub forgets_on_virtual_time: bool,
    /// Whether the adapter makes a token for a request that needs one and has none. Then no request without one reaches the
    /// store, and fixtures that send one are unverified.
    pub makes_tokens: bool,
    /// Whether it has a gate, which reads rules files. One without answers `unsupported` to every request for a gate.
    pub has_gate: bool,
    /// Why an emulator cannot show what the platform admits, if it cannot. Its answers must still be well-formed.
    pub stub: Option<&'static str>,
}

/// What is known of a limiter before a fixture is replayed.
pub trait Declares {
    /// What it declares.
    fn declared(&self) -> Declared;

    /// Whether its store can be disturbed in this way.
    fn can(&self, _: Disturb) -> bool {
        false
    }

    /// Whether it accepts a policy that its capabilities allow. It must answer `Unsupported` to every other policy.
    fn takes(&self, _: &Policy) -> bool {
        true
    }

    /// Why a fixture cannot be verified, and what is the cause, if that is so.
    fn unverified(&self, fixture: &Fixture) -> Option<(Cause, &'static str)> {
        let Declared { forgets_on_virtual_time, makes_tokens, .. } = self.declared();
        match () {
            () if fixture.outlives_a_token() && !forgets_on_virtual_time => Some((Cause::Emulator, OWN_CLOCK)),
            () if fixture.lacks_a_token() && makes_tokens => Some((Cause::Adapter, OWN_TOKENS)),
            () => None,
        }
    }
}

impl Declares for Declared {
    fn declared(&self) -> Self {
        *self
    }
}

impl Declared {
    /// Creates a declaration for a store with a gate, whose idempotency tokens expire by its own clock.
    #[must_use]
    pub const fn new(capabilities: Capabilities) -> Self {
        Self { capabilities, forgets_on_virtual_time: false, makes_tokens: false, has_gate: true, stub: None }
    }

    /// Whether the platform or the adapter is the reason for what the capabilities lack.
    #[must_use]
    pub const fn limited_by(&self) -> Cause {
        match self.capabilities.accuracy {
            Accuracy::PerLocation => Cause::Platform,
            _ => Cause::Adapter,
        }
    }

    /// Parses a declaration from JSON. Only `accuracy` is required. The defaults are those of [`Capabilities::EXACT`].
    ///
    /// ```
    /// use tidegate_conformance::declared::Declared;
    ///
    /// let declared = Declared::from_json(r#"{
    ///     "accuracy": "approximate", "ceiling": "limit", "grace": 1, "floor": { "held": 10, "within_ms": 2000 },
    ///     "algorithms": ["fixed_window", "token_bucket"], "max_quotas": 1, "dimensions": "one", "costs": true,
    ///     "charge_denied": false, "peek": true, "refund": false, "reset": false, "block": false, "grant": false, "idempotency": false,
    ///     "round_trips": 2, "forgets_on_virtual_time": false, "gate": true
    /// }"#)?;
    /// let accuracy = declared.capabilities.accuracy.to_string();
    /// assert_eq!(
    ///     accuracy,
    ///     "approximate: limit - 10 x locations (in the first 2000 ms) <= admitted <= limit + 1 x locations",
    /// );
    /// # Ok::<(), String>(())
    /// ```
    ///
    /// # Errors
    /// Names the wrong field and says what to write instead.
    pub fn from_json(text: &str) -> Result<Self, String> {
        let file: File = json::read(text).map_err(|wrong| wrong.to_string())?;
        file.declared()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    accuracy: Class,
    ceiling: Option<String>,
    floor: Option<FloorFile>,
    grace: Option<u64>,
    algorithms: Option<Vec<String>>,
    max_quotas: Option<usize>,
    dimensions: Option<DimensionsFile>,
    costs: Option<bool>,
    charge_denied: Option<bool>,
    peek: Option<bool>,
    refund: Option<bool>,
    reset: Option<bool>,
    block: Option<bool>,
    grant: Option<bool>,
    idempotency: Option<bool>,
    round_trips: Option<u32>,
    #[serde(default)]
    forgets_on_virtual_time: bool,
    gate: Option<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Class {
    Exact,
    Approximate,
    PerLocation,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum DimensionsFile {
    One,
    Grouped,
    Any,
}

impl From<DimensionsFile> for Dimensions {
    fn from(file: DimensionsFile) -> Self {
        match file {
            DimensionsFile::One => Self::One,
            DimensionsFile::Grouped => Self::Grouped,
            DimensionsFile::Any => Self::Any,
        }
    }
}

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct FloorFile {
    held: u64,
    within_ms: Option<u64>,
}

impl File {
    fn declared(self) -> Result<Declared, String> {
        let mut declared = Declared::new(Capabilities::EXACT);
        declared.forgets_on_virtual_time = self.forgets_on_virtual_time;
        declared.has_gate = self.gate.unwrap_or(declared.has_gate);
        let capabilities = &mut declared.capabilities;
        capabilities.accuracy = self.accuracy()?;
        if let Some(names) = &self.algorithms {
            capabilities.algorithms = algorithms(names)?;
        }
        if self.max_quotas == Some(0) {
            return Err("max_quotas: 0 is out of range; write 1 or more".into());
        }
        capabilities.max_quotas = self.max_quotas.unwrap_or(capabilities.max_quotas);
        capabilities.dimensions = self.dimensions.map_or(capabilities.dimensions, Dimensions::from);
        capabilities.costs = self.costs.unwrap_or(capabilities.costs);
        capabilities.charge_denied = self.charge_denied.unwrap_or(capabilities.charge_denied);
        capabilities.peek = self.peek.unwrap_or(capabilities.peek);
        capabilities.refund = self.refund.unwrap_or(capabilities.refund);
        capabilities.reset = self.reset.unwrap_or(capabilities.reset);
        capabilities.block = self.block.unwrap_or(capabilities.block);
        capabilities.grant = self.grant.unwrap_or(capabilities.grant);
        capabilities.idempotency = self.idempotency.unwrap_or(capabilities.idempotency);
        capabilities.round_trips = self.round_trips.unwrap_or(capabilities.round_trips);
        Ok(declared)
    }

    fn accuracy(&self) -> Result<Accuracy, String> {
        let known = || Ceiling::KNOWN.map(|ceiling| format!("{:?}", ceiling.formula())).join(", ");
        if self.accuracy == Class::Approximate {
            let name = self.ceiling.as_deref();
            let name =
                name.ok_or_else(|| format!("ceiling: an approximate limiter has one; write one of {}", known()))?;
            let named = Ceiling::KNOWN.into_iter().find(|ceiling| ceiling.formula() == name);
            let ceiling = named.ok_or_else(|| format!("ceiling: {name:?} is unknown; write one of {}", known()))?;
            let mut drift = Drift { ceiling, ..Drift::WITHIN_LIMIT };
            if let Some(floor) = self.floor {
                drift.floor = Floor { held: floor.held, within: floor.within_ms.map(Millis::new) };
            }
            drift.grace = self.grace.unwrap_or(drift.grace);
            return Ok(Accuracy::Approximate(drift));
        }
        for (name, given) in
            [("ceiling", self.ceiling.is_some()), ("floor", self.floor.is_some()), ("grace", self.grace.is_some())]
        {
            if given {
                return Err(format!("{name}: only an approximate limiter declares one; leave it out"));
            }
        }
        Ok(if self.accuracy == Class::Exact { Accuracy::Exact } else { Accuracy::PerLocation })
    }
}

/// Returns the algorithms with these names. The list is leaked: a process reads one declaration.
fn algorithms(names: &[String]) -> Result<&'static [&'static str], String> {
    let known = Capabilities::EXACT.algorithms;
    let find = |(place, name): (usize, &String)| {
        let found = known.iter().copied().find(|known| known == name);
        found.ok_or_else(|| format!("algorithms[{place}]: {name:?} is unknown; {}", Suggestion::of(name, known)))
    };
    let found: Vec<&'static str> = names.iter().enumerate().map(find).collect::<Result<_, _>>()?;
    if found.is_empty() {
        return Err(format!("algorithms: none is declared; write some of {}", known.join(", ")));
    }
    Ok(Box::leak(found.into_boxed_slice()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Declared;

    fn wrong(text: &str) -> String {
        Declared::from_json(text).err().unwrap_or_default()
    }

    #[test]
    fn an_error_names_the_field_and_says_what_to_write() {
        assert_eq!(wrong(r#"{"accuracy":"exact"}"#), "");
        assert!(wrong("{}").contains("missing field `accuracy`"), "{}", wrong("{}"));
        let said = wrong(r#"{"accuracy":"exactly"}"#);
        assert!(said.starts_with("accuracy: unknown variant `exactly`, expected one of `exact`"), "{said}");
        let said = wrong(r#"{"accuracy":"approximate"}"#);
        assert!(said.starts_with("ceiling: an approximate limiter has one; write one of \"limit\""), "{said}");
        let said = wrong(r#"{"accuracy":"approximate","ceiling":"twice"}"#);
        assert!(said.starts_with("ceiling: \"twice\" is unknown; write one of \"limit\""), "{said}");
        let said = wrong(r#"{"accuracy":"exact","ceiling":"limit"}"#);
        assert_eq!(said, "ceiling: only an approximate limiter declares one; leave it out");
        let said = wrong(r#"{"accuracy":"exact","algorithms":["fixed_window","gcra"]}"#);
        assert!(said.starts_with("algorithms[1]: \"gcra\" is unknown; write one of \"fixed_window\""), "{said}");
        let said = wrong(r#"{"accuracy":"per_location","grace":1}"#);
        assert_eq!(said, "grace: only an approximate limiter declares one; leave it out");
        assert!(wrong(r#"{"accuracy":"exact","peak":true}"#).starts_with("peak: unknown field `peak`"));
        let said = wrong(r#"{"accuracy":"exact","dimensions":"two"}"#);
        assert!(said.starts_with("dimensions: unknown variant `two`, expected one of `one`"), "{said}");
        assert!(wrong(r#"{"accuracy":"exact"} x"#).contains("trailing characters"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_rejected(text: String) {
            let _ = Declared::from_json(&text);
        }
    }
}
