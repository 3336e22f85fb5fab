// The stores of Cloudflare on workerd, bundled as wrangler bundles them.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { after, test } from "node:test";
import { build } from "esbuild";

const require = createRequire(new URL("../../../conformance/hosts/cloudflare/package.json", import.meta.url));
const { Miniflare } = await import(require.resolve("miniflare"));

const here = path.dirname(new URL(import.meta.url).pathname);
const hosts = [];
after(() => Promise.all(hosts.map((host) => host.dispose())));

/** A Worker whose module this is, on a new workerd, and a function that asks it. */
async function worker(contents, { conditions = ["workerd"], loads = "module", ...options } = {}) {
  const wasm = [];
  const loader = {
    name: "wasm",
    setup({ onResolve, onLoad }) {
      // As bundlers do that take any other file for a URL.
      if (loads === "url") {
        onResolve({ filter: /\.wasm\?module$/ }, () => ({ path: "tidegate.wasm", namespace: "url" }));
        onLoad({ filter: /.*/, namespace: "url" }, () => ({ contents: `export default "/assets/tidegate.wasm";` }));
      }
      onResolve({ filter: /\.wasm\?module$/ }, ({ path: imported, resolveDir }) => {
        const name = `${wasm.length}.wasm`;
        wasm.push({ type: "CompiledWasm", path: name, contents: readFileSync(path.resolve(resolveDir, imported.replace("?module", ""))) });
        return { path: `./${name}`, external: true };
      });
    },
  };
  const { outputFiles } = await build({
    stdin: { contents, resolveDir: here },
    bundle: true,
    write: false,
    format: "esm",
    conditions,
    external: ["cloudflare:*"],
    plugins: [loader],
  });
  const miniflare = new Miniflare({
    modules: [{ type: "ESModule", path: "worker.mjs", contents: outputFiles[0].text }, ...wasm],
    compatibilityDate: "2026-04-01",
    cf: false,
    ...options,
  });
  hosts.push(miniflare);
  await miniflare.ready;
  const ask = async (url, address = "192.0.2.1") => {
    const response = await miniflare.dispatchFetch(`http://example.com${url}`, { headers: { "cf-connecting-ip": address } });
    return { status: response.status, headers: response.headers, body: await response.text() };
  };
  return { ask, miniflare };
}

const OBJECT = { durableObjects: { TIDEGATE: { className: "TidegateObject", useSQLite: true } } };
const counted = (statuses) => statuses.reduce((all, status) => ({ ...all, [status]: (all[status] ?? 0) + 1 }), {});

/** A Worker with one limit, which tells its error instead of a body. */
const limited = (module, options, more = "", onError = "onError: () => {}") => `
import { env } from "cloudflare:workers";
import { Tidegate } from "${module}";
${more}
const tidegate = new Tidegate({ ${options}, ${onError} });
export default {
  async fetch(request) {
    const verdict = await tidegate.check(request);
    if (verdict.error) return Response.json({ kind: verdict.error.kind, message: verdict.error.message }, { status: verdict.failedOpen ? 299 : 503 });
    return verdict.response ?? verdict.onto(new Response(verdict.origin));
  },
};`;
const policy = `policy: { name: "api", quotas: ["60 / d"] }`;
const exported = `export { TidegateObject } from "@tidegate/edge/cloudflare";`;

for (const leases of [false, true]) {
  test(`Durable Objects${leases ? ", leased" : ""}: of 300 requests at once exactly 60 pass, for each client`, async () => {
    const options = `namespace: env.TIDEGATE, failMode: "open", leases: ${leases}, policy: { name: "api", quotas: ["60 burst, 1 / d"] }`;
    const { ask } = await worker(limited("@tidegate/edge/cloudflare", options, exported), OBJECT);
    for (const address of ["192.0.2.1", "192.0.2.2"]) {
      const answers = await Promise.all(Array.from({ length: 300 }, () => ask("/", address)));
      assert.deepEqual(counted(answers.map(({ status }) => status)), { 200: 60, 429: 240 });
      const denied = answers.find(({ status }) => status === 429);
      assert.deepEqual([denied.headers.get("x-ratelimit-limit"), JSON.parse(denied.body).error], ["60", "rate_limited"]);
      if (leases) assert.ok(answers.some(({ body }) => body === "lease"));
    }
  });
}

