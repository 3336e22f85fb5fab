// The package as an app on Node.js uses it, over a real redis-server.

import assert from "node:assert/strict";
import { after, beforeEach, test } from "node:test";
import { Tidegate, TidegateError } from "@tidegate/edge";
import { upstash } from "./servers.mjs";

const server = await upstash();
after(() => server.stop());
beforeEach(() => server.command("FLUSHALL"));

const window = (limit) => ({ fixedWindow: { limit, windowMs: 86_400_000 } });
const quota = window(3);
const options = {
  url: server.url,
  token: server.token,
  platform: "vercel",
  failMode: "closed",
  policy: { name: "api", quotas: [quota] },
};
const request = new Request("https://example.com/", { headers: { "x-vercel-forwarded-for": "192.0.2.1", "x-forwarded-for": "203.0.113.1" } });

/** The field and the message of the error that these options cause. */
function refusal(changes) {
  try {
    new Tidegate({ ...options, ...changes });
  } catch (error) {
    assert.ok(error instanceof TidegateError);
    assert.deepEqual([error.name, error.kind], ["TidegateError", "invalid"]);
    assert.ok(error.message.startsWith(`${error.field}: `), error.message);
    return [error.field, error.message.slice(error.field.length + 2)];
  }
  assert.fail(`accepted: ${JSON.stringify(changes)}`);
}
const quotas = (...quotas) => ({ policy: { name: "api", quotas } });

test("the error for a wrong option names it and says what to write", () => {
  const cases = [
    [{ url: "rediss://eu1.upstash.io" }, "url", /REST/],
    [{ url: "eu1.upstash.io" }, "url", /without a scheme; write https:\/\/<database>.upstash.io/],
    [{ token: "schlüssel" }, "token", /another character that no token has/],
    [{ failMode: undefined }, "failMode", /write "open" .* or "closed"/],
    [{ failMode: "opn" }, "failMode", /did you mean "open"\?/],
    [{ platform: "versel" }, "platform", /did you mean "vercel"\?/],
    [{ tokn: "t" }, "tokn", /did you mean "token"\?/],
    [{ deadlineMs: 0 }, "deadlineMs", /write at least 1 ms/],
    [{ deadlineMs: "250" }, "deadlineMs", /"250" is not a whole number/],
    [{ ipv6Prefix: 32 }, "ipv6Prefix", /write 48 to 128/],
    [{ url: "http://srh.internal:8079" }, "url", /clear text; write https:\/\/, or allow it with allowInsecureHttp/],
    [{ url: "http://127.0.0.1.example.com" }, "url", /clear text/],
    [{ url: "http://[2001:db8::1]" }, "url", /clear text/],
    [{ allowInsecureHttp: "yes" }, "allowInsecureHttp", /write true or false/],
    [{ onError: "console" }, "onError", /not a function/],
    [{ onIdentifyError: "addres" }, "onIdentifyError", /did you mean "address"\?/],
    [{ identify: "sub" }, "identify", /not a function/],
    [{ denyCache: { hold: 1 } }, "denyCache.hold", /did you mean "holdMs"\?/],
    [{ policy: undefined }, "policy", /missing/],
    [{ policy: { name: "api", quota: [] } }, "policy.quota", /did you mean "quotas"\?/],
    [{ policy: { name: "größe", quotas: [quota] } }, "policy.name", /1 to 32 of the characters/],
    [quotas(), "policy.quotas", /write 1 to 8 quotas/],
    [quotas({ fixedWindow: { limit: 3, windwMs: 1 } }), "policy.quotas[0].fixedWindow.windwMs", /did you mean "windowMs"\?/],
    [quotas(quota, window(0)), "policy.quotas[1].fixedWindow.limit", /0 is out of range; write a whole number from 1 to/],
    [quotas(window(1.5)), "policy.quotas[0].fixedWindow.limit", /1.5 is not a whole number/],
    [quotas({ tokenBucket: { capacity: 1, refill: 1 } }), "policy.quotas[0].tokenBucket.perMs", /missing/],
    [quotas({ tokenBuckt: { capacity: 1 } }), "policy.quotas[0].tokenBuckt", /did you mean "tokenBucket"\?/],
    [quotas({ ...quota, slidingLog: quota.fixedWindow }), "policy.quotas[0].slidingLog", /a quota has one algorithm/],
    [quotas({ name: "all" }), "policy.quotas[0]", /no algorithm; write "10 \/ 10 s" or/],
    [quotas({ ...quota, name: "a b" }), "policy.quotas[0].name", /cannot be a name/],
    [quotas("10 every 10 s"), "policy.quotas[0]", /write "10 \/ 10 s" or "100 burst, 10 \/ s", in ms, s, min, h, d/],
    [quotas("10 / 10 m"), "policy.quotas[0]", /in ms, s, min/],
    [quotas("0 / 10 s"), "policy.quotas[0].limit", /0 is out of range/],
    [quotas("1 / 99999999999999999 d"), "policy.quotas[0]", /99999999999999999 is too large/],
  ];
  for (const [changes, field, message] of cases) {
    const [found, said] = refusal(changes);
    assert.equal(found, field);
    assert.match(said, message);
  }
});

