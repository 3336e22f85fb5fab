//! The help of the program, with its commands in groups.

use std::fmt::Write as _;

use clap::Command;

/// The groups, by what a command is about.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Rules", &["check", "explain", "replay", "export", "hash-key"]),
    ("Stores", &["choose", "simulate", "compare", "summary", "exactness"]),
    ("Services", &["serve"]),
    ("Servers", &["run", "targets", "fixtures", "soak", "badge"]),
];

/// The same command with its subcommands in groups.
pub(super) fn grouped(command: Command) -> Command {
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
