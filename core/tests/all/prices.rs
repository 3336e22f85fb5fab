//! Prices of the units of a model's answer.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![cfg(feature = "toml")]

use proptest::prelude::*;
use tidegate_core::ErrorKind;
use tidegate_core::gate::Rules;

fn rules(prices: &str) -> Rules {
    Rules::parse("rules.toml", &format!("rules = []\n{prices}")).unwrap()
}

#[test]
fn a_cost_is_the_sum_of_counts_times_prices() {
    let rules =
        rules("[prices.'gpt-large']\ninput = 3\noutput = 15\ncached = 0\n[prices.'claude/mini 4.1']\ninput = 1");
    assert_eq!(rules.price("gpt-large", &[("input", 120), ("output", 40), ("cached", u64::MAX)]).unwrap(), 960);
    assert_eq!(rules.price("gpt-large", &[("input", 1), ("input", 2)]).unwrap(), 9);
    assert_eq!(rules.price("gpt-large", &[]).unwrap(), 0);
    assert_eq!(rules.price("claude/mini 4.1", &[("input", 7)]).unwrap(), 7);
    let same = Rules::from_bytes(&rules.to_bytes()).unwrap();
    assert_eq!(same.price("gpt-large", &[("output", 2)]).unwrap(), 30);
}

#[test]
fn unknown_names_and_too_large_sums_are_errors() {
    let rules = rules("[prices.large]\ninput = 3\noutput = 2251799813685248\n[prices.small]\ninput = 1");
    for (model, counts, expected) in [
        (
            "larg",
            &[("input", 1)][..],
            "prices: \"larg\" has none; did you mean \"large\"? Write one of \"large\", \"small\"",
        ),
        (
            "small",
            &[("inputs", 1)],
            "prices: \"inputs\" is not counted of \"small\"; did you mean \"input\"? Write one of \"input\"",
        ),
        ("large", &[("output", 4)], "prices: 4 of \"output\" are too many; a request costs at most 9007199254740991"),
        (
            "large",
            &[("output", 3), ("input", 750_599_937_895_082), ("input", 1)],
            "prices: 1 of \"input\" are too many",
        ),
        ("large", &[("input", u64::MAX)], "prices: 18446744073709551615 of \"input\" are too many"),
    ] {
        let error = rules.price(model, counts).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().starts_with(expected), "{error}");
    }
    // 3 x 2^51 + 3 x 750,599,937,895,082 = 2^53 - 2.
    assert_eq!(rules.price("large", &[("output", 3), ("input", 750_599_937_895_082)]).unwrap(), (1 << 53) - 2);
    let error = Rules::parse("rules.json", r#"{ "rules": [] }"#).unwrap().price("a", &[]).unwrap_err().to_string();
    assert_eq!(error, "prices: the rules have none; write a table such as [prices.gpt] with input = 3");
}

#[test]
fn mistakes_in_the_table_say_what_to_write() {
    for (text, expected) in [
        (
            "[prices.a]\ninput = 0.15",
            "rules.toml:2:9: 0.15 is a fraction; write prices in units of 1/100 and multiply the limits by 100",
        ),
        (
            "[prices.a]\ninput = 2.5",
            "2:9: 2.5 is a fraction; write prices in units of 1/10 and multiply the limits by 10",
        ),
        ("[prices.a]\ninput = 3.0", "2:9: 3.0 has a point; write 3"),
        ("[prices.a]\ninput = -1", "2:9: -1 is negative; write a whole number from 0"),
        ("[prices.a]\ninput = '3'", "2:9: expected a whole number, found a text"),
        ("[prices.a]\ninput = true", "2:9: expected a whole number, found true or false"),
        ("[prices.a]\ninput = 2251799813685249", "is out of range; write a whole number from 0 to 2251799813685248"),
        ("[prices.a]", "empty; write one such as input = 3"),
        ("prices = 3", "expected a table, found a number"),
        ("[prices]\na = 3", "2:5: expected a table, found a number"),
        ("[price.a]\ninput = 3", "unknown field `price`; did you mean \"prices\"?"),
    ] {
        let error = Rules::parse("rules.toml", text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

proptest! {
    #[test]
    fn a_cost_is_exact_or_an_error(
        prices in prop::collection::vec(0..=1_u64 << 51, 1..4),
        counts in prop::collection::vec((0..4_usize, prop_oneof![0..1_000_u64, 0..=u64::MAX]), 0..6),
    ) {
        let named = |nth: usize| format!("n{}", nth % prices.len());
        let table: String = prices.iter().enumerate().map(|(nth, price)| format!("n{nth} = {price}\n")).collect();
        let rules = rules(&format!("[prices.m]\n{table}"));
        let names: Vec<String> = counts.iter().map(|(nth, _)| named(*nth)).collect();
        let given: Vec<(&str, u64)> = names.iter().map(String::as_str).zip(counts.iter().map(|(_, count)| *count)).collect();
        let exact: u128 = counts.iter().map(|(nth, count)| u128::from(prices[nth % prices.len()]) * u128::from(*count)).sum();
        match rules.price("m", &given) {
            Ok(cost) => prop_assert_eq!(u128::from(cost), exact),
            Err(_) => prop_assert!(exact >= 1 << 53),
        }
        prop_assert_eq!(rules.price("m", &given).is_ok(), exact < 1 << 53);
    }
}
