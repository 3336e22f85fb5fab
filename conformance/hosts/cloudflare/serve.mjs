// Runs a built Worker on workerd, in several isolates:
//
//   node serve.mjs --guest FOLDER --built FOLDER [--others FOLDER] [--isolates N] [--rate-limit LIMIT/SECONDS]... [--var NAME=VALUE]...
//       [--without BINDING]... [--failing BINDING] [--class CLASS]
//
// All isolates but the first run the build in the folder of --others, if there is one. Each isolate is a location. Isolates share the Worker's Durable Objects and Workers KV. In Workers KV, a location
// sees the writes of other locations after a delay. The bindings are those in the guest's wrangler.jsonc, except those
// named by --without. Each call of the one named by --failing fails. The class of the objects is the one in that file, or --class. They have SQLite storage except
// with `--without SQLite`. When all isolates answer, their addresses are printed on one line.
//
// Each command on standard input is answered with a line of JSON. `counts` returns the guest's operations on its
// bindings, and `hosts` returns the addresses at which watch.mjs answers for each isolate. `evict` drops all objects
// from memory, `corrupt` overwrites everything that is stored, and `restart` kills workerd and starts it again. `replace`
// does so, too, but keeps what Workers KV stores, as if all isolates had been evicted. `lose COUNT` loses the answers to the next
// operations that store something: objects end before they answer, and Workers KV answers a write with an error. `lost` returns how
// many were so far. When standard input closes, workerd and this process end.

import childProcess from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";
import { Log, LogLevel, Miniflare } from "miniflare";
import { kvNamespace } from "./kv-binding.mjs";

const { values: args } = parseArgs({
  options: {
    guest: { type: "string" },
    built: { type: "string" },
    others: { type: "string" },
    "rate-limit": { type: "string", multiple: true, default: [] },
    isolates: { type: "string", default: "1" },
    var: { type: "string", multiple: true, default: [] },
    without: { type: "string", multiple: true, default: [] },
    failing: { type: "string" },
    class: { type: "string" },
    "test-mode": { type: "boolean", default: false },
  },
});

const here = import.meta.dirname;
const wrangler = readJsonc(path.join(args.guest, "wrangler.jsonc"));
const names = Array.from({ length: Number(args.isolates) }, (_, place) => `isolate-${place}`);

// Standard output is for the addresses and the answers only.
class StderrLog extends Log {
  log(message) {
    console.error(message);
  }
}

// Miniflare does not expose the process that it starts.
const { spawn } = childProcess;
let workerd;
childProcess.spawn = (...started) => (workerd = spawn(...started));

// The folder for everything that is stored, and for temporary files that Miniflare would leave behind.
const folder = mkdtempSync(path.join(tmpdir(), "tidegate-workerd-"));
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
process.env.TMPDIR = folder;
const options = {
  host: "127.0.0.1",
  port: 0,
  cf: false,
  log: new StderrLog(LogLevel.WARN),
  // What Workers log, each as a line.
  structuredWorkerdLogs: true,
  handleStructuredLogs: ({ message }) => console.error(message),
  durableObjectsPersist: path.join(folder, "objects"),
  workers: [...names.map(worker), kvWorker()],
};
const miniflare = new Miniflare(options);

await miniflare.ready;
const addresses = await Promise.all(names.map((name) => miniflare.unsafeGetDirectURL(name)));
console.log(addresses.map((address) => address.origin).join(" "));

const words = { counts, corrupt, evict, hosts, lose, lost, replace, restart };
for await (const line of createInterface({ input: process.stdin })) {
  const [word, ...rest] = line.split(" ");
  console.log(JSON.stringify(await words[word](...rest)));
}
setTimeout(() => process.exit(1), 5_000);
await miniflare.dispose();
process.exit(0);

async function counts() {
  const guests = await Promise.all(names.map((name) => ask(name, "Host", "counts")));
  const denials = guests.flatMap((guest) => guest.denials);
  const sum = (name) => guests.reduce((total, guest) => total + guest[name], 0);
  const sums = Object.keys(guests[0]).map((name) => [name, sum(name)]);
  return { ...Object.fromEntries(sums), denials, ...(await ask("kv", "default", "counts")) };
}

function corrupt() {
  return Promise.all([ask("kv", "default", "corrupt"), ask(names[0], "Host", "corrupt")]);
}

/** The addresses for the suite's own requests to each isolate. */
function hosts() {
  return Promise.all(names.map((name) => miniflare.unsafeGetDirectURL(name, "Host")));
}

