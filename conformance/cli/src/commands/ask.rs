//! Questions on the terminal.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::str::FromStr;

use tidegate_harness::output::{err, errln};

use crate::program::Failure;

/// Asks until the answer is one, and returns it. An empty answer is the default.
pub(super) fn ask<T: Display + FromStr>(question: &str, default: T) -> Result<T, Failure>
where
    T::Err: Display,
{
    loop {
        err!("{question} [{default}]: ");
        io::stderr().flush().map_err(|error| Failure::Usage(error.to_string()))?;
        let mut line = String::new();
        let read =
            io::stdin().read_line(&mut line).map_err(|error| Failure::Usage(format!("standard input: {error}")))?;
        if read == 0 {
            return Err(Failure::Usage(format!("standard input has ended; {question:?} has no answer")));
        }
        match line.trim() {
            "" => return Ok(default),
            answer => match answer.parse() {
                Ok(answer) => return Ok(answer),
                Err(error) => errln!("  {answer:?}: {error}"),
            },
        }
    }
}
