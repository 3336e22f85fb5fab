//! The fields of policies and quotas, as rules files, fixtures and `serde` have them.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::algorithm::MAX_UNITS;
use crate::document::Item;
use crate::quota::PART_MARK;
use crate::suggestion::Suggestion;
#[cfg(feature = "calendar")]
use crate::{Calendar, Every, UnixMillis};
use crate::{Error, Millis, Policy, Quota};

/// An algorithm as files name it.
pub(super) struct AlgorithmFields {
    pub(super) name: &'static str,
    /// [`Rule::number`](crate::Rule::number).
    number: u8,
    /// The fields of its numbers and flags, and the place of each among the [parameters](crate::Rule::parameters).
    pub(super) fields: &'static [(&'static str, usize)],
}

/// The number of a penalty, which has no limit, and of a block.
const PENALTY: u8 = 7;

/// The number of a balance.
const BALANCE: u8 = 9;

/// The fields that are flags, and may be left out.
pub(super) const FLAGS: &[&str] = &["returns_cost", "covers"];

/// The parts of a limit at which decisions warn.
pub(super) const WARN_AT: &str = "warn_at";

const WINDOW: &[(&str, usize)] = &[("limit", 0), ("window_ms", 1)];
const BUCKET: &[(&str, usize)] = &[("capacity", 0), ("refill", 2), ("per_ms", 1)];

pub(super) const ALGORITHMS: [AlgorithmFields; 10] = [
    AlgorithmFields { name: "fixed_window", number: 1, fields: WINDOW },
    AlgorithmFields { name: "sliding_window", number: 2, fields: WINDOW },
    AlgorithmFields { name: "sliding_log", number: 3, fields: WINDOW },
    AlgorithmFields { name: "token_bucket", number: 4, fields: BUCKET },
    AlgorithmFields { name: "leaky_bucket", number: 5, fields: BUCKET },
    AlgorithmFields {
        name: "concurrency",
        number: 6,
        fields: &[("limit", 0), ("lifetime_ms", 1), ("returns_cost", 2)],
    },
    AlgorithmFields { name: "penalty", number: PENALTY, fields: &[("base_ms", 1), ("factor", 2), ("cap_ms", 0)] },
    AlgorithmFields { name: "block", number: PENALTY, fields: &[("cap_ms", 0)] },
    AlgorithmFields { name: "calendar_window", number: CALENDAR, fields: &[("limit", 0)] },
    AlgorithmFields { name: "balance", number: BALANCE, fields: &[("max", 0), ("covers", 2)] },
];

/// The number of a calendar window, whose further fields are those of a calendar.
pub(super) const CALENDAR: u8 = 8;

const CALENDAR_FIELDS: &[&str] = &["every", "zone", "anchor", "carry_over"];

impl AlgorithmFields {
    fn quota(&self, parameters: [u64; 3]) -> Result<Quota, Error> {
        match (self.name, parameters) {
            // A penalty without a base is a mistake here, and a block among parameters.
            ("penalty", [cap, base, factor]) => Quota::penalty(Millis::new(base), factor, Millis::new(cap)),
            _ => Quota::from_parameters(self.number, parameters),
        }
    }
}

/// The quota of a table with the fields of a calendar. It has the first windows since the epoch: only what checks knows the time.
#[cfg(feature = "calendar")]
fn calendar_window(item: &Item<'_>, limit: u64) -> Result<Quota, Error> {
    let (every, carry_over) = (item.required("every")?, item.field("carry_over"));
    let mut calendar = Calendar::new(Every::of_name(every.text()?).map_err(|error| every.at(&error))?);
    if let Some(zone) = item.field("zone") {
        calendar = calendar.zone(zone.text()?).map_err(|error| zone.at(&error))?;
    }
    if let Some(anchor) = item.field("anchor") {
        let text = anchor
            .text()
            .map_err(|_| anchor.invalid(format_args!("expected a text; write a date such as \"2026-01-31\"")))?;
        calendar = calendar.anchor(text).map_err(|error| anchor.at(&error))?;
    }
    let carried = carry_over.as_ref().map_or(Ok(0), Item::number)?;
    Quota::calendar_window(limit, &calendar, carried, UnixMillis::new(0)).map_err(|error| item.at(&error))
}

