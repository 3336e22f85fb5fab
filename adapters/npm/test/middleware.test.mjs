// The examples, called the way their frameworks call them, over a real redis-server.

import assert from "node:assert/strict";
import { after, beforeEach, test } from "node:test";
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

test("Next.js: a proxy with NextRequest, on the paths of its matcher", async () => {
  const { NextRequest } = await import("next/server.js");
  const { proxy, config } = await import("../examples/next/proxy.js");
  const [first] = await admitsTwo((address) => proxy(new NextRequest(from("x-vercel-forwarded-for", address)), { waitUntil() {} }));
  assert.equal(first.headers.get("x-middleware-next"), "1");
  const { unstable_doesMiddlewareMatch: matches } = await import("next/experimental/testing/server.js");
  const on = (url) => matches({ config, nextConfig: {}, url });
  assert.deepEqual([on("/api/hello"), on("/about")], [true, false]);
});

test("SvelteKit: a handle in a sequence, by the address from the adapter", async () => {
  const { sequence } = await import("@sveltejs/kit/hooks");
  const { with_request_store: asKitDoes } = await import("@sveltejs/kit/internal/server");
  const { handle } = await import("../examples/sveltekit/src/hooks.server.mjs");
  const inSequence = sequence(handle, ({ event, resolve }) => resolve(event));
  const tracing = { enabled: false, record_span: ({ fn }) => fn(undefined) };
  const both = (call) => asKitDoes({ event: call.event, state: { tracing } }, () => inSequence(call));
  const event = (address, path) => ({ request: from("x-real-ip", "203.0.113.9", path), getClientAddress: () => address, platform: undefined, tracing });
  const resolve = () => new Response("hello");
  await admitsTwo((address) => both({ event: event(address), resolve }));
  const home = await both({ event: event("192.0.2.1", "/"), resolve });
  assert.deepEqual([home.status, home.headers.get("x-ratelimit-limit")], [200, null]);
});

test("React Router: its request handler, and a refund after a 304", async () => {
  const { handler } = await import("../examples/react-router/server.mjs");
  let status = 200;
  const routes = { hello: { id: "hello", path: "api/hello", module: { loader: () => new Response(status === 304 ? null : "hello", { status }) } } };
  const build = { routes, entry: { module: {} }, future: {}, assets: { routes: {} }, publicPath: "/", basename: "/", ssr: true, isSpaMode: false, prerender: [], routeDiscovery: { mode: "initial" } };
  const work = [];
  const app = handler(build, (promise) => work.push(promise));
  await admitsTwo((address) => app(from("x-nf-client-connection-ip", address)));

  await server.command("FLUSHALL");
  status = 304;
  for (let nth = 0; nth < 4; nth++) {
    assert.equal((await app(from("x-nf-client-connection-ip", "192.0.2.1"))).status, 304);
    assert.equal(work.length, 1);
    await work.pop();
  }
});

test("Hono: only on its paths, and a refund after a 304", async () => {
  const { app } = await import("../examples/hono/app.mjs");
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
  const { default: limited, config } = await import("../examples/netlify/limit.mjs");
  // The headers of a fetched response cannot be changed.
  const fetched = async () => {
    const response = await fetch(`data:text/plain,hello`);
    assert.throws(() => response.headers.set("a", "b"));
    return response;
  };
  await admitsTwo((address) => limited(from("x-nf-client-connection-ip", address), { next: fetched, waitUntil() {} }));
  assert.equal(config.path, "/api/*");
});

test("while the store is down, the request passes, and the response says why", async () => {
  const { limit } = await import("@tidegate/edge/react-router");
  const { Tidegate } = await import("@tidegate/edge");
  const policy = { name: "api", quotas: [{ fixedWindow: { limit: 2, windowMs: 60_000 } }] };
  const down = (failMode) => new Tidegate({ url: "http://127.0.0.1:1", token: "t", platform: "netlify", failMode, policy });
  const app = () => new Response("hello");
  const open = await limit(down("open"), app)(from("x-nf-client-connection-ip", "192.0.2.1"));
  assert.deepEqual([open.status, open.headers.get("x-tidegate-failed-open")], [200, "unavailable"]);
  const closed = await limit(down("closed"), app)(from("x-nf-client-connection-ip", "192.0.2.1"));
  assert.deepEqual([closed.status, await closed.json()], [503, { error: "limiter_unavailable", kind: "unavailable" }]);
});
