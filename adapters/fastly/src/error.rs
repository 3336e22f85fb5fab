//! What can go wrong, in the core's kinds.

use tidegate_core::{Error, ErrorKind, Millis, Quota};

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::Invalid, message)
}

/// A window that Edge Rate Limiting does not offer.
pub(crate) fn window(window: Millis) -> Error {
    invalid(format!(
        "window: Edge Rate Limiting cannot average over {window}; write 1 s, 10 s or 60 s, or take Kv for any window"
    ))
}

/// A limit that Edge Rate Limiting cannot be told.
pub(crate) fn limit(limit: u64, seconds: u64, least: u64, most: u64) -> Error {
    let (least, most) = (least * seconds, most * seconds);
    invalid(format!(
        "limit: Edge Rate Limiting counts whole requests a second, and cannot count {limit} in {seconds} s; write a \
         multiple of {seconds} from {least} to {most}, or take Kv for any limit"
    ))
}

/// A penalty that Edge Rate Limiting does not offer.
pub(crate) fn penalty(penalty: Millis) -> Error {
    invalid(format!(
        "penalty: {penalty} is none that Edge Rate Limiting knows; write whole minutes from 60 s to 3600 s"
    ))
}

/// A policy that is not the one a limiter was made with.
pub(crate) fn another_policy(quota: &Quota) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "this limiter was made with limit {} and window {}: check a policy of one sliding_window quota with these, \
             or make another limiter for the other policy",
            quota.rule().limit(),
            quota.rule().window()
        ),
    )
}

/// A store that the service may not use.
#[cfg(target_os = "wasi")]
pub(crate) fn not_linked(name: &str) -> Error {
    invalid(format!(
        "KV Store {name:?} is not linked to this service; link it with `fastly resource-link create`, and for \
         the local server write in fastly.toml: [local_server.kv_stores] {name} = []"
    ))
}

/// KV Store or Edge Rate Limiting, failing.
#[cfg(target_os = "wasi")]
pub(crate) fn failed(what: &str, error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Unavailable, format!("{what}: {error}")).with_source(error)
}
