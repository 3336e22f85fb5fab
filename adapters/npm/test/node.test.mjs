// The middleware for Node.js's `(req, res, next)`, on real servers of HTTP/1.1 and HTTP/2.

import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";
import http2 from "node:http2";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Tidegate } from "@tidegate/edge/memory";
import { limit } from "@tidegate/edge/node";

let named = 0;
const limiter = (quotas, more = {}) =>
  new Tidegate({ platform: "direct", failMode: "closed", onError: () => {}, policy: { name: `node-${(named += 1)}`, quotas }, ...more });

/** Runs middlewares before an app, as Connect does. An error is a 500 with its text. */
async function served(middlewares, app, of = http) {
  const server = of.createServer((req, res) => {
    const [first, ...rest] = [...middlewares, app];
    const next = (left) => (error) => {
      if (error) return (res.statusCode = 500), res.end(String(error));
      const [one, ...others] = left;
      return one(req, res, next(others));
    };
    first(req, res, next(rest));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = `http://127.0.0.1:${server.address().port}`;
  return { address, close: () => (server.closeAllConnections?.(), server.close()) };
}

const hello = (_req, res) => res.end("hello");

test("the third request of two is denied, with the fields on each response", async () => {
  const { address, close } = await served([limit(limiter(["2 / d"]))], hello);
  const responses = [];
  for (let nth = 0; nth < 3; nth++) responses.push(await fetch(`${address}/api?q=1`));
  assert.deepEqual(responses.map(({ status }) => status), [200, 200, 429]);
  assert.deepEqual(responses.map(({ headers }) => headers.get("x-ratelimit-remaining")), ["1", "0", "0"]);
  assert.equal((await responses[2].json()).error, "rate_limited");
  close();
});

test("HTTP/2, whose requests have symbols and pseudo-header fields", async () => {
  const { address, close } = await served([limit(limiter(["1 / d"]))], hello, http2);
  const session = http2.connect(address);
  const status = async () => {
    const stream = session.request({ ":path": "/api", cookie: "a=b" });
    const [headers] = await once(stream, "response");
    stream.close();
    return headers[":status"];
  };
  assert.deepEqual([await status(), await status()], [200, 429]);
  session.close();
  close();
});

test("check chooses key and cost, exempts, and makes a 400 if it throws; denied makes the response", async () => {
  const options = {
    check: ({ url, headers }) => {
      if (url === "/health") return null;
      if (url === "/wrong") throw new Error("of the application");
      return { key: headers["x-user"], cost: 2 };
    },
    denied: (verdict, request) => new Response(`no more, ${request.headers.get("x-user")}`, { status: 429, headers: { "x-why": verdict.outcome } }),
  };
  const { address, close } = await served([limit(limiter(["2 / d"]), options)], hello);
  const get = (path, user = "alice") => fetch(`${address}${path}`, { headers: { "x-user": user } });
  assert.deepEqual([(await get("/")).status, (await get("/", "bob")).status, (await get("/health")).headers.get("x-ratelimit-limit")], [200, 200, null]);
  const denied = await get("/");
  assert.deepEqual([denied.status, await denied.text(), denied.headers.get("x-why")], [429, "no more, alice", "denied"]);
  assert.ok(denied.headers.get("retry-after"));
  assert.equal((await get("/wrong")).status, 400);
  close();
});

test("two limiters on a route: the lists have both, and the fields are those of the one with less left", async () => {
  const { address, close } = await served([limit(limiter(["5 / d"])), limit(limiter(["3 / d"]))], hello);
  const { headers } = await fetch(address);
  assert.equal(headers.get("x-ratelimit-remaining"), "2");
  assert.match(headers.get("ratelimit"), /r=4.*r=2/);
  close();
});

test("a slot is given back when the response has been sent, and when the client has gone", { timeout: 20_000 }, async () => {
  const tidegate = limiter([{ concurrency: { limit: 1, lifetimeMs: 3_600_000 } }]);
  const waiting = [];
  const { address, close } = await served([limit(tidegate, { check: () => ({ key: "one" }) })], (_req, res) => waiting.push(res));
  const until = async (is) => {
    while (!(await is())) await sleep(5);
  };
  const inApp = () => waiting.length > 0;
  const free = async () => (await tidegate.peek(new Request(address), { key: "one" })).quotas[0].remaining === 1;
  const first = fetch(address);
  await until(inApp);
  assert.equal((await fetch(address)).status, 429);
  waiting.pop().end("sent");
  assert.equal(await (await first).text(), "sent");
  await until(free);
  const gone = new AbortController();
  const second = fetch(address, { signal: gone.signal }).catch(() => undefined);
  await until(inApp);
  assert.equal(await free(), false);
  gone.abort();
  await second;
  await until(free);
  close();
});

test("nothing that a client sends is an exception: methods and targets that no Request has", { timeout: 20_000 }, async () => {
  const { address, close } = await served([limit(limiter(["2 / d"]))], hello);
  const { hostname, port } = new URL(address);
  const send = async (method, path) => {
    const [response] = await once(http.request({ hostname, port, method, path }).end(), "response");
    response.resume();
    return response.statusCode;
  };
  assert.deepEqual([await send("TRACE", "/"), await send("OPTIONS", "*"), await send("GET", "//")], [200, 200, 429]);
  close();
});

test("an error of the application goes to next", async () => {
  const choose = () => {
    throw new Error("no plan");
  };
  const { address, close } = await served([limit(choose)], hello);
  const response = await fetch(address);
  assert.deepEqual([response.status, await response.text()], [500, "Error: no plan"]);
  close();
});
