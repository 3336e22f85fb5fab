// The API of every limiter, with the counts in memory.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { mock, test } from "node:test";
import { Tidegate as OnUpstash, TidegateError } from "@tidegate/edge";
import { Gate } from "@tidegate/edge/gate";
import { limit as hono } from "@tidegate/edge/hono";
import { Tidegate } from "@tidegate/edge/memory";
import { limit as next } from "@tidegate/edge/next";
import { limit as reactRouter } from "@tidegate/edge/react-router";
import { Hono } from "hono";

let nth = 0;
const limiter = (quotas, more = {}) =>
  new Tidegate({ platform: "vercel", failMode: "open", policy: { name: `api-${++nth}`, quotas }, onError: () => {}, ...more });
const from = (address) => new Request("https://example.com/", { headers: { "x-vercel-forwarded-for": address } });
const request = from("192.0.2.1");
const admitted = async (tidegate, options, count = 5) => {
  const verdicts = [];
  for (let nth = 0; nth < count; nth++) verdicts.push((await tidegate.check(request, options)).allowed);
  return verdicts.filter(Boolean).length;
};

/** What the console shows as warnings while `run` runs, in one instant. */
async function warnings(run) {
  const [shown, now] = [[], Date.now()];
  const mocks = [mock.method(console, "warn", (...parts) => void shown.push(parts.join(" "))), mock.method(Date, "now", () => now)];
  try {
    await run();
  } finally {
    for (const { mock } of mocks) mock.restore();
  }
  return shown;
}

