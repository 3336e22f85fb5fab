//! The script, its arguments and its answer, which are the same over any transport.

use tidegate_core::internal::sha256;
use tidegate_core::store::{Applied, Operation};
use tidegate_core::{ChargeId, Error, ErrorKind, Keys, Millis, Policy, Settle, UnixMillis};

use crate::state;

/// The Lua script that decides: `src/decide.lua` without comments and indentation, with the same line numbers. The
/// first lines of that file describe the keys, arguments and answer.
pub const SCRIPT: &str = LOCKING_SCRIPT.split_at(FLAG.len()).1;

/// The SHA-1 of [`SCRIPT`], for `EVALSHA`.
pub const SCRIPT_SHA1: &str = "94ffd2c7570af7e6c0a01f7229e61eecd69538dc";

/// [`SCRIPT`] under Upstash's flag: it then locks the keys that it is given, and not the whole database
/// (<https://upstash.com/docs/redis/features/key-locking>). Stock Redis rejects the flag.
pub const LOCKING_SCRIPT: &str = match str::from_utf8(&BARE) {
    Ok(text) => text,
    Err(_) => panic!("decide.lua is not UTF-8"),
};

/// The SHA-1 of [`LOCKING_SCRIPT`].
pub const LOCKING_SCRIPT_SHA1: &str = "ea22f2e50e048eecb9bf1e24f1359841bf2e98e8";

/// Returns the script for several decisions in one command, `src/batch.lua` around [`SCRIPT`]. With `key_locking`, it begins with
/// Upstash's flag. No two of its keys may be in different slots of a cluster.
#[must_use]
pub fn batch_script(key_locking: bool) -> String {
    let flag = if key_locking { FLAG } else { "" };
    let mut script = [flag, "local function decide(KEYS, ARGV)\n", SCRIPT, "end\n"].concat();
    for line in include_str!("batch.lua").lines().filter(|line| !line.starts_with("--")) {
        script.push_str(line.trim_start());
        script.push('\n');
    }
    script
}

const FLAG: &str = "#!lua flags=allow-key-locking\n";

const BARE: [u8; bare(&mut [])] = {
    let mut out = [0; bare(&mut [])];
    bare(&mut out);
    out
};

/// Writes the flag and the script, without comments and indentation, as far as there is room. Returns their full
/// length.
const fn bare(out: &mut [u8]) -> usize {
    let lua = concat!("#!lua flags=allow-key-locking\n", include_str!("decide.lua")).as_bytes();
    let (mut length, mut at) = (0, 0);
    let (mut begins, mut skips) = (true, false);
    while at < lua.len() {
        let byte = lua[at];
        if byte == b'\n' {
            (begins, skips) = (true, false);
        } else if begins && byte != b' ' {
            (begins, skips) = (false, byte == b'-' && lua[at + 1] == b'-');
        }
        if byte == b'\n' || !(begins || skips) {
            if length < out.len() {
                out[length] = byte;
            }
            length += 1;
        }
        at += 1;
    }
    length
}

/// One run of the script.
pub(crate) struct Call<'a> {
    operation: Operation<'a>,
    /// The script's name for the operation.
    mode: &'static str,
    /// Whether the server's clock decides.
    server_clock: bool,
    ttl_min: Millis,
    /// The keys of the states, one for each dimension.
    pub(crate) keys: Vec<String>,
    /// The key of the first answer to an idempotency token.
    pub(crate) once: Option<String>,
}

impl<'a> Call<'a> {
    /// # Errors
    /// [`ErrorKind::Unsupported`] for an operation that the script does not know.
    pub(crate) fn new(operation: Operation<'a>, server_clock: bool, ttl_min: Millis) -> Result<Self, Error> {
        let mode = match operation {
            Operation::Check(check) if check.policy.charges_denied() => "d",
            Operation::Check(_) => "c",
            Operation::Peek(_) => "p",
            Operation::Refund(_) => "r",
            Operation::Settle(_) => "s",
            _ => return Err(Error::new(ErrorKind::Unsupported, "the script does not know this operation")),
        };
        let names = state_keys(operation.policy(), operation.keys())?;
        let token = match operation {
            Operation::Check(check) => check.idempotency.map(|idempotency| idempotency.token),
            Operation::Settle(settle) => Some(settle.token),
            _ => None,
        };
        let once = token.map(|token| once_key(&names, token));
        Ok(Self { operation, mode, server_clock, ttl_min, keys: names.rows, once })
    }

