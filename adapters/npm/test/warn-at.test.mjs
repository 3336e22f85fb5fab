// Warnings: a charge that takes a key to a part of its limit. core-gate.test.mjs and core-gate-rules.test.mjs hold them to the core.

import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import http from "node:http";
import { after, test } from "node:test";
import { Tidegate as Native } from "@tidegate/edge/cloudflare-ratelimit";
import { Gate, jsonLines } from "@tidegate/edge/gate";
import { calendarWindows } from "@tidegate/edge/gate/calendar";
import { Gate as TomlGate } from "@tidegate/edge/gate/toml";
import { usageOf } from "@tidegate/edge/gate/usage";
import { warnAt, warningsMeter } from "@tidegate/edge/gate/warn-at";
import { Tidegate as Memory } from "@tidegate/edge/memory";
import { limit } from "@tidegate/edge/node";
import { Tidegate as Redis } from "@tidegate/edge/redis";
import express from "express";
import { Redis as Client } from "ioredis";
import { Chance, seeded } from "./reference.mjs";
import { redisServer } from "./servers.mjs";

const SEED = seeded();
const NOW = 1_800_000_000_000;
const DAY = 86_400_000;
const redis = await redisServer();
after(() => redis.stop());
let named = 0;

/** A gate with one limit of these quotas, and what it warns of. Each has counts of its own. */
function gateOf(quotas, { store = (limit) => new Memory(limit), ...more } = {}) {
  const name = `warned-${(named += 1)}`;
  const told = [];
  const file = { limits: { [name]: { quotas } }, rules: [{ limits: [name] }] };
  const gate = Gate.fromRules(file, { platform: "direct", stores: { default: store }, onError() {}, warnAt: warnAt((warning) => told.push(warning)), ...more });
  return { gate, told, name, take: () => told.splice(0).map(({ quota, warning }) => [quota.replace(name, "api"), warning]) };
}

const WINDOW = { algorithm: "fixed_window", limit: 10, window_ms: 60_000, warn_at: [50, 80, 100] };
const request = new Request("https://example.com/");
const given = { peer: "192.0.2.1", now: NOW };

test("each crossing is one warning, and the level is what is reached", async () => {
  const { gate, told, name } = gateOf([WINDOW]);
  const levels = [];
  for (const cost of [4, 1, 1, 2, 3, 2, 1]) levels.push((await gate.check(request, { ...given, cost })).level);
  assert.deepEqual(levels, [null, 50, 50, 80, 100, 100, 100]);
  const key = told[0].key;
  assert.match(key, /^[0-9a-f]{16}$/);
  const one = (warning, used) => ({ atMs: NOW, rule: "/*", policy: name, warning, quota: name, key, limit: 10, used, windowEndMs: NOW + 60_000 });
  assert.deepEqual(told, [one(50, 5), one(80, 8), one(100, 10)]);
  const lines = [];
  jsonLines((line) => lines.push(line))(told[0]);
  assert.equal(lines[0], `{"at_ms":${NOW},"rule":"/*","policy":"${name}","warning":50,"quota":"${name}","key":"${key}","limit":10,"used":5,"window_end_ms":${NOW + 60_000}}`);
  assert.ok(!JSON.stringify(told).includes("192.0.2"));
});

test("a replay, a refund and a settlement warn of what they charge, and debt may tell again", async () => {
  const { gate, told, take } = gateOf([WINDOW]);
  const first = await gate.check(request, { ...given, estimate: 6, token: "a" });
  assert.deepEqual(take(), [["api", 50]]);
  await gate.check(request, { ...given, estimate: 6, token: "a" });
  await gate.settle(first, { cost: 1, now: NOW });
  await gate.settle(first, { cost: 9, now: NOW });
  assert.deepEqual(take(), []);
  const second = await gate.check(request, { ...given, estimate: 4 });
  assert.deepEqual(take(), [["api", 50]]);
  await gate.settle(second, { cost: 9, now: NOW + 7 });
  assert.deepEqual(told.splice(0).map(({ atMs, warning, settled, mayRepeat }) => [atMs - NOW, warning, settled, mayRepeat]), [[7, 80, true, undefined], [7, 100, true, undefined]]);
  const other = { ...given, peer: "192.0.2.2" };
  const third = await gate.check(request, { ...other, estimate: 9 });
  assert.deepEqual(take(), [["api", 50], ["api", 80]]);
  await gate.settle(third, { cost: 14, now: NOW });
  assert.deepEqual(told.splice(0).map(({ warning, settled, mayRepeat }) => [warning, settled, mayRepeat]), [[80, true, true], [100, true, true]]);
  await gate.release(second, { now: NOW });
  assert.deepEqual(take(), []);
});