test("a quota as a text is the same as its object", async () => {
  const [now, limits] = [1_800_000_000_000, (verdict) => [verdict.headers["ratelimit-policy"].replace(/^"[^"]*"/, ""), verdict.quotas[0].remaining, verdict.quotas[0].resetAfterMs]];
  const pairs = [
    ["10 / 10 s", { slidingLog: { limit: 10, windowMs: 10_000 } }],
    ["10/min", { slidingLog: { limit: 10, windowMs: 60_000 } }],
    ["5 / 250 ms", { slidingLog: { limit: 5, windowMs: 250 } }],
    ["100 / h", { slidingLog: { limit: 100, windowMs: 3_600_000 } }],
    ["101 / h", { slidingWindow: { limit: 101, windowMs: 3_600_000 } }],
    ["1000 / 2 h", { slidingWindow: { limit: 1_000, windowMs: 7_200_000 } }],
    ["100 burst, 10 / s", { tokenBucket: { capacity: 100, refill: 10, perMs: 1_000 } }],
    [" 7 burst , 3 / 1 d ", { tokenBucket: { capacity: 7, refill: 3, perMs: 86_400_000 } }],
  ];
  for (const [text, object] of pairs) {
    const [one, other] = [await limiter([text]).check(request, { now }), await limiter([object]).check(request, { now })];
    assert.deepEqual(limits(one), limits(other), text);
  }
});

test("limit decides on a key without a request", async () => {
  const tidegate = limiter(["5 / d"]);
  assert.equal((await tidegate.limit("user:42", { cost: 3 })).quotas[0].remaining, 2);
  assert.equal((await tidegate.check(request, { key: "user:42" })).quotas[0].remaining, 1);
  assert.equal((await tidegate.limit("user:43")).quotas[0].remaining, 4);
  const { error } = await tidegate.limit(undefined);
  assert.deepEqual([error.kind, error.field], ["invalid", "key"]);
  const several = limiter([{ fixedWindow: { limit: 2, windowMs: 60_000 }, by: "user" }, { fixedWindow: { limit: 9, windowMs: 60_000 }, by: "tenant" }]);
  assert.deepEqual((await several.limit({ user: "u", tenant: "t" })).quotas.map(({ remaining }) => remaining), [1, 8]);
});

test("blockUntilReady waits as long as the verdict says, and returns the denial if that is too long", async () => {
  const tidegate = limiter([{ tokenBucket: { capacity: 1, refill: 1, perMs: 80 } }]);
  assert.equal((await tidegate.blockUntilReady("k", 1_000)).allowed, true);
  const began = Date.now();
  assert.equal((await tidegate.blockUntilReady("k", 1_000)).allowed, true);
  assert.ok(Date.now() - began >= 40, `${Date.now() - began} ms`);
  const denied = await tidegate.blockUntilReady("k", 1);
  assert.deepEqual([denied.allowed, denied.limited], [false, true]);
  await assert.rejects(tidegate.blockUntilReady("k", -1), { kind: "invalid", field: "timeoutMs" });
  assert.equal((await tidegate.blockUntilReady("k", 1_000, { cost: 2 })).outcome, "never_admissible");
});

test("blockUntilReady waits for longer than a timer can, in parts", async (t) => {
  const tidegate = limiter([{ slidingLog: { limit: 1, windowMs: 40 * 86_400_000 } }]);
  assert.equal((await tidegate.blockUntilReady("k", 0)).allowed, true);
  const waits = [];
  t.mock.method(globalThis, "setTimeout", (run, ms) => {
    waits.push(ms);
    if (waits.length === 2) throw new Error("enough");
    setImmediate(run);
  });
  await assert.rejects(tidegate.blockUntilReady("k", Number.MAX_SAFE_INTEGER), { message: "enough" });
  assert.deepEqual(waits, [2 ** 31 - 1, 2 ** 31 - 1]);
});

test("the options of a check may be a promise or a function, also an async one", async () => {
  for (const wrap of [(options) => options, (options) => () => options, (options) => async () => options, (options) => Promise.resolve(options)]) {
    const tidegate = limiter(["3 / d"]);
    const counts = [];
    for (const user of ["a", "b", "c"]) counts.push(await admitted(tidegate, wrap({ key: user })));
    assert.deepEqual(counts, [3, 3, 3], String(wrap));
  }
  const tidegate = limiter(["3 / d"]);
  const throws = () => {
    throw new Error("no session");
  };
  for (const options of [throws, async () => throws(), Promise.reject(new Error("no session"))]) {
    const { allowed, error } = await tidegate.check(request, options);
    assert.deepEqual([allowed, error.kind, error.field], [false, "invalid", "options"]);
  }
});

test("an option that a check does not know is an error, and nothing is charged", async () => {
  const tidegate = limiter(["3 / d"]);
  for (const [options, field, message] of [
    [{ kye: "user:1" }, "kye", /did you mean "key"/],
    [{ rate: 3 }, "rate", /write one of: key, keys/],
    [[], "options", /not an object/],
    [null, "options", /not an object/],
    ["user:1", "options", /not an object/],
  ]) {
    const { allowed, error } = await tidegate.check(request, options);
    assert.deepEqual([allowed, error?.kind, error?.field], [false, "invalid", field]);
    assert.match(error.message, message);
  }
  assert.equal((await tidegate.peek(request)).quotas[0].remaining, 3);
});

test("a missing variable does not throw at construction: each check reports it, and no request passes", async () => {
  const policy = { name: "api", quotas: ["10 / 10 s"] };
  const options = { platform: "vercel", failMode: "open", policy };
  for (const [env, field] of [[{}, "url"], [{ UPSTASH_REDIS_REST_URL: "https://eu1.upstash.io" }, "token"], [{ KV_REST_API_TOKEN: "t" }, "url"]]) {
    const shown = await warnings(async () => {
      const tidegate = OnUpstash.fromEnv(options, env);
      for (let nth = 0; nth < 3; nth++) {
        const { allowed, failedOpen, error, response } = await tidegate.check(request);
        assert.deepEqual([allowed, failedOpen, error.kind, error.field, response.status], [false, false, "refused", field, 503]);
        assert.match(error.message, /missing; set the database's UPSTASH_REDIS_REST_/);
      }
      await assert.rejects(tidegate.reset("ip:192.0.2.1"), { kind: "refused" });
    });
    assert.deepEqual([shown.length, /UPSTASH_REDIS_REST_/.test(shown[0])], [1, true]);
  }
  // A wrong value is an error at once, wherever it comes from.
  assert.throws(() => OnUpstash.fromEnv(options, { KV_REST_API_URL: "redis://x", KV_REST_API_TOKEN: "t" }), { kind: "invalid", field: "url" });
  assert.throws(() => OnUpstash.fromEnv({ ...options, policy: { name: "api", quotas: [] } }, {}), { kind: "invalid" });
});

test("fromEnv reads the process's environment", async () => {
  const options = { platform: "vercel", failMode: "closed", policy: { name: "api", quotas: ["10 / 10 s"] }, onError: () => {} };
  process.env.KV_REST_API_URL = "http://127.0.0.1:1";
  process.env.KV_REST_API_TOKEN = "secret";
  try {
    assert.equal((await OnUpstash.fromEnv(options).check(request)).error.kind, "unavailable");
    process.env.UPSTASH_REDIS_REST_URL = "nonsense";
    assert.throws(() => OnUpstash.fromEnv(options), { field: "url" });
  } finally {
    for (const name of ["KV_REST_API_URL", "KV_REST_API_TOKEN", "UPSTASH_REDIS_REST_URL"]) delete process.env[name];
  }
});

test("onVerdict gets every verdict, and what it throws does no harm", async () => {
  const seen = [];
  const tidegate = limiter(["1 / d"], {
    onVerdict(verdict, about) {
      seen.push([verdict.outcome, about === request]);
      throw new Error("the log is full");
    },
  });
  await tidegate.check(request);
  await tidegate.check(request, async () => ({}));
  await tidegate.limit("k", { cost: -1 });
  assert.deepEqual(seen, [["allowed", true], ["denied", true], ["failed_closed", false]]);
});

test("without onError, the console has one line a second when requests are not told apart, and onError replaces it", async () => {
  for (const [onError, count] of [[undefined, 1], [() => {}, 0]]) {
    const tidegate = limiter(["3 / d"], { platform: "cloudflare", onError });
    const shown = await warnings(async () => assert.equal(await admitted(tidegate, undefined), 3));
    assert.equal(shown.length, count);
    if (count) assert.match(shown[0], /no client address: cloudflare tells it in cf-connecting-ip/);
  }
});

test("without onError, the console shows what a callback of the app threw", async () => {
  const tidegate = limiter(["3 / d"], { onError: undefined });
  const app = reactRouter(tidegate, () => new Response("hello"), { check: (_request, [client]) => ({ peer: client.address }) });
  const shown = await warnings(async () => {
    for (let nth = 0; nth < 2; nth++) assert.equal((await app(request)).status, 400);
  });
  assert.deepEqual(shown.length, 1);
  assert.match(shown[0], /options: reading them threw.*TypeError: Cannot read properties of undefined \(reading 'address'\)/);
});

test("assertReady finds a missing variable, which a build does not have, and asks no store", () => {
  const options = { platform: "vercel", failMode: "open", policy: { name: "api", quotas: ["1 / s"] } };
  const missing = { name: "TidegateError", kind: "refused", message: "token: missing; set the database's UPSTASH_REDIS_REST_TOKEN; nothing was charged" };
  assert.throws(() => OnUpstash.fromEnv(options, { UPSTASH_REDIS_REST_URL: "http://127.0.0.1:1" }).assertReady(), missing);
  OnUpstash.fromEnv(options, { UPSTASH_REDIS_REST_URL: "http://127.0.0.1:1", UPSTASH_REDIS_REST_TOKEN: "t" }).assertReady();
  const gate = (more) => Gate.fromRules({ limits: { api: { quotas: [{ algorithm: "fixed_window", limit: 1, window_ms: 1_000 }] } }, rules: [{ limits: ["api"] }] }, {
    platform: "vercel",
    stores: { default: (limit) => new OnUpstash({ url: "http://127.0.0.1:1", token: undefined, ...limit, ...more }) },
  });
  assert.throws(() => gate().assertReady(), missing);
  gate({ token: "t" }).assertReady();
});

test("options that fail like a store let no request pass", async () => {
  const tidegate = limiter(["3 / d"], { failMode: "open" });
  const verdict = await tidegate.check(request, () => Promise.reject(new TidegateError("unavailable", "a store of the app's")));
  assert.deepEqual([verdict.allowed, verdict.error.kind, verdict.http.status], [false, "invalid", 400]);
});

test("the field x-tidegate-failed-open can be left out", async () => {
  const options = { url: "http://127.0.0.1:1", token: "t", platform: "vercel", failMode: "open", onError: () => {} };
  for (const [failedOpenHeader, shown] of [[undefined, "unavailable"], [true, "unavailable"], [false, null]]) {
    const verdict = await new OnUpstash({ ...options, failedOpenHeader, policy: { name: "api", quotas: ["1 / s"] } }).check(request);
    assert.deepEqual([verdict.failedOpen, verdict.onto(new Response()).headers.get("x-tidegate-failed-open")], [true, shown]);
  }
});

test("a response that cannot be changed or copied is handed back", async () => {
  const verdict = await limiter(["3 / d"]).check(request);
  const failed = Response.error();
  assert.equal(verdict.onto(failed), failed);
});

test("several limiters on one route: lists have both, and the other fields are the limiter's that denies or has less left", async () => {
  const [outer, inner] = [limiter(["10 / d"]), limiter(["2 / d"])];
  const get = new Hono().use(hono(outer)).get("/", hono(inner), (context) => context.text("hello"));
  const responses = [];
  for (let nth = 0; nth < 3; nth++) responses.push(await get.fetch(request));
  const fields = ({ headers }) => [headers.get("x-ratelimit-limit"), headers.get("x-ratelimit-remaining"), headers.get("ratelimit-policy").split(", ").length];
  assert.deepEqual(responses.map(({ status }) => status), [200, 200, 429]);
  assert.deepEqual(responses.map(fields), [["2", "1", 2], ["2", "0", 2], ["2", "0", 2]]);
  assert.ok(Number(responses[2].headers.get("retry-after")) > 60);

  // The other way round, the outer limiter denies, and the inner one has nothing to add.
  const reversed = new Hono().use(hono(limiter(["1 / d"]))).get("/", hono(limiter(["10 / d"])), (context) => context.text("hello"));
  const both = [await reversed.fetch(request), await reversed.fetch(request)];
  assert.deepEqual(both.map(fields), [["1", "0", 2], ["1", "0", 1]]);
});

test("a middleware passes the framework's context to check, and takes a response for denials", async () => {
  const contexts = [];
  const handler = reactRouter(limiter(["1 / d"]), () => new Response("hello"), {
    check: async (request, [context]) => {
      contexts.push(context);
      return context.internal ? null : { key: context.user };
    },
    denied: ({ retryAfterMs }, { url }) => new Response(`later: ${retryAfterMs > 0}, ${url}`, { status: 420, headers: { "x-mine": "yes" } }),
  });
  const responses = [];
  for (const context of [{ user: "a" }, { user: "a" }, { user: "b" }, { internal: true }]) responses.push(await handler(request, context));
  assert.deepEqual(responses.map(({ status }) => status), [200, 420, 200, 200]);
  const denied = responses[1];
  assert.equal(await denied.text(), "later: true, https://example.com/");
  assert.deepEqual([denied.headers.get("x-mine"), denied.headers.get("x-ratelimit-remaining"), Number(denied.headers.get("retry-after")) > 0], ["yes", "0", true]);
  assert.deepEqual([contexts.length, responses[3].headers.get("x-ratelimit-limit")], [4, null]);
});

test("a middleware may choose the limiter, and so the policy, of each request", async () => {
  const [free, paid] = [limiter(["1 / d"]), limiter(["3 / d"])];
  const choose = async (_, context) => (context.req.query("plan") === "paid" ? paid : free);
  const app = new Hono().use(hono(choose)).get("/", (context) => context.text("hello"));
  const statuses = async (url) => {
    const answers = [];
    for (let nth = 0; nth < 4; nth++) answers.push((await app.fetch(new Request(url, request))).status);
    return answers;
  };
  assert.deepEqual(await statuses("https://example.com/"), [200, 429, 429, 429]);
  assert.deepEqual(await statuses("https://example.com/?plan=paid"), [200, 200, 200, 429]);

  const slots = limiter([{ concurrency: { limit: 1, lifetimeMs: 1_000 } }]);
  await assert.rejects(next(() => slots)(request), { kind: "invalid", field: "policy" });
  const broken = new Hono().use(hono(() => assert.fail("no plan"))).get("/", () => assert.fail("a request passed"));
  assert.equal((await broken.fetch(request)).status, 500);
});

test("memory: each key keeps its count, also when the keys that the WebAssembly knows by number change", () => {
  const policy = { name: "numbers", quotas: [{ fixedWindow: { limit: 2, windowMs: 600_000 } }] };
  const tidegate = new Tidegate({ platform: "direct", failMode: "closed", policy });
  // The first 4,096 keys get numbers. After 65,536 questions about others, the next keys get them, here in the middle of a round.
  const keys = Array.from({ length: 50_000 }, (_, nth) => `user:${nth}`);
  const lefts = (now) => [...new Set(keys.map((key) => tidegate.decide(key, { now }).quotas[0].remaining))];
  const now = 1_800_000_000_000;
  assert.deepEqual([lefts(now), lefts(now), lefts(now)], [[1], [0], [0]]);
  assert.ok(keys.every((key) => tidegate.decide(key, { now }).outcome === "denied"));
  assert.deepEqual(lefts(now + 600_000), [1]);
});

test("memory: limiters of one policy share their counts in a process, and others do not", async () => {
  const policy = { name: "shared", quotas: ["2 / d"] };
  const make = () => new Tidegate({ platform: "vercel", failMode: "closed", policy, onError: () => {} });
  const [one, other] = [make(), make()];
  assert.equal((await one.check(request)).allowed, true);
  assert.deepEqual((await other.check(request)).quotas[0].remaining, 0);
  assert.equal((await limiter(["2 / d"]).check(request)).quotas[0].remaining, 1);
  const busy = limiter(["60 / d"]);
  const verdicts = await Promise.all(Array.from({ length: 500 }, () => busy.check(from("192.0.2.9"))));
  assert.equal(verdicts.filter(({ allowed }) => allowed).length, 60);
});

test("a quota may say its unit in a word", async () => {
  const windowOf = (quota) => new Tidegate({ platform: "direct", failMode: "closed", policy: { name: `words-${quota.replaceAll(/\W/g, "-")}`, quotas: [quota] } }).limit("k");
  for (const [quota, ms] of [["10 per minute", 60_000], ["10 per 30 seconds", 30_000], ["10 / hour", 3_600_000], ["10 per d", 86_400_000]]) {
    const { quotas, headers } = await windowOf(quota);
    assert.equal(quotas[0].limit, 10);
    assert.match(headers["ratelimit-policy"], new RegExp(`q=10;w=${ms / 1_000}$`), quota);
  }
  for (const wrong of ["10 per fortnight", "10 minute", "10 perminute", "ten per minute"]) assert.throws(() => windowOf(wrong), { kind: "invalid" }, wrong);
});

test("what is no request rejects, also with a key, because an answer to it would never be sent", async (t) => {
  const options = { platform: "direct", failMode: "open", policy: { name: "no-request", quotas: ["10 / d"] }, onError: () => {} };
  const limiter = new Tidegate(options);
  const gate = Gate.fromRules(
    { limits: { api: { quotas: [{ algorithm: "fixed_window", limit: 10, window_ms: 60_000 }] } }, rules: [{ limits: ["api"] }] },
    { platform: "direct", stores: { default: (limit) => new Tidegate(limit) } },
  );
  // Node.js's request, as a server gets it.
  const server = createServer((req, res) => {
    const checks = [limiter.check(req), limiter.check(req, { key: "k" }), limiter.peek(req, async () => ({ key: "k" })), gate.check(req), gate.check(req, { key: "k" }), gate.explain(req)];
    const told = checks.map((check) => check.then(() => "a verdict", ({ kind, field, message }) => `${kind} ${field} ${message}`));
    Promise.all(told).then((told) => res.end(JSON.stringify(told)));
  });
  t.after(() => server.close());
  await once(server.listen(0, "127.0.0.1"), "listening");
  const told = await (await fetch(`http://127.0.0.1:${server.address().port}/`)).json();
  assert.equal(told.length, 6);
  for (const one of told) assert.match(one, /^invalid request request: not a Request; write .*IncomingMessage limit\(tidegate\) of "@tidegate\/edge\/node"$/);

  for (const request of [{}, { headers: {} }, { headers: { "x-real-ip": "192.0.2.1" }, socket: {} }, null, undefined, 7, "GET /"]) {
    for (const check of [limiter.check(request), limiter.check(request, { key: "k" }), limiter.peek(request, { key: "k" }), gate.check(request)]) {
      await assert.rejects(check, { name: "TidegateError", kind: "invalid", field: "request" }, JSON.stringify(request));
    }
  }
  assert.equal((await limiter.limit("k")).quotas[0].remaining, 9);
});

test("who is nobody is invalid", async () => {
  const tidegate = new Tidegate({ platform: "direct", failMode: "open", policy: { name: "nobody", quotas: ["10 / d"] }, onError: () => {} });
  for (const nobody of [undefined, null, ""]) {
    const { allowed, error } = await tidegate.limit(nobody);
    assert.deepEqual([allowed, error?.kind, error?.field], [false, "invalid", "key"], String(nobody));
    assert.match(error.message, /write who is counted, such as "user:42"/);
  }
});

test("a verdict has its response without the class Response, too", async () => {
  const tidegate = new Tidegate({ platform: "direct", failMode: "open", policy: { name: "http", quotas: ["1 / d"] } });
  assert.equal((await tidegate.limit("k")).http, undefined);
  const { http, response } = await tidegate.limit("k");
  assert.deepEqual([http.status, http.body], [429, await response.text()]);
  assert.deepEqual(http.headers, Object.fromEntries(response.headers));
});

test("draft6Fields sends the fields of draft 6 beside those of draft 11", async () => {
  const now = 1_800_000_000_000;
  const make = (name, draft6Fields) =>
    new Tidegate({ platform: "direct", failMode: "closed", draft6Fields, policy: { name, quotas: [{ tokenBucket: { capacity: 2, refill: 1, perMs: 1_500 } }] } });
  const [tidegate, plain] = [make("draft6", true), make("no-draft6", undefined)];
  for (const [cost, fields] of [[2, ["2", "0", "3"]], [1, ["2", "0", "2"]]]) {
    const { headers } = await tidegate.limit("k", { now, cost });
    assert.deepEqual(["limit", "remaining", "reset"].map((name) => headers[`ratelimit-${name}`]), fields);
    const { "ratelimit-limit": limit, "ratelimit-remaining": remaining, "ratelimit-reset": reset, ...others } = headers;
    const without = (await plain.limit("k", { now, cost })).headers;
    assert.deepEqual(JSON.stringify(others).replaceAll("no-draft6", "draft6"), JSON.stringify(without).replaceAll("no-draft6", "draft6"));
  }
  assert.throws(() => make("draft6", "yes"), { field: "draft6Fields" });
});

test("retryAfterMs sends a denial's wait in milliseconds", async () => {
  const now = 1_800_000_000_000;
  const options = { platform: "direct", failMode: "closed", policy: { name: "wait-ms", quotas: [{ tokenBucket: { capacity: 1, refill: 1, perMs: 1_200 } }] } };
  const tidegate = new Tidegate({ ...options, retryAfterMs: true });
  const headers = [];
  for (let nth = 0; nth < 2; nth++) headers.push((await tidegate.limit("k", { now })).headers);
  assert.deepEqual(headers.map((sent) => [sent["retry-after"], sent["retry-after-ms"]]), [[undefined, undefined], ["2", "1200"]]);
  assert.equal((await new Tidegate(options).limit("k", { now, cost: 1 })).headers["retry-after-ms"], undefined);
  assert.throws(() => new Tidegate({ ...options, retryAfterMs: 1 }), { field: "retryAfterMs" });
});
