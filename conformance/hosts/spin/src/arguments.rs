//! The command line.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

const USAGE: &str = "usage: --manifest=FILE --component=FILE [--middleware=FILE] [--env=NAME=VALUE]... [--variable=NAME=VALUE]... \
                     [--pause-ms=N] [--state-dir=DIR] [--no-delay] [--test-mode]";

/// The arguments.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Arguments {
    pub(crate) manifest: PathBuf,
    pub(crate) component: PathBuf,
    /// The middleware in front of it.
    pub(crate) middleware: Option<PathBuf>,
    /// Variables that add to the manifest's or replace them. The last one of a name wins.
    pub(crate) env: Vec<(String, String)>,
    /// The same for what Spin calls variables.
    pub(crate) variables: Vec<(String, String)>,
    /// The delay before each operation of the store.
    pub(crate) pause: Duration,
    /// The folder of the store's database. The default is a temporary folder.
    pub(crate) state_dir: Option<PathBuf>,
    /// Whether sockets have `TCP_NODELAY`. Spin does not set it, so an answer in two parts waits some 40 ms for the client.
    pub(crate) no_delay: bool,
}

impl Arguments {
    pub(crate) fn read(given: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut found = Self::default();
        for argument in given {
            match argument.split_once('=') {
                None if argument == "--no-delay" => found.no_delay = true,
                None if argument == "--test-mode" => {
                    let mode = env::var("TIDEGATE_SUITE_KEY").unwrap_or_else(|_| "on".into());
                    found.env.insert(0, ("TIDEGATE_TEST_MODE".into(), mode));
                }
                Some(("--manifest", file)) => found.manifest = file.into(),
                Some(("--component", file)) => found.component = file.into(),
                Some(("--middleware", file)) => found.middleware = Some(file.into()),
                Some(("--variable", variable)) if let Some((name, value)) = variable.split_once('=') => {
                    found.variables.push((name.into(), value.into()));
                }
                Some(("--env", variable)) if let Some((name, value)) = variable.split_once('=') => {
                    found.env.push((name.into(), value.into()));
                }
                Some(("--pause-ms", ms)) if let Ok(ms) = ms.parse() => found.pause = Duration::from_millis(ms),
                Some(("--state-dir", folder)) => found.state_dir = Some(folder.into()),
                _ => return Err(format!("{argument:?}: {USAGE}")),
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
    fn arguments_are_read_and_missing_or_unknown_ones_are_named() {
        let found =
            read("--manifest=a --component=b --middleware=m --variable=v=w --env=C=d=e --pause-ms=2 --state-dir=s --no-delay --test-mode").unwrap();
        let env = [("TIDEGATE_TEST_MODE", "on"), ("C", "d=e")].map(|(name, value)| (name.into(), value.into()));
        let pause = Duration::from_millis(2);
        let state_dir = Some("s".into());
        let (manifest, component) = ("a".into(), "b".into());
        let (middleware, variables) = (Some("m".into()), vec![("v".into(), "w".into())]);
        let env = env.into();
        let expected = Arguments { manifest, component, middleware, env, variables, pause, state_dir, no_delay: true };
        assert_eq!(found, expected);
        for wrong in ["", "--manifest=a", "--manifest", "--component=b --manifest=a --what=c", "--pause-ms=-1"] {
            assert!(read(wrong).unwrap_err().contains("usage: --manifest=FILE"), "{wrong}");
        }
    }
}
