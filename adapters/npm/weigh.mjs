// The weight of a bundle, for pack.mjs and the benchmark.

import { gzipSync } from "node:zlib";
import { buildSync } from "esbuild";

/** Bundles what an ES module imports, as a user's bundler does with these conditions. */
export function bundled(contents, conditions) {
  const { outputFiles } = buildSync({
    stdin: { contents, resolveDir: import.meta.dirname },
    bundle: true,
    minify: true,
    write: false,
    format: "esm",
    platform: "browser",
    conditions,
    external: ["*?module", "node:*", "cloudflare:*", "crypto"],
  });
  return outputFiles[0].contents;
}

/** The weight of all parts, each gzipped. */
export const kib = (...parts) => parts.reduce((sum, part) => sum + gzipSync(part, { level: 9 }).length, 0) / 1024;
