// A store of the application's own: what it may do, and what its lies do.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Gate } from "@tidegate/edge/gate";
import { limit } from "@tidegate/edge/hono";
import { Tidegate, TidegateError } from "@tidegate/edge/store";
import { Hono } from "hono";

const DAY = 86_400_000;
const ms = (span) => new Promise((resolve) => setTimeout(resolve, span));
const never = () => new Promise(() => {});
const times = (count, make) => Array.from({ length: count }, (_, nth) => make(nth));

/** A correct store in this process, of which each operation takes a moment. `tells` is whether it tells versions and present values. */
function table({ tells = true, took = () => ms(1) } = {}) {
  const rows = new Map();
  const done = [];
  let versions = 0;
  const swap = async (what, name, bytes, version) => {
    done.push(what);
    await took(what);
    const present = rows.get(name);
    if (present?.version !== version) return tells ? { written: false, ...(present && { present }) } : false;
    rows.set(name, { bytes, version: (versions += 1) });
    return tells ? { written: true, version: versions } : true;
  };
  return {
    rows,
    /** What was done since the last call. */
    done: () => done.splice(0),
    name: "table",
    async read(name) {
      done.push("read");
      await took("read");
      return rows.get(name);
    },
    create: (name, bytes) => swap("create", name, bytes, undefined),
    update: (name, bytes, version) => swap("update", name, bytes, version),
    async delete(name) {
      done.push("delete");
      rows.delete(name);
    },
  };
}

let policies = 0;
function limiters(store, limit, options) {
  const policy = { name: `own${(policies += 1)}`, quotas: [{ fixedWindow: { limit, windowMs: DAY } }] };
  return () => new Tidegate({ store, platform: "direct", failMode: "open", policy, onError: () => undefined, ...options });
}

function counted(verdicts) {
  const kinds = {};
  for (const { outcome, error } of verdicts) kinds[error?.kind ?? outcome] = (kinds[error?.kind ?? outcome] ?? 0) + 1;
  return kinds;
}

for (const remember of [false, true]) {
  for (const tells of [false, true]) {
    test(`500 requests at once of five processes admit the limit, ${remember ? "" : "not "}remembered, ${tells ? "" : "not "}told`, async () => {
      const store = table({ tells });
      const make = limiters(store, 123, { remember });
      const each = times(5, make);
      assert.deepEqual(counted(await Promise.all(times(500, (nth) => each[nth % 5].limit("user:1")))), { allowed: 123, denied: 377 });
      // Those of a process go together, so that few operations compete.
      assert.ok(store.done().length < 60);
      assert.deepEqual(counted(await Promise.all(times(20, () => make().limit("user:2")))), { allowed: 20 });
      assert.equal((await make().peek(new Request("https://example.com"), { key: "user:2" })).quotas[0].remaining, 103);
    });
  }
}

test("a decision that remembers is one swap, and a denial is always read", async () => {
  const store = table();
  const make = limiters(store, 3, { remember: true });
  const [tidegate, other] = [make(), make()];
  for (const operation of ["create", "update", "update"]) {
    assert.ok((await tidegate.limit("user:1")).allowed);
    assert.deepEqual(store.done(), [operation]);
  }
  for (let nth = 0; nth < 2; nth++) {
    assert.equal((await tidegate.limit("user:1")).outcome, "denied");
    assert.deepEqual(store.done(), ["read"]);
  }
  // What another process returns is seen, although this one remembers that nothing remains.
  await other.reset("user:1");
  store.done();
  assert.equal((await tidegate.limit("user:1")).quotas[0].remaining, 2);
  assert.deepEqual(store.done(), ["read", "create"]);
  // What another one charges makes the swap fail, and the swap tells what is there.
  assert.equal((await other.limit("user:1")).quotas[0].remaining, 1);
  assert.deepEqual(store.done(), ["create", "update"]);
  assert.equal((await tidegate.limit("user:1")).quotas[0].remaining, 0);
  assert.deepEqual(store.done(), ["update", "update"]);
  assert.deepEqual([tidegate.capabilities.round_trips, limiters(store, 1)().capabilities.round_trips], [1, 2]);
});

test("a key that returns after its value has expired, or was deleted, takes one or two operations and no pause", async () => {
  const store = table();
  const policy = { name: "returns", quotas: [{ fixedWindow: { limit: 9, windowMs: 50 } }] };
  const tidegate = new Tidegate({ store: { ...store, update: async (...given) => ({ present: null, ...(await store.update(...given)) }) }, remember: true, platform: "direct", failMode: "closed", policy });
  const { now } = Date;
  try {
    await tidegate.limit("user:1");
    store.rows.clear();
    store.done();
    await tidegate.limit("user:1");
    assert.deepEqual(store.done(), ["update", "create"]);
    // The window and the slack of other hosts' clocks have passed.
    Date.now = () => now() + 20_000;
    store.rows.clear();
    await tidegate.limit("user:1");
    assert.deepEqual(store.done(), ["create"]);
  } finally {
    Date.now = now;
  }
});

