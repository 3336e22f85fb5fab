// Credits through the package's own methods: in memory, on Redis, over Upstash's REST, and what is wrong with them.

import assert from "node:assert/strict";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { after, test } from "node:test";
import { Tidegate as Upstash } from "@tidegate/edge";
import { balance } from "@tidegate/edge/credits";
import { Tidegate as DenoKv } from "@tidegate/edge/deno-kv";
import { Gate, jsonLines } from "@tidegate/edge/gate";
import { balances } from "@tidegate/edge/gate/credits";
import { Tidegate as InMemory } from "@tidegate/edge/memory";
import { Tidegate as Blobs } from "@tidegate/edge/netlify-blobs";
import { Tidegate as OnRedis } from "@tidegate/edge/redis";
import { Redis } from "ioredis";
import ts from "typescript";
import { upstash } from "./servers.mjs";

const NOW = 1_800_000_000_000;
const DAY = 86_400_000;
const COMMON = { platform: "direct", failMode: "closed", onError: () => {} };
const included = { fixedWindow: { limit: 1_000, windowMs: DAY } };
const usual = { name: "api", quotas: [included, balance({ max: 1_000_000, covers: true })] };
let named = 0;
const unlike = (policy) => ({ ...policy, name: `p${(named += 1)}` });
const left = (verdict) => verdict.quotas.map(({ remaining }) => remaining);

const server = await upstash();
const clients = [new Redis(server.redis), new Redis(server.redis)];
after(async () => {
  clients.forEach((client) => client.disconnect());
  await server.stop();
});
/** The stores, each with two limiters of one policy. */
const STORES = {
  memory: (policy) => [0, 1].map(() => new InMemory({ ...COMMON, policy })),
  redis: (policy) => clients.map((client) => new OnRedis({ ...COMMON, client, clock: "caller", minTtlMs: DAY, deadlineMs: 20_000, policy })),
  upstash: (policy) => [0, 1].map(() => new Upstash({ ...COMMON, url: server.url, token: server.token, clock: "caller", minTtlMs: DAY, deadlineMs: 20_000, policy })),
};

