// Compares the speed of a built Worker with a peer in the same workerd, and measures its size:
//
//   node bench.mjs --built FOLDER --one FOLDER --least FOLDER --js FOLDER [--keys N] [speed] [size] [start] [keys]
//
// The folders contain the output of worker-build for conformance/guests/cloudflare, cloudflare-one and
// cloudflare-least, and that of hosts/edge/cloudflare.mjs for conformance/guests/cloudflare-js. The peer is peer.mjs.
//
// `speed` measures the routes in turn and compares the medians of the rounds. Within workerd, caller.mjs calls the
// Workers over service bindings. Over HTTP, this process calls them, and the client uses the same cores. For the
// objects alone, asker.mjs calls both kinds from one Worker. `start` measures how long a new workerd takes to answer. `keys` measures one object while its keys grow to a
// million, or to --keys. It takes minutes.

import { existsSync, readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { parseArgs } from "node:util";
import { gzipSync } from "node:zlib";
import { transformSync } from "esbuild";
import { Log, LogLevel, Miniflare } from "miniflare";
import { Pool } from "undici";
import { ROUNDS, inTurn, median, record, shortened } from "../../measured/measured.mjs";

// Store objects in memory if this folder exists. Otherwise, syncing the disk takes longer than everything else.
if (existsSync("/dev/shm")) process.env.TMPDIR = "/dev/shm";

const IN_FLIGHT = 64;
const ROUND_MS = 300;
/** Sequential requests per route and round over HTTP. */
const CALLS = 200;
/** Requests per route and round within workerd, after a warm-up with half as many. */
const CALLS_IN_TURN = 500;
/** Warm-up requests per route, so that V8 has optimised the code, as in a long-lived Worker. */
const CALLS_BEFORE = 12_000;
/** The number of clients. All their objects are in memory before the measurement. */
const CLIENTS = 200;
const CAPACITY = 1_000_000_000;
/** The largest lease of an isolate: a small part of the capacity, and more than arrives during the call for the next lease. */
const SLICE = 1_000;
/** How long a lease lasts at most: what `leases: true` and `"lease": true` in a rules file mean. */
const LEASE_MS = 60_000;
const REFILL_PER_MS = 1_000;
const PEER_NAME = "the same in JavaScript";
const LEAST = "a minimal worker app";
/** The entry of the Worker that is measured. */
const ENTRY = path.join(import.meta.dirname, "../../guests/cloudflare/worker.mjs");
const COMPATIBILITY_DATE = "2026-04-01";
const TIDEGATE = {
  bindings: { CAPACITY: `${CAPACITY}`, REFILL_PER_S: `${REFILL_PER_MS * 1_000}`, SLICE: `${SLICE}`, LEASE_MS: `${LEASE_MS}` },
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
  javascript: { worker: "JS", path: "/do" },
  javascriptLeased: { worker: "JS", path: "/do-leased" },
  least: { worker: "LEAST", path: "/" },
  floor: { worker: "PEER", path: "/unlimited" },
};
const CALLER = { serviceBindings: { ASKER: "asker", TIDEGATE: "tidegate", JS: "js", LEAST: "least", PEER: "peer" } };

const { values: args, positionals: only } = parseArgs({
  allowPositionals: true,
  options: {
    built: { type: "string" },
    js: { type: "string" },
    one: { type: "string" },
    least: { type: "string" },
    keys: { type: "string", default: "1000000" },
  },
});
const MEASUREMENTS = ["speed", "size", "start", "keys"];
const unknown = only.find((name) => !MEASUREMENTS.includes(name));
if (unknown !== undefined) {
  console.error(`bench.mjs: ${unknown} is not measured; write ${MEASUREMENTS.join(", ")}, or nothing for all but keys`);
  process.exit(2);
}
const named = (name) => only.length === 0 || only.includes(name);

if (only.includes("keys")) await keys();
if (named("speed")) await speed();
if (named("size")) size();
if (named("start")) await coldStart();

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
  const miniflare = await start(wasm("least", args.least), javascript(), module("caller", CALLER));
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
    await recordQuestion(recorded);
    const clients = Array.from({ length: CLIENTS }, (_, place) => `198.51.${100 + (place >> 8)}.${place & 255}`);
    for (const route of Object.values(routes)) {
      for (const client of clients) await route(client);
    }
    for (const route of Object.values(WITHIN)) {
      for (let calls = 0; calls < shortened(CALLS_BEFORE); calls += CALLS_IN_TURN) await askWithin(caller, route, CALLS_IN_TURN, 1, clients);
    }
    for (const inFlight of [1, 8, 64, 512]) await within(caller, "", inFlight, clients, { in_flight: inFlight });
    await within(caller, `, ${IN_FLIGHT} in flight at one object`, IN_FLIGHT, [clients[0]]);
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
    await recordQuestion(recorded);
    const asker = pool(await miniflare.unsafeGetDirectURL("asker"));
    const asked = async (question) => {
      const { statusCode, body } = await asker.request({ path: "/keys", method: "POST", body: JSON.stringify(question), reset: true });
      const text = await body.text();
      if (statusCode !== 200) throw new Error(`the asker answered ${statusCode} ${text}`);
      return JSON.parse(text);
    };
    let from = 1_000_000_000;
    const us = async (question) => (await asked({ from: 0, count: 1_000, inFlight: 1, ...question })).ms;
    let count = 0;
    for (let size = 1_000; size <= Number(args.keys); size *= 10) {
      let slowestMs = 0;
      for (; count < size; count += 1_000) {
        const filled = await asked({ from: count, count: 1_000, inFlight: IN_FLIGHT });
        slowestMs = Math.max(slowestMs, filled.slowestMs);
      }
      const taken = await inTurn({
        "one of 100 keys": () => us({ among: 100 }),
        "any key": () => us({ among: size }),
        "a new key": () => us({ from: (from += 1_000) }),
      });
      const measured = { group: "durable object on workerd", at: { keys: size } };
      // A thousand calls in so many milliseconds are as many microseconds for each.
      for (const [which, ours] of Object.entries(taken)) record({ ...measured, name: `a call, ${which}`, unit: "us", ours });
      record({ ...measured, name: "workerd's memory", unit: "KiB", ours: [rssKib()] });
      console.error(`the slowest call while the keys grew to ${size} took ${slowestMs.toFixed(0)} ms`);
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
async function within(caller, how, inFlight, clients, at) {
  const turn = async (route) => {
    await askWithin(caller, route, shortened(CALLS_IN_TURN / 2), inFlight, clients);
    const [began, computed, calls] = [performance.now(), processorUs(), shortened(CALLS_IN_TURN)];
    await askWithin(caller, route, calls, inFlight, clients);
    return [((performance.now() - began) * 1_000) / calls, Math.max(processorUs() - computed, 0) / calls];
  };
  const taken = Object.fromEntries(Object.keys(WITHIN).map((name) => [name, []]));
  for (let round = 0; round < ROUNDS; round += 1) {
    const turns = Object.entries(WITHIN);
    for (const [name, route] of round % 2 === 0 ? turns : turns.reverse()) taken[name].push(await turn(route));
  }
  const compare = (what, place, aims) => {
    const us = (name) => taken[name].map((turn) => turn[place]);
    const beside = (name, ours, theirs, ratio) =>
      record({ group: "cloudflare", name: `${what}${how}: ${name}`, at, unit: "us", aim: ratio && { ratio }, ours: us(ours), peer: { name: PEER_NAME, values: us(theirs) } });
    beside("the object", "object", "peerObject", aims.exact);
    beside("the Worker and its object", "exact", "peer", aims.exact);
    beside("the Worker, leased", "leased", "peer", aims.leased);
    beside("the npm package and its object", "javascript", "peer", aims.exact && 1.25);
    beside("the npm package, leased", "javascriptLeased", "peer", aims.leased);
    beside("for comparison, the smallest Rust Worker", "least", "peer");
    beside("for comparison, a Worker that limits nothing", "floor", "peer");
  };
  compare("within workerd", 0, { exact: 1, leased: 1 / 3 });
  if (processorUs() > 0) compare("processor time", 1, {});
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

/** Records the routes beside the peer's. */
function routesBeside(name, unit, taken, aims) {
  const peer = { name: PEER_NAME, values: taken.peer };
  for (const [route, text] of [["exact", "the Worker and its object"], ["leased", "the Worker, leased"], ["floor", "for comparison, a Worker that limits nothing"]]) {
    record({ group: "cloudflare", name: `${name}: ${text}`, unit, aim: aims[route] && { ratio: aims[route] }, ours: taken[route], peer });
  }
}

/** Measures sequential decisions on each route in turn. */
async function latency(routes) {
  const medianUs = async (route) => {
    const taken = [];
    for (let call = 0; call < shortened(CALLS); call += 1) {
      const began = performance.now();
      await route("198.51.100.1");
      taken.push((performance.now() - began) * 1_000);
    }
    return median(taken);
  };
  const measures = Object.fromEntries(Object.entries(routes).map(([name, route]) => [name, () => medianUs(route)]));
  routesBeside("over HTTP, one decision after another", "us", await inTurn(measures), { exact: 1 });
}

async function throughput(who, clients, routes) {
  const measures = Object.fromEntries(Object.entries(routes).map(([name, route]) => [name, () => perSecond(route, clients)]));
  routesBeside(`over HTTP, decisions a second, ${IN_FLIGHT} in flight, ${who}`, "1/s", await inTurn(measures), { exact: 1, leased: 3 });
}

async function perSecond(route, clients) {
  const began = performance.now();
  let done = 0;
  await Promise.all(
    Array.from({ length: IN_FLIGHT }, async (_, place) => {
      for (let next = place; performance.now() - began < shortened(ROUND_MS); next += IN_FLIGHT) {
        await route(clients[next % clients.length]);
        done += 1;
      }
    }),
  );
  return (done / (performance.now() - began)) * 1_000;
}

/** Makes Tidegate's Worker ask a Recorder, which asker.mjs has, instead of an object. The Worker answers that it failed. */
async function recordQuestion(recorded) {
  const { statusCode, body } = await recorded.request({ path: "/do", method: "GET", headers: { "cf-connecting-ip": "198.51.100.0" } });
  const text = await body.text();
  if (statusCode !== 503) throw new Error(`/do answered ${statusCode} ${text}`);
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

/** The bundled Worker with the npm package. */
function javascript() {
  const modules = [{ type: "ESModule", path: "/worker.mjs", contents: readFileSync(path.join(args.js, "worker.mjs"), "utf8") }];
  return worker("js", { modulesRoot: "/", modules, ...TIDEGATE });
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
  const beside = (name, ours) =>
    record({ group: "size, gzipped", name, unit: "KiB", aim: { value: least + 40 }, ours: [ours], peer: { name: LEAST, values: [least] } });
  beside("the Worker with all four Cloudflare routes", kib(args.built, readFileSync(ENTRY, "utf8")));
  beside("a Worker with a gate and one exact limit", kib(args.one));
}

/** From the start of workerd to the first answer. Both times include the start of workerd itself. */
async function coldStart() {
  const firstMs = async (worker, route) => {
    const began = performance.now();
    const miniflare = new Miniflare({ host: "127.0.0.1", port: 0, cf: false, log: new Log(LogLevel.ERROR), workers: [worker] });
    try {
      const url = await miniflare.ready;
      const { status } = await miniflare.dispatchFetch(new URL(route, url), { headers: { "cf-connecting-ip": "198.51.100.1" } });
      if (status !== 200) throw new Error(`${route} answered ${status}`);
      return performance.now() - began;
    } finally {
      await miniflare.dispose();
    }
  };
  const { ours, theirs } = await inTurn({
    ours: () => firstMs(wasm("tidegate", args.built, TIDEGATE, ENTRY), "/do"),
    theirs: () => firstMs(wasm("least", args.least), "/"),
  });
  record({ group: "cold start", name: "from the start of workerd to the Worker's first decision by an object", unit: "ms", ours, peer: { name: `${LEAST}'s first answer`, values: theirs } });
}
