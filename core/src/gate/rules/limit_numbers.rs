//! The number of each limit that applies to a request: the file's, that of a claim or of the application, or that of a key.

mod overrides;

use std::format_args as args;
use std::sync::Arc;

pub(super) use self::overrides::Overrides;
use super::Rules;
use crate::algorithm::MAX_UNITS;
use crate::dimension::OwnKeys;
use crate::document::Item;
use crate::gate::bytes::bytes_of_fields;
use crate::quota::checked_name;
use crate::quoted_text::Quoted;
use crate::suggestion::Suggestion;
use crate::{Error, Policy, Quota, UnixMillis};

/// The numbers that come with a request.
#[derive(Clone, Copy)]
pub(in crate::gate) struct Numbers<'a> {
    /// Returns a claim of the token whose subject is counted, as it is written.
    pub(in crate::gate) claim: &'a dyn Fn(&str) -> Option<&'a str>,
    /// Those of the application, by their names.
    pub(in crate::gate) given: &'a [(&'a str, u64)],
}

/// The largest number that a claim or the application may give: JavaScript has no larger whole ones.
const NUMBER_MAX: u64 = (1 << 53) - 1;

/// The fields in which somebody may expect what a client writes.
const OF_THE_CLIENT: [&str; 7] = ["header", "headers", "field", "query", "cookie", "path", "body"];

/// What gives a quota its limit, `limit_from`.
#[derive(Clone, Debug)]
pub(in crate::gate) struct LimitFrom {
    /// The limit, the place of the tier and the name of the quota.
    limit: Box<str>,
    tier: usize,
    quota: Box<str>,
    /// Whether a claim of a verified token gives it. Otherwise, the application does.
    is_claim: bool,
    name: Box<str>,
    min: u64,
    max: u64,
}

bytes_of_fields!(LimitFrom { limit, tier, quota, is_claim, name, min, max });

impl LimitFrom {
    /// Reads `limit_from` of a quota. `has_tokens` says whether the file verifies tokens.
    pub(super) fn new(
        item: &Item<'_>,
        limit: &str,
        tier: usize,
        quota: &Quota,
        has_tokens: bool,
    ) -> Result<Self, Error> {
        if item.text().is_ok() {
            return Err(item.invalid(args!("expected a table; write one such as {{ claim = \"rpm\", max = 10000 }}")));
        }
        item.entries(&mut |name, field| match OF_THE_CLIENT.contains(&name) {
            true => Err(field.wrong(
                name,
                args!("is what a client writes, and it would choose its limit; write claim, of a verified token, or application"),
            )),
            false => Ok(()),
        })?;
        item.only(&["claim", "application", "max", "min"])?;
        let (is_claim, name) = match (item.field("claim"), item.field("application")) {
            (Some(claim), None) if claim.text()?.is_empty() => {
                return Err(claim.invalid(args!("empty; write the name of a claim")));
            }
            (Some(claim), None) if !has_tokens => {
                return Err(claim.invalid(args!("the file verifies no tokens; write the table tokens, or application")));
            }
            (Some(claim), None) => (true, claim.text()?.into()),
            (None, Some(given)) => {
                (false, checked_name("application", given.text()?).map_err(|error| given.at(&error))?)
            }
            _ => return Err(item.invalid(args!("write either claim or application"))),
        };
        let usual = quota.rule().limit();
        item.required("max")?;
        let max = item.number_in("max", usual, MAX_UNITS)?.unwrap_or(usual);
        let min = item.number_in("min", 1, usual)?.unwrap_or(1);
        for (field, number) in [("max", max), ("min", min)] {
            let fits = quota.numbered(number);
            fits.map_err(|error| item.field(field).as_ref().unwrap_or(item).at(&error))?;
        }
        Ok(Self { limit: limit.into(), tier, quota: quota.name().into(), is_claim, name, min, max })
    }

    /// The claim, if one gives it.
    pub(super) fn claim(&self) -> Option<&str> {
        Some(&*self.name).filter(|_| self.is_claim)
    }

    /// Such as `the claim "rpm"`.
    fn source(&self) -> String {
        format!("the {} {}", if self.is_claim { "claim" } else { "application's number" }, Quoted(&self.name))
    }

    /// The least number that may apply.
    pub(super) const fn min(&self) -> u64 {
        self.min
    }

    fn is_of(&self, limit: &str, tier: Option<usize>, quota: &str) -> bool {
        self.tier == place_of(tier) && *self.quota == *quota && *self.limit == *limit
    }

    /// The number that is given with a request. `None` if none is.
    fn given(&self, numbers: Numbers<'_>) -> Result<Option<u64>, Error> {
        let wrong = |what: &str| {
            Error::invalid(format!(
                "limit {}: {} is {what}; give a whole number from 0 to {NUMBER_MAX}",
                Quoted(&self.limit),
                self.source()
            ))
        };
        if self.is_claim {
            let Some(text) = (numbers.claim)(&self.name) else { return Ok(None) };
            let digits = Some(text).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
            let number = digits.and_then(|digits| digits.parse().ok()).filter(|number| *number <= NUMBER_MAX);
            let shown = || text.chars().take(40).collect::<String>();
            return number.map(Some).ok_or_else(|| wrong(&shown()));
        }
        let given = numbers.given.iter().find(|(name, _)| *name == &*self.name).map(|(_, number)| *number);
        match given {
            Some(number) if number > NUMBER_MAX => Err(wrong(&number.to_string())),
            given => Ok(given),
        }
    }
}

/// The place of a tier's policies among those of a rule or a limit.
pub(in crate::gate) fn place_of(tier: Option<usize>) -> usize {
    tier.map_or(0, |tier| tier + 1)
}