test("a peek, a refund and a reset do what they say, also of what is remembered", async () => {
  const store = table();
  const tidegate = limiters(store, 3, { remember: true })();
  const [request, key] = [new Request("https://example.com"), { key: "user:1" }];
  const [first] = await Promise.all([tidegate.check(request, key), tidegate.check(request, key), tidegate.peek(request, key)]);
  assert.equal((await tidegate.peek(request, key)).quotas[0].remaining, 1);
  await tidegate.refund(first);
  assert.equal((await tidegate.peek(request, key)).quotas[0].remaining, 2);
  await tidegate.reset("user:1");
  assert.equal(store.rows.size, 0);
  assert.equal((await tidegate.check(request, key)).quotas[0].remaining, 2);
});

test("4,096 values are remembered", async () => {
  const store = table({ took: () => undefined });
  const tidegate = limiters(store, 9, { remember: true })();
  await Promise.all(times(5_000, (nth) => tidegate.limit(`user:${nth}`)));
  store.done();
  await Promise.all(times(5_000, (nth) => tidegate.limit(`user:${4_999 - nth}`)));
  const lost = store.done().filter((what) => what === "create").length;
  // Each of the others is created in vain, which tells its value, and that makes another one be forgotten.
  assert.equal(lost, 5_000 - 4_096);
});

test("a clock beside it, costs and changed limits count as in one step", async () => {
  const store = table();
  const policy = (limit) => ({ name: "changed", quotas: [{ slidingWindow: { limit, windowMs: 60_000 } }] });
  const of = (limit) => new Tidegate({ store, remember: true, platform: "direct", failMode: "closed", policy: policy(limit) });
  const [small, large] = [of(10), of(20)];
  const now = 1_800_000_000_000;
  const verdicts = await Promise.all(times(30, (nth) => small.limit("user:1", { cost: 1 + (nth % 3), now: now + nth })));
  assert.equal(verdicts.filter(({ allowed }) => allowed).length > 0, true);
  assert.equal((await large.limit("user:1", { now: now + 30, cost: 10 })).quotas[0].remaining, 0);
});

/** Stores that lie: what they do, the error that a check gets, and what it says. `opens` is whether the fail mode decides. */
const LIES = {
  "throws a string": [{ read: () => { throw "boom"; } }, "unavailable", /^table: the store has failed; .* \(boom\)$/, true],
  "rejects with a string": [{ read: async () => { throw "boom"; } }, "unavailable", /\(boom\)$/, true],
  "rejects with an array": [{ read: async () => { throw ["invalid", "x"]; } }, "unavailable", /the store has failed/, true],
  "rejects with nothing": [{ read: async () => { throw undefined; } }, "unavailable", /\(undefined\)$/, true],
  "rejects with an error of a connection": [{ create: async () => { throw new TypeError("fetch failed", { cause: new Error("ECONNRESET") }); } }, "unavailable", /TypeError: fetch failed: ECONNRESET/, true],
  "has no files left": [{ read: async () => { throw new Error("connect EMFILE"); } }, "contended", /EMFILE/, false],
  "says that others crowd it": [{ read: async () => { throw new TidegateError("contended", "no free connection"); } }, "contended", /^table: no free connection$/, false],
  "says that it is down": [{ read: async () => { throw new TidegateError("unavailable", "down"); } }, "unavailable", /^table: down$/, true],
  "says what is no failure of a store": [{ read: async () => { throw new TidegateError("invalid", "key: odd"); } }, "refused", /^table: key: odd$/, false],
  "throws what cannot be read": [{ read: async () => { throw { get message() { throw new Error("no"); } }; } }, "corrupt", /./, false],
  "never answers a read": [{ read: never }, "timeout", /^table: no answer within 150 ms; the request may have been charged$/, true],
  "never answers a write": [{ create: never }, "contended", /other requests kept this one from being decided within 150 ms/, false],
  "reads a text": [{ read: async () => "garbage" }, "corrupt", /read gave "garbage" in place of \{ bytes, version \} with a Uint8Array$/, false],
  "reads an array of numbers": [{ read: async () => ({ bytes: [1, 2], version: 1 }) }, "corrupt", /read gave \{"bytes":\[1,2\],"version":1\}/, false],
  "reads bytes without a version": [{ read: async () => ({ bytes: new Uint8Array(1) }) }, "refused", /a value without a version/, false],
  "reads no bytes": [{ read: async () => ({ bytes: new Uint8Array(0), version: 1 }) }, "corrupt", /stored state: the bytes end too early/, false],
  "reads bytes of another": [{ read: async () => ({ bytes: Uint8Array.from(times(17, (nth) => 255 - nth)), version: 1 }) }, "corrupt", /no state of a fixed_window, version 1/, false],
  "reads endless bytes": [{ read: async () => ({ bytes: new Uint8Array(2 ** 21), version: 1 }) }, "corrupt", /read gave 2097152 bytes/, false],
  "does not say whether it wrote": [{ create: async () => undefined }, "refused", /a write gave undefined in place of true or false, so nobody knows whether it was made/, false],
  "says how many it wrote": [{ create: async () => 1 }, "refused", /a write gave 1 in place of true or false/, false],
  "says that the present value is a text": [{ create: async () => ({ written: false, present: "x" }) }, "corrupt", /a write gave "x" in place of/, false],
  "never writes": [{ create: async () => false }, "contended", /^this key changed during each of 64 attempts|other requests kept this one/, false],
};

