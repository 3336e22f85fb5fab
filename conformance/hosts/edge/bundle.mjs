// Bundles a guest as a platform's builder does.

import path from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = path.dirname(fileURLToPath(import.meta.url));
const guests = path.join(here, "../../guests/edge");

/** The code of a guest's module. The options contain the conditions with which the platform resolves packages. */
export async function bundle(guest, options) {
  const { outputFiles } = await build({
    entryPoints: [path.join(guests, guest)],
    nodePaths: [path.join(here, "node_modules")],
    bundle: true,
    write: false,
    target: "es2022",
    logLevel: "error",
    ...options,
  });
  return outputFiles[0].text;
}
