//! Paths in the form that rules compare: without what servers treat as the same path.

mod parts;

use std::borrow::Cow;
use std::fmt::Write as _;

use self::parts::{Form, Forms, Kind, Parts, escape, normal, stays};

/// The most segments of a rule's path.
pub(super) const SEGMENTS_MAX: usize = 32;

/// The segments of a path that a reading keeps. No rule tells those behind apart: one sees whether its path ends, and whether a slash
/// comes last.
const KEPT: usize = SEGMENTS_MAX + 2;

/// How far rules look at a path. None of them tells apart what lies behind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reach {
    pub(super) segments: usize,
    /// Of a segment.
    pub(super) bytes: usize,
}

impl Reach {
    /// How far any rules may look.
    pub(super) const WHOLE: Self = Self { segments: KEPT, bytes: usize::MAX };
}

impl Default for Reach {
    fn default() -> Self {
        Self::WHOLE
    }
}

/// What a reading does with the escapes of a path, and with characters that a client should escape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Escapes {
    /// They are in their normal form.
    Normal,
    /// The escapes are as they arrived, if there are any, and no character needs another.
    Kept,
    /// Both are as they arrived.
    Raw,
}

/// A rule's path without a star at its end: in its normal form, and with the escapes as they are written. A segment of any text is its
/// name in braces in both.
///
/// The normal form is that of RFC 3986, section 6.2.2: escapes of characters that need none are decoded, all others are in upper case,
/// characters that need an escape have one, and `.` and `..` are resolved. A backslash counts as a slash, as in browsers. Empty segments
/// are left out. An escaped slash stays as it is, because it is not a separator. Of a longer path than a rule can have, only the
/// beginning is kept.
pub(super) fn rule_path(path: &str) -> Result<[String; 2], &'static str> {
    let mut parts = Parts::new(path, true, Reach::WHOLE.bytes);
    for (place, text) in parts.texts.iter().enumerate() {
        let name = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        if name.unwrap_or(text).contains(['{', '}']) {
            return Err("has a brace inside a segment; write {name} for a whole segment, and %7B or %7D for a brace");
        }
        if let Some(name) = name {
            let text = Cow::from(format!("{{{}}}", normal(name)));
            parts.forms.insert(place, Forms { text: text.clone(), normal: text, escaped: None });
        }
    }
    let kept = Structures::of(&parts).kept(MERGE | ESCAPED_DOTS | DOTS, KEPT);
    Ok([Form::Normal, Form::Text].map(|form| {
        let mut out = String::with_capacity(path.len() + 1);
        kept.write(&mut parts, form, &mut out);
        out
    }))
}

/// Calls `found` with the path as each server may read it, and whether a segment before the last is empty, until it returns true: the
/// normal form first, the path as it arrived last. At most 54 readings, and one for a path that is already normal.
#[inline]
pub(super) fn readings(path: &str, reach: Reach, found: &mut dyn FnMut(&str, Escapes, bool) -> bool) {
    if is_normal(path) {
        found(path, Escapes::Kept, false);
    } else {
        all_readings(path, reach, found);
    }
}

