//! The layer and its settings.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{Extensions, HeaderMap, StatusCode, Uri};
use tidegate_core::gate::{Gate, Headers, Pending, Prepared, Request, Verdict};
use tidegate_core::internal::begin;
use tidegate_core::lending::PAUSE;
use tidegate_core::{Error, ErrorKind, Key, UnixMillis};
use tokio::runtime::Handle;
use tower_layer::Layer;

use crate::log::Log;
use crate::token::token;
use crate::{ApiKey, BotScore, Ja4, Limits, RateLimit, Subject, Tier, UsageService};

/// Limits the requests to a service by the rules of a [`Gate`]. See the [crate documentation](crate) for an example.
///
/// The sender of a request is the first of these that is present:
///
/// 1. a [`Key`] in the request's extensions, inserted by an earlier layer;
/// 2. a [`Subject`] there, inserted by a layer that verified a token;
/// 3. the subject of a valid token, if the rules have the table `tokens`;
/// 4. an [`ApiKey`] there, inserted by a layer that validated it, or one that the rules know;
/// 5. the client's address, from where the gate's [`ClientIpSource`](tidegate_core::ClientIpSource) reads it.
///
/// If the gate reads the address from the connection, and a request has none, the layer answers with a 500 and logs what is
/// missing. Otherwise requests with none of these share one key. Insert a subject, an API key or a [`Tier`] only after verifying it: a client that
/// can choose one gets a new limit with each request.
#[derive(Clone)]
pub struct RateLimitLayer(Arc<Settings>);

#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) gate: Arc<Gate<'static>>,
    pub(crate) clock: Arc<dyn Fn() -> UnixMillis + Send + Sync>,
    peer: fn(&Extensions) -> Option<IpAddr>,
    original_uri: fn(&Extensions) -> Option<&Uri>,
    cost: Option<OfHead<u64>>,
    estimate: Option<OfHead<u64>>,
    keys: Vec<(Box<str>, OfHead<Option<Key>>)>,
    exempt: Option<OfHead<bool>>,
    on_verdict: Option<OnVerdict>,
    refund_on: Option<fn(StatusCode) -> bool>,
    tells_responses: bool,
    pub(crate) log: Arc<Log>,
}

type OfHead<T> = Arc<dyn Fn(&Parts) -> T + Send + Sync>;
type OnVerdict = Arc<dyn Fn(&Parts, &Verdict) + Send + Sync>;

impl RateLimitLayer {
    /// A layer of a gate, which may be shared: with other layers, or to [reload](Gate::reload) its rules.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) if the gate reads the client's address from the
    /// [connection](tidegate_core::ClientIpSource::reads_peer): see [`RateLimitLayer::with_peer`].
    pub fn new(gate: impl Into<Arc<Gate<'static>>>) -> Result<Self, Error> {
        let gate = gate.into();
        if gate.client_ip().reads_peer() {
            let message = "gate: it takes the client's address from the connection; call RateLimitLayer::with_peer, for \
                axum with |extensions| extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip())";
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        Ok(Self::with_peer(gate, |_| None))
    }

    /// A layer of a gate that reads the client's address from the connection, as with
    /// [`Platform::Direct`](tidegate_core::Platform::Direct). Servers store it in the request's extensions, each in its own
    /// type.
    ///
    /// Without that, all clients would share one key. So a request that counts by its address and has none is answered with a
    /// 500, and the layer logs an error, at most one a second. Serve an axum router with
    /// `app.into_make_service_with_connect_info::<SocketAddr>()`.
    ///
    /// ```
    /// # use std::net::SocketAddr;
    /// # use axum::extract::ConnectInfo;
    /// # use tidegate_tower::{Gate, RateLimitLayer};
    /// # fn of(gate: Gate<'static>) -> RateLimitLayer {
    /// // axum stores it as `ConnectInfo`.
    /// RateLimitLayer::with_peer(gate, |extensions| {
    ///     extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip())
    /// })
    /// # }
    /// ```
    #[must_use]
    pub fn with_peer(gate: impl Into<Arc<Gate<'static>>>, peer: fn(&Extensions) -> Option<IpAddr>) -> Self {
        let gate = gate.into();
        // Each request asks for the next loans when its response is made: see `AsksAhead`.
        gate.in_background();
        Self(Arc::new(Settings {
            gate,
            clock: Arc::new(UnixMillis::now),
            peer,
            original_uri,
            cost: None,
            estimate: None,
            keys: Vec::new(),
            exempt: None,
            on_verdict: None,
            refund_on: None,
            tells_responses: false,
            log: Arc::default(),
        }))
    }

    /// Sets the cost of each request, in place of the rule's.
    #[must_use]
    pub fn cost(self, cost: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.cost = Some(Arc::new(cost)))
    }

