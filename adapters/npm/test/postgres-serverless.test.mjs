// The package through the drivers of Neon and Vercel, on a PostgreSQL server. A proxy stands in for Neon's: it carries the bytes of a
// WebSocket, or runs one statement for a request over HTTP and answers in Neon's form. Nobody has run this in an account of theirs.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { connect } from "node:net";
import { after, test } from "node:test";
import { neon, neonConfig, Pool } from "@neondatabase/serverless";
import { createTable, Tidegate } from "@tidegate/edge/postgres";
import { createPool } from "@vercel/postgres";
import pg from "pg";
import { WebSocket, WebSocketServer } from "ws";
import { postgresServer } from "./postgres-server.mjs";

const server = await postgresServer({ fsync: "off" });
const direct = new pg.Pool({ connectionString: server.url, max: 10 });
const RAW = { getTypeParser: () => (value) => value };

/** Runs a statement, with the values of rows as PostgreSQL's text. */
const proxy = createServer(async (request, response) => {
  const parts = [];
  for await (const part of request) parts.push(part);
  const { query: text, params } = JSON.parse(Buffer.concat(parts).toString());
  try {
    const { fields, rows, command, rowCount } = await direct.query({ text, values: params, rowMode: "array", types: RAW });
    response.end(JSON.stringify({ command, rowCount, rows, rowAsArray: true, fields: fields.map(({ name, dataTypeID }) => ({ name, dataTypeID })) }));
  } catch ({ message, code }) {
    response.writeHead(400).end(JSON.stringify({ message, code }));
  }
});
const sockets = new WebSocketServer({ server: proxy });
sockets.on("connection", (near, { url }) => {
  // Vercel takes no address that is not of its pooler.
  const port = new URL(url, "http://x").searchParams.get("address").split(":")[1];
  const far = connect(port, "127.0.0.1").on("error", () => near.close()).on("close", () => near.close());
  far.on("data", (bytes) => near.send(bytes));
  near.on("message", (bytes) => far.write(bytes)).on("close", () => far.destroy());
});
await new Promise((resolve) => proxy.listen(0, "127.0.0.1", resolve));
const at = `127.0.0.1:${proxy.address().port}`;

const url = server.url.replace("tests@", "tests:none@");
// Vercel's driver has a version of Neon's of its own.
const { neonConfig: vercelsConfig } = await import("../node_modules/@vercel/postgres/node_modules/@neondatabase/serverless/index.mjs");
for (const config of [neonConfig, vercelsConfig]) {
  Object.assign(config, { webSocketConstructor: WebSocket, wsProxy: (host, port) => `${at}/v1?address=${host}:${port}`, useSecureWebSocket: false, pipelineConnect: false, fetchEndpoint: `http://${at}/sql`, poolQueryViaFetch: false });
}
const pools = [];
const CLIENTS = {
  "Neon's Pool over a WebSocket": () => pools[pools.push(new Pool({ connectionString: url, max: 5 })) - 1],
  "Neon's function over HTTP": () => neon(url),
  "Vercel's pool": () => pools[pools.push(createPool({ connectionString: url.replace("127.0.0.1", "test-pooler.example.invalid"), max: 5 })) - 1],
};
after(async () => {
  await Promise.all(pools.map((pool) => pool.end()));
  await direct.end();
  sockets.close();
  proxy.closeAllConnections();
  proxy.close();
  await once(proxy, "close");
  await server.stop();
});
await createTable(direct);

let policies = 0;
for (const [what, open] of Object.entries(CLIENTS)) {
  test(`${what}: limiters admit exactly the limit, and errors are of their kind`, async () => {
    const policy = { name: `serverless${(policies += 1)}`, quotas: [{ fixedWindow: { limit: 37, windowMs: 86_400_000 } }] };
    const limiterOn = (client, more) => new Tidegate({ client, policy, platform: "direct", failMode: "open", deadlineMs: 20_000, onError: () => undefined, ...more });
    const limiters = Array.from({ length: 4 }, () => limiterOn(open()));
    const verdicts = await Promise.all(Array.from({ length: 200 }, (_, nth) => limiters[nth % 4].limit("user:1")));
    assert.deepEqual(verdicts.flatMap(({ error }) => error?.message ?? []), []);
    assert.equal(verdicts.filter(({ allowed }) => allowed).length, 37);
    // What they share with a limiter on `pg`.
    assert.equal((await limiterOn(direct).limit("user:1")).outcome, "denied");
    const keys = await Promise.all(Array.from({ length: 60 }, (_, nth) => limiters[0].limit(`user:other-${nth}`)));
    assert.ok(keys.every(({ quotas }) => quotas[0].remaining === 36));
    const { allowed, error } = await limiterOn(open(), { table: "absent" }).limit("user:1");
    assert.deepEqual([allowed, error.kind], [false, "refused"]);
    assert.match(error.message, /the table is missing; run createTable\(client\)/);
  });
}
