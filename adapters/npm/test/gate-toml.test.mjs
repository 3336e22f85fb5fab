// The gate for rules files in TOML: the same gate, but for how it reads its file.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, test } from "node:test";
import { Gate as JsonGate, TidegateError } from "@tidegate/edge/gate";
import { Gate } from "@tidegate/edge/gate/toml";
import { Tidegate as Memory } from "@tidegate/edge/memory";
import { limit as node } from "@tidegate/edge/node";

const stores = { default: (limit) => new Memory(limit) };
const options = { platform: "direct", stores };
const file = new URL("../../tower/examples/rules.toml", import.meta.url);
const text = readFileSync(file, "utf8");
const request = () => new Request("https://example.com/");

function failure(act) {
  try {
    act();
  } catch (thrown) {
    assert.ok(thrown instanceof TidegateError, String(thrown));
    return `${thrown.kind}: ${thrown.message}`;
  }
  return undefined;
}

describe("rules in TOML", () => {
  test("those of the tower example limit requests, and count with the same rules in JSON", async () => {
    const peer = "192.0.2.77";
    const gate = Gate.fromRules(text, options);
    const allowed = [];
    for (let nth = 0; nth < 7; nth++) allowed.push((await gate.check(request(), { peer })).allowed);
    assert.deepEqual(allowed, [true, true, true, true, true, false, false]);
    const rules = { limits: { api: { quotas: [{ algorithm: "token_bucket", capacity: 5, refill: 1, per_ms: 60_000 }] } }, rules: [{ limits: ["api"] }] };
    const same = JsonGate.fromRules(rules, options);
    assert.equal((await same.check(request(), { peer })).allowed, false);
    // The gate for TOML reads objects and JSON, too.
    assert.equal((await Gate.fromRules(rules, options).check(request(), { peer })).allowed, false);
    const json = Gate.fromRules(JSON.stringify(rules), { ...options, name: "rules.json" });
    assert.equal((await json.check(request(), { peer })).allowed, false);
  });

  test("errors have a position in the text, and the nearest right word", () => {
    const wrong = text.replace('"token_bucket"', '"token_buckt"');
    assert.match(failure(() => Gate.fromRules(wrong, options)), /^invalid: rules\.toml:5:25: "token_buckt" is not an algorithm; did you mean "token_bucket"\?/);
    assert.match(failure(() => Gate.fromRules("[rules", { ...options, name: "edge.toml" })), /^invalid: edge\.toml:1:\d+: /);
    // JSON is not TOML, and the message has a position in it.
    assert.match(failure(() => Gate.fromRules('{ "rules": [] }', options)), /^invalid: rules\.toml:1:1: /);
    assert.match(failure(() => Gate.fromRules({ ruls: [] }, options)), /^invalid: ruls: unknown field `ruls`; did you mean "rules"\?/);
  });

  test("a reload takes TOML or an object, and keeps the old rules after an error", async () => {
    const peer = "192.0.2.78";
    const gate = Gate.fromRules(text, options);
    assert.match(failure(() => gate.reload("rules = 7")), /^invalid: rules\.toml:1:9: /);
    assert.equal((await gate.check(request(), { peer })).quotas[0].remaining, 4);
    gate.reload({ rules: [] });
    assert.equal((await gate.check(request(), { peer })).outcome, "unlimited");
    assert.match(failure(() => gate.reload("[[rules]]\npath = 1")), /^invalid: rules\.toml:2:8: /);
    assert.equal((await gate.check(request(), { peer })).outcome, "unlimited");
    gate.reload(text);
    assert.equal((await gate.check(request(), { peer })).quotas[0].remaining, 3);
  });

  test("a middleware takes it", () => {
    assert.equal(typeof node(Gate.fromRules(text, options)), "function");
  });
});
