//! The help of the program, with its commands in groups.

use std::fmt::Write as _;

use clap::Command;

use crate::program::with_examples;

/// The groups, by what a command is about.
const GROUPS: [(&str, &[&str]); 3] = [
    ("Rules", &["check", "explain", "replay", "export", "hash-key"]),
    ("Stores", &["choose", "simulate", "compare", "summary", "exactness"]),
    ("Servers", &["run", "targets", "fixtures", "soak", "badge"]),
];

/// The examples of the commands that have no more to say of them.
const EXAMPLES: [(&str, &str); 8] = [
    (
        "run",
        "  tidegate run                                     run every target that this machine supports
  tidegate run --target redis --require redis      fail if Redis is not installed
  tidegate run --filter 'token-bucket/*'           run some of the fixtures
  tidegate run --target memory --fixtures tests/limits --rules rules.toml
                                                   test rules of your own",
    ),
    (
        "targets",
        "  tidegate targets                                 which run here, and what the others need
  tidegate targets | grep exact                    the exact ones",
    ),
    (
        "compare",
        "  tidegate compare main.json branch.json           what a change did
  tidegate compare report.json#redis report.json#cloudflare-do
                                                   two platforms side by side",
    ),
    (
        "summary",
        "  tidegate summary target/conformance/report.json > baseline.json
  tidegate run --baseline baseline.json            fail if something gets worse",
    ),
    (
        "badge",
        "  tidegate badge target/conformance/report.json > badge.svg
  tidegate badge target/conformance/report.json --target redis > redis.svg",
    ),
    (
        "fixtures",
        "  tidegate fixtures                                list all
  tidegate fixtures --fixtures tests/limits --rules rules.toml
                                                   check your own against the reference",
    ),
    (
        "soak",
        "  tidegate soak --target redis --minutes 10        random traffic with faults
  tidegate soak --target redis --seed 7 --round 12 play one round again, as a violation names it",
    ),
    (
        "exactness",
        "  tidegate exactness target/conformance/report.json > exactness.json
  tidegate exactness report.json | jq .targets     for another program",
    ),
];

/// The same command with its subcommands in groups, and with examples.
pub(super) fn grouped(command: Command) -> Command {
    let command = with_examples(command, &EXAMPLES);
    let mut list = String::new();
    for (title, names) in GROUPS {
        let _ = writeln!(list, "{title}:");
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about).map(ToString::to_string);
            let about = about.unwrap_or_default();
            // The first sentence. The command's own help has the rest.
            let first = about.split(". ").next().unwrap_or_default().split(": ").next().unwrap_or_default();
            let _ = writeln!(list, "  {name:13} {}", first.trim_end_matches('.'));
        }
        list.push('\n');
    }
    // Braces would be read as variables of the template.
    let list = list.replace(['{', '}'], "");
    command.help_template(format!(
        "{{about}}\n\n{{usage-heading}} {{usage}}\n\n{list}Options:\n{{options}}\n\n{{after-help}}"
    ))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::{GROUPS, grouped};

    #[test]
    fn each_command_is_in_one_group_and_has_two_examples() {
        let command = grouped(super::super::Args::command());
        for one in command.get_subcommands().filter(|one| !one.is_hide_set()) {
            let name = one.get_name();
            let groups = GROUPS.iter().filter(|(_, names)| names.contains(&name)).count();
            assert_eq!(groups, 1, "{name}");
            let examples = one.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(examples.matches("\n  tidegate ").count() >= 2, "{name}: {examples}");
        }
    }
}
