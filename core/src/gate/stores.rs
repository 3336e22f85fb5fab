//! Limiters around the stores, as the rules describe them.

#[cfg(feature = "lending")]
mod borrowing;
mod watched;

use std::fmt;
use std::format_args as args;
use std::sync::Arc;

#[cfg(feature = "lending")]
use self::borrowing::Borrowing;
pub(super) use self::watched::Watched;
use super::bytes::bytes_of_fields;
use crate::document::Item;
use crate::lending::Lease;
use crate::limiter::{deny_cache, fallback};
use crate::quoted_text::Quoted;
#[cfg(feature = "lending")]
use crate::store::ToTell;
use crate::suggestion::Suggestion;
use crate::{
    Capabilities, Check, Decision, DenyCache, Dimensions, ErasedLimiter, Error, ErrorKind, Fallback, Limiter, Millis,
    Operation, Policy, Reply, Shadow, ShadowCounts, Tiered, UnixMillis,
};

/// A store, or the limiter around one.
type Store<'s> = Arc<dyn ErasedLimiter + 's>;

/// The part of each limit that is admitted without the store, in percent, unless the file says otherwise.
const PERCENT: u8 = 10;

/// What is around a store, an entry of the table `stores` of a rules file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoreRules {
    pub(super) name: Box<str>,
    deny_cache: Option<CacheRules>,
    fallback: Option<FallbackRules>,
    near: Option<NearRules>,
    shadows: Vec<ShadowRules>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CacheRules {
    hold: Millis,
    capacity: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct FallbackRules {
    store: Box<str>,
    percent: u8,
    at_most: Millis,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct NearRules {
    store: Box<str>,
    policy: Policy,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ShadowRules {
    /// The name of the proposed limit.
    limit: Box<str>,
    /// By the name of the current limit.
    proposal: Policy,
}

bytes_of_fields!(StoreRules { name, deny_cache, fallback, near, shadows });
bytes_of_fields!(CacheRules { hold, capacity });
bytes_of_fields!(FallbackRules { store, percent, at_most });
bytes_of_fields!(NearRules { store, policy });
bytes_of_fields!(ShadowRules { limit, proposal });

/// A limit of a file by its name: its policy without a tier.
pub(super) type FindLimit<'a> = dyn Fn(&Item<'_>, &str) -> Result<&'a Policy, Error> + 'a;

impl StoreRules {
    pub(super) fn new(name: &str, item: &Item<'_>, limit: &FindLimit<'_>) -> Result<Self, Error> {
        item.only(&["deny_cache", "fallback", "near", "shadow"])?;
        let mut shadows = Vec::new();
        if let Some(table) = item.field("shadow") {
            table.entries(&mut |current, item| {
                shadows.push(ShadowRules::new(current, item, limit)?);
                Ok(())
            })?;
        }
        Ok(Self {
            name: name.into(),
            deny_cache: item.field("deny_cache").map_or(Ok(None), |item| CacheRules::new(&item))?,
            fallback: item.field("fallback").map(|item| FallbackRules::new(&item, name)).transpose()?,
            near: item.field("near").map(|item| NearRules::new(&item, name, limit)).transpose()?,
            shadows,
        })
    }

    /// The names of the limits that it uses besides those of rules.
    pub(super) fn limits(&self) -> impl Iterator<Item = &str> {
        let near = self.near.iter().map(|near| near.policy.name());
        near.chain(self.shadows.iter().map(|shadow| &*shadow.limit))
    }

    /// The store that decides in place of this one, while it is down.
    pub(super) fn fallback(&self) -> Option<&str> {
        self.fallback.as_ref().map(|fallback| &*fallback.store)
    }

    /// The same store, and for how long it decides.
    pub(super) fn replacement(&self) -> Option<(&str, Millis)> {
        self.fallback.as_ref().map(|fallback| (&*fallback.store, fallback.at_most))
    }

    /// The store that is asked first, and by which policy.
    pub(super) fn near(&self) -> Option<(&str, &Policy)> {
        self.near.as_ref().map(|near| (&*near.store, &near.policy))
    }

    /// Checks that the store that is asked first has a key of each request by this policy.
    pub(super) fn suits(&self, policy: &Policy) -> Result<(), Error> {
        let Some(near) = &self.near else { return Ok(()) };
        let name = near.policy.dimensions()[0].name();
        if policy.dimensions().iter().any(|dimension| dimension.name() == name) {
            return Ok(());
        }
        let (limit, by) = (near.policy.name(), if name.is_empty() { "sender" } else { name });
        let message =
            format!("stores.{}.near: \"{limit}\" counts by \"{by}\", and no limit of this rule does", self.name);
        Err(Error::invalid(message))
    }
}

impl CacheRules {
    fn new(item: &Item<'_>) -> Result<Option<Self>, Error> {
        let mut found = Self { hold: deny_cache::HOLD, capacity: deny_cache::CAPACITY };
        if let Ok(is_on) = item.flag() {
            return Ok(is_on.then_some(found));
        }
        item.only(&["hold_ms", "capacity"])?;
        if let Some(hold) = item.number_in("hold_ms", 1, 3_600_000)? {
            found.hold = Millis::new(hold);
        }
        if let Some(keys) = item.number_in("capacity", 1, 1_000_000)? {
            found.capacity = usize::try_from(keys).unwrap_or(found.capacity);
        }
        Ok(Some(found))
    }
}

impl FallbackRules {
    fn new(item: &Item<'_>, main: &str) -> Result<Self, Error> {
        let mut found = Self { store: "".into(), percent: PERCENT, at_most: fallback::AT_MOST };
        if let Ok(store) = item.text() {
            found.store = other(item, store, main)?;
            return Ok(found);
        }
        item.only(&["store", "percent", "at_most_ms"])?;
        let store = item.required("store")?;
        found.store = other(&store, store.text()?, main)?;
        if let Some(percent) = item.number_in("percent", 1, 100)? {
            found.percent = u8::try_from(percent).unwrap_or(found.percent);
        }
        if let Some(item) = item.field("at_most_ms") {
            found.at_most = Millis::new(item.number()?);
        }
        Ok(found)
    }
}

impl NearRules {
    fn new(item: &Item<'_>, main: &str, limit: &FindLimit<'_>) -> Result<Self, Error> {
        item.only(&["store", "limit"])?;
        let (store, named) = (item.required("store")?, item.required("limit")?);
        let policy = limit(&named, named.text()?)?.clone();
        if policy.dimensions().len() > 1 || policy.has_slots() {
            return Err(named.invalid(args!("a limit that is asked first counts by one key, and no requests at once")));
        }
        Ok(Self { store: other(&store, store.text()?, main)?, policy })
    }
}

impl ShadowRules {
    fn new(current: &str, item: &Item<'_>, limit: &FindLimit<'_>) -> Result<Self, Error> {
        let (current, name) = (limit(item, current)?, item.text()?);
        let proposed = limit(item, name)?;
        let has_key = |name: &str| current.dimensions().iter().any(|dimension| dimension.name() == name);
        if let Some(other) = proposed.dimensions().iter().find(|dimension| !has_key(dimension.name())) {
            let (name, by) = (current.name(), if other.name().is_empty() { "sender" } else { other.name() });
            return Err(item.invalid(args!("it counts by \"{by}\", and \"{name}\" does not")));
        }
        let proposal = Policy::new(current.name(), proposed.quotas().to_vec());
        let proposal = proposal.map(|policy| policy.charge_denied(proposed.charges_denied()));
        let proposal = proposal.and_then(|policy| match proposed.group() {
            Some(group) => policy.group_by(group.name()),
            None => Ok(policy),
        });
        Ok(Self { limit: name.into(), proposal: proposal.map_err(|error| item.at(&error))? })
    }
}

/// Another store than the one that it is for.
fn other(item: &Item<'_>, name: &str, main: &str) -> Result<Box<str>, Error> {
    if name == main {
        return Err(item.wrong(name, args!("is the store itself; write another")));
    }
    Ok(name.into())
}

/// A store with what is around it.
#[derive(Clone)]
pub(super) struct Composed<'s> {
    rules: Option<StoreRules>,
    /// The leases of its limits.
    leases: Vec<Lease>,
    store: Arc<Watched<'s>>,
    /// The outermost limiter around it, if there is any. Without one, a call takes one future in a box less.
    around: Option<Store<'s>>,
    #[cfg(feature = "lending")]
    borrowing: Option<Arc<Borrowing<'s>>>,
    /// With the name of the limit that each is about.
    shadows: Vec<(Box<str>, Arc<Shadow<Store<'s>>>)>,
}

impl Limiter for Composed<'_> {
    fn capabilities(&self) -> Capabilities {
        match &self.around {
            Some(around) => around.capabilities(),
            None => self.store.capabilities(),
        }
    }

    async fn apply(&self, operation: Operation<'_>) -> Result<Reply, Error> {
        let reply = self.asked().erased_apply(operation).await;
        if self.around.is_none() {
            self.store.watch(&operation, &reply);
        }
        reply
    }

    #[inline]
    fn check_at_once(&self, check: Check<'_>) -> Option<Result<Decision, Error>> {
        let decided = self.asked().erased_check_at_once(check);
        self.hear(check.now, decided.as_ref());
        decided
    }
}

/// The stores of a gate.
pub(super) type Stores<'s> = [Arc<Watched<'s>>];

