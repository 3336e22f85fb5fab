// Bundles a guest for Cloudflare as wrangler does, for hosts/cloudflare/serve.mjs to run:
//
//   node cloudflare.mjs GUEST OUT
//
// Writes worker.mjs to the folder OUT.

import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { bundle } from "./bundle.mjs";

const [guest, out] = process.argv.slice(2);
mkdirSync(out, { recursive: true });
const code = await bundle(guest, { format: "esm", conditions: ["workerd"], external: ["cloudflare:*"] });
writeFileSync(path.join(out, "worker.mjs"), code);