test("what is told is what lies between two peeks", async () => {
  const chance = new Chance(SEED);
  const kinds = [
    (limit) => ({ algorithm: "fixed_window", limit, window_ms: 20_000 }),
    (limit) => ({ algorithm: "sliding_window", limit, window_ms: 20_000 }),
    (limit) => ({ algorithm: "sliding_log", limit, window_ms: 20_000 }),
    (limit) => ({ algorithm: "token_bucket", capacity: limit, refill: 3, per_ms: 7_000 }),
    (limit) => ({ algorithm: "concurrency", limit, lifetime_ms: 9_000 }),
  ];
  for (let round = 0; round < 40; round++) {
    const percents = [...new Set(Array.from({ length: 1 + chance.below(8) }, () => 1 + chance.below(100)))].sort((a, b) => a - b);
    const quotas = Array.from({ length: 1 + chance.below(3) }, (_, nth) => ({ ...chance.from(kinds)(1 + chance.below(40)), name: `q${nth}`, warn_at: percents }));
    const { gate, take } = gateOf(quotas);
    let now = NOW;
    for (let step = 0; step < 40; step++) {
      now += chance.below(5_000);
      const asked = { peer: "192.0.2.1", now };
      const used = async () => (await usageOf(gate, request, asked)).quotas.map(({ quota, limit, used }) => [quota, limit, used]);
      const before = await used();
      const verdict = await gate.check(request, { ...asked, cost: chance.below(6), token: `t${step}` });
      const then = await used();
      const crossed = before.flatMap(([quota, limit, was], place) => percents.filter((percent) => was * 100 < percent * limit && then[place][2] * 100 >= percent * limit).map((percent) => [quota, percent]));
      const where = `seed ${SEED}, round ${round}, step ${step}: ${JSON.stringify([quotas, before, then])}`;
      assert.deepEqual(take().sort(), crossed.sort(), where);
      const reached = percents.filter((percent) => then.some(([, limit, used]) => used * 100 >= percent * limit));
      assert.equal(verdict.level, verdict.allowed ? (reached.at(-1) ?? null) : 100, where);
    }
  }
});

for (const [name, store] of Object.entries({
  memory: () => ({ make: (limit) => new Memory(limit), close() {} }),
  redis: () => {
    const client = new Client(redis.url);
    return { make: (limit) => new Redis({ client, deadlineMs: 60_000, ...limit }), close: () => client.disconnect() };
  },
})) {
  test(`${name}: of 500 requests at once over HTTP, each part is told once`, async (t) => {
    const { make, close } = store();
    const quotas = [
      { algorithm: "fixed_window", limit: 400, window_ms: DAY, name: "window", warn_at: [1, 50, 80, 100] },
      { algorithm: "token_bucket", capacity: 1_000, refill: 1, per_ms: DAY, name: "bucket", warn_at: [33, 40, 41] },
    ];
    const { gate, told } = gateOf(quotas, { store: make });
    const levels = new Map();
    const app = express();
    app.use(async (req, _res, next) => {
      req.verdict = await gate.check(new Request("http://localhost/"), { peer: "192.0.2.1" });
      next();
    });
    app.get("/", (req, res) => res.end(String(req.verdict.level)));
    const server = app.listen(0, "127.0.0.1");
    await once(server, "listening");
    t.after(() => (server.closeAllConnections(), server.close(), close()));
    const { port } = server.address();
    const get = async () => {
      const [response] = await once(http.request({ host: "127.0.0.1", port, agent: false }).end(), "response");
      let body = "";
      for await (const part of response) body += part;
      levels.set(body, (levels.get(body) ?? 0) + 1);
    };
    await Promise.all(Array.from({ length: 500 }, get));
    const all = told.map(({ quota, warning, used }) => [quota, warning, used]);
    assert.deepEqual(all.sort(([a, b], [c, d]) => (a < c ? -1 : a > c ? 1 : b - d)), [["bucket", 33, 330], ["bucket", 40, 400], ["window", 1, 4], ["window", 50, 200], ["window", 80, 320], ["window", 100, 400]]);
    assert.deepEqual(Object.fromEntries(levels), { null: 3, 1: 196, 50: 120, 80: 80, 100: 101 });
  });
}

test("a calendar window has its end, also with what it carries over and at a settlement in the next one", async () => {
  const quota = { algorithm: "calendar_window", limit: 10, every: "day", zone: "UTC", carry_over: 10, warn_at: [50] };
  const { gate, told } = gateOf([quota], { calendar: calendarWindows, settleWithinMs: 2 * DAY });
  const start = NOW - (NOW % DAY);
  await gate.check(request, { ...given, cost: 5 });
  assert.equal(told.length, 0);
  const verdict = await gate.check(request, { ...given, estimate: 5 });
  await gate.settle(verdict, { cost: 18, now: start + DAY });
  assert.deepEqual(told.map(({ warning, limit, windowEndMs }) => [warning, limit, windowEndMs]), [[50, 20, start + DAY], [50, 20, start + 2 * DAY]]);
});