/// [`compose`], for rules that put something around a store. Others need none of its code.
pub(super) type Compose = for<'s> fn(&mut Composed<'s>, &Stores<'s>) -> Result<(), Error>;

/// Puts around each store what the rules say. What was around it before, and has the same rules, is kept with its counts and loans.
/// `leases` are those of the limits of the store at a place, each once.
pub(super) fn composed<'s>(
    all: &[StoreRules],
    compose: Option<Compose>,
    stores: &Stores<'s>,
    leases: &dyn Fn(usize) -> Vec<Lease>,
    before: &[Composed<'s>],
) -> Result<Vec<Composed<'s>>, Error> {
    for rules in all {
        place(stores, &rules.name, "stores")?;
    }
    let mut found = Vec::with_capacity(stores.len());
    for (at, store) in stores.iter().enumerate() {
        let (rules, leases) = (all.iter().find(|rules| rules.name == store.name), leases(at));
        let is_same = |before: &&Composed<'s>| before.rules.as_ref() == rules && before.leases == leases;
        if let Some(same) = before.get(at).filter(is_same) {
            found.push(same.clone());
            continue;
        }
        let mut composed = Composed {
            rules: rules.cloned(),
            leases,
            store: Arc::clone(store),
            around: None,
            #[cfg(feature = "lending")]
            borrowing: None,
            shadows: Vec::new(),
        };
        if let Some(compose) = compose {
            compose(&mut composed, stores)?;
        }
        found.push(composed);
    }
    Ok(found)
}

