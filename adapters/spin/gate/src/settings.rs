//! What configures the gate: variables of the app's component, and a file of rules.

use std::{fs, io};

use tidegate_core::gate::{Events, Gate, JsonLines, Rules};
use tidegate_core::{ClientIpSource, Error, ErrorKind, Platform};

use self::bindings::fermyon::spin::variables;
use crate::store::Store;

mod bindings {
    wit_bindgen::generate!({ world: "settings", path: "wit", generate_all });
}

/// The file of rules, if the variable `tidegate_rules` does not name another.
const RULES: &str = "tidegate.toml";

/// The store, if the variable `tidegate_store` does not name another.
const STORE: &str = "atomics:default";

/// The settings.
pub(crate) struct Settings {
    rules: Rules,
    pub(crate) store: Store,
    client_ip: ClientIpSource,
    events: Option<Events>,
}

impl Settings {
    /// Reads the variables and the file.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] with what to write in spin.toml.
    pub(crate) fn read() -> Result<Self, Error> {
        let file = variable("tidegate_rules")?.unwrap_or_else(|| RULES.into());
        let rules = Rules::parse(&file, &text(&file)?)?;
        // Such a gate would let everybody pass.
        if rules.rules().is_empty() {
            return Err(invalid(format!("{file}: no rule; write at least one table [[rules]]")));
        }
        Ok(Self {
            rules: match variable("tidegate_jwks")? {
                Some(keys) => with_keys(rules, &keys)?,
                None if rules.expected_tokens().is_some() => return Err(no_keys()),
                None => rules,
            },
            store: Store::of(&variable("tidegate_store")?.unwrap_or_else(|| STORE.into()))?,
            client_ip: ClientIpSource::new(Platform::Spin)
                .trust_true_client_ip(switch("tidegate_trust_true_client_ip")?),
            events: events()?,
        })
    }

    /// The gate that they describe.
    ///
    /// # Errors
    /// As [`Store::limiter`] and [`Gate::new`].
    pub(crate) fn gate(self) -> Result<Gate<'static>, Error> {
        let gate = Gate::with_stores(self.rules, [("default", self.store.limiter()?)], self.client_ip)?;
        Ok(match self.events {
            Some(events) => gate.events(events),
            None => gate,
        })
    }
}

fn no_keys() -> Error {
    let why = "the rules have a table [tokens], and the variable tidegate_jwks is missing; write there the JWK set that verifies them, or the \
               name of a file with it, and build the gate with `--features tokens`";
    invalid(why.into())
}

/// Rules that verify tokens by a JWK set, or by a file with one. It may have secrets, so no error repeats it.
#[cfg(feature = "tokens")]
fn with_keys(rules: Rules, given: &str) -> Result<Rules, Error> {
    use tidegate_jwt::KeySet;

    let is_set = given.trim_start().starts_with('{');
    let keys = if is_set { KeySet::from_jwks(given) } else { KeySet::from_jwks(&text(given)?) };
    Ok(rules.verify_tokens(keys.map_err(|error| invalid(format!("tidegate_jwks: {error}")))?))
}

#[cfg(not(feature = "tokens"))]
fn with_keys(_: Rules, _: &str) -> Result<Rules, Error> {
    Err(invalid("tidegate_jwks: this gate verifies no tokens; build it with `--features tokens`".into()))
}

/// Lines of JSON, if they are wanted.
fn events() -> Result<Option<Events>, Error> {
    let events = Events::new(JsonLines::new(io::stdout()));
    let events = match variable("tidegate_key_secret")? {
        Some(secret) => events.key_secret(key_secret(secret.trim())?),
        None => events,
    };
    Ok(switch("tidegate_events")?.then_some(events))
}

fn key_secret(text: &str) -> Result<[u8; 16], Error> {
    let is_hexadecimal = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u128::from_str_radix(text, 16).ok().filter(|_| is_hexadecimal);
    number.map(u128::to_le_bytes).ok_or_else(|| {
        let why = "tidegate_key_secret: write 32 hexadecimal digits, as `openssl rand -hex 16` prints them";
        invalid(why.into())
    })
}

fn text(file: &str) -> Result<String, Error> {
    // Spin mounts the files of a component at the root.
    fs::read_to_string(format!("/{}", file.trim_start_matches('/'))).map_err(|error| {
        invalid(format!(
            "{file}: {error}; write in spin.toml, under the app's component: files = [{file:?}], and add \"files\" to \
             inherit_configuration of the gate"
        ))
    })
}

fn switch(name: &str) -> Result<bool, Error> {
    match variable(name)?.as_deref() {
        None | Some("off") => Ok(false),
        Some("on") => Ok(true),
        Some(other) => Err(invalid(format!("{name}: {other:?} is neither \"on\" nor \"off\""))),
    }
}

/// A variable of the app's component. `None` if it has none of this name.
pub(crate) fn variable(name: &str) -> Result<Option<String>, Error> {
    match variables::get(name) {
        Ok(value) => Ok(Some(value)),
        Err(variables::Error::Undefined(_)) => Ok(None),
        Err(variables::Error::InvalidName(why) | variables::Error::Provider(why) | variables::Error::Other(why)) => {
            Err(invalid(format!("the variable {name}: {why}")))
        }
    }
}

fn invalid(why: String) -> Error {
    Error::new(ErrorKind::Invalid, why)
}
