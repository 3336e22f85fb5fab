//! The conformance suite's routes.

use fastly::erl::ERL;
use fastly::{Request, Response};
use pollster::block_on;
use tidegate_core::store::{Versioned, VersionedLimiter};
use tidegate_core::{Capabilities, Error, ErrorKind, Limiter, Operation, Policy};
use tidegate_fastly::erl::{self, ErlLimiter};
use tidegate_guest_protocol::{Answer, Mode, Reply, Route, serve};

use crate::limiters;
use crate::losing::{self, Losing};
use crate::response::response;
use crate::settings::test_mode;

/// Whether a request is the suite's.
pub(crate) fn asks(request: &Request, path: &str) -> bool {
    path.starts_with("_tidegate/") && Mode::of(&test_mode()).admits(request.get_header_str(Mode::FIELD))
}

pub(crate) fn answer(store: &str, path: &str, request: Request) -> Result<Response, Error> {
    if path == "_tidegate/panic" {
        panic!("the suite asked for it");
    }
    let Some(route) = Route::of(&format!("/{path}")) else {
        return Ok(Response::from_body("not found\n").with_status(404));
    };
    let loses = request.contains_header(losing::FIELD);
    let body = request.into_body_bytes();
    let reply = match store {
        "erl" => block_on(serve(&AnyErl, route, &body)),
        _ => match limiters::kv() {
            Ok(limiter) if loses => answer_and_lose(limiter.store(), route, &body),
            Ok(limiter) => block_on(serve(&limiter, route, &body)),
            Err(error) => Reply::new(503, &Answer::Error((&error).into())),
        },
    };
    let fields = reply.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    Ok(response(reply.status, fields, reply.body))
}

/// Answers as if the store's answer to a write were lost.
fn answer_and_lose(store: &impl Versioned, route: Route, body: &[u8]) -> Reply {
    let limiter = VersionedLimiter::new(Losing::new(store)).attempts(limiters::TEST_ATTEMPTS);
    let mut reply = block_on(serve(&limiter, route, body));
    if limiter.store().has_lost() {
        reply.headers.push((losing::FIELD.into(), "1".into()));
    }
    reply
}

/// Edge Rate Limiting with the policy of each request.
struct AnyErl;

impl AnyErl {
    fn of(policy: &Policy) -> Result<ErlLimiter<ERL>, Error> {
        let rule = policy.quotas()[0].rule();
        let erl = limiters::erl_of(rule.limit(), rule.window());
        erl.map(|erl| erl.limiter()).map_err(|error| Error::new(ErrorKind::Unsupported, error.to_string()))
    }
}

impl Limiter for AnyErl {
    fn capabilities(&self) -> Capabilities {
        erl::CAPABILITIES
    }

    async fn apply(&self, operation: Operation<'_>) -> Result<tidegate_core::Reply, Error> {
        operation.verify(&erl::CAPABILITIES)?;
        Self::of(operation.policy())?.apply(operation).await
    }
}
