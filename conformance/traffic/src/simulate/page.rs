//! The outcomes as a chart, and as a page that needs nothing from the network.

use std::fmt::Write as _;

use serde::Serialize;

use super::environment::{ISOLATES, NOT_MODELLED};
use super::fleet::Outcome;
use super::marks::{COLOURS, MARK, percent, shape};
use super::waits::waits;
use crate::page::Page;

const BODY: &str = include_str!("page/body.html");

/// What was simulated, in words, and what came out.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Simulation {
    /// What was simulated, in a line.
    pub title: String,
    /// The limit, the traffic and the places.
    pub setup: Vec<(&'static str, String)>,
    /// What is assumed of the platforms.
    pub assumptions: Vec<String>,
    /// One for each design and parameter.
    pub outcomes: Vec<Outcome>,
    /// The designs that cannot count by the policy, and why.
    pub left_out: Vec<(&'static str, String)>,
}

/// Renders the simulation as a page.
///
/// # Errors
/// Fails if the simulation cannot be serialized.
pub fn page(simulation: &Simulation) -> serde_json::Result<String> {
    let waits = waits(&simulation.outcomes, &simulation.title);
    let body = BODY.replace("<!--chart-->", &chart(&simulation.outcomes)).replace("<!--waits-->", &waits);
    let page = Page {
        title: "Tidegate simulation",
        style: include_str!("page/page.css"),
        body: &body,
        script: include_str!("page/view.js"),
    };
    let takeaway = takeaway(&simulation.outcomes);
    page.with(&Shown { simulation, takeaway, isolates: &ISOLATES, not_modelled: &NOT_MODELLED })
}

/// What the page shows.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    simulation: &'a Simulation,
    takeaway: String,
    isolates: &'a [&'a str],
    not_modelled: &'a [&'a str],
}

/// What to take away: which designs did not exceed the limit, and the cheapest of them.
fn takeaway(outcomes: &[Outcome]) -> String {
    let within: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.over == 0).collect();
    if within.is_empty() {
        return "Each of these designs admitted more than the limit.".into();
    }
    let mut names: Vec<&str> = within.iter().map(|outcome| outcome.design).collect();
    names.dedup();
    let never: Vec<&str> = names
        .into_iter()
        .filter(|name| outcomes.iter().all(|outcome| outcome.design != *name || outcome.over == 0))
        .collect();
    let cheapest = within
        .iter()
        .filter(|outcome| never.contains(&outcome.design))
        .filter_map(|outcome| Some((outcome.usd_per_million?, outcome)))
        .min_by(|(one, _), (other, _)| one.total_cmp(other));
    let cheapest = cheapest.map_or(String::new(), |(usd, outcome)| {
        let parameter = if outcome.parameter.is_empty() { String::new() } else { format!(" ({})", outcome.parameter) };
        format!(
            " Of those with a price, {}{parameter} is the cheapest, at ${usd:.2} a million decisions.",
            outcome.design
        )
    });
    match &never[..] {
        [] => "Each of these designs exceeds the limit with some parameter.".into(),
        [one] => format!("Only {one} never exceeds the limit.{cheapest}"),
        [some @ .., last] => format!("{} and {last} never exceed the limit.{cheapest}", some.join(", ")),
    }
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 52.0;

/// The marks of the vertical axis, in percent.
const PERCENTS: [f64; 6] = [0.0, 0.1, 1.0, 10.0, 100.0, 1_000.0];

/// Draws overshoot over round trips per decision as SVG: a curve for each design.
///
/// Both axes are logarithmic, and the vertical one begins at zero. Overshoot is what was admitted over the limit, in percent of
/// what an exact limiter admits. Designs that do equally well are drawn beside each other.
#[must_use]
pub fn chart(outcomes: &[Outcome]) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         role=\"img\" aria-label=\"Overshoot over round trips per decision, one curve for each design\" \
         font-family=\"system-ui, sans-serif\" font-size=\"12\" fill=\"#5c656e\">"
    );
    axes(&mut svg);
    let mut names: Vec<&str> = Vec::new();
    for outcome in outcomes {
        if !names.contains(&outcome.design) {
            names.push(outcome.design);
        }
    }
    let mut taken = Vec::new();
    for (nth, name) in names.iter().enumerate() {
        let mut points: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.design == *name).collect();
        points.sort_by(|a, b| a.round_trips.total_cmp(&b.round_trips));
        curve(&mut svg, nth, name, &points, &mut taken);
    }
    svg.push_str("</svg>");
    svg
}

