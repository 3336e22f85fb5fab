// The busiest keys, found in bounded memory.

import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { test } from "node:test";
import { Gate } from "@tidegate/edge/gate";
import { busiest } from "@tidegate/edge/gate/busiest";
import { Tidegate } from "@tidegate/edge/memory";
import { Chance, seeded } from "./reference.mjs";

const SEED = seeded();
const event = (rule, key, outcome = "allowed", weight = undefined) => ({ atMs: 0, rule, outcome, key, ...(weight && { weight }) });

test("each count lies within its error, and every frequent key is found, whatever comes", () => {
  const chance = new Chance(SEED);
  for (let round = 0; round < 60; round++) {
    const capacity = 1 + chance.below(12);
    const keys = busiest({ capacity });
    const [all, denials, sums] = [new Map(), new Map(), [0, 0]];
    for (let nth = 0; nth < 400; nth++) {
      // Few frequent keys among many others.
      const key = `k${chance.below(2) ? chance.below(4) : chance.below(1_000)}`;
      const weight = chance.below(3) ? 1 : 1 + chance.below(50);
      const denied = chance.below(3) === 0;
      keys(event("rule", key, denied ? (chance.below(2) ? "denied" : "never_admissible") : "allowed", weight));
      all.set(key, (all.get(key) ?? 0) + weight);
      sums[0] += weight;
      if (!denied) continue;
      denials.set(key, (denials.get(key) ?? 0) + weight);
      sums[1] += weight;
    }
    const [tally] = keys.read();
    const where = `seed ${SEED}, round ${round}`;
    assert.deepEqual([tally.decided, tally.denied], sums, where);
    for (const [top, truth, sum] of [[tally.busiest, all, sums[0]], [tally.mostDenied, denials, sums[1]]]) {
      assert.ok(top.length <= capacity, where);
      for (const { key, count, error } of top) {
        assert.ok(count - error <= truth.get(key) && truth.get(key) <= count, `${where}: ${key} ${truth.get(key)} ${count} ${error}`);
        assert.ok(error * capacity <= sum, where);
      }
      for (const [key, count] of truth) if (count * capacity > sum) assert.ok(top.some((one) => one.key === key), `${where}: ${key}`);
      assert.deepEqual(top.map(({ count }) => count), top.map(({ count }) => count).sort((a, b) => b - a), where);
    }
  }
});

test("a million keys and as many rules take no more memory than was said, and the busiest are found", () => {
  const keys = busiest({ capacity: 50, rules: 4 });
  for (let nth = 0; nth < 300_000; nth++) keys(event(nth % 50 === 0 ? "hot" : `rule-${nth}`, nth % 50 === 0 ? `hot-${(nth / 50) % 3}` : `cold-${nth}`));
  const read = keys.read();
  // Three rules by their names, and all others together.
  assert.deepEqual([read.length, read[0].rule, read[0].decided], [4, "", 300_000 - 6_000 - 2]);
  assert.ok(read.every(({ busiest }) => busiest.length <= 50));
  const { busiest: top } = read.find(({ rule }) => rule === "hot");
  assert.deepEqual(top.map(({ key, count, error }) => [key, count, error]), [["hot-2", 2_000, 0], ["hot-1", 2_000, 0], ["hot-0", 2_000, 0]]);
});

test("a gate's events of real requests are its metrics and its line, with hashes in place of keys", async (t) => {
  const keys = busiest();
  const limits = { busy: { quotas: [{ algorithm: "fixed_window", limit: 5, window_ms: 86_400_000 }] } };
  const gate = Gate.fromRules({ limits, rules: [{ path: '/a "quoted"/*', limits: ["busy"] }] }, { platform: "direct", stores: { default: (limit) => new Tidegate(limit) }, onEvent: keys });
  const server = createServer(async (req, res) => {
    const verdict = await gate.check(new Request(`http://localhost${req.url}`), { peer: req.headers["x-test-peer"] });
    res.statusCode = verdict.http?.status ?? 200;
    res.end();
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  const get = async (peer) => (await fetch(`http://127.0.0.1:${server.address().port}/a%20%22quoted%22/1`, { headers: { "x-test-peer": peer } })).status;
  const statuses = [];
  for (let times = 0; times < 7; times++) statuses.push(await get("192.0.2.1"));
  await get("192.0.2.2");
  assert.deepEqual(statuses, [200, 200, 200, 200, 200, 429, 429]);
  const [{ rule, decided, denied, busiest: top, mostDenied }] = keys.read();
  assert.deepEqual([decided, denied, top.map(({ count }) => count), mostDenied.map(({ count }) => count)], [8, 2, [7, 1], [2]]);
  assert.match(top[0].key, /^[0-9a-f]{16}$/);
  const label = `{rule="${rule}",key="${top[0].key}"}`;
  const text = keys.prometheus();
  for (const line of [`tidegate_busiest_key_requests${label} 7`, `tidegate_busiest_key_requests_error${label} 0`, `tidegate_most_denied_key_requests${label} 2`]) assert.ok(text.includes(`${line}\n`), text);
  assert.deepEqual(text.split("\n").filter((line) => line && !/^(# (HELP \S+ .+|TYPE \S+ gauge)|\w+\{rule="[^"\\]*",key="[0-9a-f]{16}"\} \d+)$/.test(line)), []);
  assert.equal(keys.prometheus(1).split("\n").filter((line) => line.startsWith("tidegate_busiest_key_requests{")).length, 1);
  assert.equal(keys.line(1), JSON.stringify({ busiest_keys: [{ rule, decided: 8, denied: 2, busiest: [{ ...top[0] }], most_denied: [{ ...mostDenied[0] }] }] }));
  assert.ok(!text.includes("192.0.2") && !keys.line().includes("192.0.2"));
});

test("a wrong option is an error that says what to write", () => {
  assert.throws(() => busiest({ capacity: 0 }), { kind: "invalid", message: "capacity: 0 is out of range; write 1 to 10000" });
  assert.throws(() => busiest({ rules: 10_001 }), { message: "rules: 10001 is out of range; write 1 to 10000" });
  assert.throws(() => busiest({ capacty: 5 }), { message: /did you mean "capacity"/ });
});

test("the snippet of the README is a sink of a gate", async () => {
  const readme = readFileSync(new URL("../README.md", import.meta.url), "utf8");
  const section = readme.split("\n### The busiest keys\n")[1].split("\n### ")[0];
  const [, code] = /```js\n(.*?)```/s.exec(section);
  const limits = { "busiest-readme": { quotas: [{ algorithm: "fixed_window", limit: 5, window_ms: 86_400_000 }] } };
  const options = { platform: "direct", stores: { default: (limit) => new Tidegate(limit) } };
  const run = new Function("Gate", "busiest", "rules", "gateOptions", `${code.replace(/^import .*$/m, "")}\nreturn { gate, metrics };`);
  const { gate, metrics } = run(Gate, busiest, { limits, rules: [{ limits: ["busiest-readme"] }] }, options);
  await gate.check(new Request("https://example.com/"), { peer: "192.0.2.1" });
  assert.match(await metrics().text(), /^tidegate_busiest_key_requests\{rule="\/\*",key="[0-9a-f]{16}"\} 1$/m);
});
