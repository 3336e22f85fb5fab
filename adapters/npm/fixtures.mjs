// The fixtures that the program replays against a store of an application's own: those whose features every store with conditional writes has.

import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";

const folder = path.join(import.meta.dirname, "../../fixtures");
const OPERATIONS = ["check", "peek", "refund", "reset"];
const ALGORITHMS = ["fixed_window", "sliding_window", "sliding_log", "token_bucket", "leaky_bucket", "calendar_window"];
/** Requests and gates count in no particular store. */
const OTHERS = ["requests", "gate"];

const fits = ({ quotas }) => quotas.every(({ algorithm, by }) => ALGORITHMS.includes(algorithm) && by === undefined);

function isReplayed({ policy, steps }) {
  return fits(policy) && steps.every(({ op = "check", token, disturb, keys, policy: changed = policy }) => OPERATIONS.includes(op) && !token && !disturb && !keys && fits(changed));
}

/** All of them, in the order of their ids, as the files have them. */
export function versionedFixtures() {
  const groups = readdirSync(folder, { withFileTypes: true }).filter((entry) => entry.isDirectory() && !OTHERS.includes(entry.name));
  const files = groups.flatMap(({ name }) => readdirSync(path.join(folder, name)).sort().map((file) => path.join(folder, name, file)));
  return files.map((file) => JSON.parse(readFileSync(file, "utf8"))).filter(isReplayed);
}

/** The same for the package: what is expected, the memory tells. */
export function packedFixtures() {
  const step = ({ expect, location, ...rest }) => rest;
  return versionedFixtures().map(({ id, about, start_ms, policy, steps }) => ({ id, about, start_ms, policy, steps: steps.map(step) }));
}
