// Everything that takes an object of options refuses a name that it does not know. What the package exports, and what errors look like.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { register } from "node:module";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, test } from "node:test";
import { inspect } from "node:util";
import { build } from "esbuild";

// Outside of workerd, nothing provides this module.
const workers = "data:text/javascript,export const waitUntil = () => {}; export class DurableObject {}";
const hooks = `export const resolve = (name, context, next) => name === "cloudflare:workers" ? { url: ${JSON.stringify(workers)}, shortCircuit: true } : next(name, context);`;
register(`data:text/javascript,${encodeURIComponent(hooks)}`);

const { exports } = JSON.parse(readFileSync(path.join(import.meta.dirname, "../package.json"), "utf8"));
const entries = Object.fromEntries(
  await Promise.all(Object.keys(exports).filter((entry) => exports[entry].types).map(async (entry) => [entry, await import(`@tidegate/edge${entry.slice(1)}`)])),
);

const policy = { name: "options", quotas: ["9 / d"] };
const own = { policy, platform: "direct", failMode: "closed", onError: () => {} };
const { Tidegate } = entries["./memory"];
const tidegate = new Tidegate(own);
const slots = new Tidegate({ ...own, policy: { name: "options", quotas: [{ concurrency: { limit: 1, lifetimeMs: 60_000 } }, { block: { capMs: 60_000 } }] } });
const gateOptions = { platform: "direct", stores: { default: (limit) => new Tidegate(limit) }, onError: () => {} };
const gateOf = ({ Gate }, more) => Gate.fromRules({ limits: { a: { quotas: [{ algorithm: "fixed_window", limit: 9, window_ms: 60_000 }] } }, rules: [{ limits: ["a"] }] }, { ...gateOptions, ...more });
const gate = gateOf(entries["./gate"]);
const request = new Request("https://example.com/");
const limits = (entry) => ({ limit: (more) => entries[entry].limit(tidegate, more) });
const store = (entry, options) => ({ Tidegate: (more) => new entries[entry].Tidegate({ ...own, ...options, ...more }) });
/** The same, and a limiter of parts. */
const withParts = (entry, options) => ({
  ...store(entry, options),
  RateLimiter: (more) => new entries[entry].RateLimiter({ policy: { name: "options", quotas: [entries["./parts"].fixedWindow(9, "1 min")] }, ...options, ...more }),
});

/** What each part is given before its options. */
const PARTS = {
  fixedWindow: [9, "1 d"],
  slidingWindow: [9, "1 d"],
  slidingLog: [9, "1 d"],
  tokenBucket: [9, 1, "1 d"],
  leakyBucket: [9, 1, "1 d"],
  penalty: ["1 s", 2, "1 min"],
  concurrency: [9, "1 d"],
  block: ["1 d"],
  clientAddress: ["vercel"],
};

