//! The marks of designs in charts, and what is written beside them.

/// A colour for each design: those of Okabe and Ito, then others that differ from them in lightness. Each has one of four shapes, so
/// that colour alone says nothing.
pub(super) const COLOURS: [&str; 21] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8c6bb1", "#7f7f7f", "#e69f00", "#56b4e9", "#a50f15", "#00441b",
    "#7a0177", "#54278f", "#252525", "#b8860b", "#3690c0", "#74c476", "#e7298a", "#a6761d", "#1b9e77", "#b15928",
    "#4a6fe3",
];

/// The width of a mark.
pub(super) const MARK: f64 = 10.0;

pub(super) fn shape(nth: usize, x: f64, y: f64) -> String {
    match nth % 4 {
        0 => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\"/>"),
        1 => format!("<rect x=\"{:.1}\" y=\"{:.1}\" width=\"8\" height=\"8\"/>", x - 4.0, y - 4.0),
        2 => format!("<path d=\"M{x:.1} {:.1}l5.5 9.5h-11z\"/>", y - 5.5),
        _ => format!("<path d=\"M{x:.1} {:.1}l5.5 5.5l-5.5 5.5l-5.5-5.5z\"/>", y - 5.5),
    }
}

/// A percentage with two digits that matter.
#[must_use]
pub fn percent(value: f64) -> String {
    match value {
        0.0 => "0 %".into(),
        small if small < 1.0 => format!("{small:.2} %"),
        some if some < 10.0 => format!("{some:.1} %"),
        many => format!("{many:.0} %"),
    }
}
