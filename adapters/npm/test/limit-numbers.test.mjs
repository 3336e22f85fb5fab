// Limits whose numbers a token, the application or an override gives. core-gate.test.mjs and core-gate-rules.test.mjs hold them to the core.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Gate } from "@tidegate/edge/gate";
import { limitsFromData } from "@tidegate/edge/gate/limits";
import { Gate as TomlGate } from "@tidegate/edge/gate/toml";
import { Tidegate as Memory } from "@tidegate/edge/memory";
import { Tidegate as Redis } from "@tidegate/edge/redis";
import { SignJWT } from "jose";

const NOW = 1_800_000_000_000;
const SECRET = new Uint8Array(32).fill(7);
const keys = { keys: [{ kty: "oct", k: Buffer.from(SECRET).toString("base64url") }] };
let nth = 0;

/** Rules with a limit of 10 a minute, which this gives another. Each test has counts of its own. */
function rulesOf(from, more = {}) {
  nth += 1;
  const quota = { algorithm: "fixed_window", limit: 10, window_ms: 60_000, ...(from && { limit_from: from }) };
  return { tokens: { algorithms: ["HS256"] }, limits: { [`numbers-${nth}`]: { quotas: [quota] } }, rules: [{ limits: [`numbers-${nth}`], on_failure: "open" }], ...more };
}

const gateOf = (rules, more = {}) => Gate.fromRules(rules, { platform: "direct", stores: { default: (limit) => new Memory(limit) }, keys, onError: () => undefined, limits: limitsFromData, ...more });
const tokenOf = (claims) => new SignJWT({ sub: "alice", ...claims }).setProtectedHeader({ alg: "HS256" }).setExpirationTime(NOW / 1_000 + 60).sign(SECRET);

async function check(gate, given = {}, claims = undefined) {
  const headers = { "x-limit": "1000000", ...(claims && { authorization: `Bearer ${await tokenOf(claims)}` }) };
  const verdict = await gate.check(new Request("https://example.com/", { headers }), { now: NOW, peer: "192.0.2.1", ...given });
  const [quota] = verdict.quotas;
  return verdict.error ? verdict.error.message : [quota.limit, quota.remaining];
}

test("a claim gives the limit, and one that is no number lets nothing pass", async () => {
  const gate = gateOf(rulesOf({ claim: "rpm", max: 50, min: 5 }));
  assert.deepEqual(await check(gate, {}, {}), [10, 9]);
  assert.deepEqual(await check(gate, {}, { rpm: null }), [10, 8]);
  assert.deepEqual(await check(gate, {}, { rpm: 20 }), [20, 17]);
  assert.deepEqual(await check(gate, {}, { rpm: 1_000 }), [50, 46]);
  assert.deepEqual(await check(gate, {}, { rpm: 0 }), [5, 0]);
  assert.deepEqual(await check(gate, { subject: "bob" }, { rpm: 20 }), [10, 9], "the token's subject is not counted");
  for (const [rpm, shown] of [["20", '"20"'], [2.5, "2.5"], [-1, "-1"], [2 ** 53, "9007199254740992"], [[], "a list"]]) {
    assert.equal(await check(gate, {}, { rpm }), `limit "numbers-${nth}": the claim "rpm" is ${shown}; give a whole number from 0 to 9007199254740991`);
  }
});