/// The number that a quota has for a request.
#[derive(Debug)]
pub(in crate::gate) struct LimitNumber<'r> {
    /// The place of the quota in its policy.
    quota: usize,
    number: u64,
    from: Origin<'r>,
}

/// Where a number comes from, if it may be another than the file's.
#[derive(Debug)]
enum Origin<'r> {
    Override,
    Given(&'r LimitFrom, u64),
    /// Nothing gives it.
    Default(&'r LimitFrom),
}

impl LimitNumber<'_> {
    /// A policy with these numbers.
    pub(in crate::gate) fn applied(policy: &Arc<Policy>, numbers: &[Self]) -> Result<Arc<Policy>, Error> {
        let differs = |number: &&Self| policy.quotas()[number.quota].rule().limit() != number.number;
        let changed: Vec<_> = numbers.iter().filter(differs).map(|number| (number.quota, number.number)).collect();
        if changed.is_empty() { Ok(Arc::clone(policy)) } else { policy.numbered(&changed).map(Arc::new) }
    }

    pub(in crate::gate) const fn is_of(&self, quota: usize) -> bool {
        self.quota == quota
    }
}

/// Such as `, from the claim "rpm"`.
impl std::fmt::Display for LimitNumber<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.from {
            Origin::Override => f.write_str(", by an override"),
            Origin::Default(from) => write!(f, ", the default without {}", from.source()),
            Origin::Given(from, given) if given > self.number => {
                write!(f, ", from {}: {given}, but at most {}", from.source(), from.max)
            }
            Origin::Given(from, given) if given < self.number => {
                write!(f, ", from {}: {given}, but at least {}", from.source(), from.min)
            }
            Origin::Given(from, _) => write!(f, ", from {}", from.source()),
        }
    }
}

impl Rules {
    /// Whether a request may have a policy of its own in place of this one; see [`Rules::numbered`].
    #[inline]
    pub(in crate::gate) fn may_change(&self, policy: &Policy) -> bool {
        self.has_numbers() || policy.has_calendars()
    }

    #[inline]
    fn has_numbers(&self) -> bool {
        !self.limits_from.is_empty() || !self.overrides.is_empty()
    }

    /// A policy with the calendar windows and the numbers that apply to a request. Without any, it is the same.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) if what gives a number gives none that can be read.
    pub(in crate::gate) fn numbered(
        &self,
        policy: &Arc<Policy>,
        tier: Option<usize>,
        keys: &OwnKeys,
        numbers: Numbers<'_>,
        now: UnixMillis,
    ) -> Result<Arc<Policy>, Error> {
        let policy = self.current(policy, now);
        if !self.has_numbers() {
            return Ok(policy);
        }
        LimitNumber::applied(&policy, &self.numbers(&policy, tier, Some(keys), numbers)?)
    }

    /// A policy with the calendar windows of an instant.
    pub(in crate::gate) fn current(&self, policy: &Arc<Policy>, now: UnixMillis) -> Arc<Policy> {
        self.current.at(policy, now)
    }

    /// The numbers of the quotas that may have others than the file's.
    pub(in crate::gate) fn numbers(
        &self,
        policy: &Policy,
        tier: Option<usize>,
        keys: Option<&OwnKeys>,
        numbers: Numbers<'_>,
    ) -> Result<Vec<LimitNumber<'_>>, Error> {
        let overrides = self.overrides.now();
        let mut found = Vec::new();
        for dimension in policy.dimensions() {
            let limit = dimension.policy();
            for place in dimension.quotas() {
                let quota = &policy.quotas()[place];
                let key = keys.and_then(|keys| keys.of_quota(policy, quota));
                if let Some(number) = key.and_then(|key| overrides.as_ref()?.of(key, limit, quota.name())) {
                    found.push(LimitNumber { quota: place, number, from: Origin::Override });
                } else if let Some(from) = self.limits_from.iter().find(|from| from.is_of(limit, tier, quota.name())) {
                    let (number, from) = match from.given(numbers)? {
                        Some(given) => (given.clamp(from.min, from.max), Origin::Given(from, given)),
                        None => (quota.rule().limit(), Origin::Default(from)),
                    };
                    found.push(LimitNumber { quota: place, number, from });
                }
            }
        }
        Ok(found)
    }

    /// Checks that each number of the application is one that a limit takes.
    #[inline]
    pub(in crate::gate) fn takes(&self, given: &[(&str, u64)]) -> Result<(), Error> {
        for (name, _) in given {
            let known = self.limits_from.iter().filter(|from| !from.is_claim).map(|from| &*from.name);
            let known: Vec<&str> = known.collect();
            if known.contains(name) {
                continue;
            }
            let name = Quoted(name);
            return Err(Error::invalid(match &known[..] {
                [] => format!(
                    "limits: no limit takes {name} from the application; write limit_from = {{ application = {name}, max = 10000 }}"
                ),
                known => {
                    format!("limits: no limit takes {name} from the application; {}", Suggestion::of(name.0, known))
                }
            }));
        }
        Ok(())
    }

    /// The quotas that take their [limit](Rules#limits-from-data) from data, by their names, each with its bounds and what gives it, such as
    /// `10 to 1000, from the claim "rpm"`.
    pub fn limits_from(&self) -> impl Iterator<Item = (&str, String)> {
        let mut told = Vec::new();
        for from in &self.limits_from {
            let of = (&*from.quota, format!("{} to {}, from {}", from.min, from.max, from.source()));
            if !told.contains(&of) {
                told.push(of);
            }
        }
        told.into_iter()
    }

    /// Whether data gives numbers to a quota of a limit.
    fn takes_numbers(&self, limit: &str) -> bool {
        self.limits_from.iter().any(|from| *from.limit == *limit)
    }
}
