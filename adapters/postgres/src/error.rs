//! Maps the database's errors to the core's kinds.

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;

use tidegate_core::{Error, ErrorKind, Millis};
use tokio_postgres::error::SqlState;

use crate::statement::CREATE_TABLE;

/// What the operator must do if there is no table.
const NO_TABLE: &str =
    "create the table `tidegate`: Postgres::create_table, or the statement in the README of tidegate-postgres";
const OTHER_TABLE: &str = "the table `tidegate` is not the one in the README of tidegate-postgres; rename or drop it, or set another search_path";
const PREPARED: &str = "a pooler loses prepared statements: set prepared(false)";
const READ_ONLY: &str = "this database takes no writes; connect to the primary, with target_session_attrs=read-write";

/// Maps an error of a statement, for [`Connections`](crate::Connections) of other pools.
#[must_use]
pub fn from_postgres(error: tokio_postgres::Error) -> Error {
    let Some(code) = error.code() else { return lost(error) };
    let said = error.as_db_error().map_or("", |error| error.message()).to_owned();
    let (kind, advice) = if is_crowded(code, &said) { (ErrorKind::Contended, None) } else { kind_of(code) };
    let code = code.code();
    let charged =
        if kind == ErrorKind::Unavailable { "the request may have been charged" } else { "nothing was charged" };
    let message = match advice {
        Some(NO_TABLE) => format!("postgres: {said} ({code}); nothing was charged. Create it:\n{CREATE_TABLE};"),
        Some(OTHER_TABLE) => {
            format!("postgres: {said} ({code}); nothing was charged. {OTHER_TABLE}. Tidegate needs:\n{CREATE_TABLE};")
        }
        Some(advice) => format!("postgres: {said} ({code}); {charged}; {advice}"),
        None => format!("postgres: {said} ({code}); {charged}"),
    };
    let mapped = Error::new(kind, message).with_source(error);
    advice.into_iter().fold(mapped, Error::with_advice)
}

/// The kind for the error's code (<https://www.postgresql.org/docs/current/errcodes-appendix.html>), and what to change.
fn kind_of(code: &SqlState) -> (ErrorKind, Option<&'static str>) {
    match code.code() {
        "42P01" => (ErrorKind::Refused, Some(NO_TABLE)),
        // A column or an operator that is not there, another type, no primary key, and a plan for what the table was.
        "42703" | "42804" | "42883" | "42846" | "42P10" | "42P18" | "42809" | "0A000" | "23502" => {
            (ErrorKind::Refused, Some(OTHER_TABLE))
        }
        "26000" | "42P05" => (ErrorKind::Refused, Some(PREPARED)),
        "25006" => (ErrorKind::Unavailable, Some(READ_ONLY)),
        // The server is up. Deadlocks cannot be among these statements, of which each locks one row, or waits for none.
        "40001" | "40P01" | "55P03" | "57014" | "53300" | "53400" => (ErrorKind::Contended, None),
        "57P01" | "57P02" | "57P03" | "57P05" => (ErrorKind::Unavailable, None),
        code if code.starts_with("08") || code.starts_with("58") => (ErrorKind::Unavailable, None),
        _ => (ErrorKind::Refused, None),
    }
}

/// Whether a pooler has too many clients, or too many that wait, which clients can cause. PgBouncer says so as it says that the server is down.
fn is_crowded(code: &SqlState, said: &str) -> bool {
    let crowded = ["no more connections allowed", "query_wait_timeout"];
    match code.code() {
        "08P01" => crowded.iter().any(|crowded| said.starts_with(crowded)),
        code => code == "08004",
    }
}

/// The connection ended before the answer came.
fn lost(error: tokio_postgres::Error) -> Error {
    let is_broken = error.is_closed() || io_error(&error).is_some();
    let (kind, what) = if is_broken {
        (ErrorKind::Unavailable, "the connection was lost before the answer; the request may have been charged")
    } else {
        (ErrorKind::Corrupt, "the answer is not one of PostgreSQL; what listens there?")
    };
    Error::new(kind, format!("postgres: {what}")).with_source(error)
}

/// The connection could not be opened.
pub(crate) fn not_connected(error: tokio_postgres::Error) -> Error {
    if error.code().is_some() {
        return from_postgres(error);
    }
    if let Some(known) = tidegate_remote::not_connected("postgres", &error) {
        return known.with_source(error);
    }
    // The client has no other mark of it.
    if error.source().is_some_and(|cause| cause.to_string() == "server does not support TLS") {
        const NO_TLS: &str = "the server offers no TLS: set ssl = on there; sslmode=require sends nothing without";
        return Error::new(
            ErrorKind::Refused,
            format!("postgres: cannot connect, because {NO_TLS}; nothing was charged"),
        )
        .with_source(error);
    }
    let (kind, what) = if io_error(&error).is_some() || error.is_closed() {
        (ErrorKind::Unavailable, "cannot connect; nothing was charged")
    } else {
        (ErrorKind::Refused, "cannot connect with these settings; nothing was charged")
    };
    Error::new(kind, format!("postgres: {what}")).with_source(error)
}

