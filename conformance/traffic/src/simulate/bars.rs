//! The most that each design admits, as bars beside the limit: what a reader sees first.

use std::fmt::Write as _;

use super::design::{Design, designs};
use super::fleet::Outcome;
use crate::page::grouped;

const WIDTH: f64 = 760.0;
/// Where bars begin, and where the longest ends.
const LEFT: f64 = 190.0;
const RIGHT: f64 = 560.0;
const TOP: f64 = 62.0;
const ROW: f64 = 30.0;
const BAR: f64 = 18.0;

/// What is within the limit, and what is beyond it: two colours of Okabe and Ito, which differ in lightness.
const WITHIN: &str = "#0072b2";
const BEYOND: &str = "#d55e00";

/// Draws the most that a client was admitted in an interval of the limit's length, for each design, as SVG: what is beyond the limit has
/// another colour, and the limit is a line. Of a design with several parameters, it has the adapter's default, or the one in the middle.
#[must_use]
pub fn bars(outcomes: &[Outcome], limit: u64) -> String {
    let mut shown = chosen(outcomes);
    shown.sort_by(|a, b| a.worst.cmp(&b.worst).then(a.round_trips.total_cmp(&b.round_trips)));
    let most = shown.iter().map(|outcome| outcome.worst).max().unwrap_or_default().max(limit);
    #[expect(clippy::cast_precision_loss, reason = "counts of a run are far below 2^53")]
    let across = |count: u64| LEFT + (RIGHT - LEFT) * count as f64 / most.max(1) as f64;
    #[expect(clippy::cast_precision_loss, reason = "some designs")]
    let (bottom, line) = (TOP + ROW * shown.len() as f64, across(limit));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {:.0}\" width=\"{WIDTH}\" height=\"{:.0}\" role=\"img\" \
         aria-label=\"The most that each design admitted where the limit is {limit}\" font-family=\"system-ui, sans-serif\" \
         font-size=\"13\" fill=\"#6b747d\"><text x=\"10\" y=\"20\" font-size=\"16\" font-weight=\"600\">Requests admitted to one \
         client in the worst interval, where the limit is {}</text>\
         <text x=\"{line:.1}\" y=\"{:.1}\" text-anchor=\"middle\">limit</text>\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">round trips</text>",
        bottom + 10.0,
        bottom + 10.0,
        grouped(limit),
        TOP - 10.0,
        WIDTH - 10.0,
        TOP - 10.0,
    );
    let mut y = TOP;
    for outcome in shown {
        let (middle, end) = (y + BAR / 2.0 + 4.5, across(outcome.worst));
        let name = [outcome.design, " ", &outcome.parameter].concat();
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{middle:.1}\" text-anchor=\"end\">{}<title>{}</title></text>\
             <rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{BAR}\" fill=\"{WITHIN}\"/>",
            LEFT - 10.0,
            outcome.design,
            name.trim_end(),
            end.min(line) - LEFT
        );
        if end > line {
            let _ = write!(
                svg,
                "<rect x=\"{line:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{BAR}\" fill=\"{BEYOND}\"/>",
                end - line
            );
        }
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{middle:.1}\" font-weight=\"600\">{}</text>\
             <text x=\"{:.1}\" y=\"{middle:.1}\" text-anchor=\"end\">{}</text>",
            end + 8.0,
            grouped(outcome.worst),
            WIDTH - 10.0,
            outcome.round_trips
        );
        y += ROW;
    }
    let _ = write!(
        svg,
        "<line x1=\"{line:.1}\" x2=\"{line:.1}\" y1=\"{:.1}\" y2=\"{bottom:.1}\" stroke=\"#6b747d\" stroke-dasharray=\"4 3\"/></svg>",
        TOP - 6.0
    );
    svg
}

/// One outcome of each design.
pub(super) fn chosen(outcomes: &[Outcome]) -> Vec<&Outcome> {
    let known = designs(0);
    let is_default = |outcome: &Outcome| {
        // A grace is the caller's, and no adapter's default.
        outcome.parameter.starts_with("of ")
            || known
                .iter()
                .filter(|design| design.is_default())
                .any(|Design { name, parameter, .. }| *name == outcome.design && *parameter == outcome.parameter)
    };
    let mut names: Vec<&str> = outcomes.iter().map(|outcome| outcome.design).collect();
    names.dedup();
    let one = |name: &&str| {
        let all: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.design == *name).collect();
        all.iter().find(|outcome| is_default(outcome)).or_else(|| all.get(all.len() / 2)).copied()
    };
    names.iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::{BEYOND, Outcome, bars};

    #[test]
    fn only_what_exceeds_the_limit_has_the_colour_for_it_and_the_worst_is_last() {
        let outcome = |design, parameter: &str, worst| Outcome {
            design,
            parameter: parameter.into(),
            worst,
            ..Outcome::default()
        };
        let outcomes = [
            outcome("kv-counter", "", 13_447),
            outcome("durable-object", "", 1_000),
            outcome("synchronized", "every 10 ms", 1_042),
            outcome("synchronized", "every 100 ms", 1_052),
            outcome("synchronized", "every 1000 ms", 1_252),
            outcome("workers-kv", "refresh 1 s", 4_543),
            outcome("workers-kv", "refresh 30 s", 11_992),
            outcome("durable-object-leased-grace", "of 3", 901),
            outcome("durable-object-leased-grace", "shards 1", 902),
            outcome("durable-object-leased-grace", "shards 4", 903),
        ];
        let svg = bars(&outcomes, 1_000);
        assert_eq!(svg.matches(BEYOND).count(), 3, "{svg}");
        assert!(svg.contains("4,543") && !svg.contains("11,992") && svg.contains("1,052"), "{svg}");
        assert!(svg.contains("901") && !svg.contains("902") && !svg.contains("903"), "{svg}");
        assert!(svg.find("durable-object") < svg.find("kv-counter"), "{svg}");
    }
}
