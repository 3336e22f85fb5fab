//! Rules that were compiled before, as bytes.

use super::{Rule, Rules};
use crate::gate::bytes::{Bytes, BytesReader, Writer};
use crate::gate::matcher::Matcher;
use crate::gate::token::Tokens;
use crate::policy::CurrentPolicies;

impl Bytes for Rules {
    fn write(&self, to: &mut Writer) {
        let Self {
            // Made of the rules.
            matcher: _,
            ignores_case,
            exempts_preflights,
            rules,
            dimensions,
            limits,
            leases,
            tiers,
            api_key_header,
            api_keys,
            tokens,
            stores,
            // Known to the program.
            compose: _,
            fold_case: _,
            first_store: _,
            responses,
            allowed,
            denied,
            warnings,
            limits_from,
            overrides,
            prices,
            // Known to the gate.
            fixed: _,
            // Found with requests.
            current: _,
        } = self;
        ignores_case.write(to);
        exempts_preflights.write(to);
        rules.write(to);
        dimensions.write(to);
        limits.write(to);
        leases.write(to);
        tiers.write(to);
        api_key_header.write(to);
        api_keys.write(to);
        tokens.as_ref().map(|tokens| tokens.expected.clone()).write(to);
        stores.write(to);
        responses.write(to);
        allowed.write(to);
        denied.write(to);
        warnings.write(to);
        limits_from.write(to);
        overrides.write(to);
        prices.write(to);
    }

    fn read(from: &mut BytesReader<'_>) -> Option<Self> {
        let (ignores_case, exempts_preflights, rules) =
            (Bytes::read(from)?, Bytes::read(from)?, Vec::<Rule>::read(from)?);
        Some(Self {
            matcher: Matcher::new(rules.iter().map(|rule| &rule.pattern)),
            ignores_case,
            exempts_preflights,
            rules,
            dimensions: Bytes::read(from)?,
            limits: Bytes::read(from)?,
            leases: Bytes::read(from)?,
            tiers: Bytes::read(from)?,
            api_key_header: Bytes::read(from)?,
            api_keys: Bytes::read(from)?,
            tokens: Option::read(from)?.map(|expected| Tokens { expected, verifier: None }),
            stores: Bytes::read(from)?,
            compose: None,
            fold_case: None,
            first_store: None,
            responses: Bytes::read(from)?,
            allowed: Bytes::read(from)?,
            denied: Bytes::read(from)?,
            warnings: Bytes::read(from)?,
            limits_from: Bytes::read(from)?,
            overrides: Bytes::read(from)?,
            prices: Bytes::read(from)?,
            fixed: Vec::new(),
            current: CurrentPolicies::default(),
        })
    }
}
