// Decisions that come together are one command.

import assert from "node:assert/strict";
import { after, beforeEach, test } from "node:test";
import { Tidegate } from "@tidegate/edge";
import { Tidegate as OnRedis } from "@tidegate/edge/redis";
import { Redis } from "ioredis";
import { upstash } from "./servers.mjs";

const server = await upstash();
const client = new Redis(server.redis);
after(async () => {
  client.disconnect();
  await server.stop();
});
beforeEach(() => server.command("FLUSHALL"));

const policy = { name: "api", quotas: ["60 / d"] };
const options = { platform: "vercel", failMode: "closed", deadlineMs: 20_000, onError: () => {}, policy };
const stores = {
  upstash: (more) => new Tidegate({ ...options, url: server.url, token: server.token, ...more }),
  redis: (more) => new OnRedis({ ...options, client, ...more }),
};
const times = (count, make) => Promise.all(Array.from({ length: count }, (_, nth) => make(nth)));

/** How many commands that run a script the server has executed during `run`. */
async function scripts(run) {
  await server.command("CONFIG", "RESETSTAT");
  await run();
  const stats = await server.command("INFO", "commandstats");
  return [...stats.matchAll(/^cmdstat_eval(?:sha)?:calls=(\d+)/gm)].reduce((sum, [, calls]) => sum + Number(calls), 0);
}

for (const [name, make] of Object.entries(stores)) {
  // A client on TCP writes the commands of one turn at once, so one command for several decisions would only keep them waiting.
  const commands = name === "redis" ? 130 : 4;
  test(`${name}: 130 decisions at once are ${commands} commands, and lone ones are one each`, async () => {
    const tidegate = make();
    await tidegate.limit("first");
    const burst = async () => {
      const verdicts = await times(130, (nth) => tidegate.limit(`user:${nth % 2}`));
      assert.equal(verdicts.filter(({ allowed }) => allowed).length, 120);
    };
    assert.equal(await scripts(burst), commands);
    assert.equal(await scripts(async () => assert.equal((await tidegate.limit("lone")).allowed, true)), 1);
  });

  test(`${name}: an error in one decision does not affect the others`, async () => {
    const tidegate = make();
    await tidegate.limit("broken");
    const [key] = await server.command("KEYS", "*broken*");
    await server.command("SET", key, "not a state");
    const idempotency = { token: "once", ttlMs: 60_000 };
    await tidegate.limit("token", { cost: 2, idempotency });
    const verdicts = await Promise.all([
      tidegate.limit("a"),
      tidegate.limit("b"),
      tidegate.limit("broken"),
      tidegate.limit("token", { cost: 3, idempotency }),
      tidegate.limit("token", { cost: 2, idempotency }),
      tidegate.limit("c", { cost: 61 }),
      tidegate.limit("d"),
    ]);
    assert.deepEqual(
      verdicts.map(({ outcome, error, replayed }) => error?.kind ?? (replayed ? "replayed" : outcome)),
      ["allowed", "allowed", "corrupt", "token_reused", "replayed", "never_admissible", "allowed"],
    );
  });

  test(`${name}: a batch sends its script again after the scripts were flushed, and each error reaches every decision`, async () => {
    const tidegate = make();
    const burst = () => times(20, (nth) => tidegate.limit(`user:${nth}`));
    for (let nth = 0; nth < 3; nth++) {
      await server.command("SCRIPT", "FLUSH");
      assert.deepEqual((await burst()).filter(({ allowed }) => !allowed), []);
    }
    await server.command("CONFIG", "SET", "maxmemory", "1");
    const kinds = new Set((await burst()).map(({ error }) => error?.kind));
    await server.command("CONFIG", "SET", "maxmemory", "0");
    assert.deepEqual([...kinds], ["refused"]);
  });

  test(`${name}: estimates and slots of many keys at once`, async () => {
    const tidegate = make({ policy: { name: "mixed", quotas: [{ fixedWindow: { limit: 100, windowMs: 86_400_000 }, by: "user" }, { concurrency: { limit: 50, lifetimeMs: 60_000 }, by: "tenant" }] } });
    const verdicts = await times(60, (nth) => tidegate.limit({ user: `user:${nth}`, tenant: "acme" }, { estimate: 10 }));
    const held = verdicts.filter(({ allowed }) => allowed);
    assert.equal(held.length, 50);
    await Promise.all(held.map((verdict) => tidegate.settle(verdict, { cost: 4 })));
    const [one] = held;
    const left = await tidegate.peek(new Request("https://example.com/"), { keys: one.keys });
    assert.deepEqual(left.quotas.map(({ remaining }) => remaining), [96, 50]);
  });
}

for (const [name, make] of Object.entries(stores)) {
  test(`${name}: what one client has stored does not keep others from being decided`, async () => {
    const now = 1_800_000_000_000;
    const log = { slidingLog: { limit: 1_000, windowMs: 86_400_000 } };
    const quotas = [log, log];
    const tidegate = make({ clock: "caller", minTtlMs: 3_600_000, policy: { name: "logs", quotas } });
    const all = (call) => Promise.all(Array.from({ length: 65 }, (_, nth) => call(`client:${nth}`)));
    await all((key) => tidegate.limit(key, { now }));
    // 999 further requests of each client, a millisecond apart.
    for (const key of await server.command("KEYS", "*logs*")) {
      const entries = Array.from({ length: 1_000 }, (_, nth) => `${now - 1_000 + nth}:1`);
      await server.command("SET", key, `sl1 ${entries.join(" ")};`.repeat(2), "KEEPTTL");
    }
    const kinds = new Set((await all((key) => tidegate.limit(key, { now: now + 1 }))).map(({ outcome, error }) => error?.kind ?? outcome));
    assert.deepEqual([...kinds], ["denied"]);
  });
}

test("the first decision is one request", async () => {
  await server.command("SCRIPT", "FLUSH");
  assert.equal(await scripts(async () => assert.equal((await stores.upstash().limit("first")).allowed, true)), 1);
});