test("a middleware's verdict has the level, and the meter counts", async () => {
  const counted = [];
  const meter = { createCounter: (name) => ({ add: (value, labels) => counted.push([name, value, labels]) }) };
  const { gate, name } = gateOf([{ ...WINDOW, limit: 2 }], { warnAt: warnAt(warningsMeter(meter), () => assert.fail("ignored")) });
  const handler = limit(gate, { check: () => given });
  const res = { getHeader() {}, setHeader() {}, end() {}, once() {}, statusCode: 0, closed: false };
  await handler({ method: "GET", url: "/", headers: {}, socket: {} }, res, () => undefined);
  assert.deepEqual(counted, [["tidegate_warnings_total", 1, { rule: "/*", quota: name, percent: "50" }]]);
});

test("counts that are not the store's warn of nothing, and a denial has the level 100", async () => {
  let isDown = true;
  const client = new Client(redis.url);
  const flaky = { call: async (...words) => (isDown ? Promise.reject(new Error("down")) : client.call(...words)) };
  const told = [];
  const name = `fallen-${(named += 1)}`;
  const file = { stores: { main: { fallback: { store: "memory", percent: 50 } } }, limits: { [name]: { quotas: [{ algorithm: "fixed_window", limit: 10, window_ms: DAY, warn_at: [10, 100] }] } }, rules: [{ limits: [name] }] };
  const stores = { main: (limit) => new Redis({ client: flaky, deadlineMs: 60_000, ...limit }), memory: (limit) => new Memory(limit) };
  const gate = Gate.fromRules(file, { platform: "direct", stores, onError() {}, warnAt: warnAt((warning) => told.push(warning)) });
  const verdict = await gate.check(request, { peer: "192.0.2.1", cost: 4 });
  assert.deepEqual([verdict.origin, verdict.level, told.length], ["fallback", null, 0]);
  isDown = false;
  client.disconnect();
});

test("a mistake says what to write", () => {
  const quota = { ...WINDOW };
  const file = (quota, more = {}) => ({ limits: { api: { quotas: [quota], ...more } }, rules: [{ limits: ["api"] }] });
  const options = { platform: "direct", stores: { default: (limit) => new Memory(limit) } };
  assert.throws(() => Gate.fromRules(file(quota), options), { kind: "invalid", message: 'limits.api.quotas[0].warn_at: write the option warnAt: warnAt(jsonLines()), of "@tidegate/edge/gate/warn-at"' });
  const made = { ...options, warnAt: warnAt() };
  assert.throws(() => Gate.fromRules(file({ ...quota, warn_at: [80, 50] }), made), { message: "limits.api.quotas[0]: warn_at: 50 comes after 80; write each once, ascending" });
  assert.throws(() => Gate.fromRules(file(quota, { lease: true }), made), { message: "limits.api.lease: a decision from a loan tells no counts; delete lease, or delete warn_at" });
  assert.throws(() => warnAt("console"), { message: "warnAt: not a function; write warnAt((warning) => console.warn(warning))" });
  const binding = { limit: async () => ({ success: true }) };
  const native = { platform: "cloudflare", stores: { default: (limit) => new Native({ binding, ...limit }) }, warnAt: warnAt() };
  assert.throws(() => Gate.fromRules(file(quota), native), { kind: "unsupported", message: 'rule "/*": this store does not tell what is used, and so warns of nothing; delete warn_at' });
  const toml = '[limits.api]\nquotas = [{ algorithm = "fixed_window", limit = 9, window_ms = 60_000, warn_at = [80] }]\n[[rules]]\nlimits = ["api"]\n';
  assert.deepEqual(TomlGate.fromRules(toml, made).warnings, []);
});

test("the snippet of the README warns and chooses a model", async () => {
  const readme = readFileSync(new URL("../README.md", import.meta.url), "utf8");
  const section = readme.split("\n### Warnings\n")[1].split("\n### ")[0];
  const [, code] = /```js\n(.*?)```/s.exec(section);
  const body = code.replace(/^import .*$/gm, "");
  const lines = [];
  const quiet = { log: (line) => lines.push(JSON.parse(line).warning), warn: (line) => lines.push(line) };
  const run = new (async () => {}).constructor("Gate", "jsonLines", "warnAt", "rules", "gateOptions", "request", "console", `${body}\nreturn model;`);
  const file = { limits: { readme: { quotas: [{ ...WINDOW, limit: 1, warn_at: [80] }] } }, rules: [{ limits: ["readme"] }] };
  const options = { platform: "vercel", stores: { default: (limit) => new Memory(limit) } };
  const from = { headers: { "x-vercel-forwarded-for": "192.0.2.1" } };
  const model = await run(Gate, (write = quiet.log) => jsonLines(write), warnAt, file, options, new Request("https://example.com/", from), quiet);
  assert.deepEqual([model, lines], ["small", [80, "80 % of readme: 1 of 1"]]);
});
