//! Exact limits on a Redis server, over Spin's outbound Redis.

#[cfg(target_arch = "wasm32")]
mod connection;

#[cfg(target_arch = "wasm32")]
pub use connection::{RedisConnection, SpinRedis, SpinRedisLimiter};
#[cfg(any(target_arch = "wasm32", test))]
use tidegate_redis::Answer;

/// Reads an error that the host passed on as text.
///
/// The host formats it with the crate `redis`, and its versions differ: `NOSCRIPT No matching script.` arrives as
/// `An error was signalled by the server - NoScriptError: No matching script.` from version 0.32, which Spin 3 and 4
/// contain, and as `NoScript: No matching script.` from 1.x. Codes that the crate does not know keep their own text:
/// `CORRUPT: quotas[0]`, in quotes from 1.x.
///
/// Returns `None` if the text is not an answer of the server, such as a failed connection.
#[cfg(any(target_arch = "wasm32", test))]
fn server_error(text: &str) -> Option<Answer> {
    let text = text.strip_prefix("An error was signalled by the server - ").unwrap_or(text);
    let (word, detail) = text.split_once(": ").unwrap_or((text, ""));
    let word = word.trim_matches('"');
    let is_code = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_uppercase());
    let code = match word.strip_suffix("Error").unwrap_or(word) {
        "Response" => "ERR",
        "NoScript" => "NOSCRIPT",
        "BusyLoading" => "LOADING",
        "ExecAbort" => "EXECABORT",
        "TryAgain" => "TRYAGAIN",
        "ClusterDown" => "CLUSTERDOWN",
        "MasterDown" => "MASTERDOWN",
        "CrossSlot" => "CROSSSLOT",
        "ReadOnly" => "READONLY",
        "Moved" => "MOVED",
        "Ask" => "ASK",
        "NotBusy" => "NOTBUSY",
        "NoSub" => "NOSUB",
        "NoPerm" | "PermissionDenied" => "NOPERM",
        _ if is_code(word) => word,
        _ => return None,
    };
    Some(Answer::Error { code: code.into(), detail: detail.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<(String, String)> {
        match server_error(text)? {
            Answer::Error { code, detail } => Some((code, detail)),
            _ => None,
        }
    }

    #[test]
    fn a_server_error_is_parsed_from_every_hosts_text() {
        let old = "An error was signalled by the server - ";
        for (text, code) in [
            (format!("{old}NoScriptError: No matching script. Please use EVAL."), "NOSCRIPT"),
            ("NoScript: No matching script. Please use EVAL.".into(), "NOSCRIPT"),
            (format!("{old}ResponseError: unknown command"), "ERR"),
            (format!("{old}BusyLoadingError: Redis is loading the dataset in memory"), "LOADING"),
            ("CORRUPT: quotas[0]".into(), "CORRUPT"),
            ("\"CORRUPT\": quotas[0]".into(), "CORRUPT"),
            ("WRONGTYPE: Operation against a key".into(), "WRONGTYPE"),
            ("NOAUTH: Authentication required.".into(), "NOAUTH"),
            ("ExecAbort: it was discarded".into(), "EXECABORT"),
            ("TryAgain: a slot moves".into(), "TRYAGAIN"),
            ("ClusterDown: the cluster is down".into(), "CLUSTERDOWN"),
            ("MasterDown: no link with the master".into(), "MASTERDOWN"),
            ("CrossSlot: keys of several slots".into(), "CROSSSLOT"),
            ("ReadOnly: a replica".into(), "READONLY"),
            ("Moved: 3999 127.0.0.1:6381".into(), "MOVED"),
            ("Ask: 3999 127.0.0.1:6381".into(), "ASK"),
            ("NotBusy: no script runs".into(), "NOTBUSY"),
            ("NoSub: no subscription".into(), "NOSUB"),
            ("NoPerm: this user may not".into(), "NOPERM"),
            (format!("{old}PermissionDenied: this user may not"), "NOPERM"),
        ] {
            let (found, detail) = read(&text).unwrap_or_default();
            assert_eq!(found, code, "{text}");
            assert!(text.ends_with(&detail) && !detail.is_empty(), "{text}: {detail}");
        }
    }

    #[test]
    fn a_failed_connection_is_not_an_answer_of_the_server() {
        for text in ["Connection refused (os error 111)", "broken pipe", "timed out", "", "early eof: x", "Io: x"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
