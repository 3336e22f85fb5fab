//! Finds the most specific rule of a request.

use std::borrow::Cow;
use std::cmp::{Ordering, Reverse};
use std::fmt;
use std::num::NonZero;

use super::path::{Escapes, Reach, in_lower_case, segments};
use super::request::Request;
use crate::sorted_map::SortedMap;

/// What a rule matches, for programs that translate rules. [`Rule::pattern`](super::Rule::pattern) returns it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pattern {
    /// The hosts.
    pub host: Host,
    /// The paths.
    pub path: Path,
    /// The methods, in upper case. Empty for all. `GET` matches `HEAD` too.
    pub methods: Box<[Box<str>]>,
    /// The header fields that must be present, in lower case.
    pub headers: Box<[Box<str>]>,
    /// The bot score that a request's must be less than.
    pub score_below: Option<NonZero<u8>>,
}

/// The hosts that a rule matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Host {
    /// All.
    #[default]
    Any,
    /// One, in lower case.
    Exact(Box<str>),
    /// All that end with `.` and this.
    Below(Box<str>),
}

/// The paths that a rule matches, in their [normal form](super::Rules#paths). Paths are equal if they match the same.
#[derive(Clone, Debug, Eq)]
#[non_exhaustive]
pub struct Path {
    /// `None` for a segment of any text.
    pub segments: Box<[Option<Box<str>>]>,
    /// Whether more segments may follow.
    pub is_prefix: bool,
    /// The segments as the file has them, for servers that decode no path: a text, or the name of a segment of any text in braces. `None`
    /// for one that is the same in its normal form. Empty if all are.
    pub(super) written: Box<[Option<Box<str>>]>,
}

impl Default for Path {
    fn default() -> Self {
        Self { segments: Box::default(), is_prefix: true, written: Box::default() }
    }
}

impl PartialEq for Path {
    fn eq(&self, other: &Self) -> bool {
        self.segments == other.segments && self.is_prefix == other.is_prefix
    }
}

impl Host {
    /// One host is more specific than a domain, a longer domain than a shorter one, and a domain than any host.
    fn specificity(&self) -> (u8, usize) {
        match self {
            Self::Any => (0, 0),
            Self::Below(domain) => (1, domain.len()),
            Self::Exact(_) => (2, 0),
        }
    }
}

impl Path {
    /// A path of its normal form and of what the file has. A segment of any text is its name in braces.
    pub(super) fn new([normal, written]: [&str; 2], is_prefix: bool, ignores_case: bool) -> Self {
        let both = segments(normal).zip(segments(written)).map(|(normal, written)| {
            if normal.starts_with('{') {
                return (None, Some(normal.into()));
            }
            let (mut normal, mut written) = (Cow::Borrowed(normal), Cow::Borrowed(written));
            if ignores_case {
                normal = in_lower_case(&normal, Escapes::Normal).into_owned().into();
                written = in_lower_case(&written, Escapes::Kept).into_owned().into();
            }
            let own = (normal != written).then(|| written.into());
            (Some(normal.into()), own)
        });
        let (segments, mut written): (Vec<_>, Vec<_>) = both.unzip();
        if written.iter().all(Option::is_none) {
            written.clear();
        }
        Self { segments: segments.into(), is_prefix, written: written.into() }
    }

    /// Each segment as the file has it, and in its normal form, or `None` if it is one of any text.
    fn both(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        let written = self.written.iter().map(Option::as_deref).chain(std::iter::repeat(None));
        let both = self.segments.iter().map(Option::as_deref).zip(written);
        both.map(|(normal, written)| (written.or(normal).unwrap_or_default(), normal))
    }

    /// Whether a server that decodes no path compares it with other texts than the normal ones.
    fn is_written_otherwise(&self) -> bool {
        self.segments.iter().zip(&self.written).any(|(normal, written)| normal.is_some() && written.is_some())
    }

