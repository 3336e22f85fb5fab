// The middlewares, called the way their frameworks call them, over a real redis-server. `cargo make frameworks` runs the frameworks.

import assert from "node:assert/strict";
import { after, beforeEach, mock, test } from "node:test";
import { Tidegate } from "@tidegate/edge";
import { limit as hono } from "@tidegate/edge/hono";
import { limit as netlify } from "@tidegate/edge/netlify";
import { limit as next } from "@tidegate/edge/next";
import { limit as reactRouter, limitRoute as reactRouterRoute } from "@tidegate/edge/react-router";
import { limit as svelteKit } from "@tidegate/edge/sveltekit";
import { Tidegate as Testing } from "@tidegate/edge/testing";
import { Hono } from "hono";
import { HTTPException } from "hono/http-exception";
import { upstash } from "./servers.mjs";

const server = await upstash();
process.env.UPSTASH_REDIS_REST_URL = server.url;
process.env.UPSTASH_REDIS_REST_TOKEN = server.token;
after(() => server.stop());
beforeEach(() => server.command("FLUSHALL"));

const from = (field, address, path = "/api/hello") =>
  new Request(`https://example.com${path}`, { headers: { [field]: address, "x-forwarded-for": `203.0.113.${Math.floor(Math.random() * 250)}` } });

/** Two of three requests pass, whatever address the client claims. Another client is not affected. */
async function admitsTwo(send) {
  const responses = [];
  for (let nth = 0; nth < 3; nth++) responses.push(await send("192.0.2.1"));
  assert.deepEqual(responses.map((response) => response.status), [200, 200, 429]);
  assert.deepEqual(responses.map((response) => response.headers.get("x-ratelimit-remaining")), ["1", "0", "0"]);
  const denied = await responses[2].json();
  assert.equal(denied.error, "rate_limited");
  assert.ok(Number(responses[2].headers.get("retry-after")) > 0);
  assert.equal((await send("192.0.2.2")).status, 200);
  return responses;
}

/** A limiter with the limit 2. */
const tidegate = (platform) =>
  Tidegate.fromEnv({ platform, failMode: "open", deadlineMs: 20_000, policy: { name: "api", quotas: [{ fixedWindow: { limit: 2, windowMs: 86_400_000 } }] } });
const refundsUnchanged = { refund: (response) => (response.status === 304 ? 1 : 0) };

test("Next.js: a proxy passes the request on, with the fields for the app's response", async () => {
  const proxy = next(tidegate("vercel"));
  const [first] = await admitsTwo((address) => proxy(from("x-vercel-forwarded-for", address), { waitUntil() {} }));
  assert.deepEqual([first.headers.get("x-middleware-next"), first.body], ["1", null]);
  const exempt = await next(tidegate("vercel"), { check: () => null })(from("x-vercel-forwarded-for", "192.0.2.1"));
  assert.deepEqual([...exempt.headers], [["x-middleware-next", "1"]]);
});

test("SvelteKit: a handle, by the address from the adapter", async () => {
  const handle = svelteKit(tidegate("direct"), { check: (request) => (request.url.includes("/api/") ? {} : null) });
  const event = (address, path) => ({ request: from("x-real-ip", "203.0.113.9", path), getClientAddress: () => address, platform: undefined });
  const resolve = () => new Response("hello");
  await admitsTwo((address) => handle({ event: event(address), resolve }));
  const home = await handle({ event: event("192.0.2.1", "/"), resolve });
  assert.deepEqual([home.status, home.headers.get("x-ratelimit-limit")], [200, null]);
});

test("on the platform direct, a middleware without the address of the connection is an error, with one line", async () => {
  const [shown, now] = [[], Date.now()];
  const mocks = [mock.method(console, "warn", (line) => void shown.push(line)), mock.method(Date, "now", () => now)];
  try {
    const limited = tidegate("direct");
    const app = new Hono().use(hono(limited)).get("/api/hello", (context) => context.text("hello"));
    const handle = svelteKit(limited);
    const event = { request: from("x-real-ip", "192.0.2.1"), getClientAddress: () => { throw new Error("prerendering"); }, platform: undefined };
    for (let nth = 0; nth < 3; nth++) {
      const responses = [await app.fetch(from("x-real-ip", "192.0.2.1")), await reactRouter(limited, () => new Response("hello"))(from("x-real-ip", "192.0.2.1"))];
      responses.push(await handle({ event, resolve: () => new Response("hello") }));
      for (const response of responses) assert.deepEqual([response.status, await response.json()], [500, { error: "limiter_misconfigured" }]);
    }
  } finally {
    for (const { mock } of mocks) mock.restore();
  }
  assert.equal(shown.length, 1);
  assert.match(shown[0], /peer: direct needs the address of the connection; write limit\(tidegate, \{ peer \}\)/);
});