for (const [what, [lie, kind, says, opens]] of Object.entries(LIES)) {
  test(`a store that ${what} is ${kind}, and loses nothing`, async () => {
    const store = table();
    const right = { ...store };
    const tidegate = limiters(store, 5, { deadlineMs: what === "never writes" ? 5_000 : 150 })();
    assert.ok((await tidegate.limit("user:other")).allowed);
    Object.assign(store, lie);
    const began = performance.now();
    const { allowed, error, failedOpen } = await tidegate.limit("user:1");
    assert.ok(performance.now() - began < 4_000);
    assert.deepEqual([error?.kind, allowed, failedOpen], [kind, opens, opens], error?.message);
    assert.match(error.message, says);
    // Once it is right again, it counts right.
    Object.assign(store, right);
    assert.equal((await tidegate.limit("user:other")).quotas[0].remaining, 3);
    assert.equal((await tidegate.limit("user:1")).quotas[0].remaining, 4);
  });
}

test("a store that tells a wrong version, or a wrong present value, admits no more", async () => {
  for (const lie of [
    (store) => ({ update: async (...given) => ({ ...(await store.update(...given)), version: -1 }) }),
    (store) => ({ create: async (...given) => ({ ...(await store.create(...given)), version: "x" }) }),
    (store) => ({ update: async (...given) => ({ ...(await store.update(...given)), version: null }) }),
  ]) {
    const store = table();
    const tidegate = limiters({ ...store, ...lie(store) }, 5, { remember: true })();
    const verdicts = [];
    for (let nth = 0; nth < 9; nth++) verdicts.push(await tidegate.limit("user:1"));
    assert.deepEqual(counted(verdicts), { allowed: 5, denied: 4 });
  }
});

test("calls that go together get what each is owed, also if the store fails", async () => {
  const store = table({ took: () => ms(30) });
  const tidegate = limiters(store, 2, { remember: true })();
  const slow = store.update;
  await tidegate.limit("user:1");
  store.update = async () => { throw new Error("lost"); };
  const failed = await Promise.all(times(5, () => tidegate.limit("user:1")));
  assert.deepEqual(counted(failed), { unavailable: 5 });
  store.update = slow;
  // One of them cannot be decided, and the others can.
  const verdicts = await Promise.all([tidegate.limit("user:1", { now: Date.now() }), tidegate.limit("user:1", { cost: 9 }), tidegate.limit("user:1", { now: 0 }), tidegate.limit("user:1")]);
  assert.deepEqual(verdicts.map(({ outcome, error }) => error?.kind ?? outcome), ["allowed", "never_admissible", "corrupt", "denied"]);
});

test("what is no store is refused when a limiter is made", () => {
  const options = { platform: "direct", failMode: "closed", policy: { name: "own", quotas: ["1 / s"] } };
  assert.throws(() => new Tidegate(options), /^TidegateError: store: missing; write an object with read, create, update and delete$/);
  for (const name of ["read", "create", "update", "delete"]) {
    assert.throws(() => new Tidegate({ ...options, store: { ...table(), [name]: undefined } }), new RegExp(`^TidegateError: store: ${name} is no function; write `));
  }
  assert.throws(() => new Tidegate({ ...options, store: 7 }), { kind: "invalid", field: "store" });
  assert.throws(() => new Tidegate({ ...options, store: table(), remember: 1 }), /^TidegateError: remember: 1 is neither; write true or false$/);
  assert.throws(() => new Tidegate({ ...options, store: table(), policy: { name: "own", quotas: [{ concurrency: { limit: 1, lifetimeMs: 1 } }] } }), { kind: "unsupported" });
  assert.equal(new Tidegate({ ...options, store: { ...table(), staleReads: true } }).capabilities.accuracy, "approximate: limit <= admitted <= limit");
});

test("a middleware and a gate take a limiter on it", async () => {
  const store = table();
  const app = new Hono();
  app.use(limit(limiters(store, 1)(), { peer: () => "192.0.2.1" }));
  app.get("/", (context) => context.text("hello"));
  assert.deepEqual([(await app.request("/")).status, (await app.request("/")).status], [200, 429]);
  const limits = { login: { quotas: [{ algorithm: "fixed_window", limit: 1, window_ms: 60_000 }] } };
  const gate = Gate.fromRules({ limits, rules: [{ limits: ["login"] }] }, { platform: "direct", stores: { default: (options) => new Tidegate({ store, ...options }) } });
  const check = () => gate.check(new Request("https://example.com/"), { peer: "192.0.2.1", now: 1_800_000_000_000 });
  assert.deepEqual([(await check()).outcome, (await check()).outcome], ["allowed", "denied"]);
});
