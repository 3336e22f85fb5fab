// The access rules that core/docs/replicas.md prints are enough for the clients of this package, and none of them is too many.

import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { after, test } from "node:test";
import { Tidegate } from "@tidegate/edge/redis";
import { Redis } from "ioredis";
import { createClient } from "redis";
import { redisServer } from "./servers.mjs";

const server = await redisServer();
after(() => server.stop());

const guide = readFileSync(new URL("../../../core/docs/replicas.md", import.meta.url), "utf8");
const [rules] = guide.match(/(?<=ACL SETUSER tidegate on >PASSWORD ).*$/m);
const commands = rules.split(" ").filter((word) => word.startsWith("+"));

/** The options that README.md shows. `enableReadyCheck: false`, because the user may not ask `info`. */
const own = { enableOfflineQueue: false, autoResendUnfulfilledCommands: false, maxRetriesPerRequest: 0, socketTimeout: 5000, enableReadyCheck: false };

const CLIENTS = {
  async ioredis(username) {
    const client = new Redis(server.url, { ...own, username, password: "pw" });
    return [client, () => client.disconnect()];
  },
  async "node-redis"(username) {
    const client = createClient({ url: server.url, username, password: "pw", disableOfflineQueue: true });
    client.on("error", () => {});
    await client.connect();
    return [client, () => client.destroy()];
  },
};

/** Makes a user, and every call of a limiter. Returns the kinds of its errors. */
async function errorsOf(connect, user, rules) {
  await server.command("ACL", "SETUSER", user, "reset", "on", ">pw", ...rules.split(" "));
  await server.command("SCRIPT", "FLUSH");
  await server.command("FLUSHALL");
  const [client, close] = await connect(user);
  const policy = { name: "api", quotas: [{ tokenBucket: { capacity: 100, refill: 1, perMs: 1000 } }, { block: { capMs: 60_000 } }] };
  const options = { client, platform: "direct", failMode: "closed", deadlineMs: 20_000, onError: () => {} };
  const tidegate = new Tidegate({ ...options, policy });
  const leased = new Tidegate({ ...options, policy: { name: "leased", quotas: ["1000 / min"] }, leases: true });
  const kinds = new Set();
  const call = async (make) => {
    try {
      const verdict = await make();
      if (verdict?.error) kinds.add(verdict.error.kind);
      return verdict;
    } catch (error) {
      kinds.add(error.kind);
    }
  };
  const charge = await call(() => tidegate.limit("a", { estimate: 5 }));
  await call(() => tidegate.settle(charge, { cost: 3 }));
  await call(() => tidegate.limit("a"));
  await call(() => tidegate.peek(new Request("http://localhost"), { key: "a" }));
  await call(() => tidegate.block("a", 1_000));
  await call(() => tidegate.reset("a"));
  for (let nth = 0; nth < 5; nth++) await call(() => leased.limit("b"));
  close();
  return [...kinds];
}

for (const [name, connect] of Object.entries(CLIENTS)) {
  test(`${name} needs the rules of the guide`, async () => {
    assert.ok(commands.length >= 6);
    assert.deepEqual(await errorsOf(connect, `all-${name}`, rules), []);
    for (const missing of commands) {
      const fewer = rules.split(" ").filter((word) => word !== missing).join(" ");
      const kinds = await errorsOf(connect, `less-${name}-${missing.slice(1)}`, fewer);
      assert.ok(kinds.includes("refused"), `without ${missing}: ${kinds}`);
    }
  });
}

test("ioredis connects with its check of info, too, which the user may not run", async () => {
  await server.command("ACL", "SETUSER", "ready", "reset", "on", ">pw", ...rules.split(" "));
  const client = new Redis(server.url, { username: "ready", password: "pw", retryStrategy: null });
  await once(client, "ready");
  client.disconnect();
});
