// Prices of the units of a model's answer. The core's tests/all/prices.rs has the same sums and errors.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Gate } from "@tidegate/edge/gate";
import { Gate as GateOfToml } from "@tidegate/edge/gate/toml";
import { Prices } from "@tidegate/edge/gate/prices";
import { Tidegate as InMemory } from "@tidegate/edge/memory";

const NOW = 1_800_000_000_000;
const PRICES = { "gpt-large": { input: 3, output: 15, cached: 0 }, small: { input: 1 } };
const window = (limit, more) => ({ algorithm: "fixed_window", limit, window_ms: 60_000, ...more });
const gateOf = (prices = PRICES, quotas = [window(10_000)]) =>
  Gate.fromRules(
    { dimensions: ["tenant", "model"], prices, limits: { tokens: { quotas } }, rules: [{ limits: ["tokens"] }] },
    { platform: "direct", stores: { default: (limit) => new InMemory(limit) } },
  );
const request = () => new Request("https://example.com/chat", { method: "POST" });

test("an estimate is settled by what the answer took, in three budgets at once", async () => {
  const quotas = [window(1_000_000, { name: "user" }), window(50_000_000, { by: "tenant", name: "tenant" }), window(20_000_000, { by: ["tenant", "model"], name: "model" })];
  const gate = gateOf(PRICES, quotas);
  const prices = new Prices(gate);
  const options = { subject: "alice", keys: { tenant: "tenant:acme", model: "model:gpt-large" }, now: NOW };
  const verdict = await gate.check(request(), { ...options, estimate: prices.cost("gpt-large", { input: 1_200, output: 4_000 }) });
  const remaining = ({ quotas }) => Object.fromEntries(quotas.map(({ name, remaining }) => [name, remaining]));
  assert.deepEqual(remaining(verdict), { user: 936_400, tenant: 49_936_400, model: 19_936_400 });
  const settled = await gate.settle(verdict, { cost: prices.cost("gpt-large", { input: 1_000, cached: 200, output: 310, reasoning: undefined }), now: NOW });
  assert.deepEqual(remaining(settled), { user: 992_350, tenant: 49_992_350, model: 19_992_350 });
  // Another model of the tenant has a budget of its own.
  const other = await gate.check(request(), { ...options, keys: { tenant: "tenant:acme", model: "model:small" }, cost: 1 });
  assert.deepEqual(remaining(other), { user: 992_349, tenant: 49_992_349, model: 19_999_999 });
});

test("unknown names, wrong counts and too large sums throw, and settle nothing", () => {
  const prices = new Prices(gateOf({ large: { input: 3, output: 2 ** 51 }, small: { input: 1 } }));
  assert.equal(prices.cost("large", {}), 0);
  assert.equal(prices.cost("large", { output: 3, input: 750_599_937_895_082 }), 2 ** 53 - 2);
  for (const [model, counts, expected] of [
    ["larg", { input: 1 }, 'prices: "larg" has none; did you mean "large"? Write one of "large", "small"'],
    ["small", { inputs: 1 }, 'prices: "inputs" is not counted of "small"; did you mean "input"? Write one of "input"'],
    ["large", { output: 4 }, 'prices: 4 of "output" are too many; a request costs at most 9007199254740991'],
    ["large", { output: 3, input: 750_599_937_895_083 }, 'prices: 750599937895083 of "input" are too many; a request costs at most 9007199254740991'],
    ["large", { input: Number.MAX_SAFE_INTEGER }, 'prices: 9007199254740991 of "input" are too many; a request costs at most 9007199254740991'],
    ["small", { input: 1.5 }, "counts.input: 1.5 is no whole number from 0; write one"],
    ["small", { input: -1 }, "counts.input: -1 is no whole number from 0; write one"],
    ["small", { input: "5" }, 'counts.input: "5" is no whole number from 0; write one'],
    ["small", { toString: 1 }, 'prices: "toString" is not counted of "small"; write one of "input"'],
    ["__proto__", {}, 'prices: "__proto__" has none; write one of "large", "small"'],
  ]) {
    assert.throws(() => prices.cost(model, counts), { name: "TidegateError", kind: "invalid", message: expected });
  }
  assert.throws(() => new Prices(gateOf(undefined)).cost("x", {}), { message: /"x" has none/ });
  assert.throws(() => new Prices(gateOf({})).cost("x", {}), { message: "prices: the rules have none; write a table such as [prices.gpt] with input = 3" });
});

test("mistakes in the table say what to write, in JSON and TOML", () => {
  for (const [price, expected] of [
    [0.15, "0.15 is a fraction; write prices in units of 1/100 and multiply the limits by 100"],
    [2.5, "2.5 is a fraction; write prices in units of 1/10 and multiply the limits by 10"],
    [-1, "-1 is negative; write a whole number from 0"],
    ["3", "expected a whole number, found a text"],
    [2 ** 51 + 1, "2251799813685249 is out of range; write a whole number from 0 to 2251799813685248"],
  ]) {
    assert.throws(() => new Prices(gateOf({ a: { input: price } })), { kind: "invalid", message: `prices.a.input: ${expected}` });
  }
  assert.throws(() => new Prices(gateOf({ a: {} })), { message: "prices.a: empty; write one such as input = 3" });
  const options = { platform: "direct", stores: { default: (limit) => new InMemory(limit) } };
  const toml = (text) => new Prices(GateOfToml.fromRules(text, options));
  assert.throws(() => toml("rules = []\n[prices.a]\ninput = 0.25\n"), { message: "rules.toml:3:9: 0.25 is a fraction; write prices in units of 1/100 and multiply the limits by 100" });
  assert.equal(toml('rules = []\n[prices."gpt-large"]\ninput = 3\n').cost("gpt-large", { input: 2 }), 6);
});

test("a reload replaces the prices", () => {
  const gate = gateOf();
  const prices = new Prices(gate);
  assert.equal(prices.cost("small", { input: 5 }), 5);
  gate.reload({ prices: { small: { input: 7 } }, rules: [] });
  assert.equal(prices.cost("small", { input: 5 }), 35);
});