test("Durable Objects grant once and spend each unit once, and those without credits say which class to export", async () => {
  const module = (object) => `
import { env } from "cloudflare:workers";
import { Tidegate } from "@tidegate/edge/cloudflare";
import { balance } from "@tidegate/edge/credits";
export { TidegateObject } from "${object}";
const quotas = [{ fixedWindow: { limit: 10, windowMs: 86_400_000 } }, balance({ max: 1_000, covers: true })];
const tidegate = new Tidegate({ namespace: env.TIDEGATE, failMode: "closed", onError: () => {}, policy: { name: "api", quotas } });
export default {
  async fetch(request) {
    const { pathname, searchParams } = new URL(request.url);
    try {
      const verdict = await (pathname === "/grant"
        ? tidegate.grant("user", 50, { token: searchParams.get("order") })
        : pathname === "/settle"
          ? tidegate.check(request, { key: "user", estimate: 9 }).then((verdict) => tidegate.settle(verdict, { cost: 4 }))
          : tidegate.limit("user", { cost: 5 }));
      return Response.json([verdict.outcome, verdict.replayed, verdict.fromBalance, verdict.quotas.map(({ remaining }) => remaining), verdict.error?.message]);
    } catch (error) {
      return Response.json([error.kind, error.message]);
    }
  },
};`;
  const { ask } = await worker(module("@tidegate/edge/credits/cloudflare"), OBJECT);
  const told = async (url) => JSON.parse((await ask(url)).body);
  const granted = await Promise.all(Array.from({ length: 20 }, () => told("/grant?order=1")));
  assert.deepEqual(granted.filter(([, replayed]) => !replayed), [["allowed", false, 0, [10, 50], null]]);
  const spent = await Promise.all(Array.from({ length: 30 }, () => told("/")));
  assert.deepEqual(counted(spent.map(([outcome, , fromBalance]) => `${outcome} ${fromBalance}`)), { "allowed 0": 2, "allowed 5": 10, "denied 0": 18 });
  assert.deepEqual(await told("/grant?order=2"), ["allowed", false, 0, [0, 50], null]);
  assert.deepEqual(await told("/settle"), ["allowed", false, 0, [0, 46], null]);
  assert.deepEqual(await told("/grant?order=2"), ["allowed", true, 0, [0, 46], null]);

  const plain = await worker(module("@tidegate/edge/cloudflare"), OBJECT);
  const message = 'durable object: this class has no balances; export TidegateObject of "@tidegate/edge/credits/cloudflare"';
  assert.deepEqual(JSON.parse((await plain.ask("/grant?order=1")).body), ["unsupported", message]);
});

