// A client that waits as long as a 429 says.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { test } from "node:test";
import { Tidegate } from "@tidegate/edge/memory";
import ky from "ky";

test("ky waits by retry-after, and its first retry is admitted", async () => {
  const tidegate = new Tidegate({ platform: "direct", failMode: "closed", policy: { name: "retry", quotas: [{ slidingLog: { limit: 1, windowMs: 1_000 } }] } });
  const answered = [];
  const server = createServer(async (incoming, outgoing) => {
    const verdict = await tidegate.check(new Request("http://localhost/"), { peer: incoming.socket.remoteAddress });
    const response = verdict.response ?? verdict.onto(new Response("hello"));
    answered.push({ status: response.status, retryAfter: Number(response.headers.get("retry-after")), at: performance.now() });
    outgoing.writeHead(response.status, Object.fromEntries(response.headers)).end(await response.text());
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  try {
    const url = `http://127.0.0.1:${server.address().port}/`;
    assert.equal(await ky(url).text(), "hello");
    assert.equal(await ky(url).text(), "hello");
  } finally {
    server.closeAllConnections();
    server.close();
  }
  assert.deepEqual(answered.map(({ status }) => status), [200, 429, 200]);
  const [, denied, retried] = answered;
  assert.equal(denied.retryAfter, 1);
  // Without the field, ky would wait 300 ms. Timers may be a little early.
  assert.ok(retried.at - denied.at > 950, `${retried.at - denied.at} ms`);
});
