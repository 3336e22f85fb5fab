//! The texts of the scripts.

use std::borrow::Cow;

/// The Lua script that takes every call, but for those of a state with loans: `src/numbers.lua` and `src/decide.lua` without comments
/// and indentation. The first lines of that file describe the keys, arguments and answer.
pub const SCRIPT: &str = body(GENERAL);

/// The SHA-1 of [`SCRIPT`], for `EVALSHA`.
pub const SCRIPT_SHA1: &str = Script::General.sha1(false);

/// [`SCRIPT`] under Upstash's flag: it then locks the keys that it is given, and not the whole database
/// (<https://upstash.com/docs/redis/features/key-locking>). Stock Redis rejects the flag.
pub const LOCKING_SCRIPT: &str = GENERAL;

/// The SHA-1 of [`LOCKING_SCRIPT`].
pub const LOCKING_SCRIPT_SHA1: &str = Script::General.sha1(true);

/// A script that decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    /// `src/decide.lua`, which takes every call but those of [`Script::Balance`], and answers an empty text if the state has loans.
    General,
    /// `src/plain.lua`, which takes plain checks only, and answers an empty text if the state is not the usual one.
    Plain,
    /// `src/lend.lua` around `src/decide.lua`, which takes every call, the questions of borrowers, and resets.
    Lending,
    /// `src/decide.lua` with what a balance needs, which takes every call of a policy that has one.
    Balance,
}

impl Script {
    /// The text, with or without Upstash's flag.
    #[must_use]
    pub fn text(self, key_locking: bool) -> Cow<'static, str> {
        match (self, key_locking) {
            (Self::General, true) => GENERAL.into(),
            (Self::General, false) => const { body(GENERAL) }.into(),
            (Self::Plain, true) => PLAIN.into(),
            (Self::Plain, false) => const { body(PLAIN) }.into(),
            (Self::Balance, true) => BALANCE.into(),
            (Self::Balance, false) => const { body(BALANCE) }.into(),
            (Self::Lending, _) => (begin(key_locking) + const { body(LEND) }).into(),
        }
    }

    /// The SHA-1 of the text, for `EVALSHA`.
    #[must_use]
    pub const fn sha1(self, key_locking: bool) -> &'static str {
        match (self, key_locking) {
            (Self::General, false) => "7c32626de139f9767480fbba8421c298ff990729",
            (Self::General, true) => "82f996e1b3d1b9cfc54edccaaa44eac867d59e16",
            (Self::Plain, false) => "f74d3d61b48590e27d405abb863dbb49c9a96fbd",
            (Self::Plain, true) => "09ea764af2240c6ba7e3e1b066c9bb6ec4501d84",
            (Self::Lending, false) => "03f2bd2d8161a97a981a166128828489a4c5a875",
            (Self::Balance, false) => "b5c014cdaff23c4cbfe4a984ef8c47f170736da9",
            (Self::Balance, true) => "d08c3d49b8c2021606b315259dc65ea86bbc2942",
            (Self::Lending, true) => "8c19d01ccfa00a887836bd7d443d171571844fb2",
        }
    }
}

/// Returns the script for several decisions in one command, `src/batch.lua` around the scripts for one. With `key_locking`, it
/// begins with Upstash's flag. No two of its keys may be in different slots of a cluster.
#[must_use]
pub fn batch_script(key_locking: bool) -> String {
    let mut script = begin(key_locking);
    for (name, text) in [("plain", const { body(PLAIN) }), ("lend", const { body(LEND) })] {
        script.extend(["local function ", name, "(KEYS, ARGV)\n", text, "end\n"]);
    }
    script.push_str(const { body(BATCH) });
    script
}

/// The SHA-1 of [`batch_script`], for `EVALSHA`.
#[cfg(feature = "rest")]
pub(crate) const fn batch_sha1(key_locking: bool) -> &'static str {
    if key_locking { "3daf10d92dda24a2f89b9364114c3b75f8e711f0" } else { "bbadab0b3cc1463207ac9ce16876de36bca36f85" }
}

