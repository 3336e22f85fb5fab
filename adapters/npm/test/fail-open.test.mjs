// With `failMode: "open"`, only a failure of the store admits a request that was not counted. The store is a real redis-server
// in which every key that these requests can reach is used up.

import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import { Tidegate } from "@tidegate/edge";
import { limit as hono } from "@tidegate/edge/hono";
import { limit as netlify } from "@tidegate/edge/netlify";
import { limit as next } from "@tidegate/edge/next";
import { limit as reactRouter } from "@tidegate/edge/react-router";
import { limit as svelteKit } from "@tidegate/edge/sveltekit";
import { Hono } from "hono";
import { upstash } from "./servers.mjs";

const server = await upstash();
after(() => server.stop());

const policy = { name: "api", quotas: [{ fixedWindow: { limit: 1, windowMs: 86_400_000 } }] };
const events = [];
const options = {
  url: server.url,
  token: server.token,
  platform: "cloudflare",
  failMode: "open",
  deadlineMs: 20_000,
  policy,
  onError: (event) => events.push(event),
};
const ADDRESS = "192.0.2.1";
const LONE_SURROGATE = "\ud83d";
const from = (headers) => new Request("https://example.com/api/hello", { headers });
const client = () => from({ "cf-connecting-ip": ADDRESS });

before(async () => {
  const tidegate = new Tidegate(options);
  for (const key of ["ip:unknown", `ip:${ADDRESS}`, "tenant:1"]) assert.equal((await tidegate.check(client(), { key })).allowed, true);
});
beforeEach(() => void (events.length = 0));

/** Objects whose fields throw when they are read. */
const hostile = (name) => ({ get [name]() { throw new Error("hostile getter"); } });

test("requests without a client address share one key", async () => {
  const tidegate = new Tidegate(options);
  for (const headers of [
    {},
    { "cf-connecting-ip": "2a06:98c0:3600::103" },
    { "cf-connecting-ip": "192.0.2.1, 192.0.2.2" },
    { "cf-connecting-ip": "unknown", "x-forwarded-for": "203.0.113.1" },
  ]) {
    events.length = 0;
    const verdict = await tidegate.check(from(headers));
    assert.deepEqual([verdict.outcome, verdict.key, verdict.response?.status], ["denied", "ip:unknown", 429], JSON.stringify(headers));
    assert.deepEqual(events.map(({ kind, failedOpen }) => [kind, failedOpen]), [["invalid", false]]);
    assert.match(events[0].message, /cloudflare tells it in cf-connecting-ip/);
  }
  const direct = new Tidegate({ ...options, platform: "direct" });
  for (const peer of [undefined, "", "192.0.2.1, 192.0.2.2", "unknown", LONE_SURROGATE]) {
    const verdict = await direct.check(client(), { peer });
    assert.deepEqual([verdict.outcome, verdict.key], ["denied", "ip:unknown"], String(peer));
  }
});

const failing = {
  throws: () => { throw new Error("bad bearer token eyJhbGciOiJub25lIn0"); },
  rejects: () => Promise.reject(new Error("bad bearer token eyJhbGciOiJub25lIn0")),
  "throws undefined": () => { throw undefined; },
  "returns a subject that throws": () => hostile("subject"),
  "returns an API key that throws": () => hostile("apiKey"),
  "returns a lone surrogate as the subject": () => ({ subject: `alice${LONE_SURROGATE}` }),
  "returns a lone surrogate as the API key": () => ({ apiKey: LONE_SURROGATE }),
  "returns a subject that is not a string": () => ({ subject: { toString: null } }),
};

test("if identify fails, a request is counted by its address, and onError is called", async () => {
  for (const [how, identify] of Object.entries(failing)) {
    events.length = 0;
    const verdict = await new Tidegate({ ...options, identify }).check(client());
    assert.deepEqual([verdict.outcome, verdict.key], ["denied", `ip:${ADDRESS}`], how);
    assert.deepEqual(events.map(({ operation, kind, failedOpen }) => [operation, kind, failedOpen]), [["identify", "invalid", false]], how);
    assert.doesNotMatch(JSON.stringify(events), /eyJ/, how);
  }
});

test("if identify fails, a request is rejected with onIdentifyError: \"reject\"", async () => {
  for (const [how, identify] of Object.entries(failing)) {
    events.length = 0;
    const verdict = await new Tidegate({ ...options, identify, onIdentifyError: "reject" }).check(client());
    assert.deepEqual([verdict.outcome, verdict.allowed, verdict.response?.status], ["failed_closed", false, 400], how);
    assert.deepEqual([verdict.error.kind, events.length], ["invalid", 1], how);
  }
});