    /// Charges each request an estimate of its cost. The service finds a [`Charge`](crate::Charge) in the request's extensions,
    /// with which it settles the actual cost. Without a settlement, the estimate stays charged.
    ///
    /// `estimate` may use whatever the client sent: a request that costs more than its estimate is charged the rest when
    /// it is settled. It must not return 0. The layer then rejects the request with a 503, as after any error that is not
    /// a store failure.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) if a rule's store supports no costs or no settlements.
    pub fn estimate(self, estimate: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Result<Self, Error> {
        self.0.gate.can_settle()?;
        Ok(self.with(|settings| settings.estimate = Some(Arc::new(estimate))))
    }

    /// Sets the key of each request in a [dimension](tidegate_core::gate::Rules#dimensions) that only the service knows.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) if the gate's rules do not declare the dimension.
    pub fn key(
        self,
        dimension: &str,
        key: impl Fn(&Parts) -> Option<Key> + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        self.0.gate.rules().declares(dimension)?;
        Ok(self.with(|settings| settings.keys.push((dimension.into(), Arc::new(key)))))
    }

    /// Sets where the URI is that arrived, for a router that removes its prefix from the URI before the layer sees it. Without that, a rule
    /// for `/api/login` does not apply to a router that is nested at `/api` and sees `/login`.
    ///
    /// With the feature `axum`, which is on by default, the layer finds that of axum 0.8 itself. Set it for another version of axum, and for
    /// other frameworks whose nested routers change the URI.
    ///
    /// ```
    /// # use tidegate_tower::{Gate, RateLimitLayer};
    /// # fn of(gate: Gate<'static>) -> Result<RateLimitLayer, tidegate_tower::Error> {
    /// use axum::extract::OriginalUri;
    /// let layer = RateLimitLayer::new(gate)?;
    /// Ok(layer.original_uri(|extensions| extensions.get::<OriginalUri>().map(|uri| &uri.0)))
    /// # }
    /// ```
    #[must_use]
    pub fn original_uri(self, original_uri: fn(&Extensions) -> Option<&Uri>) -> Self {
        self.with(|settings| settings.original_uri = original_uri)
    }

    /// Sets which requests are not limited, besides those that the rules exempt.
    #[must_use]
    pub fn exempt(self, exempt: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.exempt = Some(Arc::new(exempt)))
    }

    /// Sets a function that is called with each verdict, for metrics.
    #[must_use]
    pub fn on_verdict(self, on_verdict: impl Fn(&Parts, &Verdict) + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.on_verdict = Some(Arc::new(on_verdict)))
    }

    /// Inserts the [`Verdict`](crate::Verdict) into the extensions of every response, for an outer layer that logs or counts. By default, those of a
    /// refusal have it.
    #[must_use]
    pub fn verdict_in_responses(self) -> Self {
        self.with(|settings| settings.tells_responses = true)
    }

    /// Cancels the charge of a request to which the service responds with one of these status codes. A service that returns an
    /// error or panics keeps the charge.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) if a rule's store supports no settlements.
    pub fn refund_on(self, refund_on: fn(StatusCode) -> bool) -> Result<Self, Error> {
        self.0.gate.can_settle()?;
        Ok(self.with(|settings| settings.refund_on = Some(refund_on)))
    }

    /// A service that answers with what the sender of a request has used of its limits; see [`UsageService`]. Set all else before.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) if a rule's store cannot tell.
    pub fn usage(&self) -> Result<UsageService, Error> {
        self.0.gate.can_tell_usage()?;
        Ok(UsageService::new(Arc::clone(&self.0)))
    }

    /// Sets the clock, for tests on virtual time. The default is the system's clock.
    #[must_use]
    pub fn clock(self, clock: impl Fn() -> UnixMillis + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.clock = Arc::new(clock))
    }

    fn with(mut self, set: impl FnOnce(&mut Settings)) -> Self {
        set(Arc::make_mut(&mut self.0));
        self
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> Self::Service {
        RateLimit::new(inner, Arc::clone(&self.0))
    }
}

impl Settings {
    pub(crate) fn is_exempt(&self, head: &Parts) -> bool {
        self.exempt.as_ref().is_some_and(|exempt| exempt(head))
    }

    pub(crate) fn tell(&self, head: &Parts, verdict: &Verdict) {
        if let Some(notice) = verdict.notice() {
            notice.log();
        }
        if let Some(on_verdict) = &self.on_verdict {
            on_verdict(head, verdict);
        }
    }

    /// Has the gate ask for the loans of later requests, in a task of its own, when what is returned is dropped. If the server drops
    /// it with its request, that task finishes what the request has asked.
    pub(crate) fn ask_ahead(self: &Arc<Self>, pending: &Pending) -> Option<AsksAhead> {
        let runtime = if pending.has_lease() { Handle::try_current().ok()? } else { return None };
        Some(AsksAhead { settings: Arc::clone(self), runtime, is_decided: false })
    }

    pub(crate) const fn estimates(&self) -> bool {
        self.estimate.is_some()
    }

    pub(crate) const fn tells_responses(&self) -> bool {
        self.tells_responses
    }

    pub(crate) fn refunds(&self, status: StatusCode) -> bool {
        self.refund_on.is_some_and(|refund_on| refund_on(status))
    }

