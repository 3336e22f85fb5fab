//! The limiters, each from its binding.

use tollgate_cloudflare_do::{Config, DurableObjects, DurableObjectsLimiter};
use tollgate_core::{Error, ErrorKind, Millis};
use worker::{Env, ObjectNamespace};

use crate::in_test_mode;

/// In test mode a state lives at least this long by the platform's clock, for virtual time stands still meanwhile.
const TEST_TTL_MIN: Millis = Millis::from_secs(3_600);

/// In test mode thousands of calls are under way at once on a machine that runs their clients too.
const TEST_DEADLINE: Millis = Millis::from_secs(25);

pub(crate) fn durable_objects(env: &Env) -> Result<DurableObjectsLimiter<ObjectNamespace>, Error> {
    let namespace = env.durable_object("TOLLGATE").map_err(|error| no_binding(&error))?;
    let config = Config::default();
    let config = if in_test_mode(env) { config.min_ttl(TEST_TTL_MIN).deadline(TEST_DEADLINE) } else { config };
    Ok(DurableObjects::with_config(namespace, config).limiter())
}

fn no_binding(error: &worker::Error) -> Error {
    Error::new(ErrorKind::Invalid, format!("{error}; is it in wrangler.jsonc?"))
}