/// Puts around a store what its rules and leases say.
pub(super) fn compose<'s>(composed: &mut Composed<'s>, stores: &Stores<'s>) -> Result<(), Error> {
    let rules = composed.rules.clone();
    if let Some(rules) = &rules {
        rules.put_fallback(composed, stores)?;
    }
    #[cfg(feature = "lending")]
    composed.put_borrowers()?;
    match rules {
        Some(rules) => rules.put_around(composed, stores),
        None => Ok(()),
    }
}

impl StoreRules {
    /// The path of a field.
    fn named(&self, field: &str) -> String {
        format!("stores.{}.{field}", self.name)
    }

    /// An error about a field.
    fn at(&self, field: &str, error: &Error) -> Error {
        Error::new(error.kind(), format!("{}: {error}", self.named(field)))
    }

    /// Puts a replacement around a store.
    #[cfg_attr(target_arch = "wasm32", expect(clippy::arc_with_non_send_sync, reason = "there is one thread"))]
    fn put_fallback<'s>(&self, composed: &mut Composed<'s>, stores: &Stores<'s>) -> Result<(), Error> {
        let Some(rules) = &self.fallback else { return Ok(()) };
        let backup = place(stores, &rules.store, &self.named("fallback"))?;
        let around = Fallback::by(composed.outermost(), rules.percent, backup);
        let around = around.map_err(|error| self.at("fallback", &error))?.at_most(rules.at_most).unobserved();
        composed.around = Some(Arc::new(around));
        Ok(())
    }

    /// Puts around a store, from the inside: the cache of its denials, the proposals, and what is asked first.
    #[cfg_attr(target_arch = "wasm32", expect(clippy::arc_with_non_send_sync, reason = "there is one thread"))]
    fn put_around<'s>(&self, composed: &mut Composed<'s>, stores: &Stores<'s>) -> Result<(), Error> {
        if let Some(CacheRules { hold, capacity }) = self.deny_cache {
            let around = DenyCache::new(composed.outermost()).hold(hold).capacity(capacity);
            composed.around = Some(Arc::new(around));
        }
        for rules in &self.shadows {
            let can = composed.capabilities();
            let placed = match can.dimensions {
                Dimensions::Grouped => rules.proposal.clone().place_by_key().ok(),
                _ => None,
            };
            let proposal = placed.unwrap_or_else(|| rules.proposal.clone());
            can.supports_policy(&proposal).map_err(|error| self.at("shadow", &error))?;
            let name = proposal.name().into();
            let shadow = Arc::new(Shadow::new(composed.outermost(), proposal));
            composed.around = Some(Arc::clone(&shadow) as Store<'s>);
            composed.shadows.push((name, shadow));
        }
        if let Some(rules) = &self.near {
            let near = place(stores, &rules.store, &self.named("near"))?;
            let tiered = Tiered::new(near, rules.policy.clone(), composed.outermost());
            composed.around = Some(Arc::new(tiered.map_err(|error| self.at("near", &error))?));
        }
        Ok(())
    }
}

impl<'s> Composed<'s> {
    /// What is asked for a decision.
    #[inline]
    pub(super) fn asked(&self) -> &(dyn ErasedLimiter + 's) {
        self.around.as_deref().unwrap_or(&*self.store.limiter)
    }

