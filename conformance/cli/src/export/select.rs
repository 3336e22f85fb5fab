//! Which requests a platform's rule counts: a part of those that certainly count to the limit.
//!
//! In a rules file, the most specific rule of a request applies. A platform's rules have no such order. So a rule that counts
//! `/*` leaves out what a more specific rule without the limit matches, such as `/health`. It leaves it out by one condition,
//! because platforms do not negate several together: by the path if that leaves something, else by the methods, the host or a
//! header field. That may leave out more than the other rule matches, which makes the outer ring looser, never stricter.

use tidegate_core::gate::{Host, Path, Pattern, Rule};

use super::pattern::{is_any, is_literal};

/// The conditions that a platform's rules may have.
#[derive(Clone, Copy, Debug)]
pub struct Can {
    /// The host.
    pub host: bool,
    /// The method.
    pub method: bool,
    /// Header fields.
    pub header: bool,
    /// Regular expressions, which `{name}` in a path needs.
    pub regex: bool,
}

/// The requests that a platform's rule counts, of those of one rule of the file.
#[derive(Clone, Debug)]
pub struct Selection<'r> {
    /// The rule's name.
    pub rule: &'r str,
    /// The place of the rule in the file.
    pub place: usize,
    /// The hosts.
    pub host: &'r Host,
    /// The paths.
    pub path: &'r Path,
    /// The methods. Empty for all.
    pub methods: Vec<&'r str>,
    /// The header fields that must be present.
    pub headers: Vec<&'r str>,
    /// What is left out.
    pub except: Vec<Except<'r>>,
}

