//! An app with routes, as users write it: a gate, and behind it a match on the segments of the path. KV Store counts.

use std::cell::RefCell;

use fastly::{Request, Response};
use tidegate_core::Limiter;
use tidegate_core::store::VersionedLimiter;
use tidegate_fastly::{ClientIpSource, Error, Gate, Platform, Rules, check, with_fields};
use tidegate_guest_protocol::routed::{ALL, CHARGED, RAN, ROUTED_RULES, Told, routes};

use crate::limiters;
use crate::losing::{self, Losing};
use crate::response::response;
use crate::settings::setting;

/// The rules, if the app is this one.
pub(crate) fn rules() -> Option<String> {
    setting("tidegate_routed", ROUTED_RULES)
}

pub(crate) fn answer(rules: &str, request: &Request) -> Response {
    let answer = limiters::kv().and_then(|limiter| match request.contains_header(losing::FIELD) {
        true => limited(rules, VersionedLimiter::new(Losing::new(limiter.store())), request),
        false => limited(rules, limiter, request),
    });
    answer.unwrap_or_else(|error| response(500, [], format!("{error}\n")))
}

fn limited(rules: &str, limiter: impl Limiter, request: &Request) -> Result<Response, Error> {
    let charged = RefCell::new(Vec::new());
    let limiter = Told::new(limiter, |limit: &str| charged.borrow_mut().push(limit.to_string()));
    let gate = Gate::new(Rules::parse("rules.json", rules)?, limiter, ClientIpSource::new(Platform::Fastly))?;
    match check(&gate, request) {
        Ok(pass) => {
            let route = route(rules, request.get_path())?;
            let fields = [(RAN, route.as_str()), (CHARGED, &charged.borrow().join(" "))];
            Ok(with_fields(response(200, fields, route.clone()), &pass.fields()))
        }
        Err(refused) => Ok(refused),
    }
}

/// The first route with the path.
fn route(rules: &str, path: &str) -> Result<String, Error> {
    let found = routes(rules)?.into_iter().find(|(_, route)| fits(&in_url(route), path));
    Ok(found.map_or_else(|| ALL.into(), |(name, _)| name))
}

/// A path as the platform's URLs have it: with an escape for each byte outside ASCII and for a quote.
fn in_url(path: &str) -> String {
    let byte = |byte: u8| match byte.is_ascii() && byte != b'"' {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    path.bytes().map(byte).collect()
}

fn fits(route: &str, path: &str) -> bool {
    let mut segments = path.split('/');
    for part in route.split('/') {
        match segments.next() {
            Some(_) if part == "*" => return true,
            Some(segment) if segment == part || part.starts_with('{') && !segment.is_empty() => {}
            _ => return false,
        }
    }
    segments.next().is_none()
}
