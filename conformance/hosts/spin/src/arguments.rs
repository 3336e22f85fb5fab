//! The command line.

use std::path::PathBuf;

const USAGE: &str = "usage: --manifest FILE --component FILE [--env NAME=VALUE]... [--test-mode]";

/// What is asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Arguments {
    pub(crate) manifest: PathBuf,
    pub(crate) component: PathBuf,
    /// Variables besides the manifest's, or instead of them.
    pub(crate) env: Vec<(String, String)>,
}

impl Arguments {
    pub(crate) fn read(mut given: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut found = Self::default();
        while let Some(name) = given.next() {
            if name == "--test-mode" {
                found.env.push(("TOLLGATE_TEST_MODE".into(), "on".into()));
                continue;
            }
            let value = given.next().ok_or_else(|| format!("{name:?}: {USAGE}"))?;
            match name.as_str() {
                "--manifest" => found.manifest = value.into(),
                "--component" => found.component = value.into(),
                "--env" => {
                    let (name, value) = value.split_once('=').ok_or_else(|| format!("--env {value:?}: {USAGE}"))?;
                    found.env.push((name.into(), value.into()));
                }
                _ => return Err(format!("{name:?}: {USAGE}")),
            }
        }
        let missing = [&found.manifest, &found.component].iter().any(|path| path.as_os_str().is_empty());
        if missing { Err(USAGE.into()) } else { Ok(found) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Arguments, String> {
        Arguments::read(line.split_whitespace().map(ToString::to_string))
    }

    #[test]
    fn what_is_missing_or_unknown_is_told() {
        let found = read("--manifest a --component b --env C=d=e --test-mode").unwrap();
        let env = [("C", "d=e"), ("TOLLGATE_TEST_MODE", "on")].map(|(name, value)| (name.into(), value.into()));
        assert_eq!(found, Arguments { manifest: "a".into(), component: "b".into(), env: env.into() });
        for wrong in ["", "--manifest a", "--manifest", "--component b --manifest a --what c", "--env C"] {
            assert!(read(wrong).unwrap_err().contains("usage: --manifest FILE"), "{wrong}");
        }
    }
}