for (const [name, limitersOf] of Object.entries(STORES)) {
  test(`${name}: what is included is used first, then what expires first, and a settlement returns to the lot that paid last`, async () => {
    const [one, other] = limitersOf(unlike(usual));
    const granted = await one.grant("user:alice", 50, { token: "promotion-7:alice", expires: new Date(NOW + DAY), now: NOW });
    assert.deepEqual([granted.outcome, granted.replayed, left(granted)], ["allowed", false, [1_000, 50]]);
    const order = { token: "order-1817", now: NOW };
    assert.deepEqual(left(await other.grant("user:alice", 5_000, order)), [1_000, 5_050]);
    const again = await one.grant("user:alice", 5_000, order);
    assert.deepEqual([again.replayed, left(again)], [true, [1_000, 5_050]]);

    const request = { cost: 1_200, idempotency: { token: "request-1", ttlMs: DAY }, now: NOW };
    const verdict = await other.limit("user:alice", request);
    assert.deepEqual([verdict.outcome, verdict.fromBalance, left(verdict), verdict.binding], ["allowed", 200, [0, 4_850], 1]);
    assert.equal(JSON.parse(JSON.stringify(verdict)).fromBalance, 200);
    const replayed = await one.limit("user:alice", request);
    assert.deepEqual([replayed.replayed, replayed.fromBalance], [true, 200]);
    // It cost 1,100. The order gets 100 back.
    const settled = await one.settle(verdict, { cost: 1_100, now: NOW });
    assert.deepEqual([settled.fromBalance, left(settled)], [0, [0, 4_950]]);
    assert.equal((await other.settle(replayed, { cost: 0, now: NOW })).replayed, true);

    // Once the window has passed, what is included is there again. A denial has the time at which both admit it.
    const tooMuch = await one.limit("user:alice", { cost: 5_500, now: NOW });
    assert.deepEqual([tooMuch.outcome, tooMuch.fromBalance, tooMuch.retryAfterMs], ["denied", 0, DAY - (NOW % DAY)]);
    assert.match(tooMuch.headers["ratelimit-policy"], /^"[^"]+";q=1000;w=86400, "[^"]+";q=1000000$/);
    // A debt denies until the next grant repays it.
    const owing = await one.limit("user:alice", { cost: 4_000, idempotency: { token: "request-2", ttlMs: DAY }, now: NOW });
    const owed = await one.settle(owing, { cost: 5_000, now: NOW });
    assert.deepEqual([owed.outcome, owed.retryAfterMs, left(owed)], ["denied", DAY - (NOW % DAY), [0, 0]]);
    assert.deepEqual(left(await other.grant("user:alice", 60, { token: "order-2", now: NOW })), [0, 10]);
    await one.reset("user:alice");
    assert.deepEqual(left(await other.limit("user:alice", { cost: 0, now: NOW })), [1_000, 10]);
  });

  test(`${name}: requests and grants of two limiters at once move each unit once`, async () => {
    const limiters = limitersOf(unlike({ name: "all", quotas: [balance()] }));
    const spent = await Promise.all(
      Array.from({ length: 100 }, async (_, nth) => {
        const [tidegate, repeats] = [limiters[nth % 2], limiters[(nth + 1) % 2]];
        await Promise.all([tidegate, repeats].map((limiter) => limiter.grant("user:1", 10, { token: `order-${nth % 50}`, now: NOW })));
        const request = { cost: 1 + (nth % 7), idempotency: { token: `request-${nth}`, ttlMs: DAY }, now: NOW };
        const verdicts = await Promise.all([tidegate, repeats].map((limiter) => limiter.limit("user:1", request)));
        const verdict = verdicts.find(({ allowed }) => allowed);
        if (!verdict) return 0;
        const cost = Math.floor(request.cost / 2);
        const settled = await Promise.all([tidegate, repeats].map((limiter) => limiter.settle(verdict, { cost, now: NOW })));
        assert.equal(settled.filter(({ replayed }) => replayed).length, 1);
        return cost;
      }),
    );
    const [standing] = left(await limiters[0].limit("user:1", { cost: 0, now: NOW }));
    assert.equal(standing, 500 - spent.reduce((sum, units) => sum + units));
    assert.ok(standing < 500);
  });

  test(`${name}: a grant that is not made says why, and changes nothing`, async () => {
    const [tidegate] = limitersOf(unlike({ name: "all", quotas: [balance({ max: 100 })] }));
    const grant = (units, token, more) => tidegate.grant("user:1", units, { token, now: NOW, ...more });
    await grant(80, "a");
    const room = "units: the balance would pass its max; write at most 20, or raise the max of the balance";
    await assert.rejects(grant(21, "b"), { name: "TidegateError", kind: "invalid", field: "units", message: room });
    await assert.rejects(grant(81, "a"), { kind: "token_reused", message: "this idempotency token belongs to a charge of another cost; use one token for each request" });
    await assert.rejects(grant(1, "c", { expires: NOW }), { kind: "invalid", field: "expires", message: "expires: the time has passed; write a later one" });
    const range = "is out of range; write a whole number from 1 to 2251799813685248";
    for (const units of [0, 2 ** 51 + 1]) await assert.rejects(grant(units, "d"), { field: "units", message: `units: ${units} ${range}` });
    assert.equal((await grant(20, "b")).replayed, false);
    const many = limitersOf(unlike({ name: "all", quotas: [balance()] }))[0];
    for (let nth = 1; nth <= 64; nth++) await many.grant("user:1", 1, { token: `${nth}`, expires: NOW + nth, now: NOW });
    await assert.rejects(many.grant("user:1", 1, { token: "65", expires: NOW + 65, now: NOW }), { field: "expires", message: /^expires: the balance has 64 lots, which is the most; grant units that expire together/ });
    assert.equal((await many.grant("user:1", 9, { token: "65", expires: NOW + 64, now: NOW })).quotas[0].remaining, 73);
  });

  test(`${name}: of several dimensions a grant needs the balance's key`, async () => {
    const quota = (by) => ({ ...included, by });
    const [tidegate] = limitersOf(unlike({ name: "api", quotas: [quota("ip"), quota("user"), balance({ covers: true, by: "user" })] }));
    const granted = await tidegate.grant({ user: "user:1" }, 500, { token: "order", now: NOW });
    assert.deepEqual(granted.quotas.map(({ limit, remaining }) => [limit, remaining]), [[1_000, 1_000], [2 ** 51, 500]]);
    assert.equal((await tidegate.grant({ user: "user:1", ip: "ip:192.0.2.1" }, 500, { token: "order", now: NOW })).replayed, true);
    const verdict = await tidegate.limit({ user: "user:1", ip: "ip:192.0.2.1" }, { cost: 800, now: NOW });
    assert.deepEqual([verdict.fromBalance, left(verdict)], [0, [200, 200, 500]]);
    // Each address has a limit of its own.
    const other = await tidegate.limit({ user: "user:1", ip: "ip:192.0.2.2" }, { cost: 300, now: NOW });
    assert.deepEqual([other.fromBalance, left(other)], [100, [700, 0, 400]]);
    await assert.rejects(tidegate.grant({ ip: "ip:192.0.2.1" }, 1, { token: "wrong", now: NOW }), { kind: "invalid", message: "keys.user: missing; write keys: { user }" });
  });
}

