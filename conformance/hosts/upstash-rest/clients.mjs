// Runs Upstash's own unmodified clients against the endpoint: node clients.mjs URL TOKEN. Exits with 0 if all answers
// are right.

import assert from "node:assert/strict";

import { Ratelimit } from "@upstash/ratelimit";
import { Redis } from "@upstash/redis";

const [url, token] = process.argv.slice(2);
const options = { url, token, retry: false, enableTelemetry: false };

for (const responseEncoding of ["base64", false]) {
  const redis = new Redis({ ...options, responseEncoding });
  await redis.flushdb();
  assert.equal(await redis.ping(), "PONG");

  const texts = ["plain", "", "OK", "größe 日本語 \u{1f600}", 'quotes " \\ \n \u0001', "/?&=%2F"];
  for (const text of texts) {
    assert.equal(await redis.set(`text:${text}`, text), "OK");
    assert.equal(await redis.get(`text:${text}`), text);
  }
  const object = { a: 1, b: [true, null, "ü"], c: { d: 1.5 } };
  await redis.set("object", object, { ex: 100 });
  assert.deepEqual(await redis.get("object"), object);
  assert.equal(await redis.ttl("object"), 100);
  assert.equal(await redis.get("nothing"), null);
  assert.deepEqual(await redis.mget("object", "nothing"), [object, null]);
  assert.equal(await redis.incrby("count", 41), 41);
  assert.equal(await redis.incr("count"), 42);

  await redis.hset("hash", { one: 1, two: "zwei" });
  assert.deepEqual(await redis.hgetall("hash"), { one: 1, two: "zwei" });
  await redis.rpush("list", "a", "b", "c");
  assert.deepEqual(await redis.lrange("list", 0, -1), ["a", "b", "c"]);
  await redis.zadd("sorted", { score: 1.5, member: "x" }, { score: 2, member: "y" });
  assert.deepEqual(await redis.zrange("sorted", 0, -1, { withScores: true }), ["x", 1.5, "y", 2]);
  const [cursor, keys] = await redis.scan(0, { match: "text:*", count: 1_000 });
  assert.deepEqual([cursor, keys.length], ["0", texts.length]);

  // Pipelines and transactions, with errors in each.
  const pipeline = redis.pipeline().set("p", 1).incr("p").get("p").get("nothing");
  assert.deepEqual(await pipeline.exec(), ["OK", 2, 2, null]);
  const transaction = redis.multi().set("t", 1).incrby("t", 2).lrange("list", 0, 1);
  assert.deepEqual(await transaction.exec(), ["OK", 3, ["a", "b"]]);
  const partly = await redis.pipeline().set("s", "text").incr("s").get("s").exec({ keepErrors: true });
  assert.deepEqual(partly.map(({ error }) => Boolean(error)), [false, true, false]);
  await assert.rejects(redis.incr("s"), /not an integer/);
  await assert.rejects(redis.exec(["NOSUCHCOMMAND"]), /unknown command/);
  await assert.rejects(redis.exec(["SUBSCRIBE", "channel"]), /not available/);
  assert.deepEqual(await Promise.all([redis.get("p"), redis.get("t"), redis.get("nothing")]), [2, 3, null]);

  // Scripts, nested answers, and Upstash's flag.
  const nested = "return { KEYS[1], ARGV[1], 7, { 'a', false, { 1 } } }";
  assert.deepEqual(await redis.eval(nested, ["k"], ["v"]), ["k", "v", 7, ["a", null, [1]]]);
  const flagged = `#!lua flags=allow-key-locking\nreturn ARGV[1] .. '${responseEncoding}'`;
  const sha1 = await redis.scriptLoad(flagged);
  assert.deepEqual(await redis.scriptExists(sha1), [1]);
  assert.equal(await redis.evalsha(sha1, ["k"], ["v"]), `v${responseEncoding}`);
  const script = redis.createScript(flagged);
  assert.equal(await script.exec(["k"], ["w"]), `w${responseEncoding}`);
  await redis.scriptFlush();
  await assert.rejects(redis.evalsha(sha1, ["k"], ["v"]), /NOSCRIPT/);
  assert.equal(await script.exec(["k"], ["x"]), `x${responseEncoding}`);
  await assert.rejects(redis.eval("return redis.error_reply('MINE own')", [], []), /MINE own/);
}

await assert.rejects(new Redis({ ...options, token: "wrong" }).get("a"), /WRONGPASS invalid or missing auth token/);

// Commands in the path, the token as a parameter, and invalid bodies.
const fetched = async (path, init = {}) => {
  const response = await fetch(`${url}${path}`, init);
  return [response.status, await response.json()];
};
const headers = { authorization: `Bearer ${token}` };
assert.deepEqual(await fetched("/set/path%2Fkey/a%20value?EX=100", { headers }), [200, { result: "OK" }]);
assert.deepEqual(await fetched(`/get/path%2Fkey?_token=${token}`), [200, { result: "a value" }]);
assert.deepEqual(await fetched("/set/posted", { method: "POST", headers, body: "as it is\n" }), [200, { result: "OK" }]);
assert.deepEqual(await fetched("/get/posted", { headers }), [200, { result: "as it is\n" }]);
for (const [path, body, status] of [
  ["/", "", 400],
  ["/", "{}", 400],
  ["/", "[]", 400],
  ["/", "[[]]", 400],
  ["/", '["GET"', 400],
  ["/", '["GET",null]', 400],
  ["/", `${"[".repeat(100_000)}`, 400],
  ["/", JSON.stringify(["SET", "a", "x".repeat(1 << 20)]), 413],
  ["/pipeline", "[]", 400],
  ["/pipeline", '["GET","a"]', 400],
  ["/multi-exec", '[["GET","a"],["NOSUCHCOMMAND"]]', 400],
  ["/multi-exec", '[["MULTI"]]', 400],
]) {
  const [told, { error }] = await fetched(path, { method: "POST", headers, body });
  assert.deepEqual([told, typeof error], [status, "string"], `${path} ${body.slice(0, 40)}`);
}
assert.equal((await fetched("/", { headers }))[0], 400);
assert.deepEqual(await fetched("/get/a"), [401, { error: "WRONGPASS invalid or missing auth token" }]);

// Ratelimit with each of its algorithms admits exactly its limit of a burst.
for (const [name, limiter] of Object.entries({
  fixed: Ratelimit.fixedWindow(10, "1 h"),
  sliding: Ratelimit.slidingWindow(10, "1 h"),
  bucket: Ratelimit.tokenBucket(10, "1 h", 10),
})) {
  const ratelimit = new Ratelimit({ redis: new Redis(options), limiter, prefix: name, ephemeralCache: false });
  const burst = await Promise.all(Array.from({ length: 30 }, () => ratelimit.limit("who")));
  assert.equal(burst.filter(({ success }) => success).length, 10, name);
  assert.equal((await ratelimit.getRemaining("who")).remaining, 0, name);
  await ratelimit.resetUsedTokens("who");
  assert.equal((await ratelimit.limit("who")).success, true, name);
}
