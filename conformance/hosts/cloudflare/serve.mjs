// Runs a built Worker on workerd, several times over:
//
//   node serve.mjs --guest FOLDER --built FOLDER [--isolates N] [--rate-limit LIMIT/SECONDS]... [--var NAME=VALUE]...
//
// The isolates share nothing but the Worker's Durable Objects, of which there is one of each name in the world. The
// bindings are those of the guest's wrangler.jsonc. Once all answer, their addresses are printed on one line. It ends when
// standard input does, and workerd with it.

import { readFileSync } from "node:fs";
import path from "node:path";
import { parseArgs } from "node:util";
import { Log, LogLevel, Miniflare } from "miniflare";

const { values: args } = parseArgs({
  options: {
    guest: { type: "string" },
    built: { type: "string" },
    "rate-limit": { type: "string", multiple: true, default: [] },
    isolates: { type: "string", default: "1" },
    var: { type: "string", multiple: true, default: [] },
    "test-mode": { type: "boolean", default: false },
  },
});

const wrangler = readJsonc(path.join(args.guest, "wrangler.jsonc"));
const built = path.resolve(args.built);
const names = Array.from({ length: Number(args.isolates) }, (_, place) => `isolate-${place}`);

// The only word on standard output is the addresses.
class StderrLog extends Log {
  log(message) {
    console.error(message);
  }
}

const miniflare = new Miniflare({
  host: "127.0.0.1",
  port: 0,
  cf: false,
  log: new StderrLog(LogLevel.WARN),
  workers: names.map(worker),
});

await miniflare.ready;
const addresses = await Promise.all(names.map((name) => miniflare.unsafeGetDirectURL(name)));
console.log(addresses.map((address) => address.origin).join(" "));

process.stdin.resume();
process.stdin.on("end", async () => {
  setTimeout(() => process.exit(1), 5_000);
  await miniflare.dispose();
  process.exit(0);
});

function worker(name) {
  return {
    name,
    modulesRoot: built,
    modules: [
      { type: "ESModule", path: path.join(built, "index.js") },
      { type: "CompiledWasm", path: path.join(built, "index_bg.wasm") },
    ],
    compatibilityDate: wrangler.compatibility_date,
    bindings: { ...wrangler.vars, ...variables() },
    durableObjects: Object.fromEntries((wrangler.durable_objects?.bindings ?? []).map((binding) => object(binding, name))),
    // The worst that an eventual store can do: no location ever sees what another wrote.
    kvNamespaces: Object.fromEntries((wrangler.kv_namespaces ?? []).map(({ binding }) => [binding, `${binding}-${name}`])),
    ratelimits: { ...rateLimits(wrangler.ratelimits ?? []), ...rateLimits(args["rate-limit"].map(rateLimit)) },
    analyticsEngineDatasets: Object.fromEntries(
      (wrangler.analytics_engine_datasets ?? []).map(({ binding, dataset }) => [binding, { dataset }]),
    ),
    unsafeDirectSockets: [{ host: "127.0.0.1", port: 0 }],
  };
}

// The objects live in the first isolate, wherever they are called from.
function object({ name: binding, class_name: className }, worker) {
  const scriptName = worker === names[0] ? undefined : names[0];
  return [binding, { className, scriptName, useSQLite: true }];
}

function rateLimits(bindings) {
  return Object.fromEntries(bindings.map(({ name, simple }) => [name, { simple }]));
}

function rateLimit(text) {
  const [limit, period] = text.split("/").map(Number);
  return { name: `LIMITER_${limit}_${period}`, simple: { limit, period } };
}

function variables() {
  const given = args.var.map((pair) => [pair.slice(0, pair.indexOf("=")), pair.slice(pair.indexOf("=") + 1)]);
  return { TOLLGATE_TEST_MODE: args["test-mode"] ? "on" : "off", ...Object.fromEntries(given) };
}

function readJsonc(file) {
  return JSON.parse(readFileSync(file, "utf8").replace(/^\s*\/\/.*$/gm, ""));
}
