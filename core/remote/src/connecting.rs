//! Why a connection could not be opened, where the operating system or TLS has told it.

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;

use tidegate_core::{Error, ErrorKind};

/// The error of a call to the store `name` for which no connection could be opened, if `cause` is one of these: this process or its
/// machine has too many files open, or the server's certificate is not trusted.
#[must_use]
pub fn not_connected(name: &str, cause: &(dyn StdError + 'static)) -> Option<Error> {
    std::iter::successors(Some(cause), |&error| error.source()).filter_map(of_system).find_map(|error| {
        let (kind, why) = known(error)?;
        Some(Error::new(kind, format!("{name}: cannot connect, because {why}; nothing was charged")))
    })
}

fn known(error: &io::Error) -> Option<(ErrorKind, String)> {
    /// `ENFILE` and `EMFILE`, or `WSAEMFILE`.
    const CODES: &[i32] = if cfg!(windows) { &[10_024] } else { &[23, 24] };
    if error.raw_os_error().is_some_and(|code| CODES.contains(&code)) {
        return Some((ErrorKind::Contended, "too many files are open (ulimit -n)".to_owned()));
    }
    #[cfg(all(feature = "rustls", not(target_arch = "wasm32")))]
    if let Some(why) = crate::trust::distrusted(error) {
        return Some((ErrorKind::Unavailable, why));
    }
    None
}

fn of_system<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a io::Error> {
    // The package `redis` shares its causes.
    let shared = || error.downcast_ref::<Arc<dyn StdError + Send + Sync>>()?.downcast_ref();
    error.downcast_ref().or_else(shared)
}

#[cfg(test)]
mod tests {
    use std::error::Error as StdError;
    use std::io;
    use std::sync::Arc;

    use tidegate_core::ErrorKind;

    use super::not_connected;

    #[cfg(unix)]
    #[test]
    fn too_many_open_files_are_contention() {
        let error = io::Error::from_raw_os_error;
        assert_eq!(not_connected("redis", &error(24)).map(|error| error.kind()), Some(ErrorKind::Contended));
        assert!(not_connected("redis", &error(111)).is_none());
        assert!(not_connected("redis", &io::Error::other("Too many open files (os error 24)")).is_none());
        // As the package `redis` has its causes.
        let shared: Arc<dyn StdError + Send + Sync> = Arc::new(error(24));
        assert!(not_connected("redis", &shared).is_some());
    }

    #[cfg(feature = "rustls")]
    #[test]
    fn a_certificate_that_is_not_trusted_is_named() {
        use tokio_rustls::rustls::{CertificateError, Error};

        let error = io::Error::other(Error::InvalidCertificate(CertificateError::UnknownIssuer));
        let told = not_connected("postgres", &error).map(|error| (error.kind(), error.to_string()));
        let text = "postgres: cannot connect, because its certificate is not trusted (UnknownIssuer): name the authority's \
            certificate in SSL_CERT_FILE, and write the host that it is for; nothing was charged";
        assert_eq!(told, Some((ErrorKind::Unavailable, text.to_owned())));
        assert!(not_connected("postgres", &io::Error::other(Error::DecryptError)).is_none());
    }
}
