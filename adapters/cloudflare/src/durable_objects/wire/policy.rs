//! Policies on the wire. An object knows the numbers of a policy, and not its names.

use tidegate_core::{Error, ErrorKind, Policy, Quota};

use crate::durable_objects::bytes::{CallReader, put};

/// The length of a quota: its dimension and algorithm, and three numbers.
const QUOTA_LEN: usize = 1 + 3 * 8;

/// The name of every policy that an object builds.
const NAME: &str = "wire";

/// The policy of the last call. Most calls have the same policy as the one before, and need not build it.
#[derive(Debug, Default)]
pub(crate) struct Known(Option<Built>);

#[derive(Debug)]
struct Built {
    bytes: Vec<u8>,
    policy: Policy,
    /// The policy of each row, if there are several.
    parts: Vec<Policy>,
}

impl Known {
    /// Reads a policy, and the policies of its rows if there are several.
    pub(super) fn read(
        &mut self,
        rest: &mut CallReader<'_>,
        charge_denied: bool,
    ) -> Result<(&Policy, &[Policy]), Error> {
        let [count] = rest.take()?;
        let bytes = rest.split(QUOTA_LEN * usize::from(count))?;
        self.0.take_if(|built| built.bytes != bytes || built.policy.charges_denied() != charge_denied);
        let built = match &mut self.0 {
            Some(built) => built,
            unknown => unknown.insert(Built::new(bytes, charge_denied)?),
        };
        Ok((&built.policy, &built.parts))
    }
}

impl Built {
    fn new(bytes: &[u8], charge_denied: bool) -> Result<Self, Error> {
        let mut rest = CallReader { bytes, kind: ErrorKind::Invalid };
        let mut quotas = Vec::new();
        while !rest.bytes.is_empty() {
            quotas.push(quota(&mut rest)?);
        }
        let policy = Policy::new(NAME, quotas)?.charge_denied(charge_denied);
        let mut written = Vec::with_capacity(1 + bytes.len());
        put_quotas(&mut written, &policy);
        if written[1..] != *bytes {
            return Err(rest.error("the quotas are not in a policy's order"));
        }
        let parts = match policy.rows().len() {
            1 => Vec::new(),
            several => (0..several).map(|place| policy.of_row(place)).collect(),
        };
        Ok(Self { bytes: bytes.to_vec(), policy, parts })
    }
}

pub(super) fn put_quotas(out: &mut Vec<u8>, policy: &Policy) {
    out.push(policy.quotas().len().to_le_bytes()[0]);
    for (place, dimension) in policy.dimensions().iter().enumerate() {
        for quota in &policy.quotas()[dimension.quotas()] {
            out.push(place.to_le_bytes()[0] << 4 | quota.rule().number());
            put(out, quota.rule().parameters());
        }
    }
}

fn quota(rest: &mut CallReader<'_>) -> Result<Quota, Error> {
    let [kind] = rest.take()?;
    let quota = Quota::from_parameters(kind & 15, [rest.u64()?, rest.u64()?, rest.u64()?]);
    quota?.by(&(kind >> 4).to_string())
}