/** For each entry, what takes options. All else that it exports takes none. */
const TAKES = {
  ".": withParts(".", { url: "https://eu1.upstash.io", token: "t" }),
  "./cloudflare": store("./cloudflare", { namespace: { idFromName() {}, get() {} } }),
  "./cloudflare-kv": store("./cloudflare-kv", { namespace: { get() {}, put() {} } }),
  "./cloudflare-ratelimit": {
    ...withParts("./cloudflare-ratelimit", { binding: { limit() {} } }),
    bindingWindow: (more) => entries["./cloudflare-ratelimit"].bindingWindow(9, 60, more),
  },
  "./redis": withParts("./redis", { client: {} }),
  "./deno-kv": store("./deno-kv", { kv: {} }),
  "./netlify-blobs": store("./netlify-blobs", { blobs: {} }),
  "./postgres": {
    ...store("./postgres", { client: { query() {} } }),
    createTable: (more) => entries["./postgres"].createTable({ query() {} }, more),
    removeExpired: (more) => entries["./postgres"].removeExpired({ query() {} }, more),
  },
  "./store": store("./store", { store: { read() {}, create() {}, update() {}, delete() {} } }),
  "./memory": withParts("./memory"),
  "./parts": Object.fromEntries(Object.entries(PARTS).map(([name, given]) => [name, (more) => entries["./parts"][name](...given, more)])),
  "./testing": { Tidegate: (more) => new entries["./testing"].Tidegate({ policy, ...more }) },
  "./gate": { Gate: (more) => gateOf(entries["./gate"], more) },
  "./calendar": { calendarWindow: (more) => entries["./calendar"].calendarWindow({ limit: 1, every: "day", ...more }) },
  "./credits": { balance: (more) => entries["./credits"].balance(more) },
  "./gate/toml": { Gate: (more) => gateOf(entries["./gate/toml"], more) },
  "./gate/busiest": { busiest: (more) => entries["./gate/busiest"].busiest(more) },
  "./gate/usage": { usageHandler: (more) => entries["./gate/usage"].usageHandler(gate, more), nodeUsageHandler: (more) => entries["./gate/usage"].nodeUsageHandler(gate, more) },
  "./once": { once: (more) => entries["./once"].once((limit) => new Tidegate(limit), { name: "options", ttlMs: 1_000, ...more }) },
  "./next": limits("./next"),
  "./sveltekit": limits("./sveltekit"),
  "./react-router": { limit: (more) => entries["./react-router"].limit(tidegate, () => {}, more), limitRoute: (more) => entries["./react-router"].limitRoute(tidegate, more) },
  "./hono": limits("./hono"),
  "./netlify": limits("./netlify"),
  "./node": limits("./node"),
  "./express-rate-limit": { TidegateStore: (more) => new entries["./express-rate-limit"].TidegateStore(tidegate, more) },
};
const NONE = ["allOf", "Limiter", "Verdict", "BaseGate", "TidegateError", "TidegateObject", "limitsFromData", "calendarWindows", "balances", "Prices", "usageOf", "Usage", "warnAt", "warningsMeter", "analyticsEngine", "jsonLines", "openTelemetry"];

test("whatever takes options refuses an unknown one", () => {
  for (const [entry, exported] of Object.entries(entries)) {
    const functions = Object.keys(exported).filter((name) => typeof exported[name] === "function" && !NONE.includes(name));
    assert.deepEqual(functions.sort(), Object.keys(TAKES[entry] ?? {}).sort(), entry);
    for (const [name, make] of Object.entries(TAKES[entry] ?? {})) {
      assert.throws(() => make({ chek: 1 }), /^TidegateError: chek: unknown field "chek"; (did you mean "\w+"\?|write one of: )/, `${entry} ${name}`);
    }
  }
  assert.throws(() => TAKES["./express-rate-limit"].TidegateStore({ prefx: "a" }), /^TidegateError: prefx: unknown field "prefx"; did you mean "prefix"\?$/);
  assert.throws(() => TAKES["./express-rate-limit"].TidegateStore({ prefix: 7 }), /^TidegateError: prefix: not a string; /);
  assert.throws(() => TAKES["./hono"].limit({ pear: () => "192.0.2.1" }), /^TidegateError: pear: unknown field "pear"; did you mean "peer"\?$/);
});

test("a method refuses an unknown option, and charges and returns nothing", async () => {
  const options = { chek: 1 };
  const verdict = await tidegate.limit("user:1", { cost: 3, idempotency: { token: "t", ttlMs: 60_000 } });
  const [held, charged] = [await slots.limit("user:1"), await gate.check(request, { peer: "192.0.2.1", estimate: 3 })];
  for (const refused of [
    () => tidegate.settle(verdict, { cost: 1, ...options }),
    () => tidegate.refund(verdict, options),
    () => slots.release(held, options),
    () => slots.block("user:1", 60_000, options),
    () => gate.settle(charged, { cost: 1, ...options }),
    () => gate.refund(charged, options),
    () => gate.release(charged, options),
  ]) {
    await assert.rejects(async () => refused(), /^TidegateError: chek: unknown field "chek"; /, String(refused));
  }
  assert.equal((await tidegate.peek(request, { key: "user:1" })).quotas[0].remaining, 6);
  assert.equal((await slots.limit("user:1")).limited, true);
  assert.match(await gate.explain(request, { peer: "192.0.2.1" }), /of 9/);
});

