// What an endpoint may do instead of answering, over real connections.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { after, test } from "node:test";
import { Tidegate } from "@tidegate/edge";

const request = new Request("https://example.com/", { headers: { "x-vercel-forwarded-for": "192.0.2.1" } });
const policy = { name: "api", quotas: [{ algorithm: "fixed_window", limit: 1_000_000, window_ms: 86_400_000 }] };
const ADMITTED = '{"result":"a"}';

/** An endpoint that does as `serve.now` says, what it has not answered yet, and a limiter on it. */
async function endpoint(now, options) {
  const [serve, waiting] = [{ now }, new Set()];
  const server = createServer((request, response) => {
    waiting.add(response);
    response.on("close", () => waiting.delete(response));
    request.resume().on("end", () => serve.now(response));
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  after(() => server.close() && server.closeAllConnections());
  const url = `http://127.0.0.1:${server.address().port}`;
  return { serve, waiting, tidegate: new Tidegate({ url, token: "secret", platform: "vercel", failMode: "closed", policy, ...options }) };
}
const answer = (response) => response.end(ADMITTED);
const kinds = (verdicts) => [...new Set(verdicts.map(({ error }) => error?.kind))];

for (const [how, stall] of [["nothing", () => {}], ["the head of an answer", (response) => response.flushHeaders()]]) {
  test(`${how}, and then silence: each call takes the deadline, and what is left waiting does not grow`, async () => {
    let asked = 0;
    const { serve, waiting, tidegate } = await endpoint((response) => (asked++, stall(response)), { deadlineMs: 200 });
    const burst = () => Promise.all(Array.from({ length: 10 }, () => tidegate.check(request)));
    for (let nth = 0; nth < 6; nth++) {
      const began = performance.now();
      assert.deepEqual(kinds(await burst()), ["timeout"]);
      const took = performance.now() - began;
      assert.ok(took >= 199 && took < 1_500, `${took} ms`);
      for (let tries = 0; waiting.size > 10; tries++) {
        assert.ok(tries < 100, `${waiting.size} requests are still under way`);
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
    }
    assert.equal(asked, 60);
    serve.now = answer;
    waiting.forEach(answer);
    assert.deepEqual(kinds(await burst()), [undefined]);
  });
}

test("an endpoint that leads elsewhere is told from one that is not there, and is not followed", async () => {
  const elsewhere = (response) => response.writeHead(302, { location: "/elsewhere" }).end();
  const { serve, tidegate } = await endpoint(elsewhere);
  const { error } = await tidegate.check(request);
  assert.deepEqual([error.kind, /leads elsewhere/.test(error.message)], ["refused", true]);
  serve.now = answer;
  for (let nth = 0; nth < 2; nth++) assert.equal((await tidegate.check(request)).allowed, true);
  // Where it has answered before, the first that is led elsewhere cannot say so yet.
  serve.now = elsewhere;
  const moved = [await tidegate.check(request), await tidegate.check(request), await tidegate.check(request)];
  assert.deepEqual(moved.map(({ error }) => error.kind), ["unavailable", "refused", "refused"]);
});

test("an answer without end is read no further than an answer may be long", async () => {
  let closed;
  const endless = (response) => {
    closed = once(response, "close");
    const more = () => void (response.destroyed || response.write("x".repeat(65_536), more));
    more();
  };
  const { tidegate } = await endpoint(endless, { deadlineMs: 20_000 });
  const { error } = await tidegate.check(request);
  assert.deepEqual([error.kind, /more than a megabyte/.test(error.message)], ["corrupt", true]);
  await closed;
});

test("a connection that ends before the answer may have been charged, and the next call makes another", async () => {
  const { serve, tidegate } = await endpoint((response) => response.destroy());
  const { error } = await tidegate.check(request);
  assert.deepEqual([error.kind, /may have been charged/.test(error.message)], ["unavailable", true]);
  serve.now = answer;
  assert.equal((await tidegate.check(request)).allowed, true);
});