    /// From left to right: a segment as it is, any segment, the end, and more segments.
    fn specificity(&self) -> impl Iterator<Item = u8> {
        let end = if self.is_prefix { 0 } else { 1 };
        self.segments.iter().map(|segment| if segment.is_some() { 3 } else { 2 }).chain([end])
    }
}

impl Pattern {
    /// Compares which of two patterns applies to a request that matches both: the greater one. Of equals, the one that comes
    /// first in the file.
    ///
    /// ```
    /// use tidegate_core::gate::Rules;
    /// # fn main() -> Result<(), tidegate_core::Error> {
    /// let rules = Rules::parse("rules.json", r#"{ "rules": [{ "path": "/api/*" }, { "path": "/api/{id}" }] }"#)?;
    /// let [prefix, any] = rules.rules() else { panic!() };
    /// assert!(any.pattern().cmp_specificity(prefix.pattern()).is_gt());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn cmp_specificity(&self, other: &Self) -> Ordering {
        let host = self.host.specificity().cmp(&other.host.specificity());
        let path = || self.path.specificity().cmp(other.path.specificity());
        host.then_with(path).then_with(|| self.specificity().cmp(&other.specificity()))
    }

    /// Its methods, host and path, such as `POST /login` or `/api/*`.
    pub(super) fn short(&self) -> String {
        let plain = Self { headers: Box::default(), score_below: None, ..self.clone() }.to_string();
        plain.strip_prefix("any method, ").map_or(plain.clone(), Into::into)
    }

    /// Its hosts and paths, the same text for patterns of which both are equal.
    pub(super) fn place(&self) -> String {
        let (kind, host) = match &self.host {
            Host::Any => (' ', ""),
            Host::Exact(host) => ('=', &**host),
            Host::Below(domain) => ('.', &**domain),
        };
        let mut place = format!("{kind}{host}");
        for segment in &self.path.segments {
            // In the normal form, no segment has a brace.
            place.extend(["/", segment.as_deref().unwrap_or("{}")]);
        }
        if self.path.is_prefix {
            place.push('{');
        }
        place
    }

    // These compare two patterns of the same hosts and paths, of which this comes first in the file.

    /// Whether each request that matches `other` matches this too.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let all = |these: &[Box<str>], those: &[Box<str>]| these.iter().all(|name| those.contains(name));
        let methods = self.methods.is_empty() || (!other.methods.is_empty() && all(&other.methods, &self.methods));
        let scores = self.score_below.is_none_or(|most| other.score_below.is_some_and(|other| other <= most));
        methods && scores && all(&self.headers, &other.headers)
    }

    /// Whether this applies to a request that matches both.
    pub(super) fn precedes(&self, other: &Self) -> bool {
        self.specificity() >= other.specificity()
    }

    /// Whether only the order in the file decides on some requests that match both.
    pub(super) fn is_unordered_with(&self, other: &Self) -> bool {
        let meets = self.methods.is_empty() || self.methods.iter().any(|method| other.methods.contains(method));
        meets && self.specificity() == other.specificity()
    }

    /// Whether it is for this method among others, and not for all.
    pub fn has_method(&self, method: &str) -> bool {
        self.methods.iter().any(|known| **known == *method)
    }

    /// A pattern with methods precedes one without, then one with more headers, then one with a lower score.
    fn specificity(&self) -> (bool, usize, Option<Reverse<NonZero<u8>>>) {
        (!self.methods.is_empty(), self.headers.len(), self.score_below.map(Reverse))
    }

    /// Whether it has hosts and paths only.
    fn is_for_all(&self) -> bool {
        self.methods.is_empty() && self.headers.is_empty() && self.score_below.is_none()
    }

    fn matches(&self, request: &Request<'_>) -> bool {
        // A server answers HEAD as it would GET.
        let is = |method: &str| method == request.method() || (method == "GET" && request.method() == "HEAD");
        (self.methods.is_empty() || self.methods.iter().any(|method| is(method)))
            && self.score_below.is_none_or(|most| request.bot_score.is_some_and(|score| score < most.get()))
            && self.headers.iter().all(|name| request.has_header(name))
    }
}

