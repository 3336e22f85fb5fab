// A token is used for the first time once: in memory, on Redis and in a Durable Object.

import assert from "node:assert/strict";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { once } from "@tidegate/edge/once";
import { Tidegate as InMemory } from "@tidegate/edge/memory";
import { Tidegate as OnRedis } from "@tidegate/edge/redis";
import { Redis } from "ioredis";
import ts from "typescript";
import { redisServer, upstash } from "./servers.mjs";

const NOW = 1_800_000_000_000;
const OPTIONS = { name: "webhooks", ttlMs: 60_000 };
const counted = (answers) => answers.filter(Boolean).length;

test("of 500 at once one is first, and again exactly after its time", async () => {
  const isFirst = once((limit) => new InMemory(limit), OPTIONS);
  assert.equal(counted(await Promise.all(Array.from({ length: 500 }, () => isFirst("evt_1", { now: NOW })))), 1);
  assert.equal(await isFirst("evt_1", { now: NOW + 59_999 }), false);
  assert.equal(await isFirst("evt_1", { now: NOW + 60_000 }), true);
  assert.equal(await isFirst("evt_2", { now: NOW + 60_000 }), true);
});

test("mistakes say what to write", async () => {
  const memory = (limit) => new InMemory(limit);
  assert.throws(() => once(memory, { ...OPTIONS, ttlMs: 0 }), { kind: "invalid", message: "once: a ttl of 0 ms remembers nothing; write at least 1 ms" });
  assert.throws(() => once(memory, { name: "webhooks" }), { kind: "invalid", message: "ttlMs: missing; write 86_400_000 for a day" });
  assert.throws(() => once(memory, { ...OPTIONS, name: "a b" }), { kind: "invalid" });
  assert.throws(() => once(memory, { ...OPTIONS, ttl: 5 }), { kind: "invalid", message: /ttl/ });
  const isFirst = once(memory, OPTIONS);
  await assert.rejects(isFirst(""), { kind: "invalid", message: "once: the token is empty; give what names the event, such as its id" });
  await assert.rejects(isFirst(undefined), { kind: "invalid", message: "once: the token is no text" });
});

test("on Redis, of 500 at once over two connections one is first, and Rust has the same row", async () => {
  const server = await redisServer();
  const clients = Array.from({ length: 2 }, () => new Redis(server.url));
  try {
    const asking = clients.map((client) => once((limit) => new OnRedis({ client, deadlineMs: 20_000, ...limit }), { name: "webhooks", ttlMs: 86_400_000 }));
    const answers = await Promise.all(Array.from({ length: 500 }, (_, nth) => asking[nth % 2]("evt_1")));
    assert.equal(counted(answers), 1);
    // The core's tests/all/once.rs has the same name.
    assert.deepEqual(await clients[0].keys("*"), ["{tg1:webhooks:tb86400000:once:7d4e5a76eae6d8c165410ac19fe6756521ba86ed96752d0126b1953b155af052}"]);
  } finally {
    clients.forEach((client) => client.disconnect());
    await server.stop();
  }
});

test("a store that is down is an error, and never true", async () => {
  const { Tidegate } = await import("@tidegate/edge");
  const isFirst = once((limit) => new Tidegate({ url: "http://127.0.0.1:9", token: "none", ...limit }), OPTIONS);
  await assert.rejects(isFirst("evt_1"), (error) => error.kind === "unavailable" || error.kind === "timeout");
});

test("the handler that the guide prints processes an event once, and says so if nobody knows", async () => {
  const guide = readFileSync(new URL("../../../core/docs/once.md", import.meta.url), "utf8");
  const [, printed] = guide.match(/\n```ts\n([^]*?)\n```\n/);
  const server = await upstash();
  // What the page leaves to its reader. `process` is a name of Node.js, too.
  const given = `
    const { url, token } = ${JSON.stringify({ url: server.url, token: server.token })};
    const verified = (request: Request): Promise<{ id: string }> => request.json();
    export const processed: string[] = [];
    const process = async ({ id }: { id: string }) => {
      if (id === "broken") throw new Error("the processing fails");
      processed.push(id);
    };
  `;
  const file = new URL(`printed-${crypto.randomUUID()}.mjs`, import.meta.url);
  try {
    writeFileSync(file, ts.transpileModule(given + printed, { compilerOptions: { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext } }).outputText);
    const handler = await import(file);
    const send = (id) => handler.POST(new Request("https://example.com/webhook", { method: "POST", body: JSON.stringify({ id }) }));
    const answers = await Promise.all(Array.from({ length: 50 }, () => send("evt_1")));
    assert.deepEqual([...new Set(answers.map(({ status }) => status))], [200]);
    assert.deepEqual(handler.processed, ["evt_1"]);
    await assert.rejects(send("broken"), /the processing fails/);
    assert.equal((await send("broken")).status, 200);
    await server.stop();
    assert.equal((await send("evt_2")).status, 503);
    assert.deepEqual(handler.processed, ["evt_1"]);
  } finally {
    rmSync(file, { force: true });
    await server.stop();
  }
});
