use clap::builder::{PossibleValue, PossibleValuesParser};

/// A limit and its traffic, under a name: defaults of options.
struct Scenario {
    name: &'static str,
    about: &'static str,
    /// Options, without the hyphens before them. Others have their own defaults.
    options: &'static [(&'static str, &'static str)],
}

const SCENARIOS: [Scenario; 4] = [
    Scenario {
        name: "default",
        about: "50 clients of an API, of which a few send most and far more than their limit of 1,000 a minute",
        options: &[
            ("limit", "1000"),
            ("clients", "50"),
            ("rate", "1000"),
            ("seconds", "300"),
            ("skew", "1"),
            ("flood", "0"),
        ],
    },
    Scenario {
        name: "tail",
        about: "a limit for each address, which hardly one of 20,000 comes near: most requests are the first of their client in an isolate",
        options: &[
            ("limit", "100"),
            ("clients", "20000"),
            ("rate", "1000"),
            ("seconds", "120"),
            ("roaming", "1"),
            ("skew", "0.8"),
        ],
    },
    Scenario {
        name: "login",
        about: "attempts to log in: 20,000 clients may make 5 a minute, and an attacker tries 50 a second from everywhere",
        options: &[
            ("limit", "5"),
            ("clients", "20000"),
            ("rate", "200"),
            ("seconds", "120"),
            ("roaming", "1"),
            ("skew", "0.5"),
            ("flood", "50"),
            ("flood-ms", "1000"),
        ],
    },
    Scenario {
        name: "burst",
        about: "a client with a limit of 100 a minute sends 1,000 requests at once, every 30 s and from everywhere, beside 50 quiet ones",
        options: &[
            ("limit", "100"),
            ("clients", "50"),
            ("rate", "50"),
            ("seconds", "120"),
            ("skew", "0"),
            ("flood", "1000"),
            ("flood-ms", "30000"),
        ],
    },
];

/// The scenarios, and what each stands for.
pub(super) fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(SCENARIOS.iter().map(|Scenario { name, about, options }| {
        let options: Vec<String> = options.iter().map(|(option, value)| format!("--{option} {value}")).collect();
        PossibleValue::new(*name).help(format!("{about} ({})", options.join(" ")))
    }))
}

/// The default of an option in each scenario that has one.
pub(super) fn defaults_of(option: &'static str) -> Vec<(&'static str, &'static str, &'static str)> {
    let of = |scenario: &Scenario| {
        let (_, value) = scenario.options.iter().find(|(name, _)| *name == option)?;
        Some(("scenario", scenario.name, *value))
    };
    SCENARIOS.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, Command};

    use super::super::FleetArgs;
    use super::SCENARIOS;

    /// An option whose default does not ask for its scenarios would ignore them.
    #[test]
    fn every_value_of_a_scenario_reaches_its_option() {
        let numbers = |arguments: &[&str], option: &str| {
            let matches = FleetArgs::augment_args(Command::new("simulate")).get_matches_from(arguments);
            let raw = matches.get_raw(&option.replace('-', "_")).into_iter().flatten();
            raw.map(|value| value.to_string_lossy().parse::<f64>().expect("a number")).collect::<Vec<_>>()
        };
        for (nth, scenario) in SCENARIOS.iter().enumerate() {
            for (option, value) in scenario.options {
                let expected = [value.parse::<f64>().expect("a number")];
                let named = ["simulate", "--scenario", scenario.name];
                assert_eq!(numbers(&named, option), expected, "{}: --{option}", scenario.name);
                // One beside it overrides it.
                let other = ["simulate", "--scenario", scenario.name, &format!("--{option}"), "7"];
                assert_eq!(numbers(&other, option), [7.0], "{}: --{option}", scenario.name);
                if nth == 0 {
                    assert_eq!(numbers(&["simulate"], option), expected, "--{option}");
                }
            }
        }
    }
}