#[cfg(not(feature = "calendar"))]
fn calendar_window(item: &Item<'_>, _: u64) -> Result<Quota, Error> {
    let algorithm = item.required("algorithm")?;
    Err(algorithm
        .wrong("calendar_window", format_args!("needs time zones; enable the feature \"calendar\" of tidegate-core")))
}

/// Reads what a quota counts by: a name, names that are joined, or none for the sender.
pub(crate) type ReadDimension<'a> = dyn Fn(&Item<'_>) -> Result<Option<Box<str>>, Error> + 'a;

/// The policy of a table. `quotas` is this table or another one, such as that of a tier. A quota with a limit may have `more` fields,
/// which the caller reads.
pub(crate) fn policy(
    name: &str,
    table: &Item<'_>,
    quotas: &Item<'_>,
    dimension: &ReadDimension<'_>,
    more: &[&str],
) -> Result<Policy, Error> {
    let charge_denied = table.has("charge_denied")?;
    let group = table.field("group_by").map(|item| dimension(&item)).transpose()?;
    let found: Vec<Quota> = quotas.required("quotas")?.each(&mut |item| quota(item, dimension, more))?;
    let policy = Policy::new(name, found).map(|policy| policy.charge_denied(charge_denied));
    let grouped = policy.and_then(|policy| match group {
        Some(dimension) => policy.group_by(dimension.as_deref().unwrap_or_default()),
        None => Ok(policy),
    });
    let told = grouped.and_then(|policy| match policy.charges_denied() && policy.warns() {
        true => Err(Error::invalid(
            "charge_denied: a denial that is charged does not tell what was used before; delete it, or delete warn_at",
        )),
        false if policy.warns_of_what_is_covered() => Err(Error::invalid(
            "warn_at: a balance that covers a quota does not tell how much of a request that paid; delete warn_at, or covers",
        )),
        false => Ok(policy),
    });
    told.map_err(|error| quotas.at(&error))
}

pub(super) fn quota(item: &Item<'_>, dimension: &ReadDimension<'_>, more: &[&str]) -> Result<Quota, Error> {
    let algorithm = item.required("algorithm")?;
    let name = algorithm.text()?;
    let Some(known) = ALGORITHMS.iter().find(|known| known.name == name) else {
        let names = ALGORITHMS.map(|known| known.name);
        let suggestion = Suggestion::of(name, &names);
        return Err(algorithm.wrong(name, format_args!("is not an algorithm; {suggestion}")));
    };
    let mut fields = Vec::from(["algorithm", "name", "by"]);
    fields.extend(known.fields.iter().map(|(field, _)| field));
    if known.number == CALENDAR {
        fields.extend(CALENDAR_FIELDS);
    }
    // A penalty has no limit, and what a balance holds is granted.
    fields.extend(more.iter().chain(&[WARN_AT]).filter(|_| ![PENALTY, BALANCE].contains(&known.number)));
    item.only(&fields)?;
    let name = item.field("name").map(|name| name.text()).transpose()?;
    let by = item.field("by").map(|by| dimension(&by)).transpose()?.flatten();
    let mut parameters = [0; 3];
    for (field, place) in known.fields {
        parameters[*place] = match *field {
            flag if FLAGS.contains(&flag) => item.has(flag)?.into(),
            // The only number with a default.
            "max" => item.field("max").map_or(Ok(MAX_UNITS), |max| max.number())?,
            field => item.required(field)?.number()?,
        };
    }
    let made = match known.number {
        // Its errors have their positions already.
        CALENDAR => Ok(calendar_window(item, parameters[0])?),
        _ => known.quota(parameters),
    };
    let named = made.and_then(|quota| match name {
        Some(name) => quota.named(name),
        None => Ok(quota),
    });
    let counted = named.and_then(|quota| match by {
        Some(dimension) => quota.by_all(dimension.split(PART_MARK)),
        None => Ok(quota),
    });
    let quota = counted.map_err(|error| item.at(&error))?;
    let Some(list) = item.field(WARN_AT) else { return Ok(quota) };
    let percents = list.each(&mut |percent| percent.number())?;
    quota.warn_at(percents).map_err(|error| item.at(&error))
}