    /// What applies to a request, or its verdict, if that takes no time.
    pub(crate) fn prepare(&self, head: &Parts) -> Prepared {
        self.on(head, |request, lacks_peer| {
            let is_priced = self.cost.is_some() || self.estimates() || self.refund_on.is_some();
            if !lacks_peer && !is_priced {
                return self.gate.check_at_once(&request, &*self.clock);
            }
            let prepared = self.gate.prepare(&request);
            if lacks_peer && matches!(&prepared, Prepared::Pending(pending) if pending.lacks_address()) {
                let message = "peer: the request has no address of its connection";
                return Prepared::Decided(Verdict::misconfigured(Error::new(ErrorKind::Invalid, message)));
            }
            prepared
        })
    }

    /// The keys of a request that only the service knows.
    fn keys(&self, head: &Parts) -> Vec<(&str, Key)> {
        self.keys.iter().filter_map(|(dimension, key)| Some((&**dimension, key(head)?))).collect()
    }

    /// Calls a function with what the gate reads of a request, and whether the address of its connection is read and missing.
    pub(crate) fn on<T>(&self, head: &Parts, call: impl FnOnce(Request<'_>, bool) -> T) -> T {
        let keys = if self.keys.is_empty() { Vec::new() } else { self.keys(head) };
        let keys: Vec<(&str, &Key)> = keys.iter().map(|(dimension, key)| (*dimension, key)).collect();
        let fields = Fields(&head.headers);
        let uri = (self.original_uri)(&head.extensions).unwrap_or(&head.uri);
        let peer = (self.peer)(&head.extensions);
        let mut request =
            Request::new(head.method.as_str(), uri.path(), &fields, (self.clock)()).peer(peer).keys(&keys);
        if let Some(host) = uri.host() {
            request = request.with_host(host);
        }
        if let Some(key) = head.extensions.get::<Key>() {
            request = request.key(key);
        }
        if let Some(Subject(subject)) = head.extensions.get() {
            request = request.subject(subject);
        }
        if let Some(ApiKey(secret)) = head.extensions.get() {
            request = request.api_key(secret);
        }
        if let Some(Tier(tier)) = head.extensions.get() {
            request = request.tier(tier);
        }
        if let Some(BotScore(score)) = head.extensions.get() {
            request = request.bot_score(*score);
        }
        if let Some(Ja4(fingerprint)) = head.extensions.get() {
            request = request.ja4(fingerprint);
        }
        let limits: Vec<(&str, u64)> = match head.extensions.get() {
            Some(Limits(limits)) => limits.iter().map(|(name, number)| (name.as_str(), *number)).collect(),
            None => Vec::new(),
        };
        let lacks_peer = peer.is_none() && self.gate.client_ip().reads_peer();
        if lacks_peer {
            self.log.without_peer(request.now());
        }
        call(request.limits(&limits), lacks_peer)
    }

    /// Sets the cost of a request, and the token of its charge if it may be settled.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for an estimate of zero: stores do not remember a charge of nothing.
    pub(crate) fn price(&self, pending: &mut Pending, head: &Parts) -> Result<(), Error> {
        if let Some(cost) = self.estimate.as_ref().or(self.cost.as_ref()) {
            let cost = cost(head);
            if cost == 0 && self.estimates() {
                return Err(Error::new(ErrorKind::Invalid, "estimate: 0 charges nothing; return at least 1"));
            }
            pending.set_cost(cost);
        }
        let settles_later = self.estimates() || pending.estimates() || self.refund_on.is_some();
        if settles_later {
            pending.settle_later();
        }
        if settles_later || pending.needs_token() {
            pending.set_token(token()?);
        }
        Ok(())
    }
}

/// Asks for the loans of later requests when it is dropped.
pub(crate) struct AsksAhead {
    settings: Arc<Settings>,
    runtime: Handle,
    /// Whether the request that it is for was decided. Otherwise it was dropped, perhaps along with its runtime.
    pub(crate) is_decided: bool,
}

impl Drop for AsksAhead {
    fn drop(&mut self) {
        let settings = Arc::clone(&self.settings);
        let work = async move {
            let pause = async { tokio::time::sleep(Duration::from_millis(PAUSE.get())).await };
            settings.gate.after(|| (settings.clock)(), pause).await;
        };
        // The timer of the pause is that of the runtime, also where a request is dropped outside of it.
        let _inside = self.runtime.enter();
        if !self.is_decided {
            self.runtime.spawn(work);
        } else if let Some(rest) = begin(work) {
            self.runtime.spawn(rest);
        }
    }
}

/// The URI that arrived, if a router of axum has noted it. A nested router removes its prefix from the request's own.
#[cfg(feature = "axum")]
fn original_uri(extensions: &Extensions) -> Option<&Uri> {
    extensions.get::<axum::extract::OriginalUri>().map(|uri| &uri.0)
}

#[cfg(not(feature = "axum"))]
const fn original_uri(_: &Extensions) -> Option<&Uri> {
    None
}

/// The header fields of a request, for the gate.
struct Fields<'a>(&'a HeaderMap);

impl Headers for Fields<'_> {
    fn values(&self, name: &str, read: &mut dyn FnMut(&[u8])) {
        for value in self.0.get_all(name) {
            read(value.as_bytes());
        }
    }
}

impl fmt::Debug for RateLimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RateLimitLayer(…)")
    }
}
