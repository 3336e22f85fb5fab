//! Removes Upstash's script flag, which stock Redis rejects, and translates the hashes of such scripts.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use sha1::{Digest as _, Sha1};

use crate::request::Command;

const FLAG: &str = "allow-key-locking";

/// Maps the hash of each flagged script to the hash of the script in Redis.
#[derive(Default)]
pub(crate) struct Scripts(Mutex<HashMap<String, String>>);

impl Scripts {
    /// Translates a command for Redis. For `SCRIPT LOAD`, returns the hash of the original script.
    pub(crate) fn translate(&self, command: &mut Command) -> Option<String> {
        match command.name().as_str() {
            "EVAL" | "EVAL_RO" => {
                self.replace_script(command.word_mut(1)?);
                None
            }
            "EVALSHA" | "EVALSHA_RO" => {
                self.replace_hash(command.word_mut(1)?);
                None
            }
            "SCRIPT" if command.word_mut(1)?.eq_ignore_ascii_case(b"load") => {
                Some(self.replace_script(command.word_mut(2)?))
            }
            "SCRIPT" => {
                let mut place = 2;
                while let Some(hash) = command.word_mut(place) {
                    self.replace_hash(hash);
                    place += 1;
                }
                None
            }
            _ => None,
        }
    }

    /// Removes the flag, and returns the hash of the original script.
    fn replace_script(&self, script: &mut Vec<u8>) -> String {
        let hash = sha1(script);
        if let Some(plain) = without_flag(script) {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(hash.clone(), sha1(&plain));
            *script = plain;
        }
        hash
    }

    fn replace_hash(&self, hash: &mut Vec<u8>) {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(plain) = known.get(&String::from_utf8_lossy(hash).to_ascii_lowercase()) {
            *hash = plain.clone().into_bytes();
        }
    }
}

/// Returns the script without the flag, or `None` if it has none. The first line keeps any other flags, or is empty.
fn without_flag(script: &[u8]) -> Option<Vec<u8>> {
    let end = script.iter().position(|&byte| byte == b'\n').unwrap_or(script.len());
    let (first, rest) = script.split_at(end);
    let flags = std::str::from_utf8(first).ok()?.trim_end().strip_prefix("#!lua")?.trim().strip_prefix("flags=")?;
    if !flags.split(',').any(|flag| flag == FLAG) {
        return None;
    }
    let others: Vec<&str> = flags.split(',').filter(|&flag| flag != FLAG).collect();
    let first = if others.is_empty() { String::new() } else { format!("#!lua flags={}", others.join(",")) };
    Some([first.as_bytes(), rest].concat())
}

fn sha1(bytes: &[u8]) -> String {
    Sha1::digest(bytes).iter().fold(String::with_capacity(40), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests {
    use super::without_flag;

    #[test]
    fn only_upstashs_flag_is_removed() {
        let plain =
            |script: &str| without_flag(script.as_bytes()).map(|plain| String::from_utf8_lossy(&plain).into_owned());
        assert_eq!(plain("#!lua flags=allow-key-locking\nreturn 1").as_deref(), Some("\nreturn 1"));
        assert_eq!(plain("#!lua flags=allow-key-locking").as_deref(), Some(""));
        assert_eq!(
            plain("#!lua flags=no-writes,allow-key-locking\nreturn 1").as_deref(),
            Some("#!lua flags=no-writes\nreturn 1")
        );
        for unflagged in ["", "return 1", "#!lua\nreturn 1", "#!lua flags=no-writes\nreturn 1", "-- allow-key-locking"]
        {
            assert_eq!(plain(unflagged), None, "{unflagged}");
        }
    }
}
