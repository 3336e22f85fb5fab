// What is told of failures: every one to `onError`, or else lines on the console, one when a store goes down and one when it is back. The
// store is a real redis-server, which is killed and started again.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { after, mock, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Tidegate as OnUpstash } from "@tidegate/edge";
import { Gate, jsonLines } from "@tidegate/edge/gate";
import { Tidegate as Memory } from "@tidegate/edge/memory";
import { Tidegate } from "@tidegate/edge/redis";
import { Redis } from "ioredis";
import { freePort, redisServer } from "./servers.mjs";

const server = await redisServer();
after(() => server.stop());

const client = new Redis(server.url, { enableOfflineQueue: false, autoResendUnfulfilledCommands: false, maxRetriesPerRequest: 0, retryStrategy: () => 20 });
after(() => client.disconnect());

const request = new Request("https://example.com/", { headers: { "cf-connecting-ip": "192.0.2.1" } });
const policy = { name: "api", quotas: ["1000 / d"] };

/**
 * What the console shows while `run` runs, with the level. The log's clock stands still, unless `run` moves it, so that nothing depends on how
 * long a server takes to start.
 */
async function shownBy(run) {
  const shown = [];
  const methods = ["log", "info", "warn", "error"].map((level) => mock.method(console, level, (...parts) => void shown.push(`${level}: ${parts.join(" ")}`)));
  let now = 1_800_000_000_000;
  methods.push(mock.method(Date, "now", () => now));
  try {
    await run((ms) => (now += ms));
  } finally {
    for (const method of methods) method.mock.restore();
  }
  return shown;
}

/** Kills the server, checks 100 times in 10 s by the log's clock, starts the server, and checks until it answers. */
async function outage(check, pass) {
  await recovered(check);
  await server.kill();
  for (let nth = 0; nth < 100; nth += 1) {
    await check();
    pass(100);
  }
  await server.restart();
  await recovered(check);
}

/** Checks until the store decides. */
async function recovered(check) {
  for (let tries = 0; (await check()).origin !== "store"; tries += 1) {
    assert.ok(tries < 1_000, "it recovers");
    await sleep(20);
  }
}

for (const [failMode, effect] of [["open", "Requests pass uncounted until it does"], ["closed", "Requests are refused until it does"]]) {
  test(`a limiter that fails ${failMode}: one line when its store goes down and one when it is back, for each outage`, async () => {
    const tidegate = new Tidegate({ client, platform: "direct", failMode, deadlineMs: 20_000, policy });
    const shown = await shownBy(async (pass) => {
      for (let nth = 0; nth < 2; nth += 1) await outage(() => tidegate.limit("user:1"), pass);
    });
    assert.equal(shown.length, 4, shown.join("\n"));
    for (const line of [shown[0], shown[2]]) assert.ok(line.startsWith("warn: tidegate: the store does not answer: redis: no connection") && line.includes(`. ${effect}. `), line);
    for (const line of [shown[1], shown[3]]) assert.match(line, /^info: tidegate: the store answers again after 1\d{4} ms, in which \d{3,} of its calls failed\.$/);
  });
}

const limits = { api: { quotas: [{ algorithm: "fixed_window", limit: 1_000_000, window_ms: 86_400_000, by: "ip" }] } };
const stores = {
  main: (limit) => new Tidegate({ client, deadlineMs: 20_000, ...limit }),
  memory: (limit) => new Memory(limit),
};
const gateOf = (rules, more = {}) => Gate.fromRules({ limits, rules: [{ name: "all", limits: ["api"] }], ...rules }, { platform: "cloudflare", stores, ...more });
const replaced = { stores: { main: { fallback: "memory" } } };

test("a gate: the same, also if another store replaces the one that is down, and if events go elsewhere", async () => {
  for (const rules of [{}, replaced]) {
    const lines = [];
    const gate = gateOf(rules, { onEvent: jsonLines((line) => lines.push(line)) });
    let now = 1_800_000_000_000;
    const check = () => gate.check(request, { now: (now += 100) });
    const shown = await shownBy(async (pass) => {
      for (let nth = 0; nth < 2; nth += 1) await outage(check, pass);
    });
    assert.equal(shown.length, 4, shown.join("\n"));
    const effect = rules === replaced ? 'The store "memory" admits 10 % of each limit in its place, for at most 300000 ms' : "Until it does, on_failure of a rule decides";
    for (const line of [shown[0], shown[2]]) assert.ok(line.startsWith('warn: tidegate: the store "main" does not answer: redis: no connection') && line.includes(`. ${effect}. `), line);
    for (const line of [shown[1], shown[3]]) assert.match(line, /^info: tidegate: the store "main" answers again after \d+ ms, in which \d+ of its calls failed\.$/);
    assert.ok(lines.length > 200);
  }
});

test("`onError` replaces the lines: it is told of a store that is replaced, and that it is back", async () => {
  const events = [];
  const gate = gateOf(replaced, { onError: (event) => events.push(event) });
  let now = 1_800_000_000_000;
  const shown = await shownBy((pass) => outage(() => gate.check(request, { now: (now += 100) }), pass));
  assert.deepEqual(shown, []);
  assert.deepEqual(
    events.map(({ kind, rule, failedOpen, health, store }) => [kind, rule, failedOpen, health, store]),
    [["unavailable", undefined, false, "down", "main"], ["unavailable", undefined, false, "up", "main"]],
  );
});

