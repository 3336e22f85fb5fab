// The size of the package and its cold start, beside @upstash/ratelimit.

import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { inTurn, median, record, shortened } from "../../../conformance/measured/measured.mjs";
import { bundled, kib } from "../weigh.mjs";

const PEER = "@upstash/ratelimit 2.2.0 and @upstash/redis 1.39.0";
/** Processes in a round. */
const STARTS = 10;

const upstash = `export { Ratelimit } from "@upstash/ratelimit"; export { Redis } from "@upstash/redis";`;
const peer = { name: PEER, values: [kib(bundled(upstash, ["edge-light"]))] };
for (const [store, entry, name] of [["upstash", "index", "the npm package"], ["blobs", "netlify-blobs", "the npm package for Netlify Blobs"]]) {
  const wasm = readFileSync(new URL(`../dist/${store}/tidegate.wasm`, import.meta.url));
  const size = kib(wasm, bundled(`export * from "./dist/${entry}.js"`, ["edge-light"]));
  record({ group: "size, gzipped", name, unit: "KiB", aim: { value: 60 }, ours: [size], ...(store === "upstash" && { peer }) });
}

const own = `const { Tidegate } = await import("@tidegate/edge");
new Tidegate({ url: "https://example.com", token: "t", platform: "vercel", failMode: "closed",
  policy: { name: "api", quotas: [{ fixedWindow: { limit: 10, windowMs: 1000 } }] } });`;
const other = `const [{ Ratelimit }, { Redis }] = await Promise.all([import("@upstash/ratelimit"), import("@upstash/redis")]);
new Ratelimit({ redis: new Redis({ url: "https://example.com", token: "t" }), limiter: Ratelimit.fixedWindow(10, "1 s") });`;
const { ours, theirs } = await inTurn({ ours: () => startMs(own), theirs: () => startMs(other) });
record({ group: "cold start", name: "importing the npm package and making a limiter, in a new process of Node.js", unit: "ms", ours, peer: { name: PEER, values: theirs } });

/** The median over new processes, without the start of Node.js itself. */
function startMs(script) {
  const timed = `const began = performance.now(); ${script} console.log(performance.now() - began);`;
  const start = () => Number(execFileSync(process.execPath, ["--input-type=module", "--eval", timed], { cwd: import.meta.dirname }));
  return median(Array.from({ length: shortened(STARTS) }, start));
}
