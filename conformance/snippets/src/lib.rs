//! The code that `tidegate choose` prints, compiled for the platforms it is for. `TIDEGATE_UPDATE=1 cargo test --test choose`
//! writes the modules.
#![allow(missing_docs, clippy::missing_errors_doc, clippy::unwrap_used, reason = "this is code to paste")]

#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
#[rustfmt::skip]
pub mod cloudflare_durable_object;
#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
#[rustfmt::skip]
pub mod cloudflare_durable_object_deny_cache;
#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
#[rustfmt::skip]
pub mod cloudflare_durable_object_leased;
#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
#[rustfmt::skip]
pub mod cloudflare_durable_object_leased_grace;
#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
#[rustfmt::skip]
pub mod cloudflare_rate_limit_binding;
#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
#[rustfmt::skip]
pub mod cloudflare_workers_kv;
#[cfg(target_os = "wasi")]
#[rustfmt::skip]
pub mod fastly_fastly_kv;
#[cfg(not(target_arch = "wasm32"))]
#[rustfmt::skip]
pub mod netlify_upstash;
#[cfg(not(target_arch = "wasm32"))]
#[rustfmt::skip]
pub mod netlify_upstash_deny_cache;
#[cfg(not(target_arch = "wasm32"))]
#[rustfmt::skip]
pub mod netlify_upstash_leased;
#[cfg(not(target_arch = "wasm32"))]
#[rustfmt::skip]
pub mod server_memory;
#[cfg(not(target_arch = "wasm32"))]
#[rustfmt::skip]
pub mod server_redis;
#[cfg(not(target_arch = "wasm32"))]
#[rustfmt::skip]
pub mod server_redis_deny_cache;
#[cfg(not(target_arch = "wasm32"))]
#[rustfmt::skip]
pub mod server_redis_leased;
#[cfg(not(target_arch = "wasm32"))]
#[rustfmt::skip]
pub mod server_redis_leased_grace;
#[cfg(not(target_arch = "wasm32"))]
#[rustfmt::skip]
pub mod server_upstash;
#[cfg(not(target_arch = "wasm32"))]
#[rustfmt::skip]
pub mod server_upstash_deny_cache;
#[cfg(not(target_arch = "wasm32"))]
#[rustfmt::skip]
pub mod server_upstash_leased;
#[cfg(not(target_arch = "wasm32"))]
#[rustfmt::skip]
pub mod server_upstash_leased_grace;
#[cfg(target_os = "wasi")]
#[rustfmt::skip]
pub mod spin_akamai_kv;
#[cfg(target_os = "wasi")]
#[rustfmt::skip]
pub mod spin_redis;
#[cfg(not(target_arch = "wasm32"))]
#[rustfmt::skip]
pub mod vercel_upstash;
#[cfg(not(target_arch = "wasm32"))]
#[rustfmt::skip]
pub mod vercel_upstash_deny_cache;
#[cfg(not(target_arch = "wasm32"))]
#[rustfmt::skip]
pub mod vercel_upstash_leased;
