// When the middlewares release a slot, over a real redis-server.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { after, beforeEach, test } from "node:test";
import { Tidegate } from "@tidegate/edge";
import { limit as hono } from "@tidegate/edge/hono";
import { limit as netlify } from "@tidegate/edge/netlify";
import { limit as next } from "@tidegate/edge/next";
import { limit as reactRouter } from "@tidegate/edge/react-router";
import { limit as sveltekit } from "@tidegate/edge/sveltekit";
import { Hono } from "hono";
import { upstash } from "./servers.mjs";

const server = await upstash();
after(() => server.stop());
beforeEach(() => server.command("FLUSHALL"));

const quotas = [{ concurrency: { limit: 2, lifetimeMs: 3_600_000 } }, { fixedWindow: { limit: 100, windowMs: 86_400_000 } }];
const tidegate = new Tidegate({
  url: server.url,
  token: server.token,
  platform: "vercel",
  failMode: "open",
  deadlineMs: 20_000,
  policy: { name: "api", quotas },
});
const request = (init) => new Request("https://example.com/", { headers: { "x-vercel-forwarded-for": "192.0.2.1" }, ...init });
const free = async () => (await tidegate.peek(request())).quotas[0].remaining;

/** A response whose body is sent when the test says so. */
function slow() {
  let controller;
  const body = new ReadableStream({ start: (given) => (controller = given) });
  const response = new Response(body, { status: 201, statusText: "Made", headers: { "x-app": "yes" } });
  return { response, body, send: (text) => controller.enqueue(new TextEncoder().encode(text)), end: () => controller.close(), fail: (error) => controller.error(error) };
}

/** Each middleware as a function of a request, an app and the host's `waitUntil`. */
const middlewares = {
  reactRouter: (app, waitUntil, options) => reactRouter(tidegate, app, { ...options, waitUntil })(request()),
  sveltekit: (app, waitUntil, options) => sveltekit(tidegate, options)({ event: { request: request(), getClientAddress: () => "192.0.2.1", platform: { context: { waitUntil } } }, resolve: app }),
  netlify: (app, waitUntil, options) => netlify(tidegate, options)(request(), { next: app, waitUntil }),
  hono: (app, waitUntil, options) => new Hono().use(hono(tidegate, options)).get("/", app).fetch(request(), {}, { waitUntil, passThroughOnException() {}, props: {} }),
};

for (const [name, respond] of Object.entries(middlewares)) {
  test(`${name}: two of three requests at once pass, and each keeps its slot until its body has been sent`, async () => {
    const work = [];
    const waitUntil = (promise) => work.push(promise);
    const [one, two] = [slow(), slow()];
    const responses = [await respond(() => one.response, waitUntil), await respond(() => two.response, waitUntil)];
    const denied = await respond(() => assert.fail("a denied request reached the app"), waitUntil);
    assert.deepEqual([denied.status, denied.headers.get("retry-after"), (await denied.json()).error], [429, null, "rate_limited"]);
    assert.deepEqual([responses[0].status, responses[0].headers.get("x-app"), responses[0].headers.get("x-ratelimit-remaining")], [201, "yes", "1"]);

    one.send("hel");
    const reader = responses[0].body.getReader();
    assert.equal(new TextDecoder().decode((await reader.read()).value), "hel");
    assert.deepEqual([await free(), work.length], [0, 2]);
    one.send("lo");
    one.end();
    assert.equal(new TextDecoder().decode((await reader.read()).value), "lo");
    assert.equal((await reader.read()).done, true);
    await work[0];
    assert.equal(await free(), 1);

    // The client has gone.
    await responses[1].body.cancel("gone");
    await work[1];
    assert.equal(await free(), 2);
    assert.equal((await respond(() => new Response("hello"), waitUntil)).status, 200);
  });

  test(`${name}: a slot is released after a body that fails, no body, and an app that throws`, async () => {
    const work = [];
    const waitUntil = (promise) => work.push(promise);
    const failing = slow();
    const response = await respond(() => failing.response, waitUntil);
    failing.fail(new Error("the app's"));
    await assert.rejects(response.text(), /the app's/);
    await respond(() => new Response(null, { status: 204 }), waitUntil);
    const thrown = await Promise.resolve(respond(() => Promise.reject(new Error("the app's")), waitUntil)).catch((error) => error);
    if (thrown instanceof Response) await thrown.text();
    else assert.equal(thrown.message, "the app's");
    await Promise.all(work);
    assert.deepEqual([work.length, await free()], [3, 2]);
  });
}

test("a refund releases the slot too, after the body", async () => {
  const work = [];
  const one = slow();
  const options = { check: () => ({ estimate: 30 }), refund: () => 20, waitUntil: (promise) => work.push(promise) };
  const response = await reactRouter(tidegate, () => one.response, options)(request());
  assert.equal(await free(), 1);
  one.end();
  await response.text();
  await Promise.all(work);
  const { quotas } = await tidegate.peek(request());
  assert.deepEqual(quotas.map(({ remaining }) => remaining), [2, 90]);
});

test("a refund that throws releases the slot, and so does a response to HEAD", async () => {
  const work = [];
  const waitUntil = (promise) => work.push(promise);
  const throws = () => {
    throw new Error("refund");
  };
  await assert.rejects(reactRouter(tidegate, () => new Response("hello"), { refund: throws, waitUntil })(request()), /refund/);
  await reactRouter(tidegate, () => new Response("hello"), { waitUntil })(request({ method: "HEAD" }));
  await Promise.all(work);
  assert.deepEqual([work.length, await free()], [2, 2]);
});

test("over HTTP: a client that disconnects frees its slot", async () => {
  const work = [];
  const app = reactRouter(tidegate, () => slow().response, { waitUntil: (promise) => work.push(promise) });
  const site = createServer(async (_, answer) => {
    const response = await app(request());
    const reader = response.body.getReader();
    answer.on("close", () => reader.cancel("the client has gone"));
    answer.writeHead(response.status).flushHeaders();
    await reader.read();
  });
  await once(site.listen(0, "127.0.0.1"), "listening");
  const cancel = new AbortController();
  const response = await fetch(`http://127.0.0.1:${site.address().port}`, { signal: cancel.signal });
  assert.deepEqual([response.status, await free()], [201, 1]);
  cancel.abort();
  await work[0];
  assert.equal(await free(), 2);
  site.close();
  site.closeAllConnections();
});

test("Next.js: a proxy cannot release, so it refuses the policy", () => {
  assert.throws(() => next(tidegate), { name: "TidegateError", kind: "invalid", field: "policy", message: /route handler/ });
});
