//! A client as Envoy is one.
#![allow(dead_code, reason = "each test uses a part of this module")]
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, reason = "a failing rig fails its test")]

use std::net::SocketAddr;

use tidegate_envoy::proto::{Code, Entry, RateLimitDescriptor, RateLimitRequest, RateLimitResponse};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

pub const METHOD: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

pub async fn connect(address: SocketAddr) -> Channel {
    Endpoint::try_from(format!("http://{address}")).unwrap().connect().await.unwrap()
}

pub async fn ask(channel: &Channel, request: RateLimitRequest) -> Result<RateLimitResponse, Status> {
    call(channel, METHOD, request).await
}

/// Sends any message to any method.
pub async fn call<M: prost::Message + 'static>(
    channel: &Channel,
    method: &'static str,
    message: M,
) -> Result<RateLimitResponse, Status> {
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let method = PathAndQuery::from_static(method);
    let codec: ProstCodec<M, RateLimitResponse> = ProstCodec::default();
    Ok(client.unary(Request::new(message), method, codec).await?.into_inner())
}

pub fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entry = |(key, value): &(&str, &str)| Entry { key: (*key).into(), value: (*value).into() };
    RateLimitDescriptor { entries: entries.iter().map(entry).collect(), ..RateLimitDescriptor::default() }
}

pub fn request(domain: &str, descriptors: &[&[(&str, &str)]]) -> RateLimitRequest {
    let descriptors = descriptors.iter().map(|entries| descriptor(entries)).collect();
    RateLimitRequest { domain: domain.into(), descriptors, hits_addend: 0 }
}

/// The code of the request, those of its descriptors, and what remains of the limit of each that has one.
pub fn told(response: &RateLimitResponse) -> (Code, Vec<Code>, Vec<Option<u32>>) {
    let code = |code: i32| Code::try_from(code).unwrap();
    let codes = response.statuses.iter().map(|status| code(status.code)).collect();
    let left = |status: &tidegate_envoy::proto::DescriptorStatus| {
        status.current_limit.as_ref().map(|_| status.limit_remaining)
    };
    (code(response.overall_code), codes, response.statuses.iter().map(left).collect())
}

/// The overall code.
pub async fn code(channel: &Channel, request: RateLimitRequest) -> Code {
    told(&ask(channel, request).await.unwrap()).0
}

/// How many of so many requests at once pass.
pub async fn burst(channel: &Channel, request: &RateLimitRequest, count: usize) -> usize {
    let ask = |_| {
        let (channel, request) = (channel.clone(), request.clone());
        tokio::spawn(async move { code(&channel, request).await })
    };
    let tasks: Vec<_> = (0..count).map(ask).collect();
    let mut passed = 0;
    for task in tasks {
        passed += usize::from(task.await.unwrap() == Code::Ok);
    }
    passed
}
