// A `RateLimiter` of parts decides as `Tidegate` does by the same policy, and an application loads the parts that it names.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import * as parts from "@tidegate/edge/parts";
import { bindingWindow } from "@tidegate/edge/cloudflare-ratelimit";
import { balance } from "@tidegate/edge/credits";
import { calendarWindow } from "@tidegate/edge/calendar";
import { limit } from "@tidegate/edge/hono";
import { allOf, capabilities, RateLimiter, Tidegate, TidegateError } from "@tidegate/edge/memory";
import { Tidegate as OnRedis } from "@tidegate/edge/redis";
import { PARTS, STORES, weightOfParts, weightOfStore } from "../weigh.mjs";
import { policies, toldBy } from "./part-policies.mjs";
import { Chance, seeded } from "./reference.mjs";
import { redisServer } from "./servers.mjs";

const { block, clientAddress, concurrency, fixedWindow, leakyBucket, penalty, slidingLog, slidingWindow, tokenBucket } = parts;
const SEED = seeded();
const STEPS = Number(process.env.STEPS ?? 20_000);
const tidegate = (policy, options) => new Tidegate({ platform: "vercel", failMode: "closed", policy, ...options });

test("a RateLimiter of functions decides and answers as Tidegate does by objects", () => {
  const chance = new Chance(SEED);
  const outcomes = {};
  for (let done = 0, nth = 0; done < STEPS; nth++) {
    const { made, written, by } = policies(chance, `p${nth}`);
    // One quota may be told as several are.
    const quotas = made.quotas.length > 1 || chance.once(4) ? allOf(...made.quotas) : made.quotas;
    const [lean, whole] = [new RateLimiter({ policy: { ...made, quotas } }), tidegate(written)];
    assert.deepEqual(capabilities, whole.capabilities);
    let now = 1_800_000_000_000 + chance.below(100_000);
    for (const end = done + 40; done < end; done++) {
      now = Math.max(now + chance.from([0, 1, chance.below(50), chance.below(5_000), chance.below(100_000), -chance.below(100)]), 1);
      const user = `user:${chance.below(2)}`;
      const key = by ? { "": user, [by]: `tenant:${chance.below(2)}` } : chance.once(8) ? "ü/%" : user;
      const cost = chance.from([1, 1, 1, 2, 0, chance.below(25)]);
      const options = { now, cost };
      const [ours, theirs] = [lean.decide(key, options), whole.decide(key, options)];
      outcomes[ours.outcome] = (outcomes[ours.outcome] ?? 0) + 1;
      const place = `seed ${SEED}: ${JSON.stringify(written)} ${JSON.stringify(key)} ${JSON.stringify(options)}`;
      assert.deepEqual(toldBy(ours, `p${nth}`), toldBy(theirs, `p${nth}w`), place);
    }
  }
  for (const outcome of ["allowed", "denied", "never_admissible"]) assert.ok(outcomes[outcome] > STEPS / 100, JSON.stringify(outcomes));
});

/** Two forms of a policy that holds slots, is blocked by hand, or both. */
function operated(chance, name) {
  const [limit, seconds, returnsCost] = [1 + chance.below(4), 1 + chance.below(30), chance.once(2)];
  const slots = [concurrency(limit, `${seconds} s`, { returnsCost }), { concurrency: { limit, lifetimeMs: seconds * 1_000, returnsCost } }];
  const blocked = [block("1 min", { name: "hand" }), { block: { capMs: 60_000 }, name: "hand" }];
  const quotas = [[fixedWindow(20, "1 min"), { fixedWindow: { limit: 20, windowMs: 60_000 } }], ...chance.from([[slots], [blocked], [slots, blocked]])];
  return { made: { name, quotas: quotas.map(([quota]) => quota) }, written: { name: `${name}w`, quotas: quotas.map(([, quota]) => quota) } };
}