test("mistakes say what to write", async () => {
  const tidegate = new InMemory({ ...COMMON, policy: unlike({ name: "x", quotas: [included] }) });
  await assert.rejects(tidegate.grant("user:1", 1, { token: "a" }), { kind: "invalid", field: "grant", message: /^grant: the policy "p\d+" has no balance; add a quota of this kind$/ });
  const own = new InMemory({ ...COMMON, policy: unlike(usual) });
  const right = 'write a text that is unique to the grant, such as "order-1817"';
  await assert.rejects(own.grant("user:1", 1, {}), { field: "token", message: `token: missing; ${right}` });
  await assert.rejects(own.grant("user:1", 1), { kind: "invalid" });
  await assert.rejects(own.grant("user:1", 1, { token: " " }), { message: `token: empty; ${right}` });
  await assert.rejects(own.grant("user:1", 1.5, { token: "a" }), { field: "units" });
  await assert.rejects(own.grant("user:1", 1, { token: "a", expires: new Date("soon") }), { field: "expires" });
  await assert.rejects(own.grant("user:1", 1, { token: "a", expire: 5 }), { message: 'expire: unknown field "expire"; did you mean "expires"?' });
  await assert.rejects(own.refund(await own.limit("user:1")), { message: "refund: only a token tells what a balance paid; give the check a token, and settle it" });
  assert.throws(() => balance({ max: 0 }), { message: "max: 0 is out of range; write a whole number from 1 to 2251799813685248" });
  assert.throws(() => balance({ limit: 5 }), { message: /unknown field "limit"/ });
  const wrong = {
    "policy.quotas[1].covers: before it in its dimension is a sliding_log; write a fixed_window, a token_bucket or a calendar_window there, or leave this out": ["10 / s", balance({ covers: true })],
    "policy.quotas[0].covers: before it in its dimension is no quota; write a fixed_window, a token_bucket or a calendar_window there, or leave this out": [balance({ covers: true }), included],
    "policy.quotas[1]: quotas[0] is a balance already, and one balance pays for a request; leave one out": [balance(), balance()],
    "policy.quotas[0].concurrency.returnsCost: a slot does not remember what the balance paid; leave this out": [{ concurrency: { limit: 1, lifetimeMs: 5, returnsCost: true } }, balance()],
  };
  for (const [message, quotas] of Object.entries(wrong)) assert.throws(() => new InMemory({ ...COMMON, policy: { name: "api", quotas } }), { kind: "invalid", message });
});

