//! What the rules have for a request: those that match it, the tier of its sender, and its API key.

use super::{Applied, PREFLIGHT_FIELDS, Rule, Rules, ValidKey};
use crate::Key;
use crate::gate::matcher::{Hosts, PathForm};
use crate::gate::path::{is_normal, readings};
use crate::gate::request::Request;

impl Rules {
    /// The rule for a request. If its path can be read in several ways, that of its normal form, or else the first that another
    /// reading has; see [Paths](Self#paths).
    #[must_use]
    pub fn find(&self, request: &Request<'_>) -> Option<&Rule> {
        let mut first = None;
        self.readings(request, &mut |rules, host, path| {
            first = self.first(request, rules, host, path);
            first.is_some()
        });
        first.map(|place| &self.rules[place])
    }

    /// The rules of all readings of a request's path.
    #[inline]
    pub(in crate::gate) fn applied(&self, request: &Request<'_>) -> Option<Applied<'_>> {
        match self.matcher.only() {
            // As usual, there is one reading, which is compared with one form of each rule, for any host.
            Some(rules) if !self.ignores_case && is_normal(request.path()) => {
                let path = PathForm { path: request.path(), takes_empty: true };
                self.first(request, rules, "", path).map(|place| Applied::new(&self.rules, place))
            }
            _ => self.applied_to_all(request),
        }
    }

    fn applied_to_all(&self, request: &Request<'_>) -> Option<Applied<'_>> {
        let mut applied: Option<Applied<'_>> = None;
        self.readings(request, &mut |rules, host, path| {
            match (&mut applied, self.first(request, rules, host, path)) {
                (Some(applied), Some(place)) => applied.add(place),
                (None, Some(place)) => applied = Some(Applied::new(&self.rules, place)),
                (_, None) => {}
            }
            false
        });
        applied
    }

    /// The place of the first of these rules for a request whose host and path are read so.
    fn first(&self, request: &Request<'_>, rules: &Hosts, host: &str, path: PathForm<'_>) -> Option<usize> {
        let mut first = None;
        let is_exempt = self.exempts(request);
        rules.visit(request, host, path, &mut |place| {
            first = Some(place).filter(|place| !is_exempt || self.rules[*place].pattern.has_method("OPTIONS"));
            first.is_some()
        });
        first
    }

    /// Whether only rules for `OPTIONS` apply to a request: a CORS preflight, if the file exempts those.
    fn exempts(&self, request: &Request<'_>) -> bool {
        let is_preflight = || PREFLIGHT_FIELDS.iter().all(|field| request.has_header(field));
        self.exempts_preflights && request.method() == "OPTIONS" && is_preflight()
    }

    /// All rules that match a request in some reading of its path: those of the normal form first, most specific first.
    pub(in crate::gate) fn matching(&self, request: &Request<'_>) -> Vec<&Rule> {
        let (mut places, is_exempt) = (Vec::new(), self.exempts(request));
        self.readings(request, &mut |rules, host, path| {
            rules.visit(request, host, path, &mut |place| {
                let applies = !is_exempt || self.rules[place].pattern.has_method("OPTIONS");
                if applies && !places.contains(&place) {
                    places.push(place);
                }
                false
            });
            false
        });
        places.into_iter().map(|place| &self.rules[place]).collect()
    }

    /// Calls `found` with each reading of a request's host and path, and the rules in the form that it is compared with, until it returns
    /// true. A reading with an empty segment has a form for each kind of router.
    fn readings(&self, request: &Request<'_>, found: &mut dyn FnMut(&Hosts, &str, PathForm<'_>) -> bool) {
        let fold_case = self.fold_case.filter(|_| self.ignores_case);
        // Most rules are for any host.
        let hosts = if self.matcher.reads_host() { request.hosts() } else { Vec::new() };
        readings(request.path(), self.matcher.reach(), &mut |path, escapes, has_empty| {
            let folded = fold_case.map(|fold| fold(path, escapes));
            let path = folded.as_deref().unwrap_or(path);
            let mut among = |rules: &Hosts| {
                let mut form = |host, takes_empty| found(rules, host, PathForm { path, takes_empty });
                let mut of = |host| form(host, true) || (has_empty && form(host, false));
                match &hosts[..] {
                    [] => of(""),
                    hosts => hosts.iter().any(|host| of(host)),
                }
            };
            let (first, second) = self.matcher.of(escapes);
            among(first) || second.is_some_and(among)
        });
    }

    /// The name of a tier by its place.
    pub(in crate::gate) fn tier_name(&self, place: usize) -> &str {
        &self.tiers[place]
    }

    /// The place of a tier.
    pub(in crate::gate) fn tier(&self, name: &str) -> Option<usize> {
        self.tiers.binary_search_by(|tier| (**tier).cmp(name)).ok()
    }

    #[inline]
    pub(in crate::gate) const fn reads_api_keys(&self) -> bool {
        self.api_key_header.is_some()
    }

    /// The key of the valid API key in a request's header field.
    pub(in crate::gate) fn api_key(&self, request: &Request<'_>) -> Option<Key> {
        let header = self.api_key_header.as_deref()?;
        let (mut found, mut count) = (None, 0);
        request.headers().values(header, &mut |value| {
            count += 1;
            found = Some(Key::api_key(value)).filter(|key| self.valid_key(key).is_some());
        });
        found.filter(|_| count == 1)
    }

    /// The place of the tier of an API key that the rules know, if it has one.
    pub(in crate::gate) fn tier_of_api_key(&self, key: &Key) -> Option<usize> {
        self.valid_key(key)?.1
    }

    fn valid_key(&self, key: &Key) -> Option<&ValidKey> {
        let place = self.api_keys.binary_search_by(|(known, _)| (**known).cmp(key.as_str()));
        place.ok().map(|place| &self.api_keys[place])
    }
}