/// Apart, because most requests need none of what this does.
#[inline(never)]
fn all_readings(path: &str, reach: Reach, found: &mut dyn FnMut(&str, Escapes, bool) -> bool) {
    let path = without_query(path);
    // A client chooses how long the path is, so it is taken apart once, and not for each reading.
    let new = |takes_backslashes| {
        let parts = Parts::new(path, takes_backslashes, reach.bytes);
        (Structures::of(&parts), parts)
    };
    let mut one = new(false);
    let mut other = if path.contains('\\') { Some(new(true)) } else { None };
    let all = needed(path, &other.as_ref().unwrap_or(&one).1);
    let mut reading = String::with_capacity(path.len() + 1);
    // A client also chooses which steps change nothing, so equal readings are found once.
    let mut known: Vec<(u8, Kept)> = Vec::new();
    let mut found_before: Vec<(usize, u8)> = Vec::new();
    // All subsets, the largest first.
    let mut steps = all;
    loop {
        let has = |step| steps & step != 0;
        if (has(DOTS) || !has(ESCAPED_DOTS)) && !(has(MERGE) && all & !steps & LEADING != 0) {
            let (structures, parts) = other.as_mut().filter(|_| has(BACKSLASHES)).unwrap_or(&mut one);
            // Which segments are kept does not depend on how they are written.
            let structure = steps & !ESCAPES;
            let place = known.iter().position(|(steps, _)| *steps == structure).unwrap_or_else(|| {
                known.push((structure, structures.kept(structure, reach.segments)));
                known.len() - 1
            });
            let kept = &known[place].1;
            let same = |(steps, other): &(u8, Kept)| other == kept && (steps ^ structure) & BACKSLASHES == 0;
            let first = known.iter().position(same).unwrap_or(place);
            let written = (first, steps & ESCAPES);
            if !found_before.contains(&written) {
                found_before.push(written);
                // A server may keep what has no escape, or give it one.
                let forms: &[_] = match (has(ESCAPES), kept.needs_escape(parts)) {
                    (true, _) => &[(Form::Normal, Escapes::Normal)],
                    (false, false) => &[(Form::Text, Escapes::Kept)],
                    (false, true) => &[(Form::Text, Escapes::Raw), (Form::Escaped, Escapes::Normal)],
                };
                for (form, escapes) in forms {
                    kept.write(parts, *form, &mut reading);
                    let has_empty = all & MERGE != 0 && !has(MERGE) && reading.contains("//");
                    if found(&reading, *escapes, has_empty) {
                        return;
                    }
                }
            }
        }
        if steps == 0 {
            return;
        }
        steps = (steps - 1) & all;
    }
}

/// [`in_lower_case`], for rules that ignore case. Unicode's tables for it take 11 KiB of WebAssembly, gzipped, which others do not link.
pub(super) type FoldCase = for<'p> fn(&'p str, Escapes) -> Cow<'p, str>;

/// A reading of a path without the difference between upper and lower case, for hosts that route so. The letters of the escapes are in
/// lower case, too.
pub(super) fn in_lower_case(path: &str, escapes: Escapes) -> Cow<'_, str> {
    if path.is_ascii() && (escapes != Escapes::Normal || !path.contains('%')) {
        let is_lower = !path.bytes().any(|byte| byte.is_ascii_uppercase());
        return if is_lower { path.into() } else { path.to_ascii_lowercase().into() };
    }
    if escapes != Escapes::Normal {
        return path.to_lowercase().into();
    }
    let mut out = String::with_capacity(path.len());
    for character in unescaped(path).to_lowercase().chars() {
        if character.is_ascii() {
            out.push(character);
        } else {
            character.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| _ = write!(out, "%{byte:02x}"));
        }
    }
    out.into()
}

/// A path in which no character outside ASCII is escaped. Escapes of bytes that are not UTF-8 stay.
fn unescaped(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(start) = rest.find('%') {
        let (before, at) = rest.split_at(start);
        out.push_str(before);
        // Those of one character or of several.
        let mut bytes = Vec::new();
        let mut after = at;
        while let Some((byte, next)) = escape(after).filter(|(byte, _)| !byte.is_ascii()) {
            bytes.push(byte);
            after = next;
        }
        for chunk in bytes.utf8_chunks() {
            out.push_str(chunk.valid());
            chunk.invalid().iter().for_each(|byte| _ = write!(out, "%{byte:02X}"));
        }
        if bytes.is_empty() {
            out.push('%');
            after = &at[1..];
        }
        rest = after;
    }
    out + rest
}

/// The segments of a path. A slash at the end is followed by an empty one.
pub(super) fn segments(path: &str) -> impl Iterator<Item = &str> + Clone {
    let path = path.strip_prefix('/').unwrap_or(path);
    Segments(Some(path).filter(|path| !path.is_empty()))
}

/// What is left of a path. Segments are short, so that a plain loop finds their end sooner than `str::split` does.
#[derive(Clone)]
struct Segments<'p>(Option<&'p str>);

impl<'p> Iterator for Segments<'p> {
    type Item = &'p str;