/// The rules by what they match.
#[derive(Debug, Default)]
pub(super) struct Matcher {
    normal: Hosts,
    /// With the paths as the file has them, if one differs from its normal form.
    written: Option<Hosts>,
    reach: Reach,
}

/// A reading of a path as some routers compare it.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathForm<'p> {
    pub(super) path: &'p str,
    /// Whether a segment of any text may be empty.
    pub(super) takes_empty: bool,
}

/// The rules by host, then by path.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    any: Tree,
    exact: SortedMap<Tree>,
    /// By the end of the host, without the dot in front.
    below: SortedMap<Tree>,
}

/// The rules of a host, as a tree of path segments.
#[derive(Debug, Default)]
struct Tree {
    literal: SortedMap<Tree>,
    any: Option<Box<Tree>>,
    /// The rules that match a path which ends here, most specific first.
    here: Vec<Entry>,
    /// The rules that also match longer paths, most specific first.
    prefix: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    pattern: Pattern,
    /// Whether all requests to its hosts and paths match.
    is_for_all: bool,
    rule: usize,
}

impl Entry {
    #[inline]
    fn is_found(&self, request: &Request<'_>, found: &mut impl FnMut(usize) -> bool) -> bool {
        (self.is_for_all || self.pattern.matches(request)) && found(self.rule)
    }
}

impl Matcher {
    /// A matcher of rules, in the order of the file.
    pub(super) fn new<'p>(patterns: impl Iterator<Item = &'p Pattern> + Clone) -> Self {
        let is_other = patterns.clone().any(|pattern| pattern.path.is_written_otherwise());
        let written = is_other.then(|| Hosts::new(patterns.clone(), |(written, normal)| normal.and(Some(written))));
        let paths = patterns.clone().map(|pattern| &pattern.path);
        let texts = paths.clone().flat_map(Path::both).flat_map(|(written, normal)| [Some(written), normal]);
        // They see whether a path ends after their last segment, and whether a slash comes last.
        let segments = paths.map(|path| path.segments.len()).max().unwrap_or_default() + 2;
        // Nine bytes may be one letter in lower case: the escapes of the Kelvin sign are.
        let bytes = 9 * (texts.flatten().map(str::len).max().unwrap_or_default() + 1);
        Self { normal: Hosts::new(patterns, |(_, normal)| normal), written, reach: Reach { segments, bytes } }
    }

    /// How far the rules look at a path.
    #[inline]
    pub(super) const fn reach(&self) -> Reach {
        self.reach
    }

    /// Whether a rule is for some hosts only.
    #[inline]
    pub(super) const fn reads_host(&self) -> bool {
        !self.normal.exact.is_empty() || !self.normal.below.is_empty()
    }

    /// What all requests are compared with, if the rules have one form and are for any host.
    #[inline]
    pub(super) const fn only(&self) -> Option<&Hosts> {
        if self.written.is_none() && !self.reads_host() { Some(&self.normal) } else { None }
    }

    /// What a reading of a path is compared with: the rules' paths in their normal form, as the file has them, or in both forms. A server
    /// that keeps the escapes of a request may have its routes in either form.
    #[inline]
    pub(super) fn of(&self, escapes: Escapes) -> (&Hosts, Option<&Hosts>) {
        match escapes {
            Escapes::Normal => (&self.normal, None),
            Escapes::Kept => (&self.normal, self.written.as_ref()),
            Escapes::Raw => (self.written.as_ref().unwrap_or(&self.normal), None),
        }
    }
}

