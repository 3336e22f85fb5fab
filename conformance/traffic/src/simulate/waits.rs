//! How long decisions take, against what they admit over the limit: the corner that nobody wants to trade away.

use std::fmt::Write as _;

use super::bars::chosen;
use super::fleet::Outcome;
use super::marks::{COLOURS, MARK, percent, shape};
use crate::page::grouped;

const WIDTH: f64 = 440.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 422.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 260.0;
/// How far above it what admits nothing over the limit is. Below, there is room for those that do equally well.
const ZERO: f64 = 45.0;
/// Where the list of designs begins.
const LIST: f64 = 322.0;
const ROW: f64 = 21.0;

/// The marks of the axes, in milliseconds and in percent.
const WAITS_MS: [u32; 5] = [0, 1, 10, 100, 1_000];
const PERCENTS: [f64; 5] = [0.0, 0.1, 1.0, 10.0, 100.0];

/// Draws the wait that 99 % of the requests do not exceed, and what was admitted over the limit, as SVG: a mark for each design, and a
/// list of the designs with their numbers. Of a design with several parameters, it has the adapter's default, or the one in the middle.
///
/// Both axes are logarithmic and begin at zero. All pictures have the same axes, so that those of several scenarios compare.
#[must_use]
pub fn waits(outcomes: &[Outcome], title: &str) -> String {
    let shown = chosen(outcomes);
    #[expect(clippy::cast_precision_loss, reason = "some designs")]
    let height = LIST + ROW * shown.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" height=\"{height:.0}\" \
         role=\"img\" aria-label=\"The wait of 99 % of the requests and what was admitted over the limit, for each design: {title}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"12\" fill=\"#6b747d\"><text x=\"10\" y=\"20\" font-size=\"15\" \
         font-weight=\"600\">{title}</text>"
    );
    axes(&mut svg);
    let (mut taken, mut y) = (Vec::new(), LIST);
    for (nth, outcome) in shown.iter().enumerate() {
        let colour = COLOURS[nth % COLOURS.len()];
        let (x, up) = free(&taken, across(outcome.p99_ms), down(outcome.overshoot_percent()));
        taken.push((x, up));
        let name = [outcome.design, " ", &outcome.parameter].concat();
        let (name, over) = (name.trim_end(), percent(outcome.overshoot_percent()));
        let _ = write!(
            svg,
            "<g fill=\"{colour}\">{}<title>{name}: p99 {} ms, {over} over</title></g>\
             <g fill=\"{colour}\">{}</g><text x=\"36\" y=\"{y:.1}\">{name}</text>\
             <text x=\"{:.1}\" y=\"{y:.1}\" text-anchor=\"end\">{} ms</text>\
             <text x=\"{RIGHT}\" y=\"{y:.1}\" text-anchor=\"end\">{over}</text>",
            shape(nth, x, up),
            outcome.p99_ms,
            shape(nth, 22.0, y - 4.0),
            RIGHT - 70.0,
            outcome.p99_ms.round(),
        );
        y += ROW;
    }
    svg.push_str("</svg>");
    svg
}

fn axes(svg: &mut String) {
    for value in PERCENTS {
        let y = down(value);
        let _ = write!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#8a929a\" stroke-opacity=\"0.35\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{value} %</text>",
            LEFT - 8.0,
            y + 4.0
        );
    }
    for ms in WAITS_MS {
        let x = across(ms.into());
        let _ = write!(
            svg,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{BOTTOM}\" stroke=\"#8a929a\" stroke-opacity=\"0.35\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            BOTTOM + 18.0,
            grouped(ms)
        );
    }
    let _ = write!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">99 % of decisions take at most so many ms</text>\
         <text transform=\"translate(14 {:.1}) rotate(-90)\" text-anchor=\"middle\">admitted over the limit</text>",
        f64::midpoint(LEFT, RIGHT),
        BOTTOM + 36.0,
        f64::midpoint(TOP, BOTTOM)
    );
}

/// Where there is room for a mark: beneath those that do equally well, and beside them if they are many.
fn free(taken: &[(f64, f64)], x: f64, y: f64) -> (f64, f64) {
    let is_free = |(x, y): &(f64, f64)| taken.iter().all(|(at, up)| (at - x).abs() >= MARK || (up - y).abs() >= MARK);
    let beside = if x < (LEFT + RIGHT) / 2.0 { MARK } else { -MARK };
    let columns = (0..10).flat_map(|column| (0..4).map(move |row| (f64::from(column), f64::from(row))));
    columns.map(|(column, row)| (x + column * beside, y + row * MARK)).find(is_free).unwrap_or((x, y))
}

/// From nothing to two seconds.
fn across(ms: f64) -> f64 {
    let share = (1.0 + ms.clamp(0.0, 2_000.0)).log10() / 2_001_f64.log10();
    LEFT + MARK + share * (RIGHT - LEFT - 2.0 * MARK)
}

/// From nothing to three times the limit.
fn down(percent: f64) -> f64 {
    let share = (1.0 + percent.clamp(0.0, 200.0) / 0.05).log10() / (1.0 + 200.0_f64 / 0.05).log10();
    BOTTOM - ZERO - share * (BOTTOM - TOP - ZERO)
}

#[cfg(test)]
mod tests {
    use super::{Outcome, across, down, waits};

    #[test]
    fn each_design_has_its_numbers_and_its_mark_beneath_those_that_do_equally_well() {
        let outcome = |design, parameter: &str, p99_ms, over| Outcome {
            design,
            parameter: parameter.into(),
            p99_ms,
            exact: 1_000,
            over,
            ..Outcome::default()
        };
        let outcomes = [
            outcome("durable-object", "", 238.39, 0),
            outcome("redis", "", 238.11, 0),
            outcome("durable-object-leased", "slice 1", 235.0, 0),
            outcome("durable-object-leased", "slice 50", 0.25, 0),
            outcome("kv-counter", "", 461.85, 960),
        ];
        let svg = waits(&outcomes, "default");
        for told in
            [">durable-object-leased slice 50<", ">238 ms<", ">0 ms<", ">96 %<", "redis: p99 238.11 ms, 0 % over"]
        {
            assert!(svg.contains(told), "{told}: {svg}");
        }
        assert!(!svg.contains("slice 1<"), "{svg}");
        // A circle at its middle, and the rectangle beneath it at its corner.
        let numbers = |mark: &str, attribute: &str| {
            let (_, mark) = svg.split_once(mark).expect("a mark");
            let (_, value) = mark.split_once(attribute).expect("an attribute");
            value.split('"').next().and_then(|value| value.parse::<f64>().ok()).expect("a number")
        };
        assert!((numbers("<circle", " cx=\"") - numbers("<rect", " x=\"") - 4.0).abs() < 1.0, "{svg}");
        assert!(numbers("<circle", " cy=\"") + 10.0 <= numbers("<rect", " y=\"") + 4.0, "{svg}");
    }

    #[test]
    fn the_corner_without_wait_and_without_excess_is_at_the_lower_left() {
        assert!(across(0.0) < across(0.5) && across(0.5) < across(100.0) && across(100.0) < across(1_999.0));
        assert!(down(0.0) > down(0.1) && down(0.1) > down(10.0) && down(10.0) > down(199.0));
    }
}
