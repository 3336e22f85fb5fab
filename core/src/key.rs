//! Keys, which identify who is counted.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write as _};
use core::net::IpAddr;
use core::str;

use crate::sha256::sha256;
use crate::{ClientIp, Policy};

const SUBJECT: &str = "sub:";
const API_KEY: &str = "key:";
const CLIENT_IP: &str = "ip:";
const MISSING_IP: &str = "ip:unknown";

const JA4: &str = "ja4:";
const MISSING_JA4: &str = "ja4:unknown";

/// Separates the texts of joined keys, before they are encoded. No key has it.
const JOINT: &str = "|";

/// The same, encoded.
#[cfg(feature = "gate")]
pub(crate) const ENCODED_JOINT: &str = "%7C";

/// Separates the readable start of a long key from its hash. The encoding never produces it.
const HASH_MARK: char = '~';

/// The length of the readable start of a key that is too long, without the mark and the 64 hex digits of SHA-256.
const START_LEN_MAX: usize = Key::LEN_MAX - 1 - 64;

/// Up to 23 bytes lie in the key itself.
#[cfg(not(target_arch = "wasm32"))]
type Text = smol_str::SmolStr;
#[cfg(target_arch = "wasm32")]
type Text = alloc::boxed::Box<str>;

/// The key that a request counts against.
///
/// A key can be made from any bytes. It is a short text that every store accepts:
/// - Letters, digits and `. _ : @ = + -` are unchanged. So is a slash between two letters, digits or colons, as in
///   `ip:2001:db8::/64`. Elsewhere a slash could form an empty or a dot segment, which a store behind a URL removes.
/// - Every other byte becomes `%` and two hex digits: the globs `* ? [ ] \`, the braces of a Redis hash tag, spaces,
///   line ends, NULs, non-ASCII bytes, and `%` itself.
/// - If the result exceeds [`Key::LEN_MAX`] bytes, the key is its readable start, `~`, and the SHA-256 of all bytes.
///
/// Different inputs have different keys, unless SHA-256 collides. A key made from another key's text differs from it only if
/// the text needed encoding. A key does not name a policy; [`Key::storage_key`] does.
///
/// Start the keys of your application with a name of your own, such as `tenant:42`. A text that starts with `sub:`, `key:` or
/// `ip:` gives the same key as [`Key::subject`], [`Key::api_key`] or [`Key::ip`], so never use a text that a client chooses
/// as a whole key.
///
/// ```
/// use tidegate_core::Key;
/// assert_eq!(Key::new("ip:192.0.2.1").as_str(), "ip:192.0.2.1");
/// assert_eq!(Key::new("tenant:a*").as_str(), "tenant:a%2A");
/// assert_eq!(Key::new([b'x'; 10_000]).as_str().len(), Key::LEN_MAX);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Text);

impl Key {
    /// The maximum length of a key, in bytes.
    ///
    /// A [storage key](Key::storage_key) is then at most 320 bytes (a policy of eight quotas), and under 255 with up to
    /// four: within the limits of Workers KV (512), Netlify Blobs (600) and Fastly's KV Store (1024).
    pub const LEN_MAX: usize = 128;

    /// A key from any bytes. See [`Key`] for the encoding.
    ///
    /// ```
    /// use tidegate_core::Key;
    /// assert_eq!(Key::new("tenant:42").as_str(), "tenant:42");
    /// assert_eq!(Key::new(b"tenant:\0\xff").as_str(), "tenant:%00%FF");
    /// ```
    #[must_use]
    pub fn new(text: impl AsRef<[u8]>) -> Self {
        let bytes = text.as_ref();
        match str::from_utf8(bytes) {
            Ok(text) if bytes.len() <= Self::LEN_MAX && (0..bytes.len()).all(|at| stays(bytes, at)) => {
                Self(text.into())
            }
            _ => Self(encode(bytes).into()),
        }
    }

    /// A key of the subject (`sub`) of a token whose signature was verified.
    ///
    /// ```
    /// use tidegate_core::Key;
    /// assert_eq!(Key::subject("auth0|5f7c").as_str(), "sub:auth0%7C5f7c");
    /// ```
    #[must_use]
    pub fn subject(subject: impl AsRef<[u8]>) -> Self {
        Self::new([SUBJECT.as_bytes(), subject.as_ref()].concat())
    }

