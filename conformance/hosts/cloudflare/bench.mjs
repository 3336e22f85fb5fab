// Compares the speed of a built Worker with a peer in the same workerd, and measures its size:
//
//   node bench.mjs --built FOLDER --one FOLDER --least FOLDER [--rounds N] [--keys N] [speed] [size] [keys]
//
// The folders contain the output of worker-build for conformance/guests/cloudflare, cloudflare-one and
// cloudflare-least. The peer is peer.mjs.
//
// `speed` measures the routes in turn and compares the medians of the rounds. Within workerd, caller.mjs calls the
// Workers over service bindings. Over HTTP, this process calls them, and the client uses the same cores. For the
// objects alone, asker.mjs calls both kinds from one Worker. `keys` measures one object while its keys grow to a
// million, or to --keys. It takes minutes.

import { existsSync, readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { parseArgs } from "node:util";
import { gzipSync } from "node:zlib";
import { transformSync } from "esbuild";
import { Log, LogLevel, Miniflare } from "miniflare";
import { Pool } from "undici";

// Store objects in memory if this folder exists. Otherwise, syncing the disk takes longer than everything else.
if (existsSync("/dev/shm")) process.env.TMPDIR = "/dev/shm";

const IN_FLIGHT = 50;
const ROUND_MS = 300;
/** Sequential requests per route over HTTP, after a warm-up with a tenth as many. */
const CALLS = 2_000;
/** Requests per route and round within workerd, after a warm-up with half as many. */
const CALLS_IN_TURN = 500;
/** Warm-up requests per route, so that V8 has optimised the code, as in a long-lived Worker. */
const CALLS_BEFORE = 12_000;
/** The number of clients. All their objects are in memory before the measurement. */
const CLIENTS = 200;
const CAPACITY = 1_000_000_000;
/** The largest lease of an isolate: a small part of the capacity, and more than arrives during the call for the next lease. */
const SLICE = 1_000;
const REFILL_PER_MS = 1_000;
/** The entry of the Worker that is measured. */
const ENTRY = path.join(import.meta.dirname, "../../guests/cloudflare/worker.mjs");
const COMPATIBILITY_DATE = "2026-04-01";
const TIDEGATE = {
  bindings: { CAPACITY: `${CAPACITY}`, REFILL_PER_S: `${REFILL_PER_MS * 1_000}`, SLICE: `${SLICE}` },
  durableObjects: { TIDEGATE: { className: "Tidegate", useSQLite: true } },
};
const PEER = { bindings: { CAPACITY, REFILL_PER_MS }, durableObjects: { BUCKET: { className: "Bucket", useSQLite: true } } };
const ASKER = {
  bindings: PEER.bindings,
  durableObjects: {
    TIDEGATE: { ...TIDEGATE.durableObjects.TIDEGATE, scriptName: "tidegate" },
    BUCKET: { ...PEER.durableObjects.BUCKET, scriptName: "peer" },
    RECORDER: "Recorder",
  },
};
/** Tidegate's Worker, whose question asker.mjs records once. */
const RECORDED = { ...TIDEGATE, durableObjects: { TIDEGATE: { className: "Recorder", scriptName: "asker" } } };
/** The routes that caller.mjs calls. */
const WITHIN = {
  object: { worker: "ASKER", path: "/tidegate" },
  peerObject: { worker: "ASKER", path: "/" },
  exact: { worker: "TIDEGATE", path: "/do" },
  leased: { worker: "TIDEGATE", path: "/do-leased" },
  peer: { worker: "PEER", path: "/" },
  least: { worker: "LEAST", path: "/" },
  floor: { worker: "PEER", path: "/unlimited" },
};
const CALLER = { serviceBindings: { ASKER: "asker", TIDEGATE: "tidegate", LEAST: "least", PEER: "peer" } };

const { values: args, positionals: only } = parseArgs({
  allowPositionals: true,
  options: {
    built: { type: "string" },
    one: { type: "string" },
    least: { type: "string" },
    rounds: { type: "string", default: "21" },
    keys: { type: "string", default: "1000000" },
  },
});
const rounds = Number(args.rounds);
const named = (name) => only.length === 0 || only.includes(name);

if (only.includes("keys")) await keys();
if (named("speed") || named("size")) heading();
if (named("speed")) await speed();
if (named("size")) size();

function heading() {
  console.log(`${"".padEnd(58)} ${"ours".padStart(12)} ${"theirs".padStart(12)} ${"ratio".padStart(8)}  target`);
}

function row(what, ours, theirs, ratio, target) {
  console.log(`${what.padEnd(58)} ${ours.padStart(12)} ${theirs.padStart(12)} ${ratio.padStart(8)}  ${target}`);
}

/** Starts the Workers that both measurements of speed need, and `more`. */
async function start(...more) {
  const miniflare = new Miniflare({
    host: "127.0.0.1",
    port: 0,
    cf: false,
    log: new Log(LogLevel.ERROR),
    workers: [
      wasm("tidegate", args.built, TIDEGATE, ENTRY),
      wasm("recorded", args.built, RECORDED, ENTRY),
      module("peer", PEER),
      module("asker", ASKER),
      ...more,
    ],
  });
  await miniflare.ready;
  return miniflare;
}

async function speed() {
  const miniflare = await start(wasm("least", args.least), module("caller", CALLER));
  try {
    const ours = pool(await miniflare.unsafeGetDirectURL("tidegate"));
    const theirs = pool(await miniflare.unsafeGetDirectURL("peer"));
    const caller = pool(await miniflare.unsafeGetDirectURL("caller"));
    const recorded = pool(await miniflare.unsafeGetDirectURL("recorded"));
    const routes = {
      exact: (client) => ask(ours, "/do", client),
      leased: (client) => ask(ours, "/do-leased", client),
      peer: (client) => ask(theirs, "/", client),
      // A Worker without a limiter is the lower bound.
      floor: (client) => ask(theirs, "/unlimited", client),
    };
    await ask(recorded, "/do", "198.51.100.0");
    const clients = Array.from({ length: CLIENTS }, (_, place) => `198.51.${100 + (place >> 8)}.${place & 255}`);
    for (const route of Object.values(routes)) {
      for (const client of clients) await route(client);
    }
    for (const route of Object.values(WITHIN)) {
      for (let calls = 0; calls < CALLS_BEFORE; calls += CALLS_IN_TURN) await askWithin(caller, route, CALLS_IN_TURN, 1, clients);
    }
    await within(caller, "one after another", 1, [clients[0]]);
    await within(caller, `${IN_FLIGHT} in flight, one client`, IN_FLIGHT, [clients[0]]);
    await within(caller, `${IN_FLIGHT} in flight, ${CLIENTS} clients`, IN_FLIGHT, clients);
    await latency(routes);
    await throughput("one client", [clients[0]], routes);
    await throughput(`${CLIENTS} clients`, clients, routes);
    await Promise.all([ours, theirs, caller, recorded].map((pool) => pool.destroy()));
  } finally {
    await miniflare.dispose();
  }
}

/** Measures the microseconds per sequential call to one object from a Worker in the same workerd, as its keys grow. */
async function keys() {
  const miniflare = await start();
  try {
    const recorded = pool(await miniflare.unsafeGetDirectURL("recorded"));
    await ask(recorded, "/do", "198.51.100.0");
    const asker = pool(await miniflare.unsafeGetDirectURL("asker"));
    const asked = async (question) => {
      const { statusCode, body } = await asker.request({ path: "/keys", method: "POST", body: JSON.stringify(question), reset: true });
      const text = await body.text();
      if (statusCode !== 200) throw new Error(`the asker answered ${statusCode} ${text}`);
      return JSON.parse(text);
    };
    const us = async (question) => {
      const times = [];
      for (let round = 0; round < 5; round += 1) {
        const from = question.from + 1_000 * round;
        times.push((await asked({ ...question, from, count: 1_000, inFlight: 1 })).ms);
      }
      return `${Math.min(...times).toFixed(0)} us`;
    };
    const line = (...columns) => console.log(columns.map((column) => `${column}`.padStart(14)).join(""));
    line("keys", "hot key", "any key", "new key", "slowest", "memory");
    let count = 0;
    for (let size = 1_000; size <= Number(args.keys); size *= 10) {
      let slowestMs = 0;
      for (; count < size; count += 1_000) {
        const filled = await asked({ from: count, count: 1_000, inFlight: IN_FLIGHT });
        slowestMs = Math.max(slowestMs, filled.slowestMs);
      }
      const [hot, any] = [await us({ from: 0, among: 100 }), await us({ from: 0, among: size })];
      const added = await us({ from: 1_000_000_000 + size });
      line(size, hot, any, added, `${slowestMs.toFixed(0)} ms`, `${(rssKib() / 1_024).toFixed(0)} MiB`);
    }
    await Promise.all([recorded, asker].map((pool) => pool.destroy()));
  } finally {
    await miniflare.dispose();
  }
}

/**
 * Microseconds a decision within workerd, by the clock and in processor time. The clock's are the inverse of decisions a second;
 * the processor's stay what they are where other programs share the machine.
 */
async function within(caller, how, inFlight, clients) {
  const turn = async (route, calls) => {
    const [began, computed] = [performance.now(), processorUs()];
    await askWithin(caller, route, calls, inFlight, clients);
    return [((performance.now() - began) * 1_000) / calls, (processorUs() - computed) / calls];
  };
  const taken = Object.fromEntries(Object.keys(WITHIN).map((name) => [name, []]));
  for (let round = 0; round < rounds; round += 1) {
    for (const [name, route] of Object.entries(WITHIN)) {
      await turn(route, CALLS_IN_TURN / 2);
      taken[name].push(await turn(route, CALLS_IN_TURN));
    }
  }
  const compare = (what, place, targets) => {
    const us = (name) => taken[name].map((turn) => turn[place]);
    const beside = (what, ours, theirs, target) => {
      // Compare within each round, because the speed of a machine changes over time.
      const ratios = us(theirs).map((their, round) => their / us(ours)[round]);
      const [our, their, ratio] = [us(ours), us(theirs), ratios].map(median);
      row(what, `${our.toFixed(0)} us`, `${their.toFixed(0)} us`, ratio.toFixed(2), target);
    };
    beside(`${what}, ${how}: the object`, "object", "peerObject", targets.exact);
    beside("  the Worker and its object", "exact", "peer", targets.exact);
    beside("  the Worker, leased", "leased", "peer", targets.leased);
    beside("    for comparison: the smallest Rust Worker", "least", "peer", "");
    beside("    for comparison: a Worker that limits nothing", "floor", "peer", "");
  };
  compare("within workerd", 0, { exact: ">= 1.00, theirs by ours", leased: ">= 3.00" });
  if (processorUs() > 0) compare("processor time", 1, { exact: "", leased: "" });
}

async function askWithin(caller, route, calls, inFlight, clients) {
  const asked = JSON.stringify({ ...route, calls, inFlight, clients });
  const { statusCode, body } = await caller.request({ path: "/", method: "POST", body: asked });
  const text = await body.text();
  if (statusCode !== 200) throw new Error(`the caller answered ${statusCode} ${text}`);
}

/** The processor time that workerd has used, or 0 if the system does not report it. */
function processorUs() {
  const workerd = workerdPid();
  if (workerd === undefined) return 0;
  const threads = readdirSync(`/proc/${workerd}/task`).map((thread) => proc(`/proc/${workerd}/task/${thread}/schedstat`));
  return threads.reduce((sum, ns) => sum + Number(ns.split(" ")[0]), 0) / 1_000;
}

/** The memory that workerd uses, or 0 if the system does not report it. */
function rssKib() {
  return Number(proc(`/proc/${workerdPid()}/status`).match(/VmRSS:\s+(\d+)/)?.[1] ?? 0);
}

function workerdPid() {
  const children = proc(`/proc/self/task/${process.pid}/children`).split(" ");
  return children.find((pid) => proc(`/proc/${pid}/comm`).trim() === "workerd");
}

/** Reads a file in /proc. Empty if it does not exist, for example because the thread has just ended. */
function proc(file) {
  try {
    return readFileSync(file, "utf8");
  } catch {
    return "";
  }
}

/** Measures sequential decisions on each route in turn. */
async function latency(routes) {
  const taken = Object.fromEntries(Object.keys(routes).map((name) => [name, []]));
  for (let call = 0; call < CALLS * 1.1; call += 1) {
    for (const [name, route] of Object.entries(routes)) {
      const began = performance.now();
      await route("198.51.100.1");
      if (call >= CALLS * 0.1) taken[name].push(performance.now() - began);
    }
  }
  const [exact, leased, peer, floor] = Object.values(taken).map(median);
  const us = (ms) => `${(ms * 1_000).toFixed(0)} us`;
  row("over HTTP, one decision after another, median", us(exact), us(peer), (peer / exact).toFixed(2), ">= 1.00, theirs by ours");
  row("the same, leased", us(leased), us(peer), (peer / leased).toFixed(2), "");
  row("  for comparison: a Worker that limits nothing", us(floor), us(peer), (peer / floor).toFixed(2), "");
}

async function throughput(who, clients, routes) {
  const counts = Object.fromEntries(Object.keys(routes).map((name) => [name, []]));
  for (let round = 0; round <= rounds; round += 1) {
    for (const [name, route] of Object.entries(routes)) {
      const count = await perSecond(route, clients);
      // The first round is a warm-up.
      if (round > 0) counts[name].push(count);
    }
  }
  const [exact, leased, peer, floor] = Object.values(counts).map(median);
  const shown = (count) => Math.round(count).toLocaleString("en");
  row(`over HTTP, decisions/s, ${IN_FLIGHT} in flight, ${who}`, shown(exact), shown(peer), (exact / peer).toFixed(2), ">= 1.00");
  row("the same, leased", shown(leased), shown(peer), (leased / peer).toFixed(2), ">= 3.00");
  row("  for comparison: a Worker that limits nothing", shown(floor), shown(peer), (floor / peer).toFixed(2), "");
}

async function perSecond(route, clients) {
  const began = performance.now();
  let done = 0;
  await Promise.all(
    Array.from({ length: IN_FLIGHT }, async (_, place) => {
      for (let next = place; performance.now() - began < ROUND_MS; next += IN_FLIGHT) {
        await route(clients[next % clients.length]);
        done += 1;
      }
    }),
  );
  return (done / (performance.now() - began)) * 1_000;
}

/** Requests a decision. No client reaches its limit, so an answer other than "allowed" is an error. */
async function ask(pool, path, client) {
  const { statusCode, body } = await pool.request({ path, method: "GET", headers: { "cf-connecting-ip": client } });
  const text = await body.text();
  if (statusCode !== 200 || text !== "allowed\n") throw new Error(`${path} answered ${statusCode} ${text}`);
}

function pool(url) {
  return new Pool(url.origin, { connections: IN_FLIGHT });
}

/** A built Worker. Without `entry`, the build is its own entry. */
function wasm(name, built, more, entry) {
  const modules = [
    { type: "ESModule", path: "/build/index.js", contents: readFileSync(path.join(built, "index.js"), "utf8") },
    { type: "CompiledWasm", path: "/build/index_bg.wasm", contents: readFileSync(path.join(built, "index_bg.wasm")) },
  ];
  if (entry) modules.unshift({ type: "ESModule", path: "/worker.mjs", contents: readFileSync(entry, "utf8") });
  return worker(name, { modulesRoot: "/", modules, ...more });
}

function module(name, more) {
  const root = import.meta.dirname;
  return worker(name, { modulesRoot: root, modules: [{ type: "ESModule", path: path.join(root, `${name}.mjs`) }], ...more });
}

function worker(name, more) {
  return { name, compatibilityDate: COMPATIBILITY_DATE, unsafeDirectSockets: [{ host: "127.0.0.1", port: 0 }], ...more };
}

/** The size of an upload as the platform counts it: gzipped, with all JavaScript in one file without comments, as wrangler does. */
function size() {
  const kib = (folder, entry = "") => {
    const script = readFileSync(path.join(folder, "index.js"), "utf8") + transformSync(entry).code;
    const weights = [script, readFileSync(path.join(folder, "index_bg.wasm"))].map((file) => gzipSync(file, { level: 9 }).length);
    return (weights[0] + weights[1]) / 1_024;
  };
  const least = kib(args.least);
  const beside = (what, size, target) =>
    row(what, `${size.toFixed(1)} KiB`, `${least.toFixed(1)} KiB`, `+${(size - least).toFixed(1)}`, target);
  beside("gzipped Worker, compared with the smallest one", kib(args.built, readFileSync(ENTRY, "utf8")), "<= +40 KiB");
  beside("  for comparison: with a gate and one exact limit", kib(args.one), "");
}

function median(values) {
  return values.sort((a, b) => a - b)[values.length >> 1];
}