test("Durable Objects count in the months of a zone, by their own clock and by the caller's", async () => {
  const { ask } = await worker(
    `
import { env } from "cloudflare:workers";
import { calendarWindow } from "@tidegate/edge/calendar";
import { Tidegate } from "@tidegate/edge/cloudflare";
${exported}
const month = calendarWindow({ limit: 3, every: "month", zone: "Europe/Berlin", anchor: "2026-01-31", carryOver: 1 });
const made = (clock) => new Tidegate({ namespace: env.TIDEGATE, failMode: "closed", clock, minTtlMs: 3_600_000, policy: { name: clock, quotas: [month] } });
const [own, caller] = [made("object"), made("caller")];
export default {
  async fetch(request) {
    const now = new URL(request.url).searchParams.get("now");
    const verdict = await (now === null ? own.limit("user") : caller.limit("user", { now: Date.parse(now) }));
    return Response.json([verdict.outcome, verdict.quotas[0]?.limit, verdict.quotas[0]?.remaining, verdict.retryAfterMs, verdict.error?.message]);
  },
};`,
    OBJECT,
  );
  const asked = async (url) => JSON.parse((await ask(url)).body).slice(0, 4);
  const begins = "2026-02-27T23:00Z";
  for (let left = 3; left >= 0; left--) assert.deepEqual(await asked("/?now=2026-02-27T22:59Z"), ["allowed", 4, left, null]);
  assert.deepEqual(await asked("/?now=2026-02-27T22:59Z"), ["denied", 4, 0, 60_000]);
  for (let left = 2; left >= 0; left--) assert.deepEqual(await asked(`/?now=${begins}`), ["allowed", 3, left, null]);
  assert.equal((await asked(`/?now=${begins}`))[0], "denied");
  assert.deepEqual(await asked("/?now=2026-05-01T00:00Z"), ["allowed", 4, 3, null]);
  for (let left = 3; left >= 0; left--) assert.deepEqual(await asked("/"), ["allowed", 4, left, null]);
  const [outcome, , , wait] = await asked("/");
  assert.ok(outcome === "denied" && wait > 0 && wait <= 31 * 86_400_000 + 3_600_000, `${outcome} ${wait}`);
});

test("Durable Objects, leased: borrowers with a grace admit at most so much beyond the limit, and tell it after the responses", async () => {
  const { ask } = await worker(
    `
import { env } from "cloudflare:workers";
import { Tidegate } from "@tidegate/edge/cloudflare";
${exported}
const limiter = (leases) => new Tidegate({ namespace: env.TIDEGATE, failMode: "closed", leases, policy: { name: "api", quotas: ["60 burst, 1 / d"] } });
const [plain, borrowers] = [limiter(false), Array.from({ length: 3 }, () => limiter({ grace: 2 }))];
export default {
  async fetch(request) {
    const { pathname, searchParams } = new URL(request.url);
    const key = searchParams.get("key");
    if (pathname === "/fill") return new Response((await plain.limit(key, { cost: 60 })).outcome);
    if (pathname === "/left") return new Response((await plain.peek(request, { key })).quotas[0].remaining);
    const { outcome, origin } = await borrowers[searchParams.get("by")].limit(key);
    return new Response(outcome + " " + origin);
  },
};`,
    OBJECT,
  );
  assert.equal((await ask("/fill?key=full")).body, "allowed");
  const asked = (key, times) => Promise.all(Array.from({ length: 3 * times }, (_, nth) => ask(`/?key=${key}&by=${nth % 3}`)));
  const full = (await asked("full", 4)).map(({ body }) => body);
  // At least one of each, which it has admitted before it could hear.
  const admitted = full.filter((body) => body === "allowed lease").length;
  assert.ok(admitted >= 3 && admitted <= 6 && full.every((body) => body === "allowed lease" || body.startsWith("denied")), full.join());
  assert.deepEqual(counted((await asked("full", 4)).map(({ body }) => body.split(" ")[0])), { denied: 12 });
  assert.deepEqual(counted((await asked("fresh", 1)).map(({ body }) => body)), { "allowed lease": 3 });
  const left = async () => Number((await ask("/left?key=fresh")).body);
  for (let tries = 0; (await left()) > 57 && tries < 200; tries++) await new Promise((resolve) => setTimeout(resolve, 20));
  // A borrower may hold a loan by now.
  assert.ok((await left()) <= 57, `${await left()}`);
});

