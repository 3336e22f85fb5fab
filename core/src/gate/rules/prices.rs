//! What the counts of an answer cost, the table `prices` of a rules file.

use std::format_args as args;

use super::Rules;
use crate::Error;
use crate::algorithm::MAX_UNITS;
use crate::document::Item;
use crate::gate::bytes::bytes_of_fields;
use crate::quoted_text::Quoted;
use crate::suggestion::Suggestion;

/// The largest cost: JavaScript has no larger whole numbers.
const COST_MAX: u64 = (1 << 53) - 1;

/// The most decimals of a price that an error says how to scale.
const DECIMALS_MAX: usize = 12;

/// The prices of a model, by the names of what is counted.
#[derive(Debug)]
pub(super) struct ModelPrices {
    model: Box<str>,
    prices: Vec<(Box<str>, u64)>,
}

bytes_of_fields!(ModelPrices { model, prices });

/// Reads the table `prices`.
pub(super) fn prices(table: &Item<'_>) -> Result<Vec<ModelPrices>, Error> {
    let mut found = Vec::new();
    table.entries(&mut |model, item| {
        let mut prices = Vec::new();
        item.entries(&mut |count, price| {
            if let Some(error) = fraction(price) {
                return Err(error);
            }
            prices.push((count.into(), item.number_in(count, 0, MAX_UNITS)?.unwrap_or_default()));
            Ok(())
        })?;
        if prices.is_empty() {
            return Err(item.invalid(args!("empty; write one such as input = 3")));
        }
        found.push(ModelPrices { model: model.into(), prices });
        Ok(())
    })?;
    Ok(found)
}

/// What to write in place of a price with decimals.
fn fraction(price: &Item<'_>) -> Option<Error> {
    let (whole, decimals) = price.bare()?.split_once('.')?;
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits(whole) || !is_digits(decimals) {
        return None;
    }
    let (decimals, written) = (decimals.trim_end_matches('0'), price.bare()?);
    Some(match decimals.len() {
        0 => price.invalid(args!("{written} has a point; write {whole}")),
        1..=DECIMALS_MAX => {
            let scale = format!("1{}", "0".repeat(decimals.len()));
            price.invalid(args!(
                "{written} is a fraction; write prices in units of 1/{scale} and multiply the limits by {scale}"
            ))
        }
        _ => return None,
    })
}

impl Rules {
    /// What counts of a model cost, by the table `prices` of the file: the sum of each count, times its price. For the estimate of a
    /// request, [`Request::cost`](crate::gate::Request::cost), and for what [`Gate::settle`](crate::gate::Gate::settle) corrects it to.
    ///
    /// ```
    /// use tidegate_core::gate::Rules;
    /// # fn main() -> Result<(), tidegate_core::Error> {
    /// let rules = Rules::parse(
    ///     "rules.json",
    ///     r#"{ "prices": { "gpt-large": { "input": 3, "output": 15, "cached": 1 } }, "rules": [] }"#,
    /// )?;
    /// assert_eq!(rules.price("gpt-large", &[("input", 120), ("output", 40)])?, 960);
    /// let error = rules.price("gpt-large", &[("ouput", 40)]).unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     r#"prices: "ouput" is not counted of "gpt-large"; did you mean "output"? Write one of "input", "output", "cached""#
    /// );
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) with the nearest name for a model or a count without a price, and for a sum of 2^53 or more.
    pub fn price(&self, model: &str, counts: &[(&str, u64)]) -> Result<u64, Error> {
        let wrong = |what: String| Error::invalid(format!("prices: {what}"));
        let Some(of) = self.prices.iter().find(|of| *of.model == *model) else {
            let known: Vec<&str> = self.prices.iter().map(|of| &*of.model).collect();
            return Err(wrong(match &known[..] {
                [] => "the rules have none; write a table such as [prices.gpt] with input = 3".into(),
                known => format!("{} has none; {}", Quoted(model), Suggestion::of(model, known)),
            }));
        };
        let mut sum = 0_u64;
        for (name, count) in counts {
            let Some((_, price)) = of.prices.iter().find(|(known, _)| **known == **name) else {
                let known: Vec<&str> = of.prices.iter().map(|(known, _)| &**known).collect();
                let suggestion = Suggestion::of(name, &known);
                return Err(wrong(format!("{} is not counted of {}; {suggestion}", Quoted(name), Quoted(model))));
            };
            let cost = count.checked_mul(*price).and_then(|cost| sum.checked_add(cost));
            sum = cost.filter(|cost| *cost <= COST_MAX).ok_or_else(|| {
                wrong(format!("{count} of {} are too many; a request costs at most {COST_MAX}", Quoted(name)))
            })?;
        }
        Ok(sum)
    }
}