/// Requests that are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Except<'r> {
    /// Those of a path.
    Path(Path),
    /// Those with one of these methods.
    Methods(Vec<&'r str>),
    /// Those of a host.
    Host(&'r Host),
    /// Those with a header field.
    Header(&'r str),
}

impl<'r> Except<'r> {
    /// The methods that are left out, if these are methods.
    #[must_use]
    pub fn methods(&self) -> &[&'r str] {
        if let Self::Methods(methods) = self { methods } else { &[] }
    }
}

impl<'r> Selection<'r> {
    /// Whether a path in another spelling than the normal one could be taken for one that this selects.
    #[must_use]
    pub fn mistakes_spellings(&self) -> bool {
        let leaves_out = self.except.iter().any(|except| matches!(except, Except::Path(_)));
        let is_one = is_literal(self.path) && !self.path.is_prefix;
        leaves_out || !(is_one || is_any(self.path))
    }

    /// The conditions for what is left out, as a platform writes each of them. Its rule negates them.
    pub(super) fn left_out<T>(
        &self,
        host: fn(&'r Host) -> Option<T>,
        path: fn(&Path) -> T,
        methods: fn(&[&'r str]) -> T,
        header: fn(&'r str) -> T,
    ) -> impl Iterator<Item = T> {
        self.except.iter().filter_map(move |except| match except {
            Except::Path(left_out) => Some(path(left_out)),
            Except::Methods(left_out) => Some(methods(left_out)),
            Except::Host(left_out) => host(left_out),
            Except::Header(name) => Some(header(name)),
        })
    }
}

/// The part of a rule's requests that a platform can count to a limit, and what it leaves out more than necessary.
/// `has_limit` tells of each rule whether it charges the limit.
///
/// # Errors
/// Why it can count none.
pub fn select<'r>(
    rules: &'r [Rule],
    place: usize,
    has_limit: &dyn Fn(usize) -> bool,
    can: Can,
) -> Result<(Selection<'r>, Vec<String>), String> {
    let rule = &rules[place];
    let pattern = rule.pattern();
    refuse(pattern, can)?;
    let mut selection = Selection {
        rule: rule.name(),
        place,
        host: &pattern.host,
        path: &pattern.path,
        methods: methods(pattern),
        headers: pattern.headers.iter().map(|name| &**name).collect(),
        except: Vec::new(),
    };
    let mut notes = Vec::new();
    for (other_place, other) in rules.iter().enumerate() {
        if other_place == place || has_limit(other_place) || !meets(pattern, other.pattern()) {
            continue;
        }
        let order = other.pattern().cmp_specificity(pattern);
        if order.is_lt() || (order.is_eq() && other_place > place) {
            continue;
        }
        let except = except(pattern, other.pattern(), can).ok_or_else(|| {
            format!("{} applies to some of its requests, and the platform cannot tell them apart", other.name())
        })?;
        if let Some(note) = beyond(&except, other, rule) {
            notes.push(note);
        }
        if !selection.except.contains(&except) {
            selection.except.push(except);
        }
    }
    Ok((selection, notes))
}

/// Why the platform cannot tell whether a request matches.
fn refuse(pattern: &Pattern, can: Can) -> Result<(), String> {
    let missing = if pattern.score_below.is_some() {
        "the bot score that the application gives a request"
    } else if pattern.host != Host::Any && !can.host {
        "the host"
    } else if !pattern.methods.is_empty() && !can.method {
        "the method"
    } else if !pattern.headers.is_empty() && !can.header {
        "header fields"
    } else if !is_literal(&pattern.path) && !can.regex {
        "a segment of any text, which needs regular expressions"
    } else {
        return Ok(());
    };
    Err(format!("its rules cannot match {missing}"))
}

/// The methods that a pattern matches. `GET` includes `HEAD`.
fn methods(pattern: &Pattern) -> Vec<&str> {
    let mut methods: Vec<&str> = pattern.methods.iter().map(|method| &**method).collect();
    if methods.contains(&"GET") && !methods.contains(&"HEAD") {
        methods.push("HEAD");
    }
    methods
}

/// Whether some request matches both.
fn meets(one: &Pattern, other: &Pattern) -> bool {
    let (here, there) = (methods(one), methods(other));
    let methods = here.is_empty() || there.is_empty() || here.iter().any(|method| there.contains(method));
    methods && hosts_meet(&one.host, &other.host) && paths_meet(&one.path, &other.path)
}

fn hosts_meet(one: &Host, other: &Host) -> bool {
    covers_host(one, other) || covers_host(other, one)
}

/// Whether each host of `inner` is one of `outer`.
fn covers_host(outer: &Host, inner: &Host) -> bool {
    let is_below = |host: &str, domain: &str| host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
    match (outer, inner) {
        (Host::Any, _) => true,
        (Host::Below(domain), Host::Exact(host)) => is_below(host, domain),
        (Host::Below(domain), Host::Below(inner)) => inner == domain || is_below(inner, domain),
        (Host::Exact(host), Host::Exact(inner)) => host == inner,
        _ => false,
    }
}

fn paths_meet(one: &Path, other: &Path) -> bool {
    let is_long_enough = |short: &Path, long: &Path| short.is_prefix || short.segments.len() >= long.segments.len();
    let mut pairs = one.segments.iter().zip(&other.segments);
    pairs.all(|pair| matches!(pair, (None, _) | (_, None)) || pair.0 == pair.1)
        && is_long_enough(one, other)
        && is_long_enough(other, one)
}

/// Whether each path of `inner` is one of `outer`.
fn covers_path(outer: &Path, inner: &Path) -> bool {
    let is_end = outer.segments.len() == inner.segments.len() && !inner.is_prefix;
    let mut pairs = outer.segments.iter().zip(&inner.segments);
    outer.segments.len() <= inner.segments.len()
        && (outer.is_prefix || is_end)
        && pairs.all(|(outer, inner)| outer.is_none() || outer == inner)
}

/// The condition that leaves out what `other` matches, and leaves something of `pattern`.
fn except<'r>(pattern: &Pattern, other: &'r Pattern, can: Can) -> Option<Except<'r>> {
    let mut path = other.path.clone();
    if !can.regex && !is_literal(&path) {
        path.segments = path.segments.iter().take_while(|segment| segment.is_some()).cloned().collect();
        path.is_prefix = true;
    }
    if !covers_path(&path, &pattern.path) && !is_any(&path) {
        return Some(Except::Path(path));
    }
    let (here, there) = (methods(pattern), methods(other));
    let all = !here.is_empty() && here.iter().all(|method| there.contains(method));
    if can.method && !there.is_empty() && !all {
        return Some(Except::Methods(there));
    }
    if can.host && !covers_host(&other.host, &pattern.host) {
        return Some(Except::Host(&other.host));
    }
    let name = other.headers.iter().find(|name| !pattern.headers.contains(*name));
    name.filter(|_| can.header).map(|name| Except::Header(name))
}

/// What is left out although `other` does not match it.
fn beyond(except: &Except<'_>, other: &Rule, rule: &Rule) -> Option<String> {
    let pattern = rule.pattern();
    let matched = other.pattern();
    let (path, method) = match except {
        Except::Path(path) => (*path == matched.path, false),
        Except::Methods(_) => (covers_path(&matched.path, &pattern.path), true),
        Except::Host(_) | Except::Header(_) => (covers_path(&matched.path, &pattern.path), false),
    };
    let host = matches!(except, Except::Host(_)) || covers_host(&matched.host, &pattern.host);
    let methods = method || matched.methods.is_empty();
    let headers = matched.headers.len() <= usize::from(matches!(except, Except::Header(_)));
    if path && methods && host && headers && matched.score_below.is_none() {
        return None;
    }
    let what = match except {
        Except::Path(_) => "all requests of its path".to_string(),
        Except::Methods(methods) => format!("all requests with {}", methods.join(", ")),
        Except::Host(_) => "all requests of its host".to_string(),
        Except::Header(name) => format!("all requests with {name}"),
    };
    let (other, rule) = (other.name(), rule.name());
    Some(format!("{other} applies to some requests of {rule}. To leave them out, the platform leaves out {what}."))
}