    /// A key of an API key that was found valid: the first 128 bits of its SHA-256, never the secret.
    ///
    /// The hash protects random secrets. It has no salt, because every host must compute the same key. So a guessable
    /// secret can be found from its hash.
    ///
    /// ```
    /// use tidegate_core::Key;
    /// assert_eq!(Key::api_key("secret").as_str(), "key:2bb80d537b1da3e38bd30361aa855686");
    /// ```
    #[must_use]
    pub fn api_key(secret: impl AsRef<[u8]>) -> Self {
        let mut text = String::with_capacity(API_KEY.len() + 32);
        text.push_str(API_KEY);
        push_hex(&mut text, &sha256(secret.as_ref())[..16]);
        Self(text.into())
    }

    /// A key of a client's address.
    ///
    /// ```
    /// use tidegate_core::{ClientIp, Key};
    /// # fn main() -> Result<(), tidegate_core::MissingIp> {
    /// let ip = ClientIp::parse("2001:db8:1:2::5")?;
    /// assert_eq!(Key::ip(&ip).as_str(), "ip:2001:db8:1:2::/64");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn ip(ip: &ClientIp) -> Self {
        let IpAddr::V4(address) = ip.address() else { return Self(format!("{CLIENT_IP}{ip}").into()) };
        let mut text = AsciiText(*b"ip:                             ");
        let AsciiText(bytes) = &mut text;
        let mut len = CLIENT_IP.len();
        let mut add = |byte: u8| {
            bytes[len] = byte;
            len += 1;
        };
        for (place, octet) in address.octets().into_iter().enumerate() {
            if place > 0 {
                add(b'.');
            }
            if octet >= 100 {
                add(b'0' + octet / 100);
            }
            if octet >= 10 {
                add(b'0' + octet / 10 % 10);
            }
            add(b'0' + octet % 10);
        }
        Self(text.start(len).into())
    }

    /// The key of all clients whose address is missing. They share one count.
    ///
    /// No address has this key, not even `0.0.0.0`. It is rare on a platform that is configured correctly, so an application
    /// may use another policy for it, reject it, or raise an alarm.
    ///
    /// ```
    /// use tidegate_core::{Identity, Key};
    /// assert_eq!(Key::missing_ip().as_str(), "ip:unknown");
    /// // No token, no API key, and no address from the platform.
    /// assert_eq!(Identity::default().resolve(), Key::missing_ip());
    /// ```
    #[must_use]
    pub fn missing_ip() -> Self {
        Self(MISSING_IP.into())
    }

    /// The key of a fingerprint of the client's TLS handshake, JA4, as the platform reports it.
    ///
    /// ```
    /// use tidegate_core::Key;
    /// assert_eq!(Key::ja4("t13d1516h2_8daaf6152771_e5627efa2ab1").as_str(), "ja4:t13d1516h2_8daaf6152771_e5627efa2ab1");
    /// ```
    #[must_use]
    pub fn ja4(fingerprint: impl AsRef<[u8]>) -> Self {
        Self::new([JA4.as_bytes(), fingerprint.as_ref()].concat())
    }

    /// The key of all clients of whose TLS handshake the platform reports no fingerprint. They share one count.
    ///
    /// ```
    /// use tidegate_core::Key;
    /// assert_eq!(Key::missing_ja4().as_str(), "ja4:unknown");
    /// ```
    #[must_use]
    pub fn missing_ja4() -> Self {
        Self(MISSING_JA4.into())
    }

    /// One key of several, in their order, for a quota that counts [by all of them](crate::Quota::by_all). Lists with another key, another
    /// order or another length have another key, unless SHA-256 collides. The key of one is that key.
    ///
    /// It is the key of their texts with `|` between them, which no key has, so `%7C` separates them.
    ///
    /// ```
    /// use tidegate_core::Key;
    /// let joined = Key::joined(&[Key::new("ip:192.0.2.1"), Key::new("tenant:42")]);
    /// assert_eq!(joined.as_str(), "ip:192.0.2.1%7Ctenant:42");
    /// // A text with a separator of its own is another key.
    /// assert_eq!(Key::joined(&[Key::new("a|b"), Key::new("c")]).as_str(), "a%257Cb%7Cc");
    /// ```
    #[must_use]
    pub fn joined(keys: &[Self]) -> Self {
        match keys {
            [key] => key.clone(),
            keys => Self::new(keys.iter().map(Self::as_str).collect::<Vec<_>>().join(JOINT)),
        }
    }

    /// Whether it is, or is [made of](Self::joined), the key of a missing address.
    #[cfg(feature = "gate")]
    pub(crate) fn has_missing_ip(&self) -> bool {
        // Most keys are not joined, and a search for several characters takes longer.
        self.as_str() == MISSING_IP
            || (self.0.contains('%') && self.0.split(ENCODED_JOINT).any(|part| part == MISSING_IP))
    }

    /// The key with this text, as [`Key::as_str`] returned it, possibly in another process. `None` if no key has it.
    ///
    /// To create a key from an application's own text, use [`Key::new`].
    ///
    /// ```
    /// use tidegate_core::Key;
    /// let key = Key::subject("auth0|5f7c");
    /// assert_eq!(Key::from_text("sub:auth0%7C5f7c"), Some(key));
    /// assert_eq!(Key::from_text("sub:auth0|5f7c"), None);
    /// ```
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        let Some((start, hash)) = text.split_once(HASH_MARK) else {
            let key = Self::new(decode(text)?);
            return (key.as_str() == text).then_some(key);
        };
        let is_hash = hash.len() == 64 && hash.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
        // The byte after the start decides whether a slash at its end was encoded.
        let is_start = start.len() <= START_LEN_MAX
            && ["", "a"].into_iter().any(|next| {
                let start = [start, next].concat();
                decode(&start).is_some_and(|bytes| Self::new(bytes).as_str() == start)
            });
        (is_hash && is_start).then(|| Self(text.into()))
    }

    /// The key as text: printable ASCII of at most [`Key::LEN_MAX`] bytes, without characters that a store treats specially.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of this key's state in a store, of a policy with one dimension: `tg1:`, the policy's [id](Policy::id), `:`, the
    /// key. For several dimensions, see [`Keys::storage_keys`](crate::Keys::storage_keys).
    ///
    /// ```
    /// use tidegate_core::{Key, Millis, Policy, Quota};
    /// # fn main() -> Result<(), tidegate_core::Error> {
    /// let policy = Policy::new("api", [Quota::token_bucket(10, 5, Millis::from_secs(1))?])?;
    /// assert_eq!(Key::new("ip:192.0.2.1").storage_key(&policy), "tg1:api:tb1000:ip:192.0.2.1");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn storage_key(&self, policy: &Policy) -> String {
        ["tg1:", policy.id(), ":", &self.0].concat()
    }
}

