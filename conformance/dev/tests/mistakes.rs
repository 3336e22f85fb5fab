//! The list of past mistakes keeps up with the code.

use std::collections::HashSet;
use std::path::Path;
use std::process::Command;

use tidegate_dev::mistakes::all;
use tidegate_harness::target::workspace;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[test]
fn each_mistake_can_be_put_back() -> Result<()> {
    let all = all()?;
    let problems: Vec<_> =
        all.iter().filter_map(|one| Some(format!("{}: {}", one.name, one.problem(&workspace())?))).collect();
    assert!(problems.is_empty(), "mistakes.toml:\n{}", problems.join("\n"));
    let names: HashSet<_> = all.iter().map(|one| &one.name).collect();
    assert_eq!(names.len(), all.len(), "two mistakes have the same name");
    Ok(())
}

#[test]
fn a_mistake_is_missing_from_another_tree() -> Result<()> {
    let first = all()?.into_iter().next().ok_or("there are no mistakes")?;
    assert!(first.problem(Path::new("/nowhere")).is_some());
    Ok(())
}

#[test]
fn an_unknown_name_is_told_with_the_names_that_exist() -> Result<()> {
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate-dev")).args(["mistakes", "no-such"]).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("no-such: no such mistake; the mistakes are "), "{said}");
    Ok(())
}
