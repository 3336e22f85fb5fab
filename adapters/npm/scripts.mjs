// Writes the Redis scripts of `tidegate-redis` as a module: node scripts.mjs OUT. They are the same byte for byte, so that a server
// keeps them once.

import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";

/** A script without its comments, its indentation and what a balance needs, as `bare!` in `script.rs` makes it. */
function bare(name) {
  const lines = readFileSync(new URL(`../redis/src/${name}.lua`, import.meta.url), "utf8").split("\n");
  const kept = [];
  let isLeftOut = false;
  for (const line of lines.map((line) => line.replace(/^ +/, ""))) {
    if (line.startsWith("--+")) isLeftOut = line.startsWith("--+ balance");
    else if (line.startsWith("--|")) kept.push(line.replace(/^--\| +/, ""));
    else if (!isLeftOut) kept.push(line.replace(/^--.*/, ""));
  }
  return kept.join("\n");
}

const parts = ["numbers", "decide", "plain", "lend", "batch"].map(bare);
const text = JSON.stringify;

/** What the module exports, and this file runs: the scripts by their numbers in `ts/stores/redis/wire.ts`. */
const composed = `const [numbers, decide, plain, lend, batch] = ${text(parts)};
const begin = numbers + "local function decide(KEYS, ARGV, redis)\\n" + decide + "end\\n";
const flag = (locking) => (locking ? "#!lua flags=allow-key-locking\\n" : "");
export const scriptOf = (script, locking) => flag(locking) + [numbers + decide, plain, begin + lend][script];
export const batchScript = (locking) => flag(locking) + begin + "local function plain(KEYS, ARGV)\\n" + plain + "end\\nlocal function lend(KEYS, ARGV)\\n" + lend + "end\\n" + batch;
`;

const { scriptOf } = await import(`data:text/javascript,${encodeURIComponent(composed)}`);
const sha1s = [true, false].map((locking) => [0, 1, 2].map((script) => createHash("sha1").update(scriptOf(script, locking)).digest("hex")));
writeFileSync(process.argv[2], `${composed}export const sha1Of = (script, locking) => ${text(sha1s)}[locking ? 0 : 1][script];\n`);
