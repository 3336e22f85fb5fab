//! `ShouldRateLimit`.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use metrics::counter;
use tidegate_core::gate::{Gate, Joined, Prepared, Request, Rules, Verdict};
use tidegate_core::lending::PAUSE;
use tidegate_core::{Error, UnixMillis};
use tokio::sync::oneshot;
use tonic::Status;

use crate::proto::{Code, DescriptorStatus, RateLimitRequest, RateLimitResponse};
use crate::{request, rules, status};

/// Answers Envoy by the rules of a gate. Add it to a server of tonic's, beside other services; its clones are one.
///
/// ```no_run
/// use tidegate_envoy::{ClientIpSource, Gate, MemoryLimiter, Platform, RateLimitService, Rules};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let rules = Rules::parse("rules.toml", &std::fs::read_to_string("rules.toml")?)?;
/// let gate = Gate::new(rules, MemoryLimiter::new(), ClientIpSource::new(Platform::Direct))?;
/// let service = RateLimitService::new(gate)?;
/// // tonic::transport::Server::builder().add_service(service).serve(address).await?;
/// # let _ = service;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RateLimitService {
    gate: Arc<Gate<'static>>,
    is_shadow: bool,
}

impl RateLimitService {
    /// A service by the rules of this gate, whose source of client addresses is `ClientIpSource::new(Platform::Direct)`: Envoy tells the
    /// address in the entry `remote_address`. It has the gate ask for next loans [in the background](Gate::in_background).
    ///
    /// # Errors
    /// [`Invalid`](tidegate_core::ErrorKind::Invalid) if Envoy cannot ask about a rule, with its name and what to write.
    pub fn new(gate: impl Into<Arc<Gate<'static>>>) -> Result<Self, Error> {
        let gate = gate.into();
        rules::check(&gate.rules())?;
        gate.in_background();
        Ok(Self { gate, is_shadow: false })
    }

    /// Sets whether requests over a limit pass. They are counted as others, and their answer is `OK`. Off by default.
    #[must_use]
    pub const fn shadow(mut self, yes: bool) -> Self {
        self.is_shadow = yes;
        self
    }

    /// Replaces the rules, as [`Gate::reload`].
    ///
    /// # Errors
    /// As [`new`](Self::new) and [`Gate::reload`]. The old rules then remain.
    pub fn reload(&self, rules: Rules) -> Result<(), Error> {
        rules::check(&rules)?;
        self.gate.reload(rules)
    }

    /// The answer to a request.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for no domain, no descriptor or more than 64, a descriptor without an entry or with more than 64, and for hits
    /// that are to be given back.
    pub async fn answer(&self, request: &RateLimitRequest) -> Result<RateLimitResponse, Status> {
        if let Err(message) = request::check(request) {
            counter!("tidegate_envoy_requests_total", "code" => "invalid").increment(1);
            return Err(Status::invalid_argument(message));
        }
        let (mut statuses, mut verdicts) = self.decide(request).await?;
        let mut code = if matches!(verdicts.last(), Some(Verdict::Refuse(_))) { "over_limit" } else { "ok" };
        if code == "over_limit" && self.is_shadow {
            code = "shadow";
            statuses.iter_mut().for_each(|status| status.code = Code::Ok.into());
            verdicts.clear();
        }
        counter!("tidegate_envoy_requests_total", "code" => code).increment(1);
        Ok(status::response(statuses, &verdicts))
    }

    /// The status of each descriptor, and the verdicts by which the request passes if none refuses it.
    async fn decide(&self, request: &RateLimitRequest) -> Result<(Vec<DescriptorStatus>, Vec<Verdict>), Status> {
        let (mut statuses, mut pending, mut refused) = (Vec::new(), Vec::new(), Vec::new());
        for (place, descriptor) in request.descriptors.iter().enumerate() {
            if descriptor.limit.is_some() {
                counter!("tidegate_envoy_ignored_limits_total").increment(1);
            }
            let prepare = |asked: &Request<'_>| match self.gate.prepare(asked) {
                Prepared::Decided(Verdict::Pass(_)) if self.gate.rules().find(asked).is_some() => status::unlimited(),
                Prepared::Decided(Verdict::Pass(_)) => {
                    counter!("tidegate_envoy_unmatched_total").increment(1);
                    status::plain(Code::Ok)
                }
                Prepared::Decided(verdict) => {
                    refused = vec![verdict];
                    status::plain(Code::OverLimit)
                }
                Prepared::Pending(one) => {
                    pending.push((place, one));
                    status::plain(Code::Unknown)
                }
            };
            statuses.push(request::on(request, descriptor, UnixMillis::now(), prepare));
        }
        if !refused.is_empty() {
            return Ok((statuses, refused));
        }
        let mut joined = self.gate.join(pending);
        // Charges that are made one after another are returned if one is refused. A loan is spent without a token.
        if joined.len() > 1 && self.gate.can_settle().is_ok() {
            let tokens = joined.iter_mut().filter(|one| !one.pending.has_lease());
            tokens.for_each(|one| one.pending.set_token(token()));
        }
        let (joined, verdicts) = self.decide_each(joined).await?;
        for (joined, verdict) in joined.iter().zip(&verdicts) {
            for (place, span) in &joined.parts {
                statuses[*place] = status::decided(joined, verdict, span);
            }
        }
        Ok((statuses, verdicts))
    }

    /// Decides. With a lease, a task finishes what a request has asked that is dropped, and asks for the loans of later ones.
    async fn decide_each(&self, joined: Vec<Joined>) -> Result<(Vec<Joined>, Vec<Verdict>), Status> {
        let gate = Arc::clone(&self.gate);
        if !joined.iter().any(|one| one.pending.has_lease()) {
            let verdicts = gate.decide_each(&joined, &UnixMillis::now).await;
            return Ok((joined, verdicts));
        }
        let (tell, told) = oneshot::channel();
        tokio::spawn(async move {
            let verdicts = gate.decide_each(&joined, &UnixMillis::now).await;
            let _ = tell.send((joined, verdicts));
            gate.after(UnixMillis::now, tokio::time::sleep(Duration::from_millis(PAUSE.get()))).await;
        });
        told.await.map_err(|_| Status::internal("the decision ended early"))
    }
}

/// A text that no other charge has, of the standard library's source of random secrets.
fn token() -> String {
    let [high, low] = [(); 2].map(|()| RandomState::new().hash_one(0));
    format!("envoy-{high:016x}{low:016x}")
}