fn io_error(error: &tokio_postgres::Error) -> Option<&io::Error> {
    std::iter::successors(error.source(), |&cause| cause.source()).find_map(|cause| cause.downcast_ref())
}

/// Whether another one has created the same at this moment.
pub(crate) fn is_duplicate(error: &Error) -> bool {
    let failed = error.source().and_then(|source| source.downcast_ref::<tokio_postgres::Error>());
    let created = [SqlState::UNIQUE_VIOLATION, SqlState::DUPLICATE_TABLE, SqlState::DUPLICATE_OBJECT];
    failed.and_then(tokio_postgres::Error::code).is_some_and(|code| created.contains(code))
}

pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Unavailable, "postgres: the application's connection is closed; nothing was charged")
}

#[cfg(feature = "deadpool")]
pub(crate) fn no_connection_of_pool(error: deadpool_postgres::PoolError, deadline: Millis) -> Error {
    use deadpool_postgres::{PoolError, TimeoutType};
    match error {
        PoolError::Backend(error) => not_connected(error),
        PoolError::Timeout(TimeoutType::Wait) => {
            let message =
                format!("postgres: no connection of the pool was free within {deadline}; nothing was charged");
            Error::new(ErrorKind::Contended, message)
        }
        PoolError::Timeout(_) => connect_timeout(deadline),
        other => Error::new(ErrorKind::Refused, "postgres: the pool has no connection; nothing was charged")
            .with_source(other),
    }
}

pub(crate) fn timeout(deadline: Millis) -> Error {
    let message = format!("postgres: no answer within {deadline}; the request may have been charged");
    Error::new(ErrorKind::Timeout, message)
}

pub(crate) fn connect_timeout(deadline: Millis) -> Error {
    Error::new(ErrorKind::Unavailable, format!("postgres: no connection within {deadline}; nothing was charged"))
}

/// The error of a statement, for each of those that have waited for it.
pub(crate) fn shared(error: &Arc<Error>) -> Error {
    let shared = Error::new(error.kind(), error.to_string()).with_source(Arc::clone(error));
    error.advice().into_iter().fold(shared, Error::with_advice)
}

/// Nobody makes the write that waits, because the runtime ends.
pub(crate) fn ended() -> Error {
    Error::new(
        ErrorKind::Contended,
        "postgres: the call has ended without an answer; the request may have been charged",
    )
}

/// The answer is not one of the statement's.
pub(crate) fn nonsense() -> Error {
    Error::new(ErrorKind::Corrupt, format!("postgres: the answer is not one to the statement; {OTHER_TABLE}"))
        .with_advice(OTHER_TABLE)
}

#[cfg(test)]
mod tests {
    use tidegate_core::ErrorKind;
    use tokio_postgres::error::SqlState;

    use super::{is_crowded, kind_of};

    #[test]
    fn a_pooler_that_is_full_is_no_server_that_is_down() {
        for (said, crowded) in [
            ("no more connections allowed (max_client_conn)", true),
            ("query_wait_timeout", true),
            ("server login has been failing, try again later (server_login_retry)", false),
            ("", false),
        ] {
            assert_eq!(is_crowded(&SqlState::PROTOCOL_VIOLATION, said), crowded, "{said}");
            assert!(!is_crowded(&SqlState::CONNECTION_FAILURE, said));
        }
        assert!(is_crowded(&SqlState::SQLSERVER_REJECTED_ESTABLISHMENT_OF_SQLCONNECTION, "too many"));
    }

    #[test]
    fn an_error_is_of_a_kind_by_its_code() {
        for (code, kind) in [
            (SqlState::T_R_SERIALIZATION_FAILURE, ErrorKind::Contended),
            (SqlState::T_R_DEADLOCK_DETECTED, ErrorKind::Contended),
            (SqlState::TOO_MANY_CONNECTIONS, ErrorKind::Contended),
            (SqlState::QUERY_CANCELED, ErrorKind::Contended),
            (SqlState::ADMIN_SHUTDOWN, ErrorKind::Unavailable),
            (SqlState::CANNOT_CONNECT_NOW, ErrorKind::Unavailable),
            (SqlState::CONNECTION_FAILURE, ErrorKind::Unavailable),
            (SqlState::READ_ONLY_SQL_TRANSACTION, ErrorKind::Unavailable),
            (SqlState::UNDEFINED_TABLE, ErrorKind::Refused),
            (SqlState::INVALID_PASSWORD, ErrorKind::Refused),
            (SqlState::INSUFFICIENT_PRIVILEGE, ErrorKind::Refused),
            (SqlState::DISK_FULL, ErrorKind::Refused),
            // An error that nobody has thought of opens no gate.
            (SqlState::DIVISION_BY_ZERO, ErrorKind::Refused),
        ] {
            assert_eq!(kind_of(&code).0, kind, "{code:?}");
        }
    }
}
