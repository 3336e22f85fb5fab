//! Who may use the suite's routes of a guest.

/// What the variable `TIDEGATE_TEST_MODE` of a guest says.
///
/// On the loopback it is `on`, and the routes answer everybody. A guest that others can reach has a key of at least
/// [`Mode::KEY_MIN`] characters in this variable, and answers only requests that send the key in the field [`Mode::FIELD`]. Every
/// other value, such as `off`, closes the routes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode<'a> {
    /// The routes do not exist.
    Off,
    /// The routes answer everybody.
    Open,
    /// The routes answer those who send this key.
    Keyed(&'a str),
}

impl<'a> Mode<'a> {
    /// The field with the key.
    pub const FIELD: &'static str = "x-tidegate-suite-key";

    /// The fewest characters of a key. A shorter value is probably a word that was meant to switch something.
    pub const KEY_MIN: usize = 16;

    /// The mode by the variable's value. Pass an empty string if it is not set.
    #[must_use]
    pub fn of(variable: &'a str) -> Self {
        match variable {
            "on" => Self::Open,
            key if key.len() >= Self::KEY_MIN => Self::Keyed(key),
            _ => Self::Off,
        }
    }

    /// Whether the guest takes the time from its requests.
    #[must_use]
    pub const fn is_on(self) -> bool {
        !matches!(self, Self::Off)
    }

    /// Whether the routes answer a request that sends this key, if it sends one. The time does not depend on where a wrong key
    /// differs.
    #[must_use]
    pub fn admits(self, sent: Option<&str>) -> bool {
        match (self, sent) {
            (Self::Off, _) | (Self::Keyed(_), None) => false,
            (Self::Open, _) => true,
            (Self::Keyed(key), Some(sent)) => {
                let differs = key.bytes().zip(sent.bytes()).fold(0, |differs, (one, other)| differs | (one ^ other));
                key.len() == sent.len() && differs == 0
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Mode;

    #[test]
    fn only_the_whole_key_opens() {
        let key = "0123456789abcdef";
        let mode = Mode::of(key);
        assert!(mode.is_on() && mode.admits(Some(key)));
        for wrong in [None, Some(""), Some("0123456789abcde"), Some("0123456789abcdeF"), Some("0123456789abcdef0")] {
            assert!(!mode.admits(wrong), "{wrong:?}");
        }
    }

    #[test]
    fn every_other_value_than_on_closes() {
        for closed in ["", "off", "yes", "true", "ON", "0123456789abcde"] {
            assert!(!Mode::of(closed).is_on() && !Mode::of(closed).admits(Some(closed)), "{closed}");
        }
        assert!(Mode::of("on").admits(None));
    }
}
