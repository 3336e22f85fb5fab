// The snippets of the README are parts of the example apps, which `cargo make frameworks` runs.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { describe, test } from "node:test";
import { promisify } from "node:util";
import { Tidegate } from "@tidegate/edge/testing";

const root = path.join(import.meta.dirname, "..");
const readme = readFileSync(path.join(root, "README.md"), "utf8");
const snippets = [...readme.matchAll(/```typescript\n\/\/ (\S+)\n(.*?)```/gs)].map(([, file, code]) => [file, code.split("\n").filter(Boolean)]);

test("each snippet has the lines of its app, in their order", () => {
  assert.ok(snippets.length > 10);
  for (const [file, lines] of snippets) {
    const app = readFileSync(path.join(root, "examples", file), "utf8").split("\n");
    let at = 0;
    for (const line of lines) {
      at = app.indexOf(line, at) + 1;
      assert.ok(at > 0, `${file} lacks, or has elsewhere: ${line}`);
    }
  }
});

test("the stream that the README relays is settled at its end, and when its client has gone", async () => {
  const [, printed] = readme.match(/```js\n(async function relay\(.*?^})\n```/ms);
  const policy = { name: "relay", quotas: [{ fixedWindow: { limit: 10_000, windowMs: 86_400_000 } }] };
  const limiter = new Tidegate({ policy, now: 0 });
  let settled = deferred();
  const tidegate = {
    check: (request, options) => limiter.check(request, { ...options, key: "one" }),
    settle: (verdict, options) => limiter.settle(verdict, options).finally(() => settled.resolve()),
  };
  const relay = new Function("tidegate", "tokensIn", `return ${printed}`)(tidegate, (part) => part.length);
  const remaining = async () => (await limiter.peek(new Request("http://localhost"), { key: "one" })).quotas[0].remaining;
  /** A model that says 101 bytes for each that is asked for, and perhaps never ends. */
  const model = (parts) => new ReadableStream({
    pull: (controller) => (parts-- > 0 ? controller.enqueue(new Uint8Array(101)) : controller.close()),
  }, { highWaterMark: 0 });
  const server = createServer(async ({ url }, res) => {
    const response = await relay(new Request("http://localhost"), new Response(model(Number(url.slice(1)))));
    await pipeline(Readable.fromWeb(response.body), res).catch(() => {});
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const ask = (parts, options) => fetch(`http://127.0.0.1:${server.address().port}/${parts}`, options);

  assert.equal((await (await ask(3)).arrayBuffer()).byteLength, 303);
  await settled.promise;
  assert.equal(await remaining(), 9_697);

  settled = deferred();
  const client = new AbortController();
  const reader = (await ask(1e9, { signal: client.signal })).body.getReader();
  await reader.read();
  assert.equal(await remaining(), 7_697, "the estimate is charged meanwhile");
  client.abort();
  await settled.promise;
  assert.ok((await remaining()) !== 7_697, "it is settled to what was sent until then");
  server.closeAllConnections();
  server.close();
});

function deferred() {
  let resolve;
  return { promise: new Promise((done) => (resolve = done)), resolve: () => resolve() };
}

test("the commands of the program print what the README says", async () => {
  const [, rules] = readme.split("\n## Rules in a file\n")[1].match(/^```json\n(.*?)^```$/ms);
  const section = readme.split("\n### Checking and testing a file\n")[1].split("\n## ")[0];
  const [, file] = section.match(/This one is `([^`]*)`/);
  const [, fixture] = section.match(/^```json\n(.*?)^```$/ms);
  const [, printed] = section.match(/^```console\n(.*?)^```$/ms);
  const app = mkdtempSync(path.join(tmpdir(), "tidegate-readme-"));
  try {
    mkdirSync(path.dirname(path.join(app, file)), { recursive: true });
    for (const [name, text] of [["rules.json", rules], [file, fixture], ["package.json", "{}"]]) writeFileSync(path.join(app, name), text);
    const options = { cwd: app, env: { ...process.env, npm_config_offline: "true", npm_config_update_notifier: "false" } };
    await promisify(execFile)("npm", ["install", "--no-audit", "--no-fund", root], options);
    const commands = printed.split(/^\$ /m).slice(1).map((part) => [part.slice(0, part.indexOf("\n")), part.slice(part.indexOf("\n") + 1)]);
    assert.equal(commands.length, 4);
    for (const [command, output] of commands) {
      const { stdout } = await promisify(execFile)("bash", ["-c", `{ ${command}; } 2>&1`], options);
      assert.equal(stdout, output, command);
    }
  } finally {
    rmSync(app, { recursive: true, force: true });
  }
});

describe("each test of docs/testing.md passes", { concurrency: 2 }, () => {
  const page = readFileSync(path.join(root, "docs/testing.md"), "utf8");
  const tests = Array.from(page.matchAll(/^```js\n(.*?)^```$/gms), ([, code]) => code);
  assert.ok(tests.length > 5);
  for (const code of tests) {
    const names = Array.from(code.matchAll(/^test\("(.*)", async/gm), ([, name]) => name);
    test(names.join("; "), async () => {
      const options = { cwd: root, timeout: 60_000, env: { ...process.env, NODE_TEST_CONTEXT: undefined } };
      const { stdout } = await promisify(execFile)(process.execPath, ["--input-type=module", "--test-reporter=tap", "--eval", code], options);
      assert.match(stdout, new RegExp(`^# pass ${names.length}$`, "m"));
      assert.ok(names.length > 0, code);
    });
  }
});
