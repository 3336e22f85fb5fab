// Endpoints that misbehave, over real connections.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:http";
import { after, test } from "node:test";
import { promisify } from "node:util";
import { Tidegate } from "@tidegate/edge";

const request = new Request("https://example.com/", { headers: { "x-vercel-forwarded-for": "192.0.2.1" } });
const policy = { name: "api", quotas: [{ fixedWindow: { limit: 1_000_000, windowMs: 86_400_000 } }] };
// An answer of the script with the caller's clock, so without the server's time.
const ADMITTED = '{"result":"a"}';

/** An endpoint whose handler is `serve.now`, the responses that it has not sent, and a limiter on it. */
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
  return { serve, waiting, tidegate: new Tidegate({ url, token: "secret", platform: "vercel", failMode: "closed", clock: "caller", policy, ...options }) };
}
const answer = (response) => response.end(ADMITTED);
const kinds = (verdicts) => [...new Set(verdicts.map(({ error }) => error?.kind))];

for (const [how, stall] of [["nothing", () => {}], ["the head of an answer", (response) => response.flushHeaders()]]) {
  test(`an endpoint sends ${how} and then hangs: each call takes the deadline, and requests in flight do not accumulate`, async () => {
    let asked = 0;
    const { serve, waiting, tidegate } = await endpoint((response) => (asked++, stall(response)), { deadlineMs: 200 });
    const burst = () => Promise.all(Array.from({ length: 10 }, () => tidegate.check(request)));
    for (let nth = 0; nth < 6; nth++) {
      const began = performance.now();
      assert.deepEqual(kinds(await burst()), ["timeout"]);
      const took = performance.now() - began;
      assert.ok(took >= 199 && took < 1_500, `${took} ms`);
      for (let tries = 0; waiting.size > 10; tries++) {
        assert.ok(tries < 100, `${waiting.size} requests are still in flight`);
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
    }
    // The first ten are two requests. While answers are owed, each check is a request of its own, which can be cancelled.
    assert.equal(asked, 52);
    serve.now = answer;
    waiting.forEach(answer);
    let found;
    for (let tries = 0; tries < 10 && String(found) !== ""; tries++) found = kinds(await burst());
    assert.deepEqual(found, [undefined]);
  });
}

test("a redirect is not followed, and its error differs from that of a dead endpoint", async () => {
  const elsewhere = (response) => response.writeHead(302, { location: "/elsewhere" }).end();
  const { serve, tidegate } = await endpoint(elsewhere);
  const { error } = await tidegate.check(request);
  assert.deepEqual([error.kind, /leads elsewhere/.test(error.message)], ["refused", true]);
  serve.now = answer;
  for (let nth = 0; nth < 2; nth++) assert.equal((await tidegate.check(request)).allowed, true);
  // After an answer, the first redirect is an error of fetch without a status.
  serve.now = elsewhere;
  const moved = [await tidegate.check(request), await tidegate.check(request), await tidegate.check(request)];
  assert.deepEqual(moved.map(({ error }) => error.kind), ["unavailable", "refused", "refused"]);
});

test("an endless answer is read no further than the longest valid one", async () => {
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

test("a call whose connection breaks may have been charged, and the next call opens another connection", async () => {
  const { serve, tidegate } = await endpoint((response) => response.destroy());
  const { error } = await tidegate.check(request);
  assert.deepEqual([error.kind, /may have been charged/.test(error.message)], ["unavailable", true]);
  serve.now = answer;
  assert.equal((await tidegate.check(request)).allowed, true);
});

test("a process without a file left to connect is overloaded, so no gate opens", async () => {
  const server = createServer();
  await once(server.listen(0, "127.0.0.1"), "listening");
  const { port } = server.address();
  server.close();
  const script = `
    import { closeSync, openSync } from "node:fs";
    import { Tidegate } from "@tidegate/edge";
    const policy = { name: "api", quotas: ["10 / 1 s"] };
    const tidegate = new Tidegate({ url: "http://127.0.0.1:${port}", token: "secret", platform: "vercel", failMode: "open", policy, onError() {} });
    const kindAndAllowed = async () => {
      const { error, allowed } = await tidegate.limit("a");
      return [error.kind, allowed];
    };
    const told = [await kindAndAllowed()];
    const files = [];
    try {
      for (;;) files.push(openSync("/dev/null"));
    } catch {}
    told.push(await kindAndAllowed());
    files.forEach((file) => closeSync(file));
    console.log(JSON.stringify([...told, await kindAndAllowed()]));
  `;
  const command = ["-c", 'ulimit -n 64 && exec "$0" --input-type=module --eval "$1"', process.execPath, script];
  const { stdout } = await promisify(execFile)("sh", command, { cwd: import.meta.dirname });
  const [down, overloaded] = [["unavailable", true], ["contended", false]];
  assert.deepEqual(JSON.parse(stdout), [down, overloaded, down]);
});