test("React Router: a request handler, and a refund after a 304", async () => {
  const work = [];
  let status = 200;
  const handler = () => new Response(status === 304 ? null : "hello", { status });
  const app = reactRouter(tidegate("netlify"), handler, { ...refundsUnchanged, waitUntil: (promise) => work.push(promise) });
  await admitsTwo((address) => app(from("x-nf-client-connection-ip", address)));

  await server.command("FLUSHALL");
  status = 304;
  for (let nth = 0; nth < 4; nth++) {
    assert.equal((await app(from("x-nf-client-connection-ip", "192.0.2.1"))).status, 304);
    assert.equal(work.length, 1);
    await work.pop();
  }
});

test("React Router: a limited handler has as many parameters as the handler", () => {
  assert.equal(reactRouter(tidegate("netlify"), (_request, _client) => new Response()).length, 2);
});

test("React Router: a middleware of a route", async () => {
  const middleware = reactRouterRoute(tidegate("netlify"), { check: (_request, { params }) => (params.id === "0" ? null : {}) });
  const route = (request, id) => middleware({ request, params: { id } }, async () => new Response("hello"));
  await admitsTwo((address) => route(from("x-nf-client-connection-ip", address), "7"));
  const exempt = await route(from("x-nf-client-connection-ip", "192.0.2.1"), "0");
  assert.deepEqual([exempt.status, exempt.headers.get("x-ratelimit-limit")], [200, null]);
});

test("Hono: only on its paths, and a refund after a 304", async () => {
  const app = new Hono();
  app.use("/api/*", hono(tidegate("cloudflare"), refundsUnchanged));
  app.get("/api/hello", (context) => context.text("hello"));
  app.get("/api/cached", (context) => context.body(null, 304));
  app.get("/", (context) => context.text("home"));
  await admitsTwo((address) => app.request(from("cf-connecting-ip", address)));
  const home = await app.request(from("cf-connecting-ip", "192.0.2.1", "/"));
  assert.deepEqual([home.status, home.headers.get("x-ratelimit-limit")], [200, null]);

  await server.command("FLUSHALL");
  for (let nth = 0; nth < 4; nth++) {
    const work = [];
    const context = { waitUntil: (promise) => work.push(promise), passThroughOnException() {}, props: {} };
    const response = await app.fetch(from("cf-connecting-ip", "192.0.2.1", "/api/cached"), {}, context);
    assert.deepEqual([response.status, work.length], [304, 1]);
    await Promise.all(work);
  }
});

test("Netlify: an edge function before the site", async () => {
  const limited = netlify(tidegate("netlify"));
  // The headers of a fetched response cannot be changed.
  const fetched = async () => {
    const response = await fetch(`data:text/plain,hello`);
    assert.throws(() => response.headers.set("a", "b"));
    return response;
  };
  await admitsTwo((address) => limited(from("x-nf-client-connection-ip", address), { next: fetched, waitUntil() {} }));
});

test("while the store is down, the request passes, and the response says why", async () => {
  const policy = { name: "api", quotas: [{ fixedWindow: { limit: 2, windowMs: 60_000 } }] };
  const down = (failMode) => new Tidegate({ url: "http://127.0.0.1:1", token: "t", platform: "netlify", failMode, policy });
  const app = () => new Response("hello");
  const open = await reactRouter(down("open"), app)(from("x-nf-client-connection-ip", "192.0.2.1"));
  assert.deepEqual([open.status, open.headers.get("x-tidegate-failed-open")], [200, "unavailable"]);
  const closed = await reactRouter(down("closed"), app)(from("x-nf-client-connection-ip", "192.0.2.1"));
  assert.deepEqual([closed.status, await closed.json()], [503, { error: "limiter_unavailable", kind: "unavailable" }]);
});