test("Tidegate holds slots and blocks by functions as by objects", async () => {
  const chance = new Chance(SEED);
  const seen = {};
  for (let done = 0, nth = 0; done < STEPS / 10; nth++) {
    const forms = operated(chance, `o${nth}`);
    const limiters = [forms.made, forms.written].map((policy) => tidegate(policy, { onError: () => {} }));
    const told = (verdicts) => verdicts.map((verdict, which) => toldBy(verdict, `o${nth}${which ? "w" : ""}`));
    let now = 1_800_000_000_000;
    const open = [];
    for (const end = done + 40; done < end; done++) {
      now += chance.from([0, 1, chance.below(5_000), chance.below(40_000)]);
      const key = `user:${chance.below(2)}`;
      const [cost, ms] = [chance.from([1, 1, 2]), chance.below(90_000)];
      const run = chance.from([
        ...Array(4).fill(async (limiter) => limiter.limit(key, { now, cost })),
        (limiter, released) => (released ? limiter.release(released, { now }) : limiter.limit(key, { now })),
        (limiter) => limiter.block(key, ms, { now }),
      ]);
      const released = open.splice(0, chance.below(2))[0];
      const answers = await Promise.all(limiters.map((limiter, which) => run(limiter, released?.[which]).catch((error) => error)));
      const [ours, theirs] = answers;
      const place = `seed ${SEED}: ${JSON.stringify(forms.written)} ${run} ${key} ${now}`;
      if (ours instanceof TidegateError) assert.deepEqual([ours.kind, ours.message.replaceAll(`o${nth}`, "P")], [theirs.kind, theirs.message.replaceAll(`o${nth}w`, "P")], place);
      else if (ours) assert.deepEqual(...told(answers), place);
      const what = ours instanceof TidegateError ? ours.kind : (ours?.outcome ?? "blocked");
      seen[what] = (seen[what] ?? 0) + 1;
      if (ours?.allowed && ours.charge) open.push(answers);
    }
  }
  for (const what of ["allowed", "denied", "invalid", "unknown_charge"]) assert.ok(seen[what] > 0, JSON.stringify(seen));
});

test("functions and texts make the same policy, whose counts are one", () => {
  const pairs = [
    [slidingLog(10, "10 s"), "10 / 10 s"],
    [slidingWindow(1_000, "1 min"), "1000 / min"],
    [tokenBucket(100, 10, "1 s"), "100 burst, 10 / s"],
    [slidingLog(5, "2 hours"), "5 per 2 hours"],
  ];
  pairs.forEach(([quota, text], nth) => {
    const name = `one-${nth}`;
    const [lean, whole, mixed] = [new RateLimiter({ policy: { name, quotas: [quota] } }), tidegate({ name, quotas: [text] }), tidegate({ name, quotas: [quota] })];
    for (const [each, remaining] of [[lean, 2], [whole, 1], [mixed, 0]]) {
      const { limit } = each.decide("probe", { cost: 0 }).quotas[0];
      if (remaining === 2) each.decide("user:1", { cost: limit - 3 });
      assert.equal(each.decide("user:1").quotas[0].remaining, remaining, text);
    }
  });
});

test("several quotas are one policy for every limiter, whose counts are one", () => {
  const quotas = () => allOf(slidingLog(10, "10 s"), tokenBucket(20, 1, "1 h", { by: "tenant" }));
  const key = { "": "user:1", tenant: "one" };
  const [lean, whole] = [new RateLimiter({ policy: { name: "all", quotas: quotas() } }), tidegate({ name: "all", quotas: quotas() })];
  for (let nth = 0; nth < 10; nth++) assert.equal([lean, whole][nth % 2].decide(key).quotas[0].remaining, 9 - nth);
  assert.deepEqual([lean, whole].map((limiter) => limiter.decide(key).outcome), ["denied", "denied"]);
  assert.deepEqual(whole.decide({ ...key, "": "user:2" }).quotas.map(({ remaining }) => remaining), [9, 9]);
});