test("an http:// URL needs allowInsecureHttp, except on this machine", () => {
  for (const host of ["localhost", "LOCALHOST:8079", "127.0.0.1", "127.1.2.3:80", "[::1]:8079/path", "[::ffff:127.0.0.1]"]) {
    assert.ok(new Tidegate({ ...options, url: `http://${host}` }), host);
  }
  assert.ok(new Tidegate({ ...options, url: "http://srh.internal:8079", allowInsecureHttp: true }));
});

test("neither an error nor the limiter contains the token", async () => {
  const token = "a-secret-that-is-wrong";
  const tidegate = new Tidegate({ ...options, token });
  const { error, response } = await tidegate.check(request);
  assert.equal(error.kind, "refused");
  assert.match(error.message, /UPSTASH_REDIS_REST_TOKEN/);
  assert.doesNotMatch(error.message + error.stack + JSON.stringify(tidegate) + (await response.text()), new RegExp(token));
});

test("the verdict contains each quota, and its response is the complete 429", async () => {
  const tidegate = new Tidegate(options);
  const first = await tidegate.check(request, { cost: 3 });
  assert.deepEqual([first.allowed, first.limited, first.origin, first.failedOpen], [true, false, "store", false]);
  assert.deepEqual(first.quotas.map(({ name, limit, remaining }) => [name, limit, remaining]), [["api", 3, 0]]);
  assert.equal(first.response, undefined);
  const second = await tidegate.check(request);
  assert.deepEqual([second.allowed, second.limited, second.outcome], [false, true, "denied"]);
  assert.deepEqual([second.response.status, second.response.headers.get("x-ratelimit-remaining")], [429, "0"]);
  assert.deepEqual(await second.response.json(), { error: "rate_limited", policy: "api", quota: "api", retry_after_ms: second.retryAfterMs });
  const logged = JSON.parse(JSON.stringify(second));
  assert.deepEqual([logged.outcome, logged.key, logged.quotas[0].limit], ["denied", "ip:192.0.2.1", 3]);
  await tidegate.refund(first, { cost: 1 });
  assert.equal((await tidegate.peek(request)).allowed, true);
  assert.equal((await tidegate.check(request)).allowed, true);
  await tidegate.reset(second.key);
  assert.equal((await tidegate.check(request, { cost: 3 })).allowed, true);
});