fn axes(svg: &mut String) {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    for percent in PERCENTS {
        let y = down(percent);
        let _ = write!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#8a929a\" stroke-opacity=\"0.35\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{percent} %</text>",
            LEFT - 8.0,
            y + 4.0
        );
    }
    for trips in [0.001, 0.01, 0.1, 1.0] {
        let x = across(trips);
        let _ = write!(svg, "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{trips}</text>", bottom + 18.0);
    }
    let _ = write!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">round trips per decision</text>\
         <text transform=\"translate(14 {:.1}) rotate(-90)\" text-anchor=\"middle\">admitted over the limit</text>",
        (LEFT + right) / 2.0,
        HEIGHT - 10.0,
        f64::midpoint(TOP, bottom)
    );
}

/// `taken` is where the marks of the designs before are.
fn curve(svg: &mut String, nth: usize, name: &str, points: &[&Outcome], taken: &mut Vec<(f64, f64)>) {
    let colour = COLOURS[nth % COLOURS.len()];
    let place = |outcome: &Outcome| (across(outcome.round_trips), down(outcome.overshoot_percent()));
    let path: Vec<String> = points.iter().map(|point| place(point)).map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
    let dashes = if nth < COLOURS.len() { "" } else { " stroke-dasharray=\"5 4\"" };
    let _ =
        write!(svg, "<path d=\"M{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dashes}/>", path.join("L"));
    let mut marks = Vec::new();
    for point in points {
        let (mut x, y) = place(point);
        while taken.iter().any(|(at, up)| (at - x).abs() < MARK && (up - y).abs() < MARK) {
            x += MARK;
        }
        marks.push((x, y));
        let told = format!(
            "{name} {}: {} over, {} round trips, p50 {} ms",
            point.parameter,
            percent(point.overshoot_percent()),
            point.round_trips,
            point.p50_ms
        );
        let _ = write!(svg, "<g fill=\"{colour}\">{}<title>{told}</title></g>", shape(nth, x, y));
    }
    taken.extend(marks);
    // The names, beside each other in the margin.
    #[expect(clippy::cast_precision_loss, reason = "a few designs")]
    let y = TOP + 14.0 + 20.0 * nth as f64;
    let x = WIDTH - RIGHT + 22.0;
    let _ = write!(
        svg,
        "<g fill=\"{colour}\">{}</g><text x=\"{:.1}\" y=\"{:.1}\">{name}</text>",
        shape(nth, x, y - 4.0),
        x + 12.0,
        y
    );
}

/// From a thousandth of a round trip to three.
fn across(trips: f64) -> f64 {
    let share = (trips.clamp(0.001, 3.0) / 0.001).log10() / 3_000_f64.log10();
    LEFT + 10.0 + share * (WIDTH - LEFT - RIGHT - 20.0)
}

/// From nothing to ten times the limit.
fn down(percent: f64) -> f64 {
    let share = (1.0 + percent.clamp(0.0, 1_000.0) / 0.05).log10() / (1.0 + 1_000.0_f64 / 0.05).log10();
    HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
}

#[cfg(test)]
mod tests {
    use super::{COLOURS, Outcome, across, down, percent, takeaway};

    fn outcome(design: &'static str, over: u64, usd: Option<f64>) -> Outcome {
        Outcome { design, over, usd_per_million: usd, ..Outcome::default() }
    }

    #[test]
    fn the_takeaway_names_what_never_exceeds_the_limit_and_the_cheapest_of_it() {
        let outcomes = [
            outcome("objects", 0, Some(2.5)),
            outcome("leases", 0, Some(0.4)),
            outcome("kv", 7, Some(0.1)),
            outcome("synchronized", 0, None),
            outcome("synchronized", 9, None),
        ];
        assert_eq!(
            takeaway(&outcomes),
            "objects and leases never exceed the limit. Of those with a price, leases is the cheapest, at $0.40 a million decisions."
        );
        assert_eq!(takeaway(&outcomes[2..3]), "Each of these designs admitted more than the limit.");
    }

    #[test]
    fn each_design_has_a_colour_of_its_own() {
        let mut names: Vec<_> = crate::simulate::designs(1).iter().map(|design| design.name).collect();
        names.dedup();
        let mut colours = COLOURS.to_vec();
        colours.sort_unstable();
        colours.dedup();
        assert!(colours.len() == COLOURS.len() && names.len() <= COLOURS.len(), "{names:?}");
    }

    #[test]
    fn the_axes_go_up_and_to_the_right() {
        assert!(across(0.0) < across(0.01) && across(0.01) < across(1.0) && across(1.0) < across(2.0));
        assert!(down(0.0) > down(0.1) && down(0.1) > down(10.0) && down(10.0) > down(500.0));
        assert_eq!([percent(0.0), percent(0.056), percent(3.13), percent(200.4)], ["0 %", "0.06 %", "3.1 %", "200 %"]);
    }
}
