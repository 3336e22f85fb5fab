// A small rate-limited app for Node.js: one policy per client address, with its counts in PostgreSQL, through pg.

import { createTable, Tidegate } from "@tidegate/edge/postgres";
import pg from "pg";
import { asks, suite } from "./suite.mjs";

const { POSTGRES_URL, PLATFORM: platform, TIDEGATE_TEST_MODE } = process.env;

// In tests, a statement may wait for a server that does not answer. No other one waits for its connection.
const client = new pg.Pool({ connectionString: POSTGRES_URL, connectionTimeoutMillis: 10_000 });
await createTable(client);

const tidegate = new Tidegate({ client, platform, failMode: "open", policy: { name: "hello", quotas: ["20 burst, 10 / s"] } });

// In tests, virtual time stands still while the database's clock advances, many requests are in flight, and a restart must lose nothing.
const inTests = suite((options) => new Tidegate({ client, failMode: "closed", durable: true, deadlineMs: 20_000, minTtlMs: 3_600_000, ...options }));

/** @param {Request} request */
export default async function app(request) {
  if (asks(request, TIDEGATE_TEST_MODE)) return inTests(request);
  const verdict = await tidegate.check(request);
  return verdict.response ?? verdict.onto(new Response("hello"));
}