impl Hosts {
    fn new<'p>(
        patterns: impl Iterator<Item = &'p Pattern>,
        text: fn((&'p str, Option<&'p str>)) -> Option<&'p str>,
    ) -> Self {
        let mut hosts = Self::default();
        for (rule, pattern) in patterns.enumerate() {
            hosts.add(pattern, pattern.path.both().map(text), rule);
        }
        hosts
    }

    /// Adds a rule after all that were added before.
    fn add<'p>(&mut self, pattern: &Pattern, segments: impl Iterator<Item = Option<&'p str>>, rule: usize) {
        let mut tree = match &pattern.host {
            Host::Any => &mut self.any,
            Host::Exact(host) => self.exact.get_or_default(host),
            Host::Below(domain) => self.below.get_or_default(domain),
        };
        for segment in segments {
            tree = match segment {
                Some(text) => tree.literal.get_or_default(text),
                None => tree.any.get_or_insert_default(),
            };
        }
        let entries = if pattern.path.is_prefix { &mut tree.prefix } else { &mut tree.here };
        let place = entries.partition_point(|entry| entry.pattern.specificity() >= pattern.specificity());
        entries.insert(place, Entry { pattern: pattern.clone(), is_for_all: pattern.is_for_all(), rule });
    }

    /// Calls `found` with each rule for a request, if its host and its path are read so, most specific first, until it returns true.
    #[inline]
    pub(super) fn visit(
        &self,
        request: &Request<'_>,
        host: &str,
        PathForm { path, takes_empty }: PathForm<'_>,
        found: &mut impl FnMut(usize) -> bool,
    ) {
        let mut visit = |tree: &Tree| tree.visit(request, segments(path), takes_empty, found);
        if self.exact.get(host).is_some_and(&mut visit) {
            return;
        }
        let mut rest = if self.below.is_empty() { None } else { host.split_once('.') };
        while let Some((_, domain)) = rest {
            if self.below.get(domain).is_some_and(&mut visit) {
                return;
            }
            rest = domain.split_once('.');
        }
        visit(&self.any);
    }
}

impl Tree {
    /// Visits in this order: a segment as it is before any segment, a longer path before a shorter one. Returns whether
    /// `found` did.
    fn visit<'a>(
        &self,
        request: &Request<'_>,
        mut path: impl Iterator<Item = &'a str> + Clone,
        takes_empty: bool,
        found: &mut impl FnMut(usize) -> bool,
    ) -> bool {
        // Where nothing but longer paths matches, it makes no difference how the path goes on.
        if !self.has_prefixes_only() {
            let next = path.next();
            if let Some(segment) = next {
                // Some routers take an empty segment for a parameter, but none takes the end of a path after its last slash.
                let any = self.any.as_deref();
                let any = any.filter(|_| !segment.is_empty() || (takes_empty && path.clone().next().is_some()));
                let mut visit = |tree: &Self| tree.visit(request, path.clone(), takes_empty, found);
                if self.literal.get(segment).is_some_and(&mut visit) || any.is_some_and(&mut visit) {
                    return true;
                }
            } else if self.here.iter().any(|entry| entry.is_found(request, found)) {
                return true;
            }
        }
        self.prefix.iter().any(|entry| entry.is_found(request, found))
    }

    #[inline]
    fn has_prefixes_only(&self) -> bool {
        self.literal.is_empty() && self.any.is_none() && self.here.is_empty()
    }
}

/// Such as `GET /api/*` or `any method, api.example.com/*, with x-api-key`.
impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, method) in self.methods.iter().enumerate() {
            write!(f, "{}{method}", if place == 0 { "" } else { " or " })?;
        }
        f.write_str(if self.methods.is_empty() { "any method, " } else { " " })?;
        match &self.host {
            Host::Any => {}
            Host::Exact(host) => f.write_str(host)?,
            Host::Below(domain) => write!(f, "*.{domain}")?,
        }
        for (written, normal) in self.path.both() {
            // A star in a path is not one at its end.
            let text = if normal == Some("*") { "%2A" } else { normal.unwrap_or(written) };
            write!(f, "/{text}")?;
        }
        f.write_str(match (self.path.is_prefix, self.path.segments.is_empty()) {
            (true, _) => "/*",
            (false, true) => "/",
            (false, false) => "",
        })?;
        self.headers.iter().try_for_each(|name| write!(f, ", with {name}"))?;
        self.score_below.iter().try_for_each(|most| write!(f, ", with a bot score below {most}"))
    }
}
