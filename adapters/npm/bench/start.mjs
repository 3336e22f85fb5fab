// The size of the package and its cold start, beside @upstash/ratelimit.

import { execFileSync } from "node:child_process";
import { inTurn, median, record, shortened } from "../../../conformance/measured/measured.mjs";
import { upstash as endpoint } from "../test/servers.mjs";
import { bundled, kib, PARTS, STORES, weightOfParts, weightOfStore } from "../weigh.mjs";

const PEER = "@upstash/ratelimit 2.2.0 and @upstash/redis 1.39.0";
/** Processes in a round. */
const STARTS = 10;

const upstash = `export { Ratelimit } from "@upstash/ratelimit"; export { Redis } from "@upstash/redis";`;
const peer = { name: PEER, values: [kib(bundled(upstash, ["edge-light"]))] };
for (const entry of STORES) {
  const ours = [weightOfStore(entry)];
  record({ group: "size, gzipped", name: `the npm package, ${entry}`, unit: "KiB", aim: { value: 60 }, ours, ...(entry === "upstash" && { peer }) });
}
for (const [entry, imported] of Object.entries(PARTS)) {
  const ours = [weightOfParts(entry, imported)];
  record({ group: "size, gzipped", name: `a RateLimiter of one window, ${entry}`, unit: "KiB", aim: { value: 28 }, ours, ...(entry === "upstash" && { peer }) });
}

const server = await endpoint({ profile: "release" });
const at = JSON.stringify({ url: server.url, token: server.token });
const own = `const { Tidegate } = await import("@tidegate/edge");
const tidegate = new Tidegate({ ...${at}, platform: "vercel", failMode: "closed", deadlineMs: 5000, policy: { name: "start", quotas: [{ fixedWindow: { limit: 1000000, windowMs: 60000 } }] } });
const { allowed } = await tidegate.limit("k");`;
const other = `const [{ Ratelimit }, { Redis }] = await Promise.all([import("@upstash/ratelimit"), import("@upstash/redis")]);
const { success: allowed } = await new Ratelimit({ redis: new Redis(${at}), limiter: Ratelimit.fixedWindow(1000000, "60 s") }).limit("k");`;
const { ours, theirs } = await inTurn({ ours: () => startMs(own), theirs: () => startMs(other) });
record({ group: "cold start", name: "from importing the npm package to the first decision, in a new process of Node.js", unit: "ms", aim: { ratio: 1 }, ours, peer: { name: PEER, values: theirs } });
await server.stop();

/** The median over new processes, without the start of Node.js itself. */
function startMs(script) {
  const timed = `const began = performance.now(); ${script} if (!allowed) throw "denied"; console.log(performance.now() - began); process.exit();`;
  const start = () => Number(execFileSync(process.execPath, ["--input-type=module", "--eval", timed], { cwd: import.meta.dirname }));
  return median(Array.from({ length: shortened(STARTS) }, start));
}