    /// Tells the store what it has decided at once. In a limiter around it, the store hears its own decisions.
    #[inline]
    pub(super) fn hear(&self, now: UnixMillis, decided: Option<&Result<Decision, Error>>) {
        if let (None, Some(decided)) = (&self.around, decided) {
            self.store.hear(now, decided.as_ref().map(Some));
        }
    }

    fn outermost(&self) -> Store<'s> {
        self.around.clone().unwrap_or_else(|| Arc::clone(&self.store) as Store<'s>)
    }

    /// Puts the borrowers of its limits around a store, outside of its replacement: they spend their loans while the store is down.
    #[cfg(feature = "lending")]
    #[cfg_attr(target_arch = "wasm32", expect(clippy::arc_with_non_send_sync, reason = "there is one thread"))]
    fn put_borrowers(&mut self) -> Result<(), Error> {
        let can = self.capabilities();
        // A store that neither borrows by itself nor lends is an error that names its rule.
        if !self.leases.is_empty() && can.lends && !can.borrows {
            let borrowing = Arc::new(Borrowing::new(self.outermost(), &self.leases)?);
            self.around = Some(Arc::clone(&borrowing) as Store<'s>);
            self.borrowing = Some(borrowing);
        }
        Ok(())
    }

    /// Has borrowers keep their questions for [`Composed::after`].
    pub(super) fn in_background(&self) {
        #[cfg(feature = "lending")]
        if let Some(borrowing) = &self.borrowing {
            borrowing.in_background(&self.store.name);
        }
    }

    /// What there is to tell the store.
    #[cfg(feature = "lending")]
    pub(super) fn has_to_tell(&self, now: UnixMillis) -> ToTell {
        self.borrowing.as_ref().map_or(ToTell::Nothing, |borrowing| borrowing.has_to_tell(now))
    }

    /// Tells it.
    #[cfg(feature = "lending")]
    pub(super) async fn tell(&self, now: UnixMillis) {
        if let Some(borrowing) = &self.borrowing {
            borrowing.tell(now).await;
        }
    }

    pub(super) const fn rules(&self) -> Option<&StoreRules> {
        self.rules.as_ref()
    }

    /// Whether another limit is tried in place of this one.
    pub(super) fn has_proposal(&self, limit: &str) -> bool {
        self.shadows.iter().any(|(name, _)| **name == *limit)
    }

    /// What each proposal would have changed, by the name of the limit.
    pub(super) fn shadows(&self) -> impl Iterator<Item = (Box<str>, ShadowCounts)> {
        self.shadows.iter().map(|(name, shadow)| (name.clone(), shadow.counts()))
    }
}

/// Checks that a limit with a lease can be decided from loans of a store.
pub(super) fn lends(limit: &str, Watched { name, limiter: store, .. }: &Watched<'_>) -> Result<(), Error> {
    let refused = |what: String| Err(Error::new(ErrorKind::Unsupported, format!("limit \"{limit}\": {what}")));
    let can = store.erased_capabilities();
    match can.lends {
        lends if can.borrows || (lends && cfg!(feature = "lending")) => Ok(()),
        true => refused("this build cannot borrow; enable the feature `lending` of tidegate-core".into()),
        false => refused(format!(
            "the store \"{name}\" does not lend; delete lease, or count in a store that does, such as Redis or Durable Objects"
        )),
    }
}

/// The store with this name.
fn place<'s>(stores: &Stores<'s>, wanted: &str, field: &str) -> Result<Store<'s>, Error> {
    let found = stores.iter().find(|store| *store.name == *wanted);
    found.map(|store| Arc::clone(store) as Store<'s>).ok_or_else(|| {
        let known: Vec<&str> = stores.iter().map(|store| &*store.name).collect();
        unknown_store(field, wanted, &known)
    })
}

/// An error about a store that a gate does not have.
pub(super) fn unknown_store(field: &str, name: &str, known: &[&str]) -> Error {
    Error::invalid(format!("{field}: there is no store {}; {}", Quoted(name), Suggestion::of(name, known)))
}

/// Such as `, replaced by memory (10 % of each limit) while it is down, denials cached for 10000 ms`.
impl fmt::Display for StoreRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(FallbackRules { store, percent, at_most }) = &self.fallback {
            write!(f, ", replaced by {store} ({percent} % of each limit, for {at_most}) while it is down")?;
        }
        if let Some(CacheRules { hold, .. }) = self.deny_cache {
            write!(f, ", denials cached for {hold}")?;
        }
        for ShadowRules { limit, proposal } in &self.shadows {
            write!(f, ", {limit} tried in place of {}", proposal.name())?;
        }
        match &self.near {
            Some(NearRules { store, policy }) => write!(f, ", after {store} by {}", policy.name()),
            None => Ok(()),
        }
    }
}