test("stores that cannot grant say so when the limiter is made", () => {
  const policy = { name: "api", quotas: [balance()] };
  const message = "policy: this store does not support balances; count in one that does, such as Redis";
  const kv = { get() {}, atomic() {}, delete() {} };
  assert.throws(() => new DenoKv({ ...COMMON, kv, policy }), { kind: "unsupported", message });
  const blobs = { getWithMetadata() {}, setJSON() {}, set() {}, delete() {} };
  assert.throws(() => new Blobs({ ...COMMON, blobs, policy }), { kind: "unsupported", message });
});

test("in memory, a key with a balance is not forgotten, and shares no count", async () => {
  const policy = unlike({ name: "x", quotas: [{ fixedWindow: { limit: 5, windowMs: DAY } }, balance({ covers: true })] });
  const tidegate = new InMemory({ ...COMMON, maxKeys: 20, policy });
  for (let nth = 0; nth < 10; nth++) await tidegate.grant(`payer:${nth}`, 7, { token: "order", now: NOW });
  for (let nth = 0; nth < 2_000; nth++) tidegate.decide(`other:${nth}`, { now: NOW });
  for (let nth = 0; nth < 10; nth++) assert.deepEqual(left(tidegate.decide(`payer:${nth}`, { cost: 12, now: NOW })), [0, 0]);
  // For years, also if a clock is wrong for a moment.
  const kept = new InMemory({ ...COMMON, policy: unlike({ name: "x", quotas: [balance()] }) });
  await kept.grant("user:1", 7, { token: "order", now: NOW + 900 * DAY });
  for (let nth = 0; nth < 2_000; nth++) kept.decide(`other:${nth}`, { now: NOW + nth * DAY });
  assert.deepEqual(left(kept.decide("user:1", { cost: 0, now: NOW + 2_000 * DAY })), [7]);
  const sharing = new InMemory({ ...COMMON, maxKeys: 8, whenFull: "share", policy: unlike({ name: "x", quotas: [included, balance({ covers: true })] }) });
  for (let nth = 0; nth < 8; nth++) await sharing.grant(`payer:${nth}`, 1, { token: "order", now: NOW });
  await assert.rejects(sharing.grant("user:1", 1, { token: "order", now: NOW }), { kind: "refused", message: "the memory is full, and a grant would be of all keys that share a count" });
});

test("on Redis, a row lasts as long as its balance, and a denial that is remembered ends with a grant", async () => {
  const policy = unlike({ name: "x", quotas: [{ fixedWindow: { limit: 1, windowMs: DAY } }, balance({ covers: true })] });
  const tidegate = new OnRedis({ ...COMMON, client: clients[0], policy });
  await tidegate.grant("user:1", 1, { token: "order", expires: Date.now() + 30 * DAY });
  const lasts = async (pattern) => {
    const [key, ...others] = await server.command("KEYS", `*${policy.name}:*${pattern}`);
    assert.deepEqual(others, []);
    return Number(await server.command("PTTL", key));
  };
  assert.ok((await lasts("user:1}")) > 29 * DAY);
  assert.ok((await lasts(":grant:*")) > 89 * DAY);
  for (const expected of ["allowed", "allowed", "denied", "denied"]) assert.equal((await tidegate.limit("user:1")).outcome, expected);
  await tidegate.grant("user:1", 1, { token: "order-2" });
  assert.equal((await tidegate.limit("user:1")).outcome, "allowed");
  assert.ok(await tidegate.grant("user:1", 1, { token: "order-2" }).then(({ replayed }) => replayed));
});

test("a change of the quotas beside a balance leaves what was bought, and an order is not granted again", async () => {
  const name = `p${(named += 1)}`;
  const planOf = (quota) => ({ name, quotas: [quota, balance({ max: 1_000, covers: true })] });
  const before = new OnRedis({ ...COMMON, client: clients[0], policy: planOf(included) });
  await before.grant("user:1", 500, { token: "order" });
  const after = new OnRedis({ ...COMMON, client: clients[1], policy: planOf({ tokenBucket: { capacity: 10, refill: 1, perMs: DAY } }) });
  const again = await after.grant("user:1", 500, { token: "order" });
  assert.deepEqual([again.replayed, left(again)], [true, [10, 500]]);
  assert.deepEqual(await server.command("KEYS", `{tg1:${name}:ba0:user:1}`), [`{tg1:${name}:ba0:user:1}`]);
});