function evict() {
  return ask(names[0], "Host", "evict");
}

function lose(count) {
  return ofBoth(`lose?count=${count}`);
}

function lost() {
  return ofBoth("lost");
}

/** The sum of what objects and Workers KV answer. */
async function ofBoth(question) {
  const [objects, kv] = await Promise.all([ask(names[0], "Host", question), ask("kv", "default", question)]);
  return objects + kv;
}

/** Kills workerd with SIGKILL, and starts it again on the same addresses. */
async function restart() {
  const ended = once(workerd, "exit");
  workerd.kill("SIGKILL");
  await ended;
  await miniflare.setOptions(options);
  return {};
}

/** Replaces all isolates by new ones, which find the same Workers KV. */
async function replace() {
  const dumped = await ask("kv", "default", "dump");
  await restart();
  return ask("kv", "default", "load", { method: "POST", body: JSON.stringify(dumped) });
}

async function ask(worker, entrypoint, question, request) {
  const address = await miniflare.unsafeGetDirectURL(worker, entrypoint);
  const answer = await fetch(new URL(question, address), request);
  return answer.json();
}

function worker(name) {
  const built = path.resolve((name !== names[0] && args.others) || args.built);
  const bound = ({ binding, name }) => ![...args.without, args.failing].includes(binding ?? name);
  return {
    name,
    modulesRoot: "/",
    modules: [
      { type: "ESModule", path: "/watch.mjs", contents: readFileSync(path.join(here, "watch.mjs"), "utf8") },
      { type: "ESModule", path: "/worker.mjs", contents: main(built) },
      ...readdirSync(built).flatMap((file) => module(built, file)),
    ],
    compatibilityDate: wrangler.compatibility_date,
    compatibilityFlags: ["unsafe_module"],
    bindings: { ...wrangler.vars, ...variables() },
    durableObjects: Object.fromEntries(
      (wrangler.durable_objects?.bindings ?? []).filter(bound).map((binding) => object(binding, name)),
    ),
    unsafeBindings: (wrangler.kv_namespaces ?? []).filter(bound).map(({ binding }) => kvNamespace(binding, name)),
    ratelimits: rateLimits([...(wrangler.ratelimits ?? []).filter(bound), ...args["rate-limit"].map(rateLimit)]),
    analyticsEngineDatasets: Object.fromEntries(
      (wrangler.analytics_engine_datasets ?? []).filter(bound).map(({ binding, dataset }) => [binding, { dataset }]),
    ),
    serviceBindings: args.failing ? { [args.failing]: { name: "kv", entrypoint: "Failing" } } : {},
    unsafeDirectSockets: ["default", "Host"].map((entrypoint) => ({ host: "127.0.0.1", port: 0, entrypoint })),
  };
}

/** A file of the build as a module, if it is one. */
function module(built, file) {
  const type = { ".js": "ESModule", ".wasm": "CompiledWasm" }[path.extname(file)];
  return type ? [{ type, path: `/build/${file}`, contents: readFileSync(path.join(built, file), type === "ESModule" ? "utf8" : null) }] : [];
}

/** The Worker's main module: a bundle, or its own, or what worker-build makes. */
function main(built) {
  const bundled = path.join(built, "worker.mjs");
  if (existsSync(bundled)) return readFileSync(bundled, "utf8");
  if (wrangler.main !== "build/index.js") return readFileSync(path.join(args.guest, wrangler.main), "utf8");
  return `export * from "./${wrangler.main}"; export { default } from "./${wrangler.main}";`;
}

function kvWorker() {
  return {
    name: "kv",
    modules: [{ type: "ESModule", path: path.join(here, "kv.mjs") }],
    modulesRoot: here,
    compatibilityDate: wrangler.compatibility_date,
    unsafeDirectSockets: [{ host: "127.0.0.1", port: 0 }],
  };
}

// All objects live in the first isolate.
function object({ name: binding, class_name: className }, worker) {
  const scriptName = worker === names[0] ? undefined : names[0];
  return [binding, { className: args.class ?? className, scriptName, useSQLite: !args.without.includes("SQLite") }];
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
  return { TIDEGATE_TEST_MODE: args["test-mode"] ? (process.env.TIDEGATE_SUITE_KEY ?? "on") : "off", ...Object.fromEntries(given) };
}

function readJsonc(file) {
  return JSON.parse(readFileSync(file, "utf8").replace(/^\s*\/\/.*$/gm, ""));
}