    fn next(&mut self) -> Option<&'p str> {
        let path = self.0?;
        let end = path.bytes().position(|byte| byte == b'/');
        self.0 = end.map(|end| &path[end + 1..]);
        Some(&path[..end.unwrap_or(path.len())])
    }
}

/// Whether all servers read a path alike. It may be false for one that they do.
pub(super) fn is_normal(path: &str) -> bool {
    // A part has as many bytes as a vector, and the one after them. Nothing stops at what it finds, so the compiler makes vector
    // instructions of it.
    const PART: usize = 16;
    let mut rest = path.as_bytes();
    if rest.len() > 1 && rest.ends_with(b"/") {
        return false;
    }
    loop {
        let mut part = [b'a'; PART + 1];
        let len = rest.len().min(PART + 1);
        part[..len].copy_from_slice(&rest[..len]);
        let mut found = 0;
        for place in 0..PART {
            let (byte, next) = (part[place], part[place + 1]);
            let is_pair = u8::from(byte == b'/') & (u8::from(next == b'.') | u8::from(next == b'/'));
            found |= u8::from(!stays(byte)) | is_pair;
        }
        if found != 0 || len <= PART {
            return found == 0;
        }
        rest = &rest[PART..];
    }
}

fn without_query(path: &str) -> &str {
    // These look at many bytes at once.
    let path = path.find('?').map_or(path, |end| &path[..end]);
    path.find('#').map_or(path, |end| &path[..end])
}

// What a server does with a path before it compares it.

/// Takes a backslash for a slash.
const BACKSLASHES: u8 = 1;
/// Leaves out empty segments.
const MERGE: u8 = 2;
/// Takes escaped dots for dots. Only with [`DOTS`].
const ESCAPED_DOTS: u8 = 4;
/// Resolves `.` and `..`.
const DOTS: u8 = 8;
/// Writes the escapes in their normal form.
const ESCAPES: u8 = 16;
/// Leaves out empty segments at the start. [`MERGE`] does, too.
const LEADING: u8 = 32;

/// The steps that may change a path of these parts.
fn needed(path: &str, parts: &Parts<'_>) -> u8 {
    let mut steps = 0;
    if path.contains('\\') {
        steps |= BACKSLASHES;
    }
    if !path.bytes().all(|byte| stays(byte) || byte == b'\\') {
        steps |= ESCAPES;
    }
    let mut has_empty = false;
    for (kind, _) in Kind::ALL.into_iter().zip(parts.found).filter(|(_, is_found)| *is_found) {
        match kind {
            Kind::Text => {}
            Kind::Empty => has_empty |= parts.kinds.len() > 1,
            // What remains in front of dots may be empty, and so may what remains after them.
            Kind::Dots { is_escaped, .. } => steps |= DOTS | MERGE | if is_escaped { ESCAPED_DOTS } else { 0 },
        }
    }
    // Dots can bring an empty segment to the start.
    let may_lead = parts.kinds.first().is_some_and(|kind| *kind == Kind::EMPTY) || steps & DOTS != 0;
    steps | if has_empty { MERGE } else { 0 } | if has_empty && may_lead { LEADING } else { 0 }
}

/// What is kept of a path where dots are read alike: with its empty segments and without.
struct Stacks {
    own: Kept,
    merged: Kept,
    /// The empty segments at the start, which are not in `own`.
    leading: usize,
    /// Whether the last segment is dots that are resolved.
    resolves: bool,
}

/// What is kept of a path by each server: one that resolves no dots, one that does, and one that also resolves escaped ones.
struct Structures([Stacks; 3]);

