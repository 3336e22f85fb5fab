// The store that docs/own-store.md prints, as it is printed, on a local DynamoDB.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { after, test } from "node:test";
import { promisify } from "node:util";
import { DynamoDB } from "@aws-sdk/client-dynamodb";
import { Tidegate } from "@tidegate/edge/store";
import dynalite from "dynalite";

const root = path.join(import.meta.dirname, "..");
// A file of the package, so that its imports are found.
const folder = mkdtempSync(path.join(root, "test/own-store-"));
const server = dynalite({ createTableMs: 0 });
await once(server.listen(0, "127.0.0.1"), "listening");
after(() => {
  rmSync(folder, { recursive: true });
  server.closeAllConnections();
  server.close();
});

Object.assign(process.env, { AWS_ENDPOINT_URL: `http://127.0.0.1:${server.address().port}`, AWS_REGION: "eu-west-1", AWS_ACCESS_KEY_ID: "tests", AWS_SECRET_ACCESS_KEY: "tests" });
const database = new DynamoDB();
await database.createTable({ TableName: "tidegate", BillingMode: "PAY_PER_REQUEST", KeySchema: [{ AttributeName: "name", KeyType: "HASH" }], AttributeDefinitions: [{ AttributeName: "name", AttributeType: "S" }] });
while ((await database.describeTable({ TableName: "tidegate" })).Table.TableStatus !== "ACTIVE");

const [printed] = [...readFileSync(path.join(root, "docs/own-store.md"), "utf8").matchAll(/^```js\n(.*?)^```$/gms)].map(([, code]) => code);
const file = path.join(folder, "store.mjs");
writeFileSync(file, printed);
const { default: store } = await import(file);

test("the page's store for DynamoDB admits exactly the limit", async () => {
  const policy = { name: "page", quotas: [{ fixedWindow: { limit: 37, windowMs: 86_400_000 } }] };
  const limiters = Array.from({ length: 6 }, () => new Tidegate({ store, remember: true, platform: "direct", failMode: "closed", deadlineMs: 20_000, policy }));
  const verdicts = await Promise.all(Array.from({ length: 300 }, (_, nth) => limiters[nth % 6].limit("user:1")));
  assert.deepEqual(verdicts.flatMap(({ error }) => error?.message ?? []), []);
  assert.equal(verdicts.filter(({ allowed }) => allowed).length, 37);
});

test("a table whose capacity is used up is contended, and never opens", async () => {
  const tidegate = new Tidegate({ store, platform: "direct", failMode: "open", policy: { name: "page", quotas: ["1 / d"] }, onError: () => undefined });
  const { getItem } = DynamoDB.prototype;
  after(() => (DynamoDB.prototype.getItem = getItem));
  DynamoDB.prototype.getItem = async () => { throw Object.assign(new Error("slow down"), { name: "ThrottlingException" }); };
  const { allowed, error } = await tidegate.limit("user:2");
  assert.deepEqual([allowed, error.kind], [false, "contended"]);
});

test("it passes the suite", async () => {
  const { stdout } = await promisify(execFile)(process.execPath, [path.join(root, "dist/program/main.js"), "conformance", file]);
  assert.match(stdout, /^dynamodb: 276 passed, 0 failed, 0 skipped; 9797 of 44691 requests admitted, /m);
  const shared = await promisify(execFile)(process.execPath, [path.join(root, "dist/program/main.js"), "conformance", file, "--processes", "3", "--filter", "contract/*", "--filter", "race/first-request-*"]);
  assert.match(shared.stdout, /^dynamodb: 17 passed, 0 failed, 0 skipped; 5 of 5000 requests admitted, /m);
});