test("Durable Objects, leased: what many keys of a shard have to tell is one call, or a call for each of an object of an earlier release", async () => {
  for (const refuses of [false, true]) {
    const { ask } = await worker(
      `
import { env } from "cloudflare:workers";
import { Tidegate, TidegateObject as Object_ } from "@tidegate/edge/cloudflare";
let calls = 0;
export class TidegateObject extends Object_ {
  answer(question) {
    calls += 1;
    if (${refuses} && question.startsWith("06")) return "500 unavailable: durable object: the call has another version of the protocol";
    return super.answer(question);
  }
}
const limiter = (leases) => new Tidegate({ namespace: env.TIDEGATE, failMode: "closed", leases, shards: 1, policy: { name: "api", quotas: ["60 burst, 1 / d"] } });
const [plain, leased] = [limiter(false), limiter({ grace: 1 })];
const keys = Array.from({ length: 50 }, (_, nth) => "user:" + nth);
export default {
  async fetch(request) {
    const { pathname } = new URL(request.url);
    if (pathname === "/calls") return new Response(calls);
    if (pathname === "/left") return Response.json((await Promise.all(keys.map((key) => plain.peek(request, { key })))).map(({ quotas }) => quotas[0].remaining));
    return Response.json(await Promise.all(keys.map(async (key) => (await leased.limit(key)).origin)));
  },
};`,
      OBJECT,
    );
    assert.deepEqual(JSON.parse((await ask("/")).body), Array(50).fill("lease"));
    const calls = async () => Number((await ask("/calls")).body);
    const told = refuses ? 51 : 1;
    for (let tries = 0; (await calls()) < told && tries < 200; tries++) await new Promise((resolve) => setTimeout(resolve, 20));
    assert.equal(await calls(), told);
    assert.deepEqual(JSON.parse((await ask("/left")).body), Array(50).fill(59));
  }
});

test("Workers KV cannot tell the first use of a token", async () => {
  const { ask } = await worker(
    `
import { env } from "cloudflare:workers";
import { Tidegate } from "@tidegate/edge/cloudflare-kv";
import { once } from "@tidegate/edge/once";
export default {
  async fetch() {
    try {
      once((limit) => new Tidegate({ namespace: env.COUNTS, ...limit }), { name: "webhooks", ttlMs: 60_000 });
      return new Response("made");
    } catch ({ kind, message }) {
      return new Response(kind + " " + message);
    }
  },
};`,
    { kvNamespaces: ["COUNTS"] },
  );
  const { body } = await ask("/");
  assert.match(body, /^unsupported once: only an exact limiter can tell the first use of a token, and this one is approximate: /);
});

test("Durable Objects: of 500 uses of a token at once, one is the first", async () => {
  const { ask } = await worker(
    `
import { env } from "cloudflare:workers";
import { Tidegate } from "@tidegate/edge/cloudflare";
import { once } from "@tidegate/edge/once";
${exported}
const isFirst = once((limit) => new Tidegate({ namespace: env.TIDEGATE, ...limit }), { name: "webhooks", ttlMs: 60_000 });
export default {
  async fetch(request) {
    const token = new URL(request.url).searchParams.get("token");
    return Response.json(await Promise.all(Array.from({ length: 100 }, () => isFirst(token))));
  },
};`,
    OBJECT,
  );
  const answers = await Promise.all(Array.from({ length: 5 }, () => ask("/?token=evt_1")));
  const all = answers.flatMap(({ body }) => JSON.parse(body));
  assert.deepEqual(counted(all), { true: 1, false: 499 });
});

test("Durable Objects: estimates, refunds, slots and resets, and a limiter that is made in the Worker's global scope", async () => {
  const { ask } = await worker(
    `
import { env } from "cloudflare:workers";
import { Tidegate } from "@tidegate/edge/cloudflare";
${exported}
const quotas = ["100 / d", { concurrency: { limit: 2, lifetimeMs: 60_000 } }];
const tidegate = new Tidegate({ namespace: env.TIDEGATE, failMode: "closed", shards: 4, locationHint: "weur", policy: { name: "api", quotas } });
const left = async () => (await tidegate.peek(new Request("https://example.com/"), { key: "k" })).quotas.map(({ remaining }) => remaining);
export default {
  async fetch() {
    const seen = [];
    const verdict = await tidegate.limit("k", { estimate: 30 });
    seen.push(await left());
    await tidegate.settle(verdict, { cost: 12 });
    seen.push(await left());
    await tidegate.refund(await tidegate.limit("k", { cost: 8 }), { cost: 8 });
    seen.push(await left());
    await tidegate.reset("k");
    seen.push(await left());
    return Response.json(seen);
  },
};`,
    OBJECT,
  );
  const { body } = await ask("/");
  assert.deepEqual(JSON.parse(body), [[70, 1], [88, 2], [88, 2], [100, 2]]);
});