test("a RateLimiter of one quota charges denials, and one by a dimension takes its key, as Tidegate does", async () => {
  const forms = [
    [{ name: "denials", chargeDenied: true, quotas: [slidingWindow(3, "1 s")] }, { name: "denials-w", chargeDenied: true, quotas: [{ slidingWindow: { limit: 3, windowMs: 1_000 } }] }],
    [{ name: "dimension", quotas: [fixedWindow(3, "1 h", { by: "tenant" })] }, { name: "dimension-w", quotas: [{ fixedWindow: { limit: 3, windowMs: 3_600_000 }, by: "tenant" }] }],
  ];
  for (const [made, written] of forms) {
    const limiters = [new RateLimiter({ policy: made }), tidegate(written)];
    for (let nth = 0; nth < 12; nth++) {
      const key = made.name === "dimension" ? { tenant: "one" } : "user:1";
      const [ours, theirs] = limiters.map((limiter, which) => toldBy(limiter.decide(key, { now: 1_800_000_000_000 + 150 * nth, cost: 1 + (nth % 3) }), [made, written][which].name));
      assert.deepEqual(ours, theirs, `${made.name} ${nth}`);
    }
  }
  const request = new Request("https://example.com/");
  const limiter = new RateLimiter({ policy: forms[1][0], onError: () => {} });
  assert.deepEqual((await limiter.check(request, { keys: { tenant: "two" } })).keys, { tenant: "two" });
  assert.match((await limiter.check(request, { keys: {} })).error.message, /keys.tenant: missing; write keys: \{ tenant \}/);
});

test("Tidegate takes the functions on Redis, too", async (context) => {
  const server = await redisServer();
  context.after(() => server.stop());
  const { Redis } = await import("ioredis");
  const client = new Redis(server.url);
  context.after(() => client.disconnect());
  const limiters = [[tokenBucket(3, 1, "1 h")], ["3 burst, 1 / h"]].map((quotas) => new OnRedis({ client, platform: "direct", failMode: "closed", deadlineMs: 10_000, policy: { name: "r", quotas } }));
  const admitted = [];
  for (let nth = 0; nth < 4; nth++) admitted.push((await limiters[nth % 2].limit("user:1")).allowed);
  assert.deepEqual(admitted, [true, true, true, false]);
});

test("a request is counted by its address, by its key, or not at all", async () => {
  const policy = { name: "addresses", quotas: [fixedWindow(1, "1 h")] };
  const request = (address) => new Request("https://example.com/", { headers: { "x-vercel-forwarded-for": address } });
  const [lean, whole] = [new RateLimiter({ policy, sender: clientAddress("vercel") }), tidegate({ ...policy, name: "other" })];
  const first = await lean.check(request("2001:db8::1"));
  assert.deepEqual([first.allowed, first.key], [true, "ip:2001:db8::/64"]);
  assert.equal((await lean.check(request("2001:db8::2"))).response.status, 429);
  assert.equal((await lean.check(request("2001:db8::2"), { key: "user:1" })).allowed, true);
  assert.equal((await whole.check(request("2001:db8::1"))).key, first.key);

  const errors = [];
  const plain = new RateLimiter({ policy, onError: (event) => errors.push(event) });
  const { response, error } = await plain.check(request("192.0.2.1"));
  assert.deepEqual([response.status, error.kind], [500, "misconfigured"]);
  assert.match(errors[0].message, /write check\(request, \{ key \}\), or the option sender: clientAddress\("vercel"\)/);
});

test("middlewares take it, and say that it gives nothing back", async () => {
  const { Hono } = await import("hono");
  const limiter = new RateLimiter({ policy: { name: "hono", quotas: [fixedWindow(1, "1 h")] }, sender: clientAddress("vercel") });
  const app = new Hono().get("/", limit(limiter), (context) => context.text("hello"));
  const statuses = [];
  for (let nth = 0; nth < 2; nth++) statuses.push((await app.request("/", { headers: { "x-vercel-forwarded-for": "192.0.2.1" } })).status);
  assert.deepEqual(statuses, [200, 429]);
  const says = /a RateLimiter gives nothing back; write Tidegate/;
  assert.throws(() => limit(limiter, { refund: () => 1 }), says);
  // One that is chosen for each request is known then only.
  let thrown;
  const refunding = new Hono().onError((error, context) => ((thrown = error), context.text("", 500)));
  refunding.get("/", limit(() => limiter, { refund: () => 1 }), (context) => context.text("hello"));
  assert.equal((await refunding.request("/")).status, 500);
  assert.match(thrown.message, says);
});

