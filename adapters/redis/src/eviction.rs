//! Warns of a server that may evict counts when its memory is full.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::Value;
use tokio::time::timeout;

use crate::dial::Connection;

/// Whether the server was asked how it evicts keys. It is asked once, by the first connection.
#[derive(Debug, Default)]
pub(crate) struct EvictionCheck(AtomicBool);

impl EvictionCheck {
    /// Asks over a connection, beside its other calls, and warns once of a server that evicts counts. A server that refuses to
    /// tell is asked no more. If it does not answer, the next connection asks again.
    pub(crate) fn ask(self: &Arc<Self>, mut connection: Connection, wait: Duration) {
        if self.0.swap(true, Ordering::Relaxed) {
            return;
        }
        let check = Arc::clone(self);
        tokio::spawn(async move {
            let mut command = redis::cmd("INFO");
            command.arg("memory");
            match timeout(wait, connection.send(&command)).await {
                Ok(Ok(answer)) => {
                    if let Some((policy, memory)) = evicting(&answer) {
                        tracing::warn!(
                            target: "tidegate",
                            policy,
                            maxmemory = memory,
                            "redis: when its memory is full, this server evicts counts, and limits admit more than they say; \
                             set maxmemory-policy to noeviction, or give Tidegate a server of its own"
                        );
                    }
                }
                _ => check.0.store(false, Ordering::Relaxed),
            }
        });
    }
}

/// The policy of a server that evicts keys, or of one of a cluster's, and its memory in bytes.
fn evicting(answer: &Value) -> Option<(String, u64)> {
    match answer {
        Value::BulkString(bytes) => of_text(&String::from_utf8_lossy(bytes)),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => of_text(text),
        Value::Map(nodes) => nodes.iter().find_map(|(_, answer)| evicting(answer)),
        _ => None,
    }
}

/// Each count has a TTL, so both kinds of policies evict counts: those of all keys, and those of keys with a TTL.
fn of_text(info: &str) -> Option<(String, u64)> {
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let policy = field("maxmemory_policy")?.trim();
    let memory: u64 = field("maxmemory")?.trim().parse().ok()?;
    let evicts = policy.starts_with("allkeys-") || policy.starts_with("volatile-");
    (evicts && memory > 0).then(|| (policy.to_owned(), memory))
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::evicting;

    #[test]
    fn only_a_policy_that_evicts_within_a_bounded_memory_is_told() {
        let info = |memory: &str, policy: &str| {
            let text = format!("# Memory\r\nused_memory:1\r\nmaxmemory:{memory}\r\nmaxmemory_policy:{policy}\r\n");
            Value::BulkString(text.into_bytes())
        };
        let told = Some(("volatile-ttl".to_owned(), 9));
        assert_eq!(evicting(&info("9", "volatile-ttl")), told);
        for (memory, policy) in [("0", "volatile-ttl"), ("9", "noeviction"), ("x", "allkeys-lru"), ("9", "")] {
            assert_eq!(evicting(&info(memory, policy)), None, "{memory} {policy}");
        }
        assert_eq!(evicting(&Value::Nil), None);
        let node = |answer| (Value::SimpleString("127.0.0.1:1".into()), answer);
        let nodes = Value::Map(vec![node(info("9", "noeviction")), node(info("9", "volatile-ttl"))]);
        assert_eq!(evicting(&nodes), told);
    }
}
