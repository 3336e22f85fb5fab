//! What a page says that its commands print, beside what they print.

/// The gap in what a page shows: part of a line, or, alone on a line, any number of lines.
const GAP: &str = "…";

/// Why a command printed something else than the page shows. `None` if it did not.
pub(super) fn difference(shown: &str, printed: &str) -> Option<String> {
    let (shown, printed): (Vec<_>, Vec<_>) = (lines(shown), lines(printed));
    (!same(&shown, &printed))
        .then(|| format!("the page shows:\n{}\nand this was printed:\n{}", indented(&shown), indented(&printed)))
}

fn lines(text: &str) -> Vec<&str> {
    let lines: Vec<_> = text.lines().map(str::trim_end).collect();
    let end = lines.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1);
    lines[..end].to_vec()
}

fn indented(lines: &[&str]) -> String {
    lines.iter().map(|line| format!("  | {line}\n")).collect()
}

fn same(shown: &[&str], printed: &[&str]) -> bool {
    match (shown.split_first(), printed.split_first()) {
        (None, None) => true,
        (Some((&GAP, rest)), _) => (0..=printed.len()).any(|skipped| same(rest, &printed[skipped..])),
        (Some((shown, others)), Some((printed, rest))) => fits(shown, printed) && same(others, rest),
        _ => false,
    }
}

fn fits(shown: &str, printed: &str) -> bool {
    match shown.split_once(GAP) {
        None => shown == printed,
        Some((before, after)) => printed.strip_prefix(before).is_some_and(|rest| {
            rest.char_indices().map(|(at, _)| at).chain([rest.len()]).any(|at| fits(after, &rest[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_stands_for_part_of_a_line_or_for_lines() {
        for (shown, printed) in [
            ("200\n429\n", "200\n429\n\n"),
            ("date: …\n", "date: today\r\n"),
            ("a…c\n", "abcbc\n"),
            ("…\nlast\n", "one\ntwo\nlast\n"),
            ("…\n", ""),
            ("first\n…\n", "first\n"),
        ] {
            assert_eq!(difference(shown, printed), None);
        }
        for (shown, printed) in
            [("200\n", "429\n"), ("200\n", "200\n200\n"), ("a…c", "abcd"), ("…\nlast", "last\nno"), ("one", "")]
        {
            assert!(difference(shown, printed).is_some(), "{shown} {printed}");
        }
    }
}