test("`onError` gets every failure, the first and the end of an outage among them", async () => {
  for (const of of ["limiter", "gate"]) {
    const events = [];
    const onError = (event) => events.push(event);
    const limiter = new Tidegate({ client, platform: "direct", failMode: "open", deadlineMs: 20_000, policy, onError });
    const gate = gateOf({}, { onError });
    await shownBy((pass) => outage(of === "gate" ? () => gate.check(request) : () => limiter.limit("user:1"), pass));
    const healths = events.map(({ health }) => health);
    assert.ok(events.length > 100);
    assert.deepEqual([healths[0], healths.at(-1), healths.filter(Boolean).length], ["down", "up", 2]);
    if (of === "gate") assert.deepEqual([events[0].store, events[0].rule, events[1].rule], ["main", "all", "all"]);
  }
});

test("errors of the application are shown, at most one of a kind in each second, however many requests cause them", async () => {
  const open = { platform: "cloudflare", failMode: "open", policy };
  const checks = {
    limiter: [new Memory(open), (tidegate) => tidegate.check(request, { estimate: 10.5 }), 400],
    gate: [gateOf({}, { stores: { main: stores.memory }, onEvent: jsonLines(() => {}) }), (gate) => gate.check(request, { estimate: 10.5 }), 400],
    "a missing variable": [new OnUpstash({ ...open, url: undefined, token: undefined }), (tidegate) => tidegate.check(request), 503],
    "a binding that is misspelt": [gateOf({}, { stores: { main: (limit) => new OnUpstash({ url: undefined, token: "t", ...limit }) }, onEvent: jsonLines(() => {}) }), (gate) => gate.check(request), 503],
  };
  for (const [name, [subject, check, status]] of Object.entries(checks)) {
    const shown = await shownBy(async (pass) => {
      for (let nth = 0; nth < 500; nth += 1) {
        assert.equal((await check(subject)).response.status, status);
        pass(5);
      }
    });
    assert.deepEqual(shown.map((line) => /(\d+) more were not shown/.exec(line)?.[1]), [undefined, "199", "199"], `${name}: ${shown.join("\n")}`);
    assert.match(shown[0], status === 400 ? /^warn: tidegate: estimate: 10\.5 is not a whole number/ : /^warn: tidegate: url: missing; set the database's UPSTASH_REDIS_REST_URL/);
  }
});

test("no line has a token, a key or an address", async () => {
  const [token, secrets] = ["secret-of-the-tests", ["secret-of-the-tests", "user:alice", "192.0.2.1", "sk_live_1"]];
  const failing = [
    new OnUpstash({ url: `http://127.0.0.1:${await freePort()}`, token, platform: "cloudflare", failMode: "open", policy, identify: () => ({ apiKey: "sk_live_1" }) }),
    new Memory({ platform: "cloudflare", failMode: "open", policy, identify: () => { throw new Error("sk_live_1"); } }),
  ];
  const shown = await shownBy(async () => {
    for (const tidegate of failing) {
      await tidegate.check(request);
      await tidegate.limit("user:alice", { cost: -1 });
      await tidegate.limit("user:alice", { idempotency: { token: "", ttlMs: 1 } });
    }
  });
  assert.ok(shown.length >= 4, shown.join("\n"));
  for (const line of shown) for (const secret of secrets) assert.ok(!line.includes(secret), line);
});

test("node-redis without a listener of the application: the process survives a server that is killed and started again", async () => {
  const script = `
    import { createClient } from "redis";
    import { Tidegate } from "@tidegate/edge/redis";
    const client = await createClient({ url: ${JSON.stringify(server.url)}, disableOfflineQueue: true, socket: { reconnectStrategy: 20 } }).connect();
    const tidegate = new Tidegate({ client, platform: "direct", failMode: "open", deadlineMs: 20_000, policy: { name: "survives", quotas: ["1000000 / d"] } });
    for (let before; ; await new Promise((resolve) => setTimeout(resolve, 20))) {
      const { origin = "none" } = await tidegate.limit("user:1");
      if (origin !== before) process.stdout.write((before = origin) + "\\n");
    }`;
  const child = spawn(process.execPath, ["--input-type=module", "--eval", script], { cwd: new URL(".", import.meta.url), stdio: ["ignore", "pipe", "pipe"] });
  const [told, errors] = [[], []];
  child.stderr.on("data", (chunk) => errors.push(chunk));
  const died = new Promise((resolve) => child.on("exit", resolve));
  const output = child.stdout.setEncoding("utf8")[Symbol.asyncIterator]();
  const until = async (origin) => {
    while (told.join("").trim().split("\n").at(-1) !== origin) {
      const next = await Promise.race([output.next(), died.then(() => ({ done: true }))]);
      assert.ok(!next.done, `the process has ended: ${Buffer.concat(errors)}`);
      told.push(next.value);
    }
  };
  try {
    await until("store");
    await server.kill();
    await until("none");
    await server.restart();
    await until("store");
  } finally {
    child.kill();
    await died;
  }
  const lines = Buffer.concat(errors).toString().trim().split("\n");
  assert.equal(lines.length, 1, lines.join("\n"));
  assert.match(lines[0], /the store does not answer: redis: no connection.*(ECONNREFUSED|closed|ECONNRESET)/i);
});