test("an evicted key makes room, and the application is told once", () => {
  const events = [];
  const limiter = new RateLimiter({ policy: { name: "full", quotas: [fixedWindow(10, "1 h")] }, maxKeys: 20, onError: (event) => events.push(event.message) });
  for (let nth = 0; nth < 100; nth++) assert.equal(limiter.decide(`user:${nth}`, { now: 1_000 }).allowed, true);
  assert.equal(events.length, 1);
  assert.match(events[0], /counts of 20 keys/);
});

test("a calendar window is a part, too", () => {
  const limiter = new RateLimiter({ policy: { name: "calendar", quotas: [calendarWindow({ limit: 2, every: "month" })] } });
  const now = Date.UTC(2026, 0, 31, 23, 59);
  assert.deepEqual([0, 0, 0, 60_000].map((later) => limiter.decide("user:1", { now: now + later }).allowed), [true, true, false, true]);
});

test("a span without end is out of range for every quota that takes one", () => {
  const span = `${"9".repeat(400)} d`;
  const quotas = [
    ...[fixedWindow, slidingWindow, slidingLog].map((make) => () => make(6, span)),
    ...[tokenBucket, leakyBucket].map((make) => () => make(6, 4, span)),
    () => penalty(span, 2, span),
    () => penalty("1 s", 2, span),
    () => concurrency(6, span),
    () => block(span),
  ];
  for (const quota of quotas) assert.throws(quota, { name: "TidegateError", kind: "invalid", message: /^\w+Ms: 9007199254740991 is out of range/ }, String(quota));
});