impl Structures {
    /// Of all servers in one pass.
    fn of(parts: &Parts<'_>) -> Self {
        let acts = [0, DOTS, DOTS | ESCAPED_DOTS].map(|steps| Kind::ALL.map(|kind| act(kind, steps)));
        let new = || Stacks { own: Kept::NONE, merged: Kept::NONE, leading: 0, resolves: false };
        let mut stacks = [new(), new(), new()];
        for (place, kind) in (0..EMPTY).zip(&parts.kinds) {
            for (stack, acts) in stacks.iter_mut().zip(&acts) {
                match acts[usize::from(*kind)] {
                    Act::Add if *kind != Kind::EMPTY => {
                        stack.own.add(place);
                        stack.merged.add(place);
                    }
                    Act::Add if stack.own.count == 0 => stack.leading += 1,
                    Act::Add => stack.own.add(EMPTY),
                    Act::Remove => {
                        match stack.own.count {
                            0 => stack.leading = stack.leading.saturating_sub(1),
                            _ => stack.own.count -= 1,
                        }
                        stack.merged.count = stack.merged.count.saturating_sub(1);
                    }
                    Act::Nothing => {}
                }
            }
        }
        if let Some(last) = parts.kinds.last().filter(|last| **last > Kind::EMPTY) {
            for (stack, acts) in stacks.iter_mut().zip(&acts) {
                stack.resolves = !matches!(acts[usize::from(*last)], Act::Add);
            }
        }
        Self(stacks)
    }

    /// The first segments after these steps.
    fn kept(&self, steps: u8, most: usize) -> Kept {
        let place = if steps & DOTS == 0 { 0 } else { 1 + usize::from(steps & ESCAPED_DOTS != 0) };
        let stack = &self.0[place];
        let mut kept = Kept::NONE;
        if steps & (MERGE | LEADING) == 0 {
            (0..stack.leading.min(KEPT)).for_each(|_| kept.add(EMPTY));
        }
        let others = if steps & MERGE == 0 { &stack.own } else { &stack.merged };
        others.places[..others.count.min(KEPT)].iter().for_each(|place| kept.add(*place));
        // Dots at the end leave a slash there.
        if stack.resolves && steps & MERGE == 0 {
            kept.add(EMPTY);
        }
        kept.count = kept.count.min(most);
        kept.places[kept.count..].fill(EMPTY);
        kept
    }
}

/// What a server does with a segment that is neither empty nor left out for that.
const fn act(kind: Kind, steps: u8) -> Act {
    match kind {
        Kind::Dots { is_escaped, .. } if steps & DOTS == 0 || (is_escaped && steps & ESCAPED_DOTS == 0) => Act::Add,
        Kind::Dots { are_two: true, .. } => Act::Remove,
        Kind::Dots { .. } => Act::Nothing,
        Kind::Empty | Kind::Text => Act::Add,
    }
}

/// The segments that a reading keeps, by their places.
#[derive(PartialEq, Eq)]
struct Kept {
    places: [u32; KEPT],
    count: usize,
}

/// The place of an empty segment that the path does not have.
const EMPTY: u32 = u32::MAX;

impl Kept {
    const NONE: Self = Self { places: [EMPTY; KEPT], count: 0 };

    /// Only the first are kept.
    fn add(&mut self, place: u32) {
        if let Some(kept) = self.places.get_mut(self.count) {
            *kept = place;
        }
        self.count += 1;
    }

    /// The places, but those of segments that the path does not have.
    fn places(&self) -> impl Iterator<Item = Option<usize>> {
        let places = self.places[..self.count].iter();
        places.map(|place| usize::try_from(*place).ok().filter(|_| *place != EMPTY))
    }

    /// Whether a character needs an escape and has none.
    fn needs_escape(&self, parts: &mut Parts<'_>) -> bool {
        self.places().flatten().any(|place| parts.forms(place).escaped.is_some())
    }

    fn write(&self, parts: &mut Parts<'_>, form: Form, out: &mut String) {
        out.clear();
        for place in self.places() {
            out.push('/');
            let Some(place) = place else { continue };
            let forms = parts.forms(place);
            out.push_str(match form {
                Form::Normal => &forms.normal,
                Form::Text => &forms.text,
                Form::Escaped => forms.escaped.as_deref().unwrap_or(&forms.text),
            });
        }
    }
}

#[derive(Clone, Copy)]
enum Act {
    Add,
    /// Removes the segment before.
    Remove,
    Nothing,
}

#[cfg(test)]
mod tests {
    use super::{Escapes, KEPT, Reach, in_lower_case, is_normal, readings, rule_path, segments};

