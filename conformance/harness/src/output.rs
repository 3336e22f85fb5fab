//! Prints on standard output and standard error. This crate and the programs around it print with the macros here.
//!
//! The other end may be a pipe that another process has made non-blocking, because a pipe's mode is shared by all who hold
//! it. So a pipe that is full is waited for. A reader of standard output that has gone, like `head`, ends the program with
//! the exit code 141. Nothing more can be said on standard error then, so a lost reader there is ignored.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::time::Duration;

/// The exit code after the reader of standard output has gone: what a shell reports for a program that SIGPIPE ended. It is
/// not 0, because what the command would have reported is unknown.
const BROKEN_PIPE: i32 = 141;

/// How long to wait before writing to a full pipe again.
const FULL: Duration = Duration::from_millis(5);

/// Prints on standard output.
#[doc(hidden)]
#[macro_export]
macro_rules! out {
    ($($text:tt)*) => { $crate::output::stdout(::std::format_args!($($text)*)) };
}

/// Prints a line on standard output.
#[doc(hidden)]
#[macro_export]
macro_rules! outln {
    ($($text:tt)*) => { $crate::output::stdout(::std::format_args!("{}\n", ::std::format_args!($($text)*))) };
}

/// Prints on standard error.
#[doc(hidden)]
#[macro_export]
macro_rules! err {
    ($($text:tt)*) => { $crate::output::stderr(::std::format_args!($($text)*)) };
}

/// Prints a line on standard error.
#[doc(hidden)]
#[macro_export]
macro_rules! errln {
    ($($text:tt)*) => { $crate::output::stderr(::std::format_args!("{}\n", ::std::format_args!($($text)*))) };
}

pub use crate::{err, errln, out, outln};

/// What [`out`] calls.
pub fn stdout(text: Arguments<'_>) {
    match write(&mut io::stdout().lock(), text.to_string().as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(BROKEN_PIPE),
        Err(error) => {
            stderr(format_args!("tidegate: standard output: {error}\n"));
            std::process::exit(2);
        }
        Ok(()) => {}
    }
}

/// What [`err`] calls.
pub fn stderr(text: Arguments<'_>) {
    let _ = write(&mut io::stderr().lock(), text.to_string().as_bytes());
}

/// Writes all bytes and flushes, however long the other end takes.
fn write(to: &mut impl Write, mut bytes: &[u8]) -> io::Result<()> {
    loop {
        let written = if bytes.is_empty() { to.flush().map(|()| 0) } else { to.write(bytes) };
        match written {
            Ok(_) if bytes.is_empty() => return Ok(()),
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(FULL),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