/// What the scripts around `src/decide.lua` begin with: that script as a function of its keys, its arguments and the server.
fn begin(key_locking: bool) -> String {
    let numbers = if key_locking { NUMBERS } else { const { body(NUMBERS) } };
    let decide = const { GENERAL.split_at(NUMBERS.len()).1 };
    [numbers, "local function decide(KEYS, ARGV, redis)\n", decide, "end\n"].concat()
}

/// A text without the flag.
const fn body(text: &'static str) -> &'static str {
    text.split_at(FLAG.len()).1
}

const FLAG: &str = "#!lua flags=allow-key-locking\n";

/// The flag, and files of Lua without comments and indentation, and with or without what a balance needs.
macro_rules! bare {
    ($($file:literal),+) => { bare!(false; $($file),+) };
    ($balance:literal; $($file:literal),+) => {{
        const LUA: &[u8] = concat!("#!lua flags=allow-key-locking\n", $(include_str!($file)),+).as_bytes();
        const BARE: [u8; bare(LUA, $balance, &mut [])] = {
            let mut out = [0; bare(LUA, $balance, &mut [])];
            bare(LUA, $balance, &mut out);
            out
        };
        match str::from_utf8(&BARE) {
            Ok(text) => text,
            Err(_) => panic!("not UTF-8"),
        }
    }};
}

const NUMBERS: &str = bare!("numbers.lua");
const GENERAL: &str = bare!("numbers.lua", "decide.lua");
const BALANCE: &str = bare!(true; "numbers.lua", "decide.lua");
const PLAIN: &str = bare!("plain.lua");
const LEND: &str = bare!("lend.lua");
const BATCH: &str = bare!("batch.lua");

/// Writes a file of Lua without comments and indentation, as far as there is room. Returns its full length then.
///
/// What is between `--+ balance` and `--+ end` is left out without a balance, but for what follows a `--|` there.
const fn bare(lua: &[u8], balance: bool, out: &mut [u8]) -> usize {
    let (mut length, mut at) = (0, 0);
    let (mut begins, mut skips, mut is_left_out, mut drops_line) = (true, false, false, false);
    while at < lua.len() {
        let byte = lua[at];
        let writes = if byte == b'\n' {
            let writes = !drops_line;
            (begins, skips, drops_line) = (true, false, is_left_out);
            writes
        } else {
            if begins && byte != b' ' {
                (begins, skips) = (false, is_left_out && drops_line);
                if byte == b'-' && lua[at + 1] == b'-' {
                    skips = true;
                    if lua[at + 2] == b'+' {
                        (is_left_out, drops_line) = (!balance && lua[at + 4] == b'b', !balance);
                    } else if lua[at + 2] == b'|' && !balance {
                        (begins, skips, drops_line) = (true, false, false);
                        at += 2;
                    }
                }
            }
            !(begins || skips)
        };
        if writes {
            if length < out.len() {
                out[length] = byte;
            }
            length += 1;
        }
        at += 1;
    }
    length
}

#[cfg(test)]
mod tests {
    use sha1::{Digest, Sha1};
    use std::fmt::Write as _;

    use super::Script;

    #[test]
    fn the_sha1_matches_the_script() {
        let sha1 = |text: &str| {
            Sha1::digest(text.as_bytes()).iter().fold(String::new(), |mut hex, byte| {
                let _ = write!(hex, "{byte:02x}");
                hex
            })
        };
        for key_locking in [false, true] {
            for script in [Script::General, Script::Plain, Script::Lending, Script::Balance] {
                let (known, is) = (script.sha1(key_locking), sha1(&script.text(key_locking)));
                assert_eq!(known, is, "{script:?}, {key_locking}: its file has changed; write its SHA-1 here");
            }
            #[cfg(feature = "rest")]
            {
                let (known, is) = (super::batch_sha1(key_locking), sha1(&super::batch_script(key_locking)));
                assert_eq!(known, is, "{key_locking}: one of its files has changed; write its SHA-1 here");
            }
        }
    }
}
