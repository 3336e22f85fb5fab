// Writes the modules and declarations for `require`, beside those of each entry of the package.
//
// Node.js and TypeScript can `require` an ES module, but TypeScript's `node16` and `node18` refuse to (TS1479) unless the
// declarations are of CommonJS. These name the types of the ES module, so that an application has one type, however it loads it.

import { readFileSync, writeFileSync } from "node:fs";
import { build } from "esbuild";

const { exports } = JSON.parse(readFileSync("package.json", "utf8"));

for (const { require, default: module } of Object.values(exports)) {
  if (!require) continue;
  const options = { entryPoints: [module], bundle: true, format: "esm", packages: "external", metafile: true, write: false, logLevel: "error" };
  const { metafile } = await build({ ...options, external: ["*.wasm?module", "cloudflare:*"] });
  const values = Object.values(metafile.outputs)[0].exports;
  const name = `./${module.split("/").at(-1)}`;
  const imported = `import("${name}", { with: { "resolution-mode": "import" } })`;
  const lines = values.flatMap((value) => [
    `export declare const ${value}: typeof ${imported}.${value};`,
    // A class is also a type.
    ...(/^[A-Z]/.test(value) ? [`export type ${value} = ${imported}.${value};`] : []),
  ]);
  writeFileSync(require.types, [`export type * from "${name}" with { "resolution-mode": "import" };`, ...lines, ""].join("\n"));
  writeFileSync(require.default, `module.exports = require("${name}");\n`);
}