test("the handlers that the guide prints grant an order once, and charge what a request cost", async () => {
  const guide = readFileSync(new URL("../../../core/docs/credits.md", import.meta.url), "utf8");
  const [, printed] = guide.match(/\n```ts\n([^]*?)\n```\n/);
  // What the page leaves to its reader.
  const given = `
    const { url, token } = ${JSON.stringify({ url: server.url, token: server.token })};
    const verifiedEvent = (request: Request): Promise<{ order: string; user: string; units: number }> => request.json();
    const verifiedUser = async (request: Request) => request.headers.get("x-test-user");
    const complete = async (request: Request) => ({ answer: "hello", units: Number(await request.text()) });
    export const peek = (user: string) => tidegate.limit(\`user:\${user}\`, { cost: 0 });
  `;
  const file = new URL(`printed-${crypto.randomUUID()}.mjs`, import.meta.url);
  try {
    writeFileSync(file, ts.transpileModule(given + printed, { compilerOptions: { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext } }).outputText);
    const handler = await import(file);
    const event = () => new Request("https://example.com/paid", { method: "POST", body: JSON.stringify({ order: "order-1817", user: "alice", units: 5_000 }) });
    const ask = (units) => handler.POST(new Request("https://example.com/", { method: "POST", headers: { "x-test-user": "alice" }, body: String(units) }));
    assert.equal((await ask(1_200)).status, 429);
    assert.deepEqual(await Promise.all([event(), event(), event()].map((request) => handler.paid(request).then(({ status }) => status))), [200, 200, 200]);
    const answers = [];
    for (let nth = 0; nth < 4; nth++) answers.push(await ask(1_100));
    assert.deepEqual(await Promise.all(answers.map(async (answer) => [answer.status, (await answer.json()).fromBalance])), [[200, 200], [200, 1_200], [200, 1_200], [200, 1_200]]);
    assert.deepEqual(left(await handler.peek("alice")), [0, 6_000 - 4 * 1_100]);
    assert.equal((await ask(1_100)).status, 200);
    assert.equal((await ask(1_100)).status, 429);
  } finally {
    rmSync(file, { force: true });
  }
});

test("a gate counts by the balances of its rules file, and says which option it needs", async () => {
  const rules = {
    limits: { api: { quotas: [{ algorithm: "fixed_window", limit: 3, window_ms: DAY, by: "user" }, { algorithm: "balance", max: 100, covers: true, by: "user" }] } },
    rules: [{ limits: ["api"], estimate: 2 }],
    dimensions: ["user"],
    responses: { payment_required: true },
  };
  const lines = [];
  let store;
  const options = { platform: "direct", onError: () => {}, onEvent: jsonLines((line) => lines.push(line)), stores: { default: (limit) => (store = new InMemory(limit)) } };
  const message = 'rules.json: limits.api.quotas[1].algorithm: write the option credits: balances, of "@tidegate/edge/gate/credits"';
  assert.throws(() => Gate.fromRules(rules, options), { kind: "invalid", message: message.replace("rules.json: ", "") });
  const gate = Gate.fromRules(rules, { ...options, credits: balances });
  const check = () => gate.check(new Request("https://example.com/"), { keys: { user: "user:1" } });
  assert.ok((await check()).allowed);
  const denied = await check();
  assert.deepEqual([denied.allowed, denied.response.status, denied.headers["retry-after"] === undefined], [false, 402, false]);
  // The limiter of the gate has its policy, whose one dimension is the user.
  await store.grant({ user: "user:1" }, 10, { token: "order" });
  const paid = await check();
  assert.deepEqual([paid.allowed, paid.fromBalance, JSON.parse(lines.at(-1)).from_balance, JSON.parse(lines[0]).from_balance], [true, 1, 1, undefined]);
});