test("the application gives the limit of a request", async () => {
  const gate = gateOf(rulesOf({ application: "rpm", max: 50 }));
  assert.deepEqual(await check(gate, { limits: { rpm: 20 } }), [20, 19]);
  assert.deepEqual(await check(gate, { limits: { rpm: undefined } }), [10, 8]);
  assert.deepEqual(await check(gate, { limits: {} }), [10, 7]);
  assert.deepEqual(await check(gate, { limits: { rpm: 1_000 } }), [50, 46]);
  assert.equal(await check(gate, { limits: { rmp: 20 } }), 'limits: no limit takes "rmp" from the application; did you mean "rpm"? Write one of "rpm"');
  for (const rpm of ["20", 1.5, -1, 2 ** 53, null, NaN]) assert.match(await check(gate, { limits: { rpm } }), /^limits\.rpm: .* is not a whole number; write one from 0 to /);
  for (const limits of [7, "rpm", [20]]) assert.match(await check(gate, { limits }), /^limits: .* is not an object/);
  assert.match(await gate.explain(new Request("https://example.com/"), { peer: "192.0.2.1", limits: { rpm: 99 } }), /fixed_window of 50 in 60 s, by sender = ip:192\.0\.2\.1, from the application's number "rpm": 99, but at most 50\n/);
});

test("one limiter counts by all numbers of a limit", async () => {
  let made = 0;
  const gate = gateOf(rulesOf({ application: "rpm", max: 5_000 }), { stores: { default: (limit) => ((made += 1), new Memory(limit)) } });
  const before = made;
  for (let rpm = 100; rpm < 600; rpm++) await check(gate, { limits: { rpm } });
  assert.deepEqual(await check(gate, { limits: { rpm: 5_000 } }), [5_000, 4_499]);
  assert.equal(made, before);
});

test("the commands of a key are those of the number that applies", async () => {
  const sent = [];
  const client = { sendCommand: async (words) => (sent.push(words), "d@1800000000000 1 ") };
  const gate = gateOf(rulesOf({ application: "rpm", max: 50 }), { stores: { default: (limit) => new Redis({ client, ...limit }) } });
  for (const rpm of [20, 20, 30, undefined]) await check(gate, { now: undefined, limits: { rpm } });
  // The script, its keys, the algorithm, and the limit.
  assert.deepEqual(sent.map((words) => words[5]), ["20", "20", "30", "10"]);
});

test("overrides precede what is given, and are read again without the rules", async () => {
  const rules = rulesOf({ application: "rpm", max: 50 }, { overrides: {} });
  const [limit] = Object.keys(rules.limits);
  rules.overrides = { "sub:alice": { [limit]: { limit: 300 } } };
  const gate = gateOf(rules);
  const alice = { subject: "alice", limits: { rpm: 20 } };
  assert.deepEqual(await check(gate, alice), [300, 299]);
  assert.deepEqual(await check(gate, { subject: "sub:alice" }), [10, 9]);
  gate.reloadOverrides({ overrides: { "sub:alice": { [limit]: { limit: 40 } }, "sub:bob": { [limit]: { limit: 7 } } } });
  assert.deepEqual(await check(gate, alice), [40, 38]);
  assert.deepEqual(await check(gate, { subject: "bob" }), [7, 6]);
  const wrong = `{ "overrides": { "sub:alice": { "${limit}x": { "limit": 1 } } } }`;
  assert.throws(() => gate.reloadOverrides(wrong), new RegExp(`^TidegateError: overrides\\.json:1:\\d+: "${limit}x" is not a limit; did you mean "${limit}"\\? Write one of "${limit}"$`));
  assert.deepEqual(await check(gate, alice), [40, 37]);
  gate.reload(rules);
  assert.deepEqual(await check(gate, alice), [40, 36], "a reload of the rules keeps the file");
  assert.throws(() => gate.reload({ ...rulesOf(), rules: [] }), /is not a limit/);
  gate.reloadOverrides({ overrides: {} });
  assert.deepEqual(await check(gate, alice), [300, 295]);
});

test("a gate without the option says what to write", async () => {
  const fix = 'write the option limits: limitsFromData, of "@tidegate/edge/gate/limits"';
  const rules = rulesOf({ application: "rpm", max: 50 });
  const plain = (rules) => gateOf(rules, { limits: undefined });
  assert.throws(() => plain(rules), { message: `limits.numbers-${nth}.quotas[0].limit_from: ${fix}` });
  assert.throws(() => plain(rulesOf(undefined, { overrides: {} })), { message: `overrides: ${fix}` });
  const gate = plain(rulesOf());
  assert.equal(await check(gate, { limits: { rpm: 5 } }), `limits: ${fix}`);
  assert.throws(() => gate.reloadOverrides({ overrides: {} }), { message: `limits: ${fix}` });
});

test("a file of overrides may be in TOML", async () => {
  const rules = `[limits.toml]\nquotas = [{ algorithm = "fixed_window", limit = 10, window_ms = 60_000 }]\n[[rules]]\nlimits = ["toml"]\n`;
  const gate = TomlGate.fromRules(rules, { platform: "direct", stores: { default: (limit) => new Memory(limit) }, limits: limitsFromData });
  gate.reloadOverrides(`[overrides]\n"ip:192.0.2.1" = { toml = { limit = 5_000 } }\n`);
  assert.deepEqual(await check(gate), [5_000, 4_999]);
  assert.throws(() => gate.reloadOverrides(`[overrides]\n"key:secret" = { toml = { limit = 5 } }\n`), /^TidegateError: overrides\.toml:2:16: this is not the hash of an API key/);
});
