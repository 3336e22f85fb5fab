// Bundles a guest for Cloudflare as wrangler does, for hosts/cloudflare/serve.mjs to run:
//
//   node cloudflare.mjs GUEST OUT
//
// Writes worker.mjs to the folder OUT, and the WebAssembly that it imports from ./build.

import { copyFileSync, mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { bundle } from "./bundle.mjs";

const [guest, out] = process.argv.slice(2);
mkdirSync(out, { recursive: true });

const wasm = {
  name: "wasm",
  setup({ onResolve }) {
    onResolve({ filter: /\.wasm\?module$/ }, ({ path: imported, resolveDir }) => {
      const file = path.resolve(resolveDir, imported.replace("?module", ""));
      const name = `${path.basename(path.dirname(file))}.wasm`;
      copyFileSync(file, path.join(out, name));
      return { path: `./build/${name}`, external: true };
    });
  },
};

const code = await bundle(guest, { format: "esm", conditions: ["workerd"], external: ["cloudflare:*"], plugins: [wasm] });
writeFileSync(path.join(out, "worker.mjs"), code);