    /// Passes each word of the command in order: its `name`, the `script` or its SHA-1, the keys and `ARGV`.
    pub(crate) fn words(&self, name: &str, script: &str, mut give: impl FnMut(&str)) {
        give(name);
        give(script);
        let mut digits = itoa::Buffer::new();
        let mut number = |value: u64, give: &mut dyn FnMut(&str)| give(digits.format(value));
        number((self.keys.len() + usize::from(self.once.is_some())) as u64, &mut give);
        for key in self.keys.iter().chain(&self.once) {
            give(key);
        }
        match self.operation.policy().dimensions() {
            [_] => give(self.mode),
            dimensions => {
                let counts = dimensions.iter().map(|dimension| dimension.quotas().len().to_string());
                give(&std::iter::once(self.mode.to_string()).chain(counts).collect::<String>());
            }
        }
        if self.server_clock {
            give("server");
        } else {
            number(self.operation.now().get(), &mut give);
        }
        match self.operation {
            Operation::Settle(Settle { cost: None, .. }) => give("-"),
            Operation::Settle(Settle { cost: Some(cost), .. }) => number(cost, &mut give),
            _ => number(self.operation.cost(), &mut give),
        }
        number(ttl(self.ttl_min), &mut give);
        for quota in self.operation.policy().quotas() {
            give(quota.rule().code());
            for parameter in quota.rule().parameters() {
                number(parameter, &mut give);
            }
        }
        match self.operation {
            Operation::Refund(refund) => number(refund.charged_at.get(), &mut give),
            Operation::Check(check) => {
                if let Some(idempotency) = check.remembered() {
                    number(ttl(idempotency.ttl), &mut give);
                    self.give_id(check.charge_id(), &mut give);
                }
            }
            Operation::Settle(settle) => self.give_id(settle.charge_id(), &mut give),
            _ => {}
        }
    }

    fn give_id(&self, id: ChargeId, give: &mut dyn FnMut(&str)) {
        if self.operation.policy().has_slots() {
            give(&id.to_string());
        }
    }

    /// The most words that [`Call::words`] passes.
    #[cfg(feature = "resp")]
    pub(crate) fn word_count(&self) -> usize {
        4 + self.keys.len() + 4 + 4 * self.operation.policy().quotas().len() + 2
    }

    /// Reads the script's answer.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] for anything that is not an answer of this script.
    pub(crate) fn answer(&self, bytes: &[u8]) -> Result<Applied, Error> {
        let text = std::str::from_utf8(bytes).map_err(|_| no_answer(bytes))?;
        let (admitted, replayed, rest) = match text.split_at_checked(1) {
            Some(("a", rest)) => (true, false, rest),
            Some(("d", rest)) => (false, false, rest),
            Some(("r", rest)) => (true, true, rest),
            _ => return Err(no_answer(bytes)),
        };
        let (mut now, mut cost) = (self.operation.now(), self.operation.cost());
        let mut state = rest;
        if let Some(known) = rest.strip_prefix('@') {
            let mut words = known.splitn(3, ' ');
            let mut number = || words.next().and_then(|word| word.parse().ok()).ok_or_else(|| no_answer(bytes));
            now = UnixMillis::new(number()?);
            cost = number()?;
            state = words.next().ok_or_else(|| no_answer(bytes))?;
        } else if self.server_clock || self.once.is_some() {
            return Err(no_answer(bytes));
        }
        let previous = if state.is_empty() { None } else { Some(state::parse(self.operation.policy(), state)?) };
        Ok(Applied::Before { previous, now, cost, admitted, replayed })
    }
}

/// The names of what is stored for one request.
pub(crate) struct Names {
    /// The part in braces, which puts all into one cluster slot.
    tag: String,
    /// The key of each dimension's state.
    pub(crate) rows: Vec<String>,
}

/// The keys of the states: the core's storage keys, whose common start is in braces.
pub(crate) fn state_keys(policy: &Policy, keys: Keys<'_>) -> Result<Names, Error> {
    let names = keys.storage_keys(policy)?;
    let place = names.place();
    let braced = |row: &String| match place {
        Some(place) => format!("{{{place}}}{}", &row[place.len()..]),
        None => format!("{{{row}}}"),
    };
    let tag = place.unwrap_or(&names.rows()[0]);
    Ok(Names { tag: format!("{{{tag}}}"), rows: names.rows().iter().map(braced).collect() })
}

/// The key of a token's first answer. Its length is bounded, whatever the token's length. It depends on the keys of all rows.
fn once_key(names: &Names, token: &str) -> String {
    use std::fmt::Write as _;
    let hash = match &names.rows[..] {
        [row] if *row == names.tag => sha256(token.as_bytes()),
        rows => sha256(format!("{}\n{token}", rows.join("\n")).as_bytes()),
    };
    let mut name = String::with_capacity(names.tag.len() + 38);
    name.push_str(&names.tag);
    name.push_str(":once:");
    for byte in &hash[..16] {
        let _ = write!(name, "{byte:02x}");
    }
    name
}

/// A span as a TTL: at least 1 ms, and not too long. Redis would reject others after the charge was made.
fn ttl(span: Millis) -> u64 {
    span.get().clamp(1, UnixMillis::MAX.get())
}

fn no_answer(bytes: &[u8]) -> Error {
    let shown: String = String::from_utf8_lossy(bytes).chars().take(60).collect();
    Error::new(ErrorKind::Corrupt, format!("{shown:?} is not an answer of Tidegate's script; is this a Redis server?"))
}

#[cfg(test)]
mod tests {
    use sha1::{Digest, Sha1};
    use std::fmt::Write as _;

    use super::{LOCKING_SCRIPT, LOCKING_SCRIPT_SHA1, SCRIPT, SCRIPT_SHA1};

    #[test]
    fn the_sha1_matches_the_script() {
        for (script, sha1) in [(SCRIPT, SCRIPT_SHA1), (LOCKING_SCRIPT, LOCKING_SCRIPT_SHA1)] {
            let digest = Sha1::digest(script.as_bytes()).iter().fold(String::new(), |mut hex, byte| {
                let _ = write!(hex, "{byte:02x}");
                hex
            });
            assert_eq!(sha1, digest, "decide.lua has changed: write its SHA-1 here");
        }
    }
}