const invalid = {
  ...Object.fromEntries([1.5, NaN, -1, 1e300, Infinity, "2", null, {}, 2n].map((cost) => [`the cost ${typeof cost} ${String(cost)}`, { cost }])),
  "a lone surrogate as the key": { key: `tenant:${LONE_SURROGATE}` },
  "a key that is not a string": { key: 5 },
  "a key that is null": { key: null },
  "a time that is not a number": { now: "now" },
  "a lone surrogate as the token": { idempotency: { token: LONE_SURROGATE, ttlMs: 1_000 } },
  "a token that is not a string": { idempotency: { token: 7, ttlMs: 1_000 } },
  "an empty token": { idempotency: { token: "", ttlMs: 1_000 } },
  "a blank token": { idempotency: { token: " \t", ttlMs: 1_000 } },
  "a token that is null": { idempotency: { token: null, ttlMs: 1_000 } },
  "a token's lifetime that is not a number": { idempotency: { token: "a", ttlMs: "x" } },
  "a cost that throws": hostile("cost"),
  "an estimate of zero": { estimate: 0 },
  "an estimate that is negative": { estimate: -1 },
  "an estimate beside a cost": { estimate: 1, cost: 1 },
  "an estimate that throws": hostile("estimate"),
  "a key that throws": hostile("key"),
  "a peer that throws": hostile("peer"),
  "a time that throws": hostile("now"),
  "a token that throws": { idempotency: hostile("token") },
};

test("an invalid value in a request is rejected with 400 and not echoed", async () => {
  const tidegate = new Tidegate(options);
  for (const [what, call] of Object.entries(invalid)) {
    for (const verdict of [await tidegate.check(client(), call), await tidegate.peek(client(), call)]) {
      assert.deepEqual([verdict.allowed, verdict.failedOpen, verdict.limited, verdict.outcome], [false, false, false, "failed_closed"], what);
      assert.deepEqual([verdict.error.kind, verdict.response.status], ["invalid", 400], what);
      assert.deepEqual(await verdict.response.json(), { error: "invalid_request" }, what);
    }
  }
});

test("tokens, keys and costs chosen by a client do not avoid a denial", async () => {
  const tidegate = new Tidegate(options);
  for (const token of ["a", "\0", "é🔑", "x".repeat(10_000)]) {
    for (const ttlMs of [1, 60_000, Number.MAX_SAFE_INTEGER]) {
      const verdict = await tidegate.check(client(), { idempotency: { token, ttlMs } });
      assert.deepEqual([verdict.allowed, verdict.failedOpen], [false, false], `${token.slice(0, 9)} for ${ttlMs} ms: ${verdict.error}`);
    }
  }
  for (const cost of [2, Number.MAX_SAFE_INTEGER]) {
    const verdict = await tidegate.check(client(), { cost });
    assert.deepEqual([verdict.outcome, verdict.response.status], ["never_admissible", 429]);
  }
  assert.equal((await tidegate.check(client(), { key: "tenant:1", now: 0 })).allowed, false);
});

/** Each middleware on one limiter. Sends a request with these header fields, and returns the status and whether the app ran. */
const frameworks = {
  async "Next.js"(tidegate, guard, headers) {
    const response = await next(tidegate, guard)(from(headers));
    return [response.status, response.headers.get("x-middleware-next") === "1"];
  },
  async SvelteKit(tidegate, guard, headers) {
    let ran = false;
    const event = { request: from(headers), getClientAddress: () => "192.0.2.8, 192.0.2.9", platform: undefined };
    const response = await svelteKit(tidegate, guard)({ event, resolve: () => ((ran = true), new Response("hello")) });
    return [response.status, ran];
  },
  async "React Router"(tidegate, guard, headers) {
    let ran = false;
    const response = await reactRouter(tidegate, () => ((ran = true), new Response("hello")), guard)(from(headers));
    return [response.status, ran];
  },
  async Hono(tidegate, guard, headers) {
    let ran = false;
    const app = new Hono().use(hono(tidegate, guard)).get("*", (context) => ((ran = true), context.text("hello")));
    return [(await app.fetch(from(headers))).status, ran];
  },
  async Netlify(tidegate, guard, headers) {
    let ran = false;
    const response = await netlify(tidegate, guard)(from(headers), { next: async () => ((ran = true), new Response("hello")) });
    return [response.status, ran];
  },
};

