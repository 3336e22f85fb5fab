//! A reader of conditions that are joined by `or`, `and`, `not` and parentheses. `not` binds more strongly than `and`, and `and`
//! than `or`.

/// How a language joins conditions.
pub(crate) struct Words {
    pub(crate) or: &'static str,
    pub(crate) and: &'static str,
    pub(crate) not: &'static str,
    /// Whether `not` is for parentheses only.
    pub(crate) negates_groups_only: bool,
}

/// Whether a condition is true, or what is wrong with it. `comparison` reads what the words join.
pub(crate) fn is_true<'a>(
    condition: &'a str,
    words: &Words,
    comparison: impl Fn(&mut Rest<'a>) -> Result<bool, String>,
) -> Result<bool, String> {
    let mut reader = Reader { rest: Rest(condition), words, comparison };
    let found = reader.or()?;
    let Rest(rest) = reader.rest;
    if rest.trim().is_empty() { Ok(found) } else { Err(format!("left: {rest}")) }
}

struct Reader<'a, 'w, F> {
    rest: Rest<'a>,
    words: &'w Words,
    comparison: F,
}

impl<'a, F: Fn(&mut Rest<'a>) -> Result<bool, String>> Reader<'a, '_, F> {
    fn or(&mut self) -> Result<bool, String> {
        let mut found = self.and()?;
        while self.rest.take(self.words.or) {
            found |= self.and()?;
        }
        Ok(found)
    }

    fn and(&mut self) -> Result<bool, String> {
        let mut found = self.not()?;
        while self.rest.take(self.words.and) {
            found &= self.not()?;
        }
        Ok(found)
    }

    fn not(&mut self) -> Result<bool, String> {
        if self.rest.take(self.words.not) {
            let negated = if self.words.negates_groups_only { self.group() } else { self.not() };
            return negated.map(|found| !found);
        }
        if self.rest.is_at("(") { self.group() } else { (self.comparison)(&mut self.rest) }
    }

    fn group(&mut self) -> Result<bool, String> {
        self.rest.expect("(")?;
        let found = self.or()?;
        self.rest.expect(")").map(|()| found)
    }
}

/// What is still to be read of a text. Space before a token does not count.
pub(crate) struct Rest<'a>(pub(crate) &'a str);

impl<'a> Rest<'a> {
    pub(crate) fn take(&mut self, token: &str) -> bool {
        let Some(rest) = self.0.trim_start().strip_prefix(token) else { return false };
        self.0 = rest;
        true
    }

    pub(crate) fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.take(token) { Ok(()) } else { Err(format!("expected {token}: {}", self.0)) }
    }

    /// The text before an end, which it skips.
    pub(crate) fn until(&mut self, end: &str) -> Result<&'a str, String> {
        let (text, rest) = self.0.split_once(end).ok_or_else(|| format!("expected {end}: {}", self.0))?;
        self.0 = rest;
        Ok(text)
    }

    fn is_at(&self, token: &str) -> bool {
        self.0.trim_start().starts_with(token)
    }
}