    fn normal(path: &str) -> String {
        all(path).swap_remove(0)
    }

    #[test]
    fn equivalent_paths_have_the_same_segments() {
        let same = [
            "/api/login",
            "/api/login/",
            "//api///login",
            "/api/./login",
            "/api/x/../login",
            "/../api/login",
            "/%61pi/l%6Fgin",
            "/%61pi/l%6fgin?next=/",
            "/api\\login",
            "/x/%2e%2E/api/login#top",
            "api/login",
        ];
        for path in same {
            let path = normal(path);
            assert_eq!(segments(&path).collect::<Vec<_>>(), ["api", "login"], "{path}");
        }
    }

    #[test]
    fn a_path_of_any_length_is_normal_unless_something_in_it_is_special() {
        for len in 1..60 {
            let plain = format!("/{}", "a".repeat(len));
            assert!(is_normal(&plain), "{plain}");
            for place in 1..=len {
                let with = |text: &str| [&plain[..place], text, &plain[place..]].concat();
                for special in ["%", "?", "\\", "//", "/."] {
                    assert!(!is_normal(&with(special)), "{special} at {place} of {len}");
                }
                assert_eq!(is_normal(&with("/")), place > 1, "a slash at {place} of {len}");
            }
            assert!(!is_normal(&(plain + "/")));
        }
    }

    fn all(path: &str) -> Vec<String> {
        let mut found = Vec::new();
        readings(path, Reach::WHOLE, &mut |path, _, _| {
            found.push(path.to_string());
            false
        });
        found
    }

    #[test]
    fn each_step_may_be_left_out() {
        assert_eq!(all("/a/b"), ["/a/b"]);
        assert_eq!(all("/.well-known/x?y"), ["/.well-known/x"]);
        assert_eq!(all("/"), ["/"]);
        assert_eq!(all("/a/"), ["/a", "/a/"]);
        assert_eq!(all("/a\\b"), ["/a/b", "/a\\b"]);
        assert_eq!(all("/l%6fgin"), ["/login", "/l%6fgin"]);
        for (path, expected) in [
            ("/files/..//x/y", ["/x/y", "//x/y", "/files/../x/y", "/files/..//x/y"].as_slice()),
            // A WHATWG URL resolves dots and keeps empty segments.
            ("/a//../b", &["/b", "/a/b", "/a//../b"]),
            ("/a/%2e%2e/l%6fgin", &["/login", "/l%6fgin", "/a/%2e%2e/l%6fgin", "/a/../login"]),
            ("/api/.", &["/api", "/api/", "/api/."]),
        ] {
            let found = all(path);
            assert_eq!(found[0], expected[0]);
            assert!(expected.iter().all(|reading| found.iter().any(|known| known == reading)), "{path}: {found:?}");
        }
        // Of 36, those that keep the same segments in the same form count once.
        assert_eq!(all("/a\\..//%2e/b%20?").len(), 20);
    }

    #[test]
    fn of_a_long_path_the_beginning_is_kept() {
        let long = "/a".repeat(40);
        let kept = "/a".repeat(KEPT);
        assert_eq!(all(&long), [&*long], "nothing is to be done");
        assert_eq!(normal(&(long.clone() + "/")), kept);
        // What is behind still counts: here it leads back to the first segments.
        assert_eq!(normal(&(long.clone() + &"/..".repeat(39))), "/a");
        assert_eq!(normal(&(long.clone() + &"/..".repeat(8) + "/b")), "/a".repeat(32) + "/b");
        assert_eq!(normal(&(long + &"/..".repeat(50) + "/b/./c")), "/b/c");
    }

