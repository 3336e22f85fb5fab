//! The options of the reference that are not about counts.

use tidegate_core::{BodyFormat, ClientIpSource, Error};

use crate::options::Options;

/// Who sends requests, and how they are rejected.
pub(crate) struct Sender {
    pub(crate) source: ClientIpSource,
    pub(crate) body_format: BodyFormat,
}

impl Sender {
    pub(crate) fn open(options: &mut Options) -> Result<Self, Error> {
        let source = ClientIpSource::new(options.text().parse()?);
        let bits = u8::try_from(options.number()).unwrap_or(u8::MAX);
        let source = source.ipv6_prefix(bits)?.trust_true_client_ip(options.flag());
        let body_format = if options.flag() { BodyFormat::Problem } else { BodyFormat::Json };
        Ok(Self { source, body_format })
    }
}
