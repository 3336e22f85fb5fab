// Generated request targets to an app with the routes of `routes/`: whatever runs a route was charged to the route's rule.

import assert from "node:assert/strict";
import { existsSync, readFileSync, rmSync } from "node:fs";
import http from "node:http";
import path from "node:path";
import { Random, targetOf } from "../test/targets.mjs";

const PATHS = ["/account", "/shop/{item}", "/api/login"];

/** What frameworks ask for in place of a page, or run for another path. `build` is Next.js's. */
const formsOf = (page, build) => [
  ...[page, `${page}/__data.json`, `${page}.data`, `${page}/_.data`, `${page}/_payload.json`, `${page}.html`, `${page}/index.html`, `${page}.rsc`],
  ...[`/_next/data/${build}${page}.json`, `${page}?_rsc=1`, `${page}.segments/_tree.segment.rsc`, `${page}/__route.js`, `${page}.data?_routes=routes/x`],
];

/** What no middleware sees: Next.js makes a URL of a page's path before it asks its proxy, and routes by the path. So `..` is no parameter. */
const UNSEEN = /\/(?:\.|%2e){2}(?:\.json|\.rsc|\.prefetch\.rsc)/i;

/** The ones by which a framework runs a route beside its own path. */
const OTHERS = ["/konto", "/konto/__data.json", "/_root.data", "/__data.json"];

/** Sends an app the forms of each page, then so many generated targets. */
export async function charges(port, _path, { cwd }) {
  const seed = Number(process.env.TIDEGATE_SEED ?? Date.now() % 1_000_000_007);
  const steps = Number(process.env.STEPS ?? 20_000);
  const random = new Random(seed);
  const buildId = path.join(cwd, ".next/BUILD_ID");
  const build = existsSync(buildId) ? readFileSync(buildId, "utf8") : "build";
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  const [reached, uncharged] = [{}, []];
  const one = async (target, method = "GET") => {
    const log = path.join(cwd, "ran.txt");
    rmSync(log, { force: true });
    const { headers } = await sent(port, target, method, agent);
    const charged = headers["ratelimit-policy"] ?? "";
    for (const route of existsSync(log) ? readFileSync(log, "utf8").trim().split("\n") : []) {
      reached[route] = (reached[route] ?? 0) + 1;
      if (!charged.includes(`"${route}"`) && !(build !== "build" && UNSEEN.test(target))) uncharged.push(`${route}: ${method} ${JSON.stringify(target)}`);
    }
  };
  const concrete = PATHS.map((page) => page.replace(/\{\w*\}/, "7"));
  for (const target of [...concrete.flatMap((page) => formsOf(page, build)), ...OTHERS]) await one(target);
  for (const target of ["/?_action=buy", "/_actions/buy", "/account?_action=%62uy"]) await one(target, "POST");
  for (let nth = 0; nth < steps; nth++) {
    const page = random.of(PATHS);
    await one(targetOf(random, random.once(3) ? random.of(formsOf(page, build)) : page));
  }
  agent.destroy();
  assert.ok(["account", "item", "login"].every((route) => reached[route] > 0), `TIDEGATE_SEED=${seed}: it reached only ${JSON.stringify(reached)}`);
  assert.deepEqual(uncharged.slice(0, 20), [], `TIDEGATE_SEED=${seed}: ${uncharged.length} of ${JSON.stringify(reached)} were not charged`);
  console.log(`TIDEGATE_SEED=${seed}: ${JSON.stringify(reached)}`);
}

/** A request with this target, byte for byte. A connection that the server closes is no answer. */
function sent(port, target, method, agent) {
  const headers = { host: `127.0.0.1:${port}`, origin: `http://127.0.0.1:${port}`, ...(method === "POST" && { "content-type": "application/x-www-form-urlencoded" }) };
  return new Promise((resolve) => {
    const request = http.request({ host: "127.0.0.1", port, path: target, method, agent, headers }, (response) => {
      response.resume();
      response.on("close", () => resolve(response));
    });
    request.on("error", () => resolve({ headers: {} }));
    request.end();
  });
}
