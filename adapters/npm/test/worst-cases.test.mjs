// What the README says of each algorithm's worst case is reached, and not exceeded; and what a text such as "10 / 10 s" means is counted
// on every store that can, and is an error on the others.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Tidegate } from "@tidegate/edge/memory";
import { ADMITTED } from "../modules/core/algorithms/algorithm.js";
import { anyRule } from "../modules/core/algorithms/make_algorithm.js";
import { common } from "../modules/options.js";
import { Core } from "../modules/limiter_core.js";
import { Fields } from "../modules/fields.js";
import { SHARED } from "../modules/stores/cloudflare-kv/counts.js";

const README = readFileSync(new URL("../README.md", import.meta.url), "utf8");
const OPTIONS = { platform: "direct", failMode: "closed" };
const [MINUTE, HOUR] = [60_000, 3_600_000];
const WINDOWS = ["slidingLog", "slidingWindow", "fixedWindow"];

/** `limit` in a window. A bucket holds as many, and gets as many back. */
const quotaOf = (algorithm, limit, windowMs) =>
  WINDOWS.includes(algorithm) ? { [algorithm]: { limit, windowMs } } : { [algorithm]: { capacity: limit, refill: limit, perMs: windowMs } };

let nth = 0;
/** When a client is admitted that sends as soon as it is, from `start` to before `end`. */
function greedy(quota, start, end) {
  const tidegate = new Tidegate({ ...OPTIONS, policy: { name: `worst-${(nth += 1)}`, quotas: [quota] } });
  const admitted = [];
  for (let now = start; now < end; ) {
    const { allowed, retryAfterMs } = tidegate.decide("key", { now });
    if (allowed) admitted.push(now);
    else now += retryAfterMs;
  }
  return admitted;
}

/** The most of these instants in any span that is shorter than a window. */
function mostInAWindow(admitted, windowMs) {
  return Math.max(...admitted.map((first, nth) => admitted.slice(nth).filter((at) => at - first < windowMs).length));
}

/** What a row of the README's table says in numbers. */
function said(name) {
  const table = README.split("### The worst case")[1];
  const row = table.split("\n").find((line) => line.startsWith(`| \`${name}\` |`));
  return row.split("|").map((cell) => cell.trim().replace(",", "")).filter((cell) => /^\d+$/.test(cell)).map(Number);
}

const ALGORITHMS = [...WINDOWS, "tokenBucket", "leakyBucket"];

test("the most of 10 in 10 s, and what a greedy client gets in an hour, are what the README says", () => {
  for (const algorithm of ALGORITHMS) {
    const most = mostInAWindow(greedy(quotaOf(algorithm, 10, 10_000), 9_999, 40_000), 10_000);
    const inAnHour = [[10, 10_000], [1, MINUTE]].map(([limit, windowMs]) => greedy(quotaOf(algorithm, limit, windowMs), 0, HOUR).length);
    assert.deepEqual([most, ...inAnHour], said(algorithm), algorithm);
  }
});

test("no client gets more in a window than the README says", () => {
  const windowMs = 8;
  for (const algorithm of ALGORITHMS) {
    for (const limit of [1, 2, 3]) {
      const bound = { slidingLog: limit, slidingWindow: 2 * limit - 1, fixedWindow: 2 * limit }[algorithm] ?? limit + Math.floor((limit * 7) / 8);
      const [ready] = common(new Fields({ ...OPTIONS, policy: { name: "x", quotas: [quotaOf(algorithm, limit, windowMs)] } }, "", Object.keys({ ...OPTIONS, policy: 0 })), 1).quotas;
      assert.equal(mostOfAllClients(anyRule(ready, ""), limit, windowMs), bound, `${algorithm} of ${limit}`);
    }
  }
});

/** Every client that sends requests of cost 1 in whole milliseconds: the most that any of them gets in less than a window. */
function mostOfAllClients(rule, limit, windowMs) {
  let most = 0;
  // The states that clients can reach, each with what was admitted in the milliseconds of the last window.
  let reached = new Map([["", [rule.unused(), []]]]);
  for (let now = 0; now < 3 * windowMs; now++) {
    const next = new Map();
    for (const [before, earlier] of reached.values()) {
      const state = rule.copy(before);
      for (let sent = 0; sent <= limit; sent++) {
        if (sent > 0) {
          if (rule.ask(state, now, 1) !== ADMITTED) break;
          rule.charge(state, now, 1, "");
        }
        const recent = [...earlier, sent];
        most = Math.max(most, recent.reduce((sum, units) => sum + units));
        if (recent.length === windowMs) recent.shift();
        next.set(JSON.stringify([state, recent]), [rule.copy(state), recent]);
      }
    }
    reached = next;
  }
  return most;
}

test("a text admits at most its limit in any window, up to a limit of 100", () => {
  for (const [text, limit, windowMs] of [["10 / 10 s", 10, 10_000], ["1 / min", 1, MINUTE], ["100 per hour", 100, HOUR]]) {
    const admitted = greedy(text, windowMs - 1, 6 * windowMs);
    assert.equal(mostInAWindow(admitted, windowMs), limit, text);
  }
  assert.equal(greedy("1 / min", 0, HOUR).length, 60);
  assert.ok(mostInAWindow(greedy("101 / 10 s", 9_999, 40_000), 10_000) === 201, "two counters");
});

test("a store of counters says at once what to write for a text that is counted by a log", () => {
  const ready = (quota) => common(new Fields({ ...OPTIONS, policy: { name: "kv", quotas: [quota] } }, "", ["platform", "failMode", "policy"]), 250);
  const message = "policy: this store does not support sliding_log (only fixed_window, sliding_window, token_bucket); write { slidingWindow: { limit: 10, windowMs: 10000 } }, which estimates from two counters";
  assert.throws(() => new Core(ready("10 / 10 s"), SHARED, anyRule), (thrown) => (assert.deepEqual(thrown, ["unsupported", message]), true));
  for (const quota of ["101 / 10 s", "10 burst, 1 / s", { slidingWindow: { limit: 10, windowMs: 10_000 } }]) new Core(ready(quota), SHARED, anyRule);
});
