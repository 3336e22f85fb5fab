// The snippets of the README are parts of the example apps, which `cargo make frameworks` runs.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";

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