test("a verified identity counts before the address, and forged fields are ignored", async () => {
  const tidegate = new Tidegate({ ...options, identify: (request) => ({ subject: request.headers.get("x-sub"), apiKey: request.headers.get("x-key") }) });
  const key = (headers) => tidegate.identify(new Request("https://example.com/", { headers }));
  const forged = { "x-forwarded-for": "203.0.113.1", forwarded: "for=203.0.113.1", "cf-connecting-ip": "203.0.113.1", "client-ip": "203.0.113.1" };
  assert.equal(await key({ ...forged, "x-vercel-forwarded-for": "2001:db8:1:2::3" }), "ip:2001:db8:1:2::/64");
  assert.equal(await key({ ...forged, "x-sub": "alice", "x-key": "k" }), "sub:alice");
  assert.match(await key({ ...forged, "x-key": "k" }), /^key:[0-9a-f]{32}$/);
  assert.equal(await key(forged), "ip:unknown");
});

test("a sender's key is the same as in Rust, for any text", async () => {
  const prefix = `sender-${crypto.randomUUID()}`;
  const subject = `${prefix}|a*é`;
  const tidegate = new Tidegate({ ...options, policy: { name: "api", quotas: [{ fixedWindow: { limit: 1, windowMs: 3_600_000 } }] }, identify: () => ({ subject }) });
  const verdict = await tidegate.check(new Request("https://example.com/"));
  assert.deepEqual([verdict.allowed, verdict.key], [true, `sub:${prefix}%7Ca%2A%C3%A9`]);
  assert.equal((await tidegate.check(new Request("https://example.com/"), { key: verdict.key })).allowed, false);
  assert.equal((await tidegate.check(new Request("https://example.com/"), { key: `sub:${subject}` })).allowed, false);
});

test("any well-formed text is a key; a lone surrogate is rejected", async () => {
  const tidegate = new Tidegate(options);
  for (const key of ["ключ", "鍵", "🔑", "", "a\0b"]) {
    const admitted = [];
    for (let nth = 0; nth < 4; nth++) admitted.push((await tidegate.check(request, { key })).allowed);
    assert.deepEqual(admitted, [true, true, true, false], key);
  }
  const { error } = await tidegate.check(request, { key: "\ud83d" });
  assert.deepEqual([error.kind, error.field], ["invalid", "key"]);
  assert.match(error.message, /lone surrogate/);
});

test("with the deny cache, a blocked key costs no request until a refund", async () => {
  const tidegate = new Tidegate({ ...options, denyCache: true });
  const charged = await tidegate.check(request, { cost: 3 });
  assert.equal((await tidegate.check(request)).origin, "store");
  const before = await server.billed();
  for (let nth = 0; nth < 50; nth++) {
    const verdict = await tidegate.check(request);
    assert.deepEqual([verdict.origin, verdict.response.status], ["deny_cache", 429]);
  }
  assert.equal(await server.billed(), before);
  await tidegate.refund(charged, { cost: 1 });
  assert.equal((await tidegate.check(request)).allowed, true);
});

test("spend 8 of 10, request 5, then 1: the last is admitted, and @upstash/ratelimit denies it", async () => {
  const { Ratelimit } = await import("@upstash/ratelimit");
  const { Redis } = await import("@upstash/redis");
  const redis = new Redis({ url: server.url, token: server.token });
  const peer = new Ratelimit({ redis, limiter: Ratelimit.fixedWindow(10, "1 d"), ephemeralCache: false });
  const tidegate = new Tidegate({ ...options, ...quotas(window(10)) });
  const [ours, theirs] = [[], []];
  for (const cost of [8, 5, 1]) {
    ours.push((await tidegate.check(request, { cost })).allowed);
    theirs.push((await peer.limit("side-by-side", { rate: cost })).success);
  }
  assert.deepEqual([ours, theirs], [[true, false, true], [true, false, false]]);
});

test("500 concurrent requests: exactly the limit is admitted", async () => {
  const tidegate = new Tidegate({ ...options, deadlineMs: 20_000, ...quotas(window(60)) });
  const verdicts = await Promise.all(Array.from({ length: 500 }, () => tidegate.check(request)));
  assert.equal(verdicts.filter(({ allowed }) => allowed).length, 60);
  assert.deepEqual(verdicts.filter(({ error }) => error), []);
});
