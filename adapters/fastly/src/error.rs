//! The errors of this adapter, with the core's kinds.

use tidegate_core::{Error, ErrorKind, Millis, Quota};

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::Invalid, message)
}

/// A window that Edge Rate Limiting does not offer.
pub(crate) fn window(window: Millis) -> Error {
    invalid(format!(
        "window: Edge Rate Limiting cannot average over {window}; write 1 s, 10 s or 60 s, or use Kv for any other window"
    ))
}

/// A limit that Edge Rate Limiting cannot express.
pub(crate) fn limit(limit: u64, seconds: u64, least: u64, most: u64) -> Error {
    let (least, most) = (least * seconds, most * seconds);
    invalid(format!(
        "limit: Edge Rate Limiting counts whole requests per second, so it cannot count {limit} in {seconds} s; write a \
         multiple of {seconds} from {least} to {most}, or use Kv for any other limit"
    ))
}

/// A penalty that Edge Rate Limiting does not offer.
pub(crate) fn penalty(penalty: Millis) -> Error {
    invalid(format!("penalty: Edge Rate Limiting does not offer {penalty}; write whole minutes from 60 s to 3600 s"))
}

/// A policy other than the one that the limiter was built with.
pub(crate) fn another_policy(quota: &Quota) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "this limiter was built with limit {} and window {}; check a policy with one sliding_window quota of that limit \
             and window, or build another limiter",
            quota.rule().limit(),
            quota.rule().window()
        ),
    )
}

/// A store that is not linked to the service.
#[cfg(target_os = "wasi")]
pub(crate) fn not_linked(name: &str) -> Error {
    invalid(format!(
        "KV Store {name:?} is not linked to this service; link it with `fastly resource-link create`, and for \
         the local server write in fastly.toml: [local_server.kv_stores] {name} = []"
    ))
}

/// A failure of KV Store or Edge Rate Limiting.
#[cfg(target_os = "wasi")]
pub(crate) fn failed(what: &str, error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Unavailable, format!("{what}: {error}")).with_source(error)
}

/// KV Store refuses more requests for now.
#[cfg(target_os = "wasi")]
pub(crate) fn busy(what: &str) -> Error {
    Error::new(ErrorKind::Contended, format!("{what}: too many requests; nothing was charged; retry"))
}
