// Writes the Redis scripts of `tidegate-redis` as modules: node scripts.mjs FOLDER. They are the same byte for byte, so that a server
// keeps them once. What policies with a balance need is in a module of its own, because only they load it.

import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";

const folder = process.argv[2];
const text = JSON.stringify;

/**
 * The lines of a script without its comments and its indentation, as `bare!` in `script.rs` makes them: each without what a balance needs, and
 * with it. A line that one of them lacks is undefined there.
 */
function lines(name) {
  const source = readFileSync(new URL(`../redis/src/${name}.lua`, import.meta.url), "utf8").split("\n");
  let isLeftOut = false;
  return source.map((line) => {
    const bare = line.replace(/^ +/, "");
    const whole = bare.replace(/^--.*/, "");
    if (bare.startsWith("--+")) {
      isLeftOut = bare.startsWith("--+ balance");
      return [undefined, whole];
    }
    if (bare.startsWith("--|")) return [bare.replace(/^--\| +/, ""), whole];
    return [isLeftOut ? undefined : whole, whole];
  });
}

/** Joins the lines of one of both. The last line has no end. */
const joined = (all, which) => all.map((line) => line[which]).filter((line) => line !== undefined).join("\n");

const parts = ["numbers", "decide", "plain", "lend", "batch"].map((name) => joined(lines(name), 0));

/**
 * What the module exports, and this file runs: the scripts by their numbers in `ts/stores/redis/wire.ts`. Each text is a constant of its own, so
 * that only who uses it loads it.
 */
const composed = `${["numbers", "decide", "plain", "lend", "batch"].map((name, nth) => `const ${name} = ${text(parts[nth])};`).join("\n")}
const begin = () => numbers + "local function decide(KEYS, ARGV, redis)\\n" + decide + "end\\n";
const flag = (locking) => (locking ? "#!lua flags=allow-key-locking\\n" : "");
export const scripts = [numbers + decide, plain];
export const lendScript = () => begin() + lend;
export const scriptOf = (script, locking) => flag(locking) + scripts[script];
export const batchScript = (locking) => flag(locking) + begin() + "local function plain(KEYS, ARGV)\\n" + plain + "end\\nlocal function lend(KEYS, ARGV)\\n" + lend + "end\\n" + batch;
`;

/** How the script with what a balance needs comes of the first one: how many lines it keeps, how many it replaces, and by which. */
function changes() {
  const all = ["numbers", "decide"].flatMap((name, nth) => lines(name).slice(0, nth === 0 ? -1 : undefined));
  const found = [[0, 0, []]];
  for (const [without, within] of all) {
    let last = found.at(-1);
    if (without === within) {
      if (last[1] > 0 || last[2].length > 0) found.push((last = [0, 0, []]));
      last[0] += 1;
    } else {
      if (without !== undefined) last[1] += 1;
      if (within !== undefined) last[2].push(within);
    }
  }
  return found;
}

const changed = `const changes = ${text(changes())};
/** The script with what a balance needs, of the one without. */
export function withBalance(script) {
  const lines = script.split("\\n");
  let at = 0;
  return changes.flatMap(([kept, replaced, by]) => [...lines.slice(at, (at += kept)), ...(at += replaced, by)]).join("\\n");
}
`;

const load = (module) => import(`data:text/javascript,${encodeURIComponent(module)}`);
const sha1 = (script) => createHash("sha1").update(script).digest("hex");
const [{ scriptOf, scripts, lendScript }, { withBalance }] = [await load(composed), await load(changed)];
scripts.push(lendScript());
const whole = joined(["numbers", "decide"].flatMap((name, nth) => lines(name).slice(0, nth === 0 ? -1 : undefined)), 1);
if (withBalance(scriptOf(0, false)) !== whole) throw new Error("the changes do not make the script of policies with a balance");
const flag = "#!lua flags=allow-key-locking\n";
const sha1s = [true, false].map((locking) => [0, 1, 2].map((script) => sha1(scriptOf(script, locking))));
writeFileSync(path.join(folder, "built.js"), `${composed}export const sha1s = ${text(sha1s)};\nexport const sha1Of = (script, locking) => sha1s[locking ? 0 : 1][script];\n`);
writeFileSync(path.join(folder, "built_balance.js"), `${changed}export const sha1s = ${text([sha1(flag + whole), sha1(whole)])};\n`);