    #[test]
    fn other_escapes_stay_in_upper_case() {
        for (path, expected) in [
            ("/a%2fb", "/a%2Fb"),
            ("/it%27s%28%21%29", "/it's(!)"),
            ("/%40me%5C%22", "/@me%5C%22"),
            ("/%7bx%7D", "/%7Bx%7D"),
            ("/{x}", "/%7Bx%7D"),
            ("/a \"<>`\u{7f}", "/a%20%22%3C%3E%60%7F"),
            ("/%c3%a9", "/%C3%A9"),
            ("/é", "/%C3%A9"),
            ("/\u{1f600}/%F0%9f%98%80", "/%F0%9F%98%80/%F0%9F%98%80"),
            // Overlong, cut off, a surrogate: bytes of no character.
            ("/%c0%af%C3/%ed%a0%80", "/%C0%AF%C3/%ED%A0%80"),
            ("/%", "/%"),
            ("/%4", "/%4"),
            ("/%zz/%41", "/%zz/A"),
            ("/é%2e", "/%C3%A9."),
            ("/%25%32%65", "/%252e"),
            ("/a/..%2Fb", "/a/..%2Fb"),
            ("/%é", "/%%C3%A9"),
            ("/%2é", "/%2%C3%A9"),
            ("/a%+1", "/a%+1"),
        ] {
            assert_eq!(normal(path), expected);
            assert_eq!(normal(expected), expected, "what is normal stays");
        }
    }

    #[test]
    fn a_reading_says_what_it_does_with_escapes() {
        let all = |path: &str| {
            let mut found = Vec::new();
            readings(path, Reach::WHOLE, &mut |path, escapes, _| {
                found.push((path.to_string(), escapes));
                false
            });
            found
        };
        let known = |readings: &[(&str, Escapes)]| -> Vec<_> {
            readings.iter().map(|(path, escapes)| ((*path).to_string(), *escapes)).collect()
        };
        assert_eq!(all("/a"), known(&[("/a", Escapes::Kept)]));
        assert_eq!(all("/a/"), known(&[("/a", Escapes::Kept), ("/a/", Escapes::Kept)]));
        assert_eq!(
            all("/é?"),
            known(&[("/%C3%A9", Escapes::Normal), ("/é", Escapes::Raw), ("/%C3%A9", Escapes::Normal)])
        );
        assert_eq!(all("/%C3%A9"), known(&[("/%C3%A9", Escapes::Normal), ("/%C3%A9", Escapes::Kept)]));
        assert_eq!(all("/\""), known(&[("/%22", Escapes::Normal), ("/\"", Escapes::Raw), ("/%22", Escapes::Normal)]));
    }

    #[test]
    fn a_rules_path_has_a_normal_form_and_one_as_it_is_written() {
        for (path, normal, written) in [
            ("/a/b", "/a/b", "/a/b"),
            ("/é/{id}", "/%C3%A9/{id}", "/é/{id}"),
            ("/%c3%A9/x y", "/%C3%A9/x%20y", "/%c3%A9/x y"),
            ("/%61/../%62\\/{é \"}", "/b/{%C3%A9%20%22}", "/%62/{%C3%A9%20%22}"),
            ("/%7Bx%7d/{}", "/%7Bx%7D/{}", "/%7Bx%7d/{}"),
        ] {
            assert_eq!(rule_path(path), Ok([normal, written].map(Into::into)));
        }
        for path in ["/{a}b", "/{a{b}}", "/{", "/}", "/{a}{b}", "/a/{b/c}", "/{a}b/.."] {
            assert!(rule_path(path).is_err_and(|error| error.contains("brace")), "{path}");
        }
    }

    #[test]
    fn letters_of_all_scripts_have_a_lower_case() {
        for (path, escapes, expected) in [
            ("/A", Escapes::Kept, "/a"),
            ("/CAF%C3%89%2F", Escapes::Normal, "/caf%c3%a9%2f"),
            ("/%E2%84%AA%FF%C3", Escapes::Normal, "/k%ff%c3"),
            ("/%CE%9F%CE%94%CE%9F%CE%A3/%C4%B0", Escapes::Normal, "/%ce%bf%ce%b4%ce%bf%cf%82/i%cc%87"),
            ("/CAFÉ%C3%89", Escapes::Raw, "/café%c3%89"),
            ("/%C3%89", Escapes::Kept, "/%c3%89"),
            ("/%%%4/A%C3%", Escapes::Normal, "/%%%4/a%c3%"),
        ] {
            assert_eq!(in_lower_case(path, escapes), expected, "{path}");
        }
    }
}