test("a limiter and a gate read the options of a check alike", async () => {
  const hostile = { get key() { throw new Error("no"); } };
  const bad = [
    ...[{ kye: "user:1" }, { extimate: 1 }, { chek: 1 }, [], "key", 7],
    ...[{ key: 5 }, { key: null }, { key: "\ud83d" }, { keys: 5 }, { keys: null }, { keys: { user: 7 } }, hostile],
    ...[{ cost: -1 }, { cost: null }, { estimate: 0 }, { estimate: 1, cost: 1 }, { now: "now" }],
  ];
  for (const options of bad) {
    const [error, same] = [(await tidegate.check(request, options)).error, (await gate.check(request, options)).error];
    assert.deepEqual([error.kind, error.kind, error.field], ["invalid", same.kind, same.field], error.message);
    // A gate has more options.
    const [what, others] = [error, same].map(({ message }) => message.replace(/; write (one of: |\{ ).*/, ""));
    assert.equal(what, others);
  }
  const inherited = Object.create({ key: "user:heir", cost: 2 });
  assert.deepEqual([(await tidegate.peek(request, inherited)).key, (await gate.check(request, inherited)).outcome], ["user:heir", "allowed"]);
  assert.match((await gate.check(request, { kye: "user:1" })).error.message, /^kye: unknown field "kye"; did you mean "key"\?$/);
});

test("what is exported is called by its name", () => {
  for (const [entry, exported] of Object.entries(entries)) {
    for (const [name, value] of Object.entries(exported)) if (typeof value === "function") assert.equal(value.name, name, entry);
  }
});

/** What a program prints that shows an error of the package in every way. */
const SHOWS = `import { Gate } from "@tidegate/edge/gate";
try { Gate.fromRules("[", { platform: "direct", stores: { default() {} } }); } catch (error) {
  console.log(error); console.log(error.stack.split("\\n")[0]); console.log(String(error)); console.log(error.name);
}`;
// Node.js shows the name of a class that was minified beside that of the error.
const LINES = /^(?:\w \[TidegateError\]|TidegateError): rules\.json:1:2: [^\n]*\n(?: {4}at [^]*\n)?TidegateError: rules\.json[^\n]*\nTidegateError: rules\.json[^\n]*\nTidegateError\n$/;

const folder = mkdtempSync(path.join(tmpdir(), "tidegate-options-"));
after(() => rmSync(folder, { recursive: true, force: true }));

for (const minify of [false, true]) {
  test(`an error names itself, also in a bundle${minify ? " that was minified" : ""}`, async () => {
    const resolveDir = path.join(import.meta.dirname, "..");
    const file = path.join(folder, `${minify}.mjs`);
    const options = { bundle: true, minify, format: "esm", platform: "node", logLevel: "silent" };
    const { outputFiles, warnings } = await build({ ...options, stdin: { contents: SHOWS, resolveDir }, write: false });
    assert.deepEqual(warnings, []);
    writeFileSync(file, outputFiles[0].text);
    assert.match(spawnSync(process.execPath, [file], { encoding: "utf8" }).stdout, LINES);
  });
}

test("an error of the package as it is names itself", () => {
  try {
    new Tidegate({ ...own, failMod: "open" });
    assert.fail();
  } catch (error) {
    assert.match(inspect(error), /^TidegateError: failMod: unknown field [^\n]*\n {4}at [^]*kind: 'invalid',\n {2}field: 'failMod'\n\}$/);
  }
});
