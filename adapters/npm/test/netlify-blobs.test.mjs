// The package on Netlify Blobs, through @netlify/blobs and its own BlobsServer.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { spawn } from "node:child_process";
import { once } from "node:events";
import path from "node:path";
import { createInterface } from "node:readline";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { Tidegate } from "@tidegate/edge/netlify-blobs";

const host = path.join(path.dirname(fileURLToPath(import.meta.url)), "../../../conformance/hosts/edge");
const require = createRequire(path.join(host, "package.json"));
const { getStore } = await import(require.resolve("@netlify/blobs"));

const server = spawn(process.execPath, [path.join(host, "blobs-server.mjs")], { stdio: ["pipe", "pipe", "inherit"] });
const lines = createInterface({ input: server.stdout })[Symbol.asyncIterator]();
const address = (await lines.next()).value;
/** Sends the server a command. Returns its answer. */
async function told(line) {
  server.stdin.write(`${line}\n`);
  return (await lines.next()).value;
}
after(async () => {
  server.stdin.end();
  await once(server, "exit");
});

const site = { name: "tidegate", consistency: "strong", siteID: "tests", token: "conformance", edgeURL: address, uncachedEdgeURL: address };
const request = new Request("https://example.com/", { headers: { "x-nf-client-connection-ip": "192.0.2.1" } });

/** A store of the site. Each operation first waits for `pause()`. */
function store(pause) {
  const blobs = getStore(site);
  const after = (work) => async (...args) => {
    await pause();
    return blobs[work](...args);
  };
  return { getWithMetadata: after("getWithMetadata"), set: after("set"), delete: after("delete") };
}
const ms = (span) => () => new Promise((resolve) => setTimeout(resolve, span));
const never = () => new Promise(() => {});

let policies = 0;
function limiter(blobs, limit, options) {
  const policy = { name: `p${(policies += 1)}`, quotas: [{ fixedWindow: { limit, windowMs: 86_400_000 } }] };
  return (each = {}) => new Tidegate({ blobs, platform: "netlify", failMode: "open", policy, ...options, ...each });
}

/** How many requests were admitted, the number of each outcome, and the milliseconds until the last answer. */
async function burst(calls) {
  const began = performance.now();
  const kinds = {};
  let passed = 0;
  const verdicts = await Promise.all(calls);
  const slowestMs = Math.round(performance.now() - began);
  for (const { allowed, outcome, error } of verdicts) {
    passed += allowed;
    kinds[error?.kind ?? outcome] = (kinds[error?.kind ?? outcome] ?? 0) + 1;
  }
  return { passed, kinds, slowestMs, told: `${passed} passed, ${JSON.stringify(kinds)}, slowest ${slowestMs} ms` };
}
const times = (count, make) => Array.from({ length: count }, make);

/** A store in this process with correct conditional writes, so that only contention delays an answer. */
function table(pause) {
  const rows = new Map();
  let versions = 0;
  return {
    async getWithMetadata(name) {
      await pause();
      const row = rows.get(name);
      return row ? { data: row.bytes, etag: row.etag } : null;
    },
    async set(name, bytes, { onlyIfMatch }) {
      await pause();
      const modified = rows.get(name)?.etag === onlyIfMatch;
      if (modified) rows.set(name, { bytes, etag: `"${(versions += 1)}"` });
      return { modified };
    },
    async delete(name) {
      rows.delete(name);
    },
  };
}

for (const [where, blobs, instances, limit, deadlineMs] of [
  ["a table", table(ms(50)), 100, 60, 2_000],
  ["a BlobsServer", store(ms(50)), 20, 10, 10_000],
]) {
  test(`${instances} instances that compete for one key of ${where} admit at most the limit`, async (context) => {
    const make = limiter(blobs, limit, { deadlineMs });
    const { passed, kinds, told } = await burst(times(instances, () => make()).flatMap((tidegate) => [tidegate.check(request), tidegate.check(request)]));
    context.diagnostic(told);
    assert.ok(passed > 0 && passed <= limit, told);
    assert.equal(kinds.timeout, undefined, told);
  });
}

test("a write whose answer is lost is charged once, although @netlify/blobs repeats it", async () => {
  const tidegate = limiter(store(() => undefined), 10, { deadlineMs: 20_000 })();
  await told("lose 1");
  const { allowed, error } = await tidegate.check(request);
  assert.equal(await told("lost"), "1");
  // It fails open only if the store is down, and here it has answered.
  assert.deepEqual([allowed, error.kind], [false, "contended"]);
  assert.match(error.message, /repeated it; the request may have been charged/);
  // The next one is the second.
  assert.equal((await tidegate.check(request)).quotas[0].remaining, 8);
});