test("Durable Objects: a jurisdiction's objects are asked, and workerd, which has none, says so once", async () => {
  const { ask } = await worker(
    `
import { env } from "cloudflare:workers";
import { Tidegate } from "@tidegate/edge/cloudflare";
${exported}
const told = [];
console.warn = (line) => told.push(line);
const options = { failMode: "closed", jurisdiction: "eu", policy: { name: "api", quotas: ["2 / d"] } };
const here = { getByName: (...asked) => env.TIDEGATE.getByName(...asked) };
const elsewhere = { getByName: () => { throw new Error("objects of no jurisdiction"); }, jurisdiction: (name) => (told.push(name), here) };
export default {
  async fetch() {
    const tidegates = [env.TIDEGATE, elsewhere].map((namespace) => new Tidegate({ ...options, namespace }));
    const allowed = [];
    for (let nth = 0; nth < 3; nth++) for (const tidegate of tidegates) allowed.push((await tidegate.limit("k")).allowed);
    let error;
    try { new Tidegate({ ...options, namespace: env.TIDEGATE, jurisdiction: "EU" }); } catch (thrown) { error = thrown.message; }
    return Response.json({ told, allowed, error });
  },
};`,
    OBJECT,
  );
  const { told, allowed, error } = JSON.parse((await ask("/")).body);
  assert.deepEqual(told, ['tidegate: workerd has no jurisdictions, so objects are not in "eu" here', "eu"]);
  // Both are the same object here.
  assert.deepEqual(allowed, [true, true, false, false, false, false]);
  assert.match(error, /^jurisdiction: unknown value "EU"; write one of: eu, us,/);
});

test("a wrong object and no binding are named, and let nobody through", async () => {
  const stranger = `import { DurableObject } from "cloudflare:workers"; export class TidegateObject extends DurableObject { answer() { return "hello"; } }`;
  const older = `import { DurableObject } from "cloudflare:workers"; export class TidegateObject extends DurableObject { answer() { return "400 invalid: the call is of another version of tidegate-cloudflare-do; deploy the same one"; } }`;
  const objects = `namespace: env.TIDEGATE, failMode: "open", ${policy}`;
  const cases = [
    ["@tidegate/edge/cloudflare", objects, stranger, OBJECT, "corrupt", /unexpected answer "500 hello".*check that the bound class/],
    ["@tidegate/edge/cloudflare", objects, older, OBJECT, "invalid", /another version/],
    ["@tidegate/edge/cloudflare-kv", `namespace: env.COUNTS, failMode: "open", policy: { name: "api", quotas: ["60 burst, 1 / d"] }`, "", {}, "refused", /namespace: missing; bind one: in wrangler.jsonc, write "kv_namespaces"/],
    ["@tidegate/edge/cloudflare-ratelimit", `binding: env.LIMITER, failMode: "open", policy: { name: "api", quotas: [{ fixedWindow: { limit: 9, windowMs: 10_000 } }] }`, "", {}, "refused", /binding: missing/],
  ];
  for (const [module, options, more, bindings, kind, message] of cases) {
    const { ask } = await worker(limited(module, options, more), bindings);
    const { status, body } = await ask("/");
    const error = JSON.parse(body);
    assert.deepEqual([status, error.kind], [503, kind], body);
    assert.match(error.message, message);
  }
});