test("`denied` makes the response to a denial, and not to a failure of the store", async () => {
  const denied = () => new Response("denied", { status: 429 });
  const policy = { name: "api", quotas: ["2 / d"] };
  const gone = new Tidegate({ platform: "vercel", url: "http://127.0.0.1:1", token: "t", failMode: "closed", policy, onError: () => {} });
  const failed = await next(gone, { denied })(from("x-vercel-forwarded-for", "192.0.2.1"), { waitUntil() {} });
  assert.equal(failed.status, 503);
  assert.notEqual(await failed.text(), "denied");
});

/** A limiter that denies all requests, for middlewares with `denied`. `told` has its failures. */
function denying(told = []) {
  const limiter = new Testing({ platform: "cloudflare", policy: { name: "denying", quotas: ["1 / d"] }, onError: (event) => told.push(event) });
  limiter.deny("", { retryAfterMs: 7_000 });
  return limiter;
}
const answer = async (response) => [response.status, response.headers.get("retry-after"), response.headers.get("content-type"), await response.text()];

test("`denied` sets the content type", async () => {
  const bodies = [
    [() => new Response("<p>later", { status: 429, headers: { "content-type": "text/html" } }), "text/html"],
    [() => new Response("later", { status: 429 }), "text/plain;charset=UTF-8"],
    [() => Response.json({ later: true }, { status: 429 }), "application/json"],
    [() => new Response(null, { status: 429 }), null],
  ];
  for (const [denied, type] of bodies) {
    const [status, retryAfter, contentType] = await answer(await next(denying(), { denied })(from("cf-connecting-ip", "192.0.2.1")));
    assert.deepEqual([status, retryAfter, contentType], [429, "7", type]);
  }
});

test("if `denied` throws, the response remains the verdict's own, and onError is told", async () => {
  const told = [];
  const denied = () => { throw new Error("a mistake in denied"); };
  const headers = from("cf-connecting-ip", "192.0.2.1");
  const app = new Hono().use(hono(denying(told), { denied })).get("*", (context) => context.text("hello"));
  const responses = [
    await next(denying(told), { denied })(headers),
    await reactRouter(denying(told), () => new Response("hello"), { denied })(headers),
    await app.fetch(headers),
  ];
  for (const response of responses) {
    assert.deepEqual(await answer(response), [429, "7", "application/json", '{"error":"rate_limited","policy":"denying","quota":"denying","retry_after_ms":7000}']);
  }
  assert.deepEqual(told.map(({ kind, message }) => [kind, message]), Array(3).fill(["invalid", "denied: threw; the response is the verdict's own"]));
});

test("`denied` may throw a response, or an exception of Hono, whose error handler answers with the fields", async () => {
  const headers = from("cf-connecting-ip", "192.0.2.1");
  const thrown = await reactRouter(denying(), () => new Response("hello"), { denied: () => { throw new Response("later", { status: 429 }); } })(headers);
  assert.deepEqual(await answer(thrown), [429, "7", "text/plain;charset=UTF-8", "later"]);
  const app = () => new Hono().use(hono(denying(), { denied: () => { throw new HTTPException(429, { message: "later" }); } })).get("*", (context) => context.text("hello"));
  const byDefault = await answer(await app().fetch(headers));
  assert.deepEqual([byDefault[0], byDefault[1], byDefault[3]], [429, "7", "later"]);
  const own = app().onError((error, context) => context.html(`<p>${error.message}`, error.status));
  assert.deepEqual(await answer(await own.fetch(headers)), [429, "7", "text/html; charset=UTF-8", "<p>later"]);
});

test("Hono: a refund waits until a streamed body has ended", async () => {
  const app = new Hono();
  const limiter = tidegate("cloudflare");
  const refunds = [];
  const { refund } = limiter;
  limiter.refund = (...given) => (refunds.push(Date.now()), refund.apply(limiter, given));
  app.use("/api/*", hono(limiter, { refund: () => 1 }));
  let end;
  const ended = new Promise((resolve) => (end = resolve));
  app.get("/api/stream", () => new Response(new ReadableStream({
    async start(controller) {
      controller.enqueue(new TextEncoder().encode("first"));
      await ended;
      controller.close();
    },
  })));
  const response = await app.request(from("cf-connecting-ip", "192.0.2.9", "/api/stream"));
  const reader = response.body.getReader();
  await reader.read();
  assert.deepEqual(refunds, []);
  end();
  assert.equal((await reader.read()).done, true);
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(refunds.length, 1);
});