test("the deadline covers a key's queue, also if the store hangs", async (context) => {
  const events = [];
  const tidegate = limiter(store(never), 60, { deadlineMs: 200, onError: (event) => events.push(event) })();
  const { passed, kinds, slowestMs, told } = await burst(times(40, () => tidegate.check(request)));
  context.diagnostic(told);
  assert.ok(slowestMs >= 190 && slowestMs < 3_000, told);
  // The store has answered no call, so it has failed, and the fail mode applies to all of them.
  assert.deepEqual([passed, kinds], [40, { timeout: 40 }], told);
  assert.deepEqual(events.map(({ failedOpen }) => failedOpen), times(40, () => true));
});

test("with a slow store, the calls that wait for their turn go together", async (context) => {
  const tidegate = limiter(store(ms(15)), 200, { deadlineMs: 3_000 })();
  const { passed, kinds, slowestMs, told } = await burst(times(250, () => tidegate.check(request)));
  context.diagnostic(told);
  // One by one, they would take 7.5 seconds.
  assert.ok(slowestMs < 1_500, told);
  assert.deepEqual([passed, kinds], [200, { allowed: 200, denied: 50 }], told);
});

test("calls that are not decided in time by a store that answers are contended", async (context) => {
  const tidegate = limiter(table(ms(500)), 1_000, { deadlineMs: 900 })();
  const { passed, kinds, slowestMs, told } = await burst(times(250, () => tidegate.check(request)));
  context.diagnostic(told);
  assert.ok(slowestMs < 3_000, told);
  assert.deepEqual([passed, kinds], [0, { contended: 250 }], told);
});

test("a key's queue is bounded, and other keys do not wait for it", async () => {
  let isHung = true;
  const tidegate = limiter(store(() => (isHung ? never() : undefined)), 1_000, { deadlineMs: 2_000 })();
  const began = performance.now();
  const crowd = times(1_300, () => tidegate.check(request));
  // One call is at the store and 1,024 wait. The others are rejected at once.
  const refused = (await Promise.race([Promise.all(crowd.slice(1_025)), ms(1_800)()])) ?? [];
  assert.deepEqual([refused.length, [...new Set(refused.map(({ error }) => error?.kind))]], [275, ["contended"]]);
  assert.ok(performance.now() - began < 1_900);
  isHung = false;
  assert.equal((await tidegate.check(request, { key: "other" })).outcome, "allowed");
  await Promise.all(crowd);
});

test("a store that answers once and then hangs does not open", async () => {
  let asked = 0;
  const tidegate = limiter(table(() => (asked++ === 0 ? undefined : never())), 10, { deadlineMs: 1_000 })();
  const verdict = await tidegate.check(request);
  assert.deepEqual([verdict.allowed, verdict.error.kind, verdict.response.status], [false, "contended", 503]);
});

test("after a store failure, the request passes, and the next one works", async () => {
  let isDown = true;
  const pause = () => {
    if (isDown) throw new Error("connection refused");
  };
  const tidegate = limiter(store(pause), 10)();
  const { passed, kinds, told } = await burst(times(5, () => tidegate.check(request)));
  assert.deepEqual([passed, kinds], [5, { unavailable: 5 }], told);
  isDown = false;
  assert.equal((await tidegate.check(request)).outcome, "allowed");
});

test("checks, refunds and resets of one key take turns and are all counted", async () => {
  const tidegate = limiter(store(ms(1)), 50, { deadlineMs: 20_000 })();
  const { passed, kinds, told } = await burst(times(60, () => tidegate.check(request)));
  assert.deepEqual([passed, kinds], [50, { allowed: 50, denied: 10 }], told);
  const [verdict] = [await tidegate.peek(request)];
  assert.equal(verdict.outcome, "denied");
  await tidegate.reset(verdict.key);
  const charged = await tidegate.check(request);
  assert.equal(charged.quotas[0].remaining, 49);
  await Promise.all([tidegate.refund(charged), tidegate.check(request), tidegate.check(request)]);
  assert.equal((await tidegate.peek(request)).quotas[0].remaining, 48);
});

test("an estimate is unsupported, charges nothing and does not open", async () => {
  const tidegate = limiter(store(ms(0)), 10)();
  const verdict = await tidegate.check(request, { estimate: 5 });
  assert.deepEqual([verdict.allowed, verdict.failedOpen, verdict.error.kind, verdict.response.status], [false, false, "unsupported", 503]);
  const elsewhere = { key: verdict.key, outcome: "allowed", charge: { token: "a", cost: 5 } };
  await assert.rejects(tidegate.settle(elsewhere, { cost: 1 }), { kind: "unsupported" });
  const counted = await tidegate.check(request);
  assert.deepEqual([counted.quotas[0].remaining, counted.replayed], [9, false]);
});
