use std::io::Read as _;

use tidegate_core::Key;
use tidegate_harness::output::outln;

use crate::program::Failure;

const EXAMPLES: &str = "\
Examples:
  tidegate hash-key < key.txt                      of a key in a file
  tidegate hash-key <<< \"$API_KEY\"                of a key in a variable

A rules file lists it: api_keys.tiers = { 2bb80d537b1da3e38bd30361aa855686 = \"pro\" },
or api_keys.without_tier = [\"2bb80d537b1da3e38bd30361aa855686\"].";

/// The longest key that is read, in bytes.
const LEN_MAX: u64 = 65_536;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {}

pub(super) fn run(Args {}: &Args) -> Result<(), Failure> {
    let mut secret = Vec::new();
    let read = std::io::stdin().take(LEN_MAX + 1).read_to_end(&mut secret);
    read.map_err(|error| Failure::Usage(format!("standard input: {error}")))?;
    // A file of one line ends with a line end that is not part of the key.
    let key = secret.strip_suffix(b"\n").map_or(&secret[..], |line| line.strip_suffix(b"\r").unwrap_or(line));
    if key.is_empty() || secret.len() as u64 > LEN_MAX || key.contains(&b'\n') {
        return Err(Failure::Usage("standard input: write one API key, on one line".into()));
    }
    outln!("{}", Key::api_key(key).as_str().trim_start_matches("key:"));
    Ok(())
}
