import { apiKeyOf } from "../core/key.js";
import type { Command } from "./arguments.js";
import { Usage } from "./failure.js";
import { reason } from "./files.js";
import { outln } from "./output.js";

const HELP = `\
Print the hash of an API key on standard input, as rules files list it

Usage: tidegate hash-key

Options:
  -h, --help  Print help

Examples:
  tidegate hash-key < key.txt                      of a key in a file
  tidegate hash-key <<< "$API_KEY"                of a key in a variable

A rules file lists it: api_keys.tiers = { 2bb80d537b1da3e38bd30361aa855686 = "pro" },
or api_keys.without_tier = ["2bb80d537b1da3e38bd30361aa855686"].
`;

/** The longest key that is read, in bytes. */
const LEN_MAX = 65_536;

const NEWLINE = 10;
const RETURN = 13;

export const HASH_KEY: Command = { name: "hash-key", options: [], help: HELP, run };

async function run(): Promise<void> {
  const secret = await input();
  // A file of one line ends with a line end that is not part of the key.
  const isLine = secret.at(-1) === NEWLINE;
  const key = secret.subarray(0, secret.length - (isLine ? (secret.at(-2) === RETURN ? 2 : 1) : 0));
  if (key.length === 0 || secret.length > LEN_MAX || key.includes(NEWLINE)) throw new Usage("standard input: write one API key, on one line");
  outln(apiKeyOf(key).slice("key:".length));
}

/** What is on standard input, up to a byte more than the longest key. */
async function input(): Promise<Buffer> {
  const parts: Buffer[] = [];
  let length = 0;
  try {
    for await (const part of process.stdin as AsyncIterable<Buffer>) {
      parts.push(part);
      length += part.length;
      if (length > LEN_MAX) break;
    }
  } catch (thrown) {
    throw new Usage(`standard input: ${reason(thrown)}`);
  }
  return Buffer.concat(parts);
}
