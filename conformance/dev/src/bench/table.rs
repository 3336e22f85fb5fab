use tidegate_measured::{Aim, Unit};
use tidegate_traffic::page::grouped;

use super::{BenchReport, Growth, Measurement, Spread};

const COLUMNS: [&str; 8] = ["group", "measurement", "at", "ours", "peer's", "ratio", "spread", "aim"];

const GROWTH_COLUMNS: [&str; 7] = ["group", "measurement", "axis", "first", "last", "grows as", ""];

/// Renders the measurements as a table. A spread is that of the ratio, or without a peer that of ours. A second table has how those of
/// several places grow.
#[must_use]
pub fn table(report: &BenchReport) -> String {
    let mut table = tidegate_traffic::table(COLUMNS, 2..7);
    let mut group = "";
    for one in &report.measurements {
        let shown = if one.group == group { "" } else { &one.group };
        group = &one.group;
        table.add_row(row(shown, one));
    }
    format!("{table}\n{}", growth_table(&report.growth))
}

/// Empty if nothing grows.
fn growth_table(growth: &[Growth]) -> String {
    if growth.is_empty() {
        return String::new();
    }
    let mut table = tidegate_traffic::table(GROWTH_COLUMNS, 2..6);
    for one in growth {
        let at = |(place, value)| format!("{} at {}", with_unit(value, one.unit), grouped(place));
        table.add_row([
            one.group.clone(),
            one.name.clone(),
            one.axis.clone(),
            at(one.first),
            at(one.last),
            format!("n^{:.2}", one.exponent),
            format!("{} at most n log n", if one.at_most_n_log_n { "✓" } else { "✗" }),
        ]);
    }
    format!("{table}\n")
}

fn row(group: &str, one: &Measurement) -> [String; 8] {
    let beside = one.peer.as_ref().map(|peer| format!(" | {}", peer.name)).unwrap_or_default();
    let spread = one.ratio.map_or_else(
        || range(&one.ours.spread, |value| with_unit(value, one.unit)),
        |ratio| range(&ratio, |ratio| format!("{ratio:.2}")),
    );
    let aim = one.aim.map(|aim| {
        let wanted = match aim.aim {
            Aim::Ratio(ratio) => format!("{ratio:.2}"),
            Aim::Value(value) => with_unit(value, one.unit),
        };
        format!("{} at {} {wanted}", if aim.reached { "✓" } else { "✗" }, if aim.at_least { "least" } else { "most" })
    });
    [
        group.into(),
        format!("{}{beside}", one.name),
        one.at.map_or_else(String::new, |at| format!("{} {}", grouped(at.parts().1), at.parts().0)),
        with_unit(one.ours.spread.median, one.unit),
        one.peer.as_ref().map_or_else(String::new, |peer| with_unit(peer.values.spread.median, one.unit)),
        one.ratio.map_or_else(String::new, |ratio| format!("{:.2}", ratio.median)),
        spread,
        aim.unwrap_or_default(),
    ]
}

/// Empty if all rounds are the same.
fn range(spread: &Spread, shown: impl Fn(f64) -> String) -> String {
    let [min, max] = [spread.min, spread.max].map(shown);
    if min == max { String::new() } else { format!("{min} to {max}") }
}

fn with_unit(value: f64, unit: Unit) -> String {
    let number = match value {
        ..10.0 if value.fract() == 0.0 => format!("{value:.0}"),
        ..0.1 => format!("{value:.4}"),
        ..10.0 => format!("{value:.2}"),
        ..100.0 => format!("{value:.1}"),
        _ => grouped(format_args!("{value:.0}")),
    };
    match unit {
        Unit::Count => number,
        Unit::PerSecond => format!("{number}/s"),
        _ => format!("{number} {}", unit.name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_matter() {
        for (value, unit, shown) in [
            (2.513, Unit::Ns, "2.51 ns"),
            (0.001_23, Unit::Ms, "0.0012 ms"),
            (31.52, Unit::Us, "31.5 us"),
            (225_024.6, Unit::PerSecond, "225,025/s"),
            (1_000.0, Unit::Bytes, "1,000 B"),
            (3.0, Unit::Count, "3"),
        ] {
            assert_eq!(with_unit(value, unit), shown);
        }
    }

    #[test]
    fn a_row_has_the_ratio_and_its_spread() {
        let lines = r#"{"group":"redis","name":"decisions a second","at":{"in_flight":64},"unit":"1/s","aim":{"ratio":1.5},"ours":[300,400,300,200,300],"peer":{"name":"a peer 2.0","values":[200,200,200,200,200]}}
{"group":"size","name":"the package","unit":"KiB","ours":[70.94]}
{"group":"redis","name":"the script","unit":"us","ours":[1,2,3,4,5]}"#;
        let table = table(&BenchReport::read(lines).expect("lines"));
        let mut rows = table
            .lines()
            .filter(|line| line.contains('┆'))
            .map(|line| line.trim_matches('│').split('┆').map(str::trim).collect::<Vec<_>>().join(";"));
        assert_eq!(rows.next(), Some(COLUMNS.join(";")));
        let first = "redis;decisions a second | a peer 2.0;64 in flight;300/s;200/s;1.50;1.00 to 2.00;✓ at least 1.50";
        assert_eq!(rows.next().as_deref(), Some(first));
        assert_eq!(rows.next().as_deref(), Some(";the script;;3 us;;;1 us to 5 us;"));
        assert_eq!(rows.next().as_deref(), Some("size;the package;;70.9 KiB;;;;"));
    }
}
