//! The messages of Envoy's API, version 3, as far as a rate limit service reads and writes them. As for every reader of Protocol
//! Buffers, a field that is not here is skipped.

use prost::{Enumeration, Message};
use prost_types::Duration;

/// `envoy.service.ratelimit.v3.RateLimitRequest`.
#[derive(Clone, PartialEq, Message)]
pub struct RateLimitRequest {
    /// The namespace of the descriptors.
    #[prost(string, tag = "1")]
    pub domain: String,
    /// What is to be limited, all together.
    #[prost(message, repeated, tag = "2")]
    pub descriptors: Vec<RateLimitDescriptor>,
    /// What the request costs. 0 if Envoy does not say.
    #[prost(uint32, tag = "3")]
    pub hits_addend: u32,
}

/// `envoy.extensions.common.ratelimit.v3.RateLimitDescriptor`.
#[derive(Clone, PartialEq, Message)]
pub struct RateLimitDescriptor {
    /// In the order of Envoy's actions.
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<Entry>,
    /// Whether there is a limit in place of the service's, which this service ignores.
    #[prost(message, optional, tag = "2")]
    pub limit: Option<()>,
    /// What this descriptor costs, in place of the request's.
    #[prost(message, optional, tag = "3")]
    pub hits_addend: Option<u64>,
    /// Whether it is to be given back. This service refuses that.
    #[prost(bool, tag = "4")]
    pub is_negative_hits: bool,
}

/// `envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.Entry`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Entry {
    /// Its name.
    #[prost(string, tag = "1")]
    pub key: String,
    /// What the request has for it.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// `envoy.service.ratelimit.v3.RateLimitResponse`.
#[derive(Clone, PartialEq, Message)]
pub struct RateLimitResponse {
    /// Whether the request passes.
    #[prost(enumeration = "Code", tag = "1")]
    pub overall_code: i32,
    /// One for each descriptor.
    #[prost(message, repeated, tag = "2")]
    pub statuses: Vec<DescriptorStatus>,
    /// The fields of the response to the client.
    #[prost(message, repeated, tag = "3")]
    pub response_headers_to_add: Vec<HeaderValue>,
    /// The body of a denial.
    #[prost(bytes = "vec", tag = "5")]
    pub raw_body: Vec<u8>,
}

/// `envoy.service.ratelimit.v3.RateLimitResponse.DescriptorStatus`.
#[derive(Clone, PartialEq, Message)]
pub struct DescriptorStatus {
    /// Whether this descriptor denies the request.
    #[prost(enumeration = "Code", tag = "1")]
    pub code: i32,
    /// The limit with the fewest remaining.
    #[prost(message, optional, tag = "2")]
    pub current_limit: Option<RateLimit>,
    /// What is left of it.
    #[prost(uint32, tag = "3")]
    pub limit_remaining: u32,
    /// When all of it is left.
    #[prost(message, optional, tag = "4")]
    pub duration_until_reset: Option<Duration>,
}

/// `envoy.service.ratelimit.v3.RateLimitResponse.RateLimit`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RateLimit {
    /// The limit.
    #[prost(uint32, tag = "1")]
    pub requests_per_unit: u32,
    /// Its time: 1 is a second, 2 a minute, 3 an hour, 4 a day, and 0 another time.
    #[prost(int32, tag = "2")]
    pub unit: i32,
    /// Its name.
    #[prost(string, tag = "3")]
    pub name: String,
}

/// `envoy.config.core.v3.HeaderValue`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct HeaderValue {
    /// Its name.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Its value.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// `envoy.service.ratelimit.v3.RateLimitResponse.Code`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum Code {
    /// It was not asked about, because another descriptor denies the request.
    Unknown = 0,
    /// It passes.
    Ok = 1,
    /// It does not.
    OverLimit = 2,
}
