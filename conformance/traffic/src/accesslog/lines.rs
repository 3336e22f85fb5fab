//! The lines of a log.

use std::io::{self, BufRead, BufReader, Cursor, Read};

use flate2::bufread::MultiGzDecoder;

/// The most bytes of a line. Servers limit a request line and each header field to less.
pub const MAX_LINE: usize = 64 * 1024;

const BUFFER: usize = 256 * 1024;

/// The lines of a log, one after another, in memory for one line.
pub struct Lines {
    log: Box<dyn BufRead>,
    line: Vec<u8>,
    number: u64,
}

/// A line of a log, without its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// Its bytes.
    Whole(&'a [u8]),
    /// The first [`MAX_LINE`] bytes of a longer line.
    TooLong(&'a [u8]),
}

impl Lines {
    /// The lines of a log, which is decompressed if it begins as gzip does.
    ///
    /// # Errors
    /// Those of the log.
    pub fn new(log: impl Read + 'static) -> io::Result<Self> {
        let mut log = BufReader::with_capacity(BUFFER, log);
        let mut first = Vec::with_capacity(2);
        log.by_ref().take(2).read_to_end(&mut first)?;
        let is_gzip = first == [0x1f, 0x8b];
        let log = Cursor::new(first).chain(log);
        let log: Box<dyn BufRead> = match is_gzip {
            // Rotated logs are often concatenated.
            true => Box::new(BufReader::with_capacity(BUFFER, MultiGzDecoder::new(log))),
            false => Box::new(log),
        };
        Ok(Self { log, line: Vec::new(), number: 0 })
    }

    /// The next line. `None` at the end.
    ///
    /// # Errors
    /// Those of the log, and those of compressed data that is damaged or not complete.
    pub fn read(&mut self) -> io::Result<Option<Line<'_>>> {
        self.line.clear();
        let most = MAX_LINE as u64 + 1;
        if (&mut *self.log).take(most).read_until(b'\n', &mut self.line)? == 0 {
            return Ok(None);
        }
        self.number += 1;
        if self.line.last() != Some(&b'\n') && self.line.len() > MAX_LINE {
            self.skip()?;
            return Ok(Some(Line::TooLong(&self.line[..MAX_LINE])));
        }
        let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
        Ok(Some(Line::Whole(line.strip_suffix(b"\r").unwrap_or(line))))
    }

    /// The number of the last line, from 1.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Skips the rest of a line.
    fn skip(&mut self) -> io::Result<()> {
        let mut rest = Vec::new();
        while rest.last() != Some(&b'\n') {
            rest.clear();
            if (&mut *self.log).take(MAX_LINE as u64).read_until(b'\n', &mut rest)? == 0 {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn lengths(log: Vec<u8>) -> io::Result<Vec<(bool, usize)>> {
        let mut lines = Lines::new(Cursor::new(log))?;
        let mut found = Vec::new();
        while let Some(line) = lines.read()? {
            found.push(match line {
                Line::Whole(line) => (true, line.len()),
                Line::TooLong(line) => (false, line.len()),
            });
        }
        assert_eq!(lines.number(), found.len() as u64);
        Ok(found)
    }

    #[test]
    fn lines_may_end_with_a_carriage_return_and_the_last_may_have_no_end() -> io::Result<()> {
        assert_eq!(lengths(b"a\nbb\r\n\nccc".to_vec())?, [(true, 1), (true, 2), (true, 0), (true, 3)]);
        assert_eq!(lengths(b"\n".to_vec())?, [(true, 0)]);
        assert_eq!(lengths(b"x".to_vec())?, [(true, 1)]);
        assert_eq!(lengths(Vec::new())?, []);
        Ok(())
    }

    #[test]
    fn a_line_that_is_too_long_is_cut_and_the_next_is_whole() -> io::Result<()> {
        for (length, expected) in [
            (MAX_LINE - 1, (true, MAX_LINE - 1)),
            (MAX_LINE, (true, MAX_LINE)),
            (MAX_LINE + 1, (false, MAX_LINE)),
            (5 * MAX_LINE, (false, MAX_LINE)),
        ] {
            let log = [vec![b'x'; length], b"\nnext\n".to_vec()].concat();
            assert_eq!(lengths(log)?, [expected, (true, 4)], "{length}");
            assert_eq!(lengths(vec![b'x'; length])?, [expected], "{length}");
        }
        Ok(())
    }

    #[test]
    fn compressed_logs_are_known_by_their_content_and_may_be_concatenated() -> io::Result<()> {
        let compressed = |text: &[u8]| -> io::Result<Vec<u8>> {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(text)?;
            encoder.finish()
        };
        let two = [compressed(b"one\ntw")?, compressed(b"o\nthree\n")?].concat();
        assert_eq!(lengths(two.clone())?, [(true, 3), (true, 3), (true, 5)]);
        let cut = lengths(two[..two.len() - 9].to_vec());
        assert_eq!(cut.map_err(|error| error.kind()), Err(io::ErrorKind::UnexpectedEof));
        Ok(())
    }
}