impl AsRef<str> for Key {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A text of ASCII, padded and aligned, so that all of it is checked by words.
#[repr(align(8))]
struct AsciiText([u8; 32]);

impl AsciiText {
    fn start(&self, len: usize) -> &str {
        str::from_utf8(&self.0).ok().and_then(|text| text.get(..len)).unwrap_or_default()
    }
}

/// Whether the byte at `at` is unchanged by the encoding.
fn stays(text: &[u8], at: usize) -> bool {
    let joins = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b':');
    match text[at] {
        b'/' => joins(text[..at].last()) && joins(text.get(at + 1)),
        byte => byte.is_ascii_alphanumeric() || b"._:@=+-".contains(&byte),
    }
}

fn encode(text: &[u8]) -> String {
    let mut out = String::with_capacity(Key::LEN_MAX + "%00".len());
    // The end of a long key's readable start, which never splits the three characters of a byte.
    let mut start_len = 0;
    for (at, &byte) in text.iter().enumerate() {
        if stays(text, at) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
        if out.len() <= START_LEN_MAX {
            start_len = out.len();
        }
        if out.len() > Key::LEN_MAX {
            out.truncate(start_len);
            out.push(HASH_MARK);
            push_hex(&mut out, &sha256(text));
            break;
        }
    }
    out
}

/// The bytes that a short key was made from.
fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        out.push(if byte == b'%' { u8::try_from(digit()? << 4 | digit()?).ok()? } else { byte });
    }
    Some(out)
}

fn push_hex(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        let _ = write!(out, "{byte:02x}");
    }
}
