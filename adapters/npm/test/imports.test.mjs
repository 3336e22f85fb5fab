// No module of the package imports itself through others, so that each can be read, tested and loaded without what uses it.

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { dirname, relative, resolve } from "node:path";
import { test } from "node:test";

const folder = new URL("../ts", import.meta.url).pathname;

test("no imports go round in a circle", () => {
  const files = readdirSync(folder, { recursive: true }).filter((name) => name.endsWith(".ts") && !name.endsWith(".d.ts"));
  const imports = new Map(files.map((name) => {
    const text = readFileSync(resolve(folder, name), "utf8");
    const found = [...text.matchAll(/ from "(\.[^"]+)\.js"/g)].map(([, path]) => relative(folder, resolve(folder, dirname(name), `${path}.ts`)));
    return [name, found.filter((other) => files.includes(other))];
  }));
  assert.ok([...imports.values()].flat().length > 200, "the imports are found");
  // What no other module is left to import is removed, until only circles are left.
  for (let before = -1; before !== imports.size; ) {
    before = imports.size;
    for (const [name, found] of imports) if (!found.some((other) => imports.has(other))) imports.delete(name);
  }
  assert.deepEqual([...imports.keys()], []);
});
