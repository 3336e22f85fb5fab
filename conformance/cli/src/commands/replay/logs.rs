//! The logs of a replay.

use std::fs::File;
use std::io::{self, Seek as _, stdin};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tidegate_traffic::accesslog::{Line, Lines, Parsed, Parser, Unreadable};

use crate::program::{Failure, tell};

/// The time between two lines of progress.
const TOLD_EVERY: Duration = Duration::from_secs(5);

/// How many lines are read before the clock is.
const LINES: u64 = 1 << 14;

/// Logs that can be read several times.
pub(super) struct Logs {
    paths: Vec<PathBuf>,
    /// What standard input had.
    input: Option<File>,
}

/// What is in a line.
pub(super) enum Seen<'a> {
    Parsed(&'a Parsed<'a>),
    Unreadable(&'a str, Unreadable),
}

impl Logs {
    /// If they are read `again`, standard input is copied to a file first.
    pub(super) fn new(paths: &[PathBuf], again: bool) -> Result<Self, Failure> {
        let of_input = paths.iter().filter(|path| is_input(path)).count();
        if of_input > 1 {
            return Err(Failure::Usage("--log - is there twice; standard input can be read once".into()));
        }
        let mut input = None;
        if of_input > 0 && again {
            let copied =
                tempfile::tempfile().and_then(|mut file| io::copy(&mut stdin().lock(), &mut file).map(|_| file));
            input = Some(copied.map_err(|error| Failure::Usage(format!("--log -: {error}")))?);
        }
        Ok(Self { paths: paths.to_vec(), input })
    }

    fn open(&self, path: &Path) -> io::Result<Lines> {
        if !is_input(path) {
            return Lines::new(File::open(path)?);
        }
        match &self.input {
            Some(file) => {
                let mut file = file.try_clone()?;
                file.rewind()?;
                Lines::new(file)
            }
            None => Lines::new(stdin()),
        }
    }

    /// Calls `see` with the name of the log, the number of the line, and what is in it, for each line.
    pub(super) fn read(&self, parser: &mut Parser, see: &mut dyn FnMut(&str, u64, Seen<'_>)) -> Result<(), Failure> {
        let mut told = Instant::now();
        for path in &self.paths {
            let name = path.display().to_string();
            let mut lines = self.open(path).map_err(|error| Failure::Usage(format!("--log {name}: {error}")))?;
            while let Some(number) = next(&mut lines, parser, &name, see)? {
                if number.is_multiple_of(LINES) && told.elapsed() > TOLD_EVERY {
                    told = Instant::now();
                    tell(&format!("{name}: {number} lines"));
                }
            }
        }
        Ok(())
    }
}

/// Reads a line, and returns its number.
fn next(
    lines: &mut Lines,
    parser: &mut Parser,
    name: &str,
    see: &mut dyn FnMut(&str, u64, Seen<'_>),
) -> Result<Option<u64>, Failure> {
    let number = lines.number() + 1;
    let line = lines.read().map_err(|error| {
        Failure::Usage(format!("--log {name}: after line {}: {error}; is the file whole?", number - 1))
    })?;
    match line {
        None => return Ok(None),
        Some(Line::TooLong(line)) => {
            see(name, number, Seen::Unreadable(&String::from_utf8_lossy(line), Unreadable::TooLong))
        }
        Some(Line::Whole(line)) => {
            let text = str::from_utf8(line).map_or_else(|_| String::from_utf8_lossy(line), Into::into);
            match parser.parse(&text) {
                Ok(parsed) => see(name, number, Seen::Parsed(&parsed)),
                Err(why) => see(name, number, Seen::Unreadable(&text, why)),
            }
        }
    }
    Ok(Some(number))
}

fn is_input(path: &Path) -> bool {
    path == Path::new("-")
}
