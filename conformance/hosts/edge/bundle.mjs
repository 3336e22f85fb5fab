// Bundles a guest like a platform's builder.

import path from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = path.dirname(fileURLToPath(import.meta.url));
const guests = path.join(here, "../../guests/edge");

/** Returns the bundled code of a guest. The options contain the conditions with which the platform resolves packages. */
export async function bundle(guest, options) {
  const { outputFiles } = await build({
    entryPoints: [path.resolve(guests, guest)],
    nodePaths: [path.join(here, "node_modules")],
    bundle: true,
    write: false,
    target: "es2022",
    logLevel: "error",
    ...options,
  });
  return outputFiles[0].text;
}