for (const [name, send] of Object.entries(frameworks)) {
  test(`${name}: nothing that a client sends reaches the app uncounted`, async () => {
    const tidegate = new Tidegate(options);
    for (const headers of [{}, { "cf-connecting-ip": "2a06:98c0:3600::103" }, { "cf-connecting-ip": "a, b" }, { "cf-connecting-ip": ADDRESS }]) {
      assert.deepEqual(await send(tidegate, {}, headers), [429, false], JSON.stringify(headers));
    }
    for (const [what, call] of Object.entries(invalid)) {
      assert.deepEqual(await send(tidegate, { check: () => call }, { "cf-connecting-ip": ADDRESS }), [400, false], what);
    }
    const throws = { check: () => { throw new Error("the app's own callback"); } };
    assert.deepEqual(await send(tidegate, throws, { "cf-connecting-ip": ADDRESS }), [400, false]);
    for (const identify of Object.values(failing)) {
      const identifying = new Tidegate({ ...options, identify });
      assert.deepEqual(await send(identifying, {}, { "cf-connecting-ip": ADDRESS }), [429, false]);
    }
    const direct = new Tidegate({ ...options, platform: "direct" });
    // A middleware that finds no address of the connection is set up wrongly.
    const findsNone = ["React Router", "Hono", "Netlify"].includes(name);
    assert.deepEqual(await send(direct, {}, {}), [findsNone ? 500 : 429, false]);
  });
}

test("a store failure opens, the response has the field, onError is called, and a failing callback does no harm", async () => {
  const down = { ...options, url: "http://127.0.0.1:1" };
  const seen = [];
  for (const onError of [
    (event) => seen.push(event),
    (event) => { seen.push(event); throw new Error("a logger that fails"); },
    async (event) => { seen.push(event); throw new Error("a logger that fails later"); },
  ]) {
    const verdict = await new Tidegate({ ...down, onError }).check(client());
    assert.deepEqual([verdict.allowed, verdict.failedOpen, verdict.headers["x-tidegate-failed-open"]], [true, true, "unavailable"]);
  }
  const closed = await new Tidegate({ ...down, failMode: "closed", onError: (event) => seen.push(event) }).check(client());
  assert.deepEqual([closed.allowed, closed.response.status], [false, 503]);
  assert.deepEqual(seen.map(({ operation, kind, failedOpen }) => [operation, kind, failedOpen]), [
    ["check", "unavailable", true],
    ["check", "unavailable", true],
    ["check", "unavailable", true],
    ["check", "unavailable", false],
  ]);
  assert.ok(seen.every(({ message }) => message.length > 0 && !message.includes(server.token)));
});

test("failures of peek, refund and reset are reported, too", async () => {
  const up = new Tidegate(options);
  const charged = await up.check(client(), { key: "refunds" });
  const seen = [];
  const down = new Tidegate({ ...options, url: "http://127.0.0.1:1", onError: (event) => seen.push(event) });
  await down.peek(client());
  await assert.rejects(down.refund(charged), { kind: "unavailable" });
  await assert.rejects(down.reset("refunds"), { kind: "unavailable" });
  assert.deepEqual(seen.map(({ operation, failedOpen }) => [operation, failedOpen]), [["peek", true], ["refund", false], ["reset", false]]);
});

test("an error that is not a store failure is a 503", async () => {
  await server.command("SET", "other", "x");
  const wrong = await new Tidegate({ ...options, token: "wrong" }).check(client());
  assert.deepEqual([wrong.error.kind, wrong.allowed, wrong.response.status], ["refused", false, 503]);
  const [name] = await server.command("KEYS", "*tenant*");
  await server.command("SET", name, "not a state");
  const corrupt = await new Tidegate(options).check(client(), { key: "tenant:1" });
  assert.deepEqual([corrupt.error.kind, corrupt.allowed, corrupt.response.status], ["corrupt", false, 503]);
});

test("2,000 concurrent requests open nothing while the store is up, however late the answers are", async (context) => {
  for (const deadlineMs of [50, 250]) {
    const tidegate = new Tidegate({ ...options, deadlineMs, policy: { name: `burst-${deadlineMs}`, quotas: [{ fixedWindow: { limit: 60, windowMs: 86_400_000 } }] } });
    const verdicts = await Promise.all(Array.from({ length: 2_000 }, () => tidegate.check(client())));
    const kinds = {};
    for (const { outcome, error } of verdicts) kinds[error?.kind ?? outcome] = (kinds[error?.kind ?? outcome] ?? 0) + 1;
    const passed = verdicts.filter(({ allowed }) => allowed).length;
    const told = `limit 60, deadline ${deadlineMs} ms: ${passed} of 2,000 passed, ${JSON.stringify(kinds)}`;
    context.diagnostic(told);
    assert.ok(passed > 0 && passed <= 60, told);
  }
});

test("an answer that arrived while the process was busy is not late", async () => {
  const tidegate = new Tidegate({ ...options, deadlineMs: 100 });
  await tidegate.check(client());
  for (let nth = 0; nth < 5; nth++) {
    const pending = tidegate.check(client());
    await new Promise((resolve) => setTimeout(resolve, 0));
    for (const until = performance.now() + 300; performance.now() < until; );
    const { outcome, error } = await pending;
    assert.deepEqual([outcome, error?.kind], ["denied", undefined]);
  }
});