// As wrangler starts a Worker whose `durable_objects` are misspelt, whose class is in no `migrations`, or is there under another name.
for (const [what, bindings, status, kind, message] of [
  ["binding", {}, 503, "refused", /^namespace: missing; bind one: in wrangler.jsonc, write "durable_objects": .*"name": "TIDEGATE", "class_name": "TidegateObject"/],
  ["migration", { durableObjects: { TIDEGATE: { className: "TidegateObject" } } }, 503, "refused", /^durable object: its class has no SQLite storage; /],
  ["class", { durableObjects: { TIDEGATE: { className: "Missing", useSQLite: true } } }, 299, "timeout", /no object has answered yet; if none ever does, .*exported by the Worker's main module/],
]) {
  test(`a missing ${what} of Durable Objects is a line of the log at the first request that says what to write`, async () => {
    const lines = [];
    const log = { structuredWorkerdLogs: true, handleStructuredLogs: ({ message }) => void lines.push(message) };
    const options = `namespace: env.TIDEGATE, failMode: "open", ${policy}`;
    const { ask } = await worker(limited("@tidegate/edge/cloudflare", options, exported, ""), { ...bindings, ...log });
    const answer = await ask("/");
    const error = JSON.parse(answer.body);
    assert.deepEqual([answer.status, error.kind], [status, kind], answer.body);
    assert.match(error.message, message);
    assert.match(error.message, /"migrations": \[\{ "tag": "v1", "new_sqlite_classes": \["TidegateObject"\] \}\]/);
    const told = () => lines.filter((line) => line.startsWith("tidegate: "));
    // What a Worker logs passes through a pipe.
    for (let tries = 0; told().length === 0 && tries < 1_000; tries++) await new Promise((resolve) => setTimeout(resolve, 10));
    assert.equal(told().length, 1, String(lines));
    assert.ok(told()[0].includes(error.message), told()[0]);
  });
}

test("a binding of the wrong kind is an error at construction", async () => {
  const wrong = `
import { env } from "cloudflare:workers";
import { Tidegate as Objects } from "@tidegate/edge/cloudflare";
import { Tidegate as Kv } from "@tidegate/edge/cloudflare-kv";
import { Tidegate as RateLimit } from "@tidegate/edge/cloudflare-ratelimit";
${exported}
const policy = { name: "api", quotas: ["60 / d"] };
const tries = {
  objects: () => new Objects({ namespace: env.COUNTS, failMode: "open", policy }),
  leases: () => new Objects({ namespace: env.TIDEGATE, failMode: "open", policy, leases: { slice: 5, lifetimeMs: 90_000 } }),
  kv: () => new Kv({ namespace: env.TIDEGATE, failMode: "open", policy }),
  kvLog: () => new Kv({ namespace: env.COUNTS, failMode: "open", policy: { name: "api", quotas: [{ slidingLog: { limit: 1, windowMs: 1 } }] } }),
  rateLimit: () => new RateLimit({ binding: env.COUNTS, failMode: "open", policy }),
  window: () => new RateLimit({ binding: { limit() {} }, failMode: "open", policy }),
  period: () => new RateLimit({ binding: { limit() {} }, failMode: "open", policy: { name: "api", quotas: [{ fixedWindow: { limit: 9, windowMs: 1_000 } }] } }),
};
export default {
  fetch() {
    return Response.json(Object.fromEntries(Object.entries(tries).map(([name, run]) => {
      try { run(); return [name, "accepted"]; } catch (error) { return [name, error.kind + " " + error.message]; }
    })));
  },
};`;
  const { ask } = await worker(wrong, { ...OBJECT, kvNamespaces: ["COUNTS"] });
  const said = JSON.parse((await ask("/")).body);
  assert.match(said.objects, /^invalid namespace: not a namespace of Durable Objects; in wrangler.jsonc, write "durable_objects"/);
  assert.match(said.leases, /^invalid leases\.lifetimeMs: .*is out of range/);
  assert.match(said.kv, /^invalid namespace: not a namespace of Workers KV/);
  assert.match(said.kvLog, /^unsupported policy: this store does not support sliding_log/);
  assert.match(said.rateLimit, /^invalid binding: not a Rate Limiting binding/);
  assert.match(said.window, /^unsupported policy.quotas\[0\]: the binding counts one fixed window; write one quota/);
  assert.match(said.period, /^invalid policy.quotas\[0\].fixedWindow.windowMs: .*cannot count 1000 ms/);
});

test("Workers KV: an isolate admits exactly the limit, and writes its counts after the response", async () => {
  const options = `namespace: env.COUNTS, failMode: "closed", policy: { name: "api", quotas: ["60 burst, 1 / d"] }`;
  const { ask, miniflare } = await worker(limited("@tidegate/edge/cloudflare-kv", options), { kvNamespaces: ["COUNTS"] });
  const answers = await Promise.all(Array.from({ length: 200 }, () => ask("/")));
  assert.deepEqual(counted(answers.map(({ status }) => status)), { 200: 60, 429: 140 });
  const namespace = await miniflare.getKVNamespace("COUNTS");
  for (let tries = 0; (await namespace.list()).keys.length === 0; tries++) {
    assert.ok(tries < 100, "nothing was written");
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
});

test("the Rate Limiting binding counts by the client's address", async () => {
  const options = `binding: env.LIMITER, failMode: "closed", policy: { name: "api", quotas: [{ fixedWindow: { limit: 5, windowMs: 60_000 } }] }`;
  const { ask } = await worker(limited("@tidegate/edge/cloudflare-ratelimit", options), { ratelimits: { LIMITER: { simple: { limit: 5, period: 60 } } } });
  const statuses = [];
  for (let nth = 0; nth < 7; nth++) statuses.push((await ask("/")).status);
  // The emulation's windows are those of the wall clock.
  assert.ok(statuses.includes(200) && counted(statuses)[200] >= 5, String(statuses));
  assert.equal((await ask("/", "192.0.2.2")).status, 200);
});

test("a RateLimiter counts in the Rate Limiting binding, together with Tidegate", async () => {
  const module = `
import { env } from "cloudflare:workers";
import { bindingWindow, RateLimiter, Tidegate } from "@tidegate/edge/cloudflare-ratelimit";
import { clientAddress } from "@tidegate/edge/parts";
const common = { binding: env.LIMITER, failMode: "closed" };
const whole = new Tidegate({ ...common, policy: { name: "api", quotas: [{ fixedWindow: { limit: 5, windowMs: 60_000 } }] } });
const lean = new RateLimiter({ ...common, policy: { name: "api", quotas: [bindingWindow(5, 60)] }, sender: clientAddress("cloudflare") });
export default {
  async fetch(request) {
    const verdicts = [];
    // Two at once, so that none may wait for what another request has begun.
    for (let nth = 0; nth < 8; nth++) verdicts.push(...(await Promise.all([lean.check(request), whole.check(request)])));
    return Response.json(verdicts.map(({ allowed, key, error, response, headers }) => [allowed, key, error?.message, response?.status, headers["ratelimit-policy"]]));
  },
};`;
  const { ask } = await worker(module, { ratelimits: { LIMITER: { simple: { limit: 5, period: 60 } } } });
  const told = JSON.parse((await ask("/")).body);
  // The emulation's windows are those of the wall clock, so that there may be two.
  const admitted = told.filter(([allowed]) => allowed).length;
  assert.ok(admitted === 5 || admitted === 10, JSON.stringify(told));
  for (const [allowed, ...rest] of told) assert.deepEqual(rest, ["ip:192.0.2.1", null, allowed ? null : 429, '"api";q=5;w=60']);
});

test("WebAssembly that cannot be started is an error that says what to do", async () => {
  const imports = `
export default {
  async fetch() {
    const { kind, message } = await import("@tidegate/edge/gate/toml").catch((error) => error);
    return new Response(kind + " " + message);
  },
};`;
  for (const [options, message] of [
    [{ conditions: [] }, /^unsupported this runtime does not compile WebAssembly from bytes; bundle with the export condition "workerd" or "edge-light"; see "WebAssembly"/],
    [{ loads: "url" }, /^unsupported the bundler did not load "tidegate.wasm\?module" as a WebAssembly module; see "WebAssembly"/],
  ]) {
    const { ask } = await worker(imports, options);
    assert.match((await ask("/")).body, message);
  }
});
