// The snippets of the README are parts of the example apps, which `cargo make frameworks` runs.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import path from "node:path";
import { describe, test } from "node:test";
import { promisify } from "node:util";

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