test("a wrong argument is an error that says what to write", () => {
  const cases = [
    [() => slidingWindow(10, 10_000), "window", /10000 has no unit; write "10000 ms"/],
    [() => slidingWindow(10, "10 sec"), "window", /unknown unit "sec"/],
    [() => slidingWindow(10, "10 secnds"), "window", /unknown unit "secnds"; did you mean "second"\?/],
    [() => slidingWindow(10, "soon"), "window", /unknown unit "soon"; write one of: ms, s, min, h, d/],
    [() => slidingWindow(10, "10 constructor"), "window", /unknown unit "constructor"/],
    [() => slidingWindow(10), "window", /undefined is not a span; write a number with a unit, as in slidingWindow\(100, "1 min"\)/],
    [() => slidingWindow(10, "9007199254740991 d"), "windowMs", /is out of range; write a whole number of milliseconds from 1 to 2251799813685248/],
    [() => slidingWindow(10, "minuts"), "window", /unknown unit "minuts"; did you mean "minute"\?/],
    [() => fixedWindow(1, "1 s", { name: "a b" }), "name", /cannot be a name/],
    [() => slidingWindow("10 s", 10), "limit", /"10 s" is not a number; write slidingWindow\(100, "1 min"\)/],
    [() => slidingWindow({ limit: 10, windowMs: 1_000 }), "limit", /not a number; write slidingWindow/],
    [() => fixedWindow(0, "1 s"), "limit", /0 is out of range; write a whole number from 1/],
    [() => fixedWindow(1.5, "1 s"), "limit", /not a whole number/],
    [() => fixedWindow(1, "0 s"), "windowMs", /0 is out of range/],
    [() => fixedWindow(1, "1 s", { nme: "a" }), "nme", /did you mean "name"\?/],
    [() => fixedWindow(1, "1 s", { by: "a b" }), "by", /cannot be a name/],
    [() => slidingLog(1_001, "1 s"), "limit", /write at most 1000 or take a sliding window/],
    [() => tokenBucket(10, "1 s", 1), "per", /1 has no unit/],
    [() => leakyBucket(10, 0, "1 s"), "refill", /out of range/],
    [() => penalty("1 h", 2, "1 min"), "capMs", /write a whole number of milliseconds from 3600000 \(baseMs\)/],
    [() => clientAddress("versel"), "platform", /did you mean "vercel"\?/],
    [() => clientAddress("vercel", { ipv6Prefix: 32 }), "ipv6Prefix", /write 48 to 128/],
    [() => new RateLimiter({ policy: { name: "a", quotas: ["10 / 10 s"] } }), "policy.quotas[0]", /"10 \/ 10 s" is not made by a function; write slidingWindow\(10, "10 s"\), or take Tidegate/],
    [() => new RateLimiter({ policy: { name: "a", quotas: [{ fixedWindow: { limit: 1, windowMs: 1 } }] } }), "policy.quotas[0]", /not made by a function/],
    [() => new RateLimiter({ policy: { name: "a", quotas: [] } }), "policy.quotas", /^policy.quotas: 0 quotas in an array; write one, or several in allOf\(…\)/],
    [() => new RateLimiter({ policy: { name: "a", quotas: [fixedWindow(1, "1 s"), slidingLog(1, "1 s")] } }), "policy.quotas", /2 quotas in an array; write .*allOf\(…\) of "@tidegate\/edge\/memory"/],
    [() => new RateLimiter({ policy: { name: "a", quotas: allOf() } }), "policy.quotas", /write 1 to 8 quotas/],
    [() => new RateLimiter({ policy: { name: "a", quotas: allOf("10 / 10 s") } }), "policy.quotas[0]", /not made by a function/],
    [() => new RateLimiter({ policy: { name: "a", quotas: allOf(penalty("1 s", 2, "1 min")) } }), "policy.quotas[0]", /counts the denials of other quotas/],
    [() => new RateLimiter({ policy: { name: "a", quotas: allOf(fixedWindow(1, "1 s"), block("1 d")) } }), "policy.quotas[1]", /a block is set, and a RateLimiter only decides/],
    [() => new RateLimiter({ policy: { name: "a", quotas: [bindingWindow(1, 60)] } }), "policy.quotas[0]", /a binding counts it, and a RateLimiter only decides; write Tidegate/],
    [() => new RateLimiter({ policy: { name: "a b", quotas: [fixedWindow(1, "1 s")] } }), "policy.name", /cannot be a name/],
    [() => new RateLimiter({ policy: { name: "a", quotas: [{ ...fixedWindow(1, "1 s"), name: "a b" }] } }), "policy.quotas[0].name", /cannot be a name/],
    [() => new RateLimiter({ policy: { name: "a", groupBy: "tenant", quotas: [fixedWindow(1, "1 s")] } }), "policy.groupBy", /no quota counts by "tenant"/],
    [() => bindingWindow(1, 30), "period", /30 is not a period of a binding; write 10 or 60/],
    [() => bindingWindow(0, 60), "limit", /0 is out of range; write a whole number from 1/],
    [() => tidegate({ name: "a", quotas: [bindingWindow(1, 60), "10 / 10 s"], groupBy: "tenant" }), "policy.groupBy", /no quota counts by "tenant"/],
    [() => new RateLimiter({ policy: { name: "a", quotas: [penalty("1 s", 2, "1 min")] } }), "policy.quotas[0]", /counts the denials of other quotas/],
    [() => new RateLimiter({ policy: { name: "a", quotas: [balance()] } }), "policy.quotas[0]", /a balance is granted, and a RateLimiter only decides; write Tidegate/],
    [() => new RateLimiter({ policy: { name: "a", quotas: [fixedWindow(1, "1 s"), concurrency(1, "1 s")] } }), "policy.quotas[1]", /a slot is released, and a RateLimiter only decides/],
    [() => new RateLimiter({ policy: { name: "a", quotas: [fixedWindow(1, "1 s"), block("1 d")] } }), "policy.quotas[1]", /a block is set, and a RateLimiter only decides/],
    [() => concurrency(1_001, "1 s"), "limit", /1001 is out of range for a concurrency limit.*write at most 1000/],
    [() => concurrency(1, 1_000), "lifetime", /1000 has no unit/],
    [() => concurrency(1, "1 s", { returnsCost: 1 }), "returnsCost", /write true or false/],
    [() => block("2 y"), "cap", /unknown unit "y"/],
    [() => block("400 d"), "capMs", /write a whole number of milliseconds from 1 to 31536000000/],
    [() => tidegate({ name: "a", quotas: [concurrency(1, "1 s", { returnsCost: true }), fixedWindow(1, "1 s", { by: "tenant" })] }), "policy.quotas[0].concurrency.returnsCost", /several dimensions/],
    [() => tidegate({ name: "a", quotas: [penalty("1 s", 2, "1 min"), block("1 d"), fixedWindow(1, "1 s")] }), "policy.quotas[1]", /already; leave one out/],
    [() => new RateLimiter({ policy: { name: "a", quotas: [fixedWindow(1, "1 s")] }, platform: "vercel" }), "platform", /unknown field/],
    [() => new RateLimiter({ policy: { name: "a", quotas: [fixedWindow(1, "1 s")] }, sender: "vercel" }), "sender", /write clientAddress\("vercel"\)/],
    [() => new RateLimiter({ policy: { name: "a", quotas: [fixedWindow(1, "1 s")] }, maxKeys: 0 }), "maxKeys", /at least 1/],
    [() => new RateLimiter({}), "policy", /missing; write \{ name: "api", quotas: \[slidingWindow/],
  ];
  for (const [run, field, message] of cases) {
    assert.throws(run, (error) => {
      assert.ok(error instanceof TidegateError, String(error));
      assert.deepEqual([error.kind, error.field], ["invalid", field], error.message);
      assert.match(error.message, message);
      return true;
    });
  }
  const limiter = new RateLimiter({ policy: { name: "options", quotas: [fixedWindow(1, "1 s")] }, onError: () => {} });
  assert.match(limiter.decide("a", { estimate: 5 }).error.message, /unknown field "estimate"/);
  assert.match(limiter.decide("").error.message, /write who is counted/);
});

const sizes = readFileSync(path.join(import.meta.dirname, "../README.md"), "utf8").split("\n## Size\n")[1].split("\n## ")[0];
const readme = sizes.split("\n### A limiter of parts\n")[1];

test("the README's example denies what is beyond its limit", async () => {
  const [, printed] = /```js\n(.*?)```/s.exec(readme);
  const module = printed.replace(/^import (\{.*\}) from "(.*)";$/gm, 'const $1 = await import("$2");');
  const check = await new Function(`return (async () => { ${module.replace("export default", "return")} })()`)();
  const request = () => new Request("https://example.com/", { headers: { "x-vercel-forwarded-for": "192.0.2.7" } });
  const statuses = [];
  for (let nth = 0; nth < 101; nth++) statuses.push((await check.fetch(request())).status);
  assert.deepEqual([statuses.filter((status) => status === 200).length, statuses.at(-1)], [100, 429]);
});

/** Whether a weight is what the README says, in KiB. */
const weighs = (name, found, said) => assert.ok(Math.abs(found - said) <= 0.15, `${name}: ${found.toFixed(2)} KiB, and the README says ${said}`);

test("each part weighs what the README says", () => {
  const rows = [...readme.matchAll(/^\| `(\w+)\b.*\| ([\d.]+) \|$/gm)].map(([, name, weight]) => [name, Number(weight)]);
  assert.deepEqual(rows.map(([name]) => name).sort(), Object.keys(parts).sort());
  const alone = weightOfParts("memory");
  for (const [name, weight] of rows) weighs(name, weightOfParts("memory", { parts: [name] }) - alone, weight);
  weighs("allOf", weightOfParts("memory", { ...PARTS.memory, own: ["allOf"] }) - weightOfParts("memory", PARTS.memory), Number(/which adds ([\d.]+) KiB/.exec(readme)[1]));
});

test("each store weighs what the README says, and its RateLimiter", () => {
  const rows = [...sizes.matchAll(/^\| `([\w-]+)` \| ([\d.]+) \| ([\d.]*) ?\|$/gm)].map(([, ...row]) => row);
  assert.deepEqual(rows.map(([entry]) => entry).sort(), [...STORES].sort());
  assert.deepEqual(rows.filter(([, , lean]) => lean).map(([entry]) => entry).sort(), Object.keys(PARTS).sort());
  for (const [entry, whole, lean] of rows) {
    weighs(entry, weightOfStore(entry), Number(whole));
    if (lean) weighs(`the RateLimiter of ${entry}`, weightOfParts(entry, PARTS[entry]), Number(lean));
  }
});
