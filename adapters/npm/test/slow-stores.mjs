// Limiters on a redis-server that is slow and answers each call before the deadline, each with one of the options that a store has.

import { once } from "node:events";
import { connect, createServer } from "node:net";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { after } from "node:test";
import { Tidegate as OnUpstash } from "@tidegate/edge";
import { Gate } from "@tidegate/edge/gate";
import { Tidegate as Memory } from "@tidegate/edge/memory";
import { Tidegate as OnRedis } from "@tidegate/edge/redis";
import { Redis } from "ioredis";
import { upstash } from "./servers.mjs";

export const DEADLINE_MS = 2_500;
export const DAY = 86_400_000;

export const server = await upstash();
const ends = [() => server.stop()];
after(async () => {
  for (const end of ends.reverse()) await end();
});

/** A proxy to a loopback port whose answers take as long as `delayMs()` says, each by itself. Returns its port. */
async function slowly(port, delayMs) {
  const sockets = new Set();
  const proxy = createServer((near) => {
    const far = connect(Number(port), "127.0.0.1");
    for (const socket of [near, far]) sockets.add(socket.on("error", () => undefined).on("close", () => (near.destroy(), far.destroy(), sockets.delete(socket))));
    near.on("data", (bytes) => far.write(bytes));
    far.on("data", (bytes) => setTimeout(() => near.destroyed || near.write(bytes), delayMs()));
  }).listen(0, "127.0.0.1");
  await once(proxy, "listening");
  ends.push(() => {
    for (const socket of sockets) socket.destroy();
    proxy.close();
  });
  return proxy.address().port;
}

/** A client that keeps no commands. Its first connection is opened by the first check. */
export function clientOf(port) {
  const client = new Redis(port, "127.0.0.1", { enableOfflineQueue: false, autoResendUnfulfilledCommands: false, maxRetriesPerRequest: 0 });
  client.on("error", () => undefined);
  ends.push(() => client.disconnect());
  return client;
}

export const common = { platform: "direct", failMode: "open", deadlineMs: DEADLINE_MS, onError: () => undefined };

/** Makes limiters and gates with the options that a store has. `more` is what their nth check says beside its key. */
function decidersOn(place, prefix, limit) {
  const window = { fixedWindow: { limit, windowMs: DAY } };
  const on = { redis: (more) => new OnRedis({ ...common, client: clientOf(place.redis), ...more }), upstash: (more) => new OnUpstash({ ...common, url: place.upstash, token: server.token, ...more }) };
  const nameOf = (what) => `${prefix}-${what}`.replaceAll(" ", "-");
  const limiter = (make, what, { quotas = [window], options, more = () => ({}) } = {}) => ({ make: () => make({ policy: { name: nameOf(what), quotas }, ...options }), more });
  const gate = (what, stores, more) => {
    const quotas = [{ algorithm: "fixed_window", limit, window_ms: DAY }];
    const rules = { stores: { main: stores }, limits: { [nameOf(what)]: { quotas, ...more }, flood: { quotas: [{ ...quotas[0], limit: 10_000 }] } }, rules: [{ limits: [nameOf(what)], on_failure: "open" }] };
    const options = { platform: "direct", stores: { main: (limit) => on.redis({ ...limit, failMode: "open" }), memory: (limit) => new Memory(limit) }, onError: () => undefined };
    return { make: () => Gate.fromRules(rules, options), more: () => ({}) };
  };
  return {
    "redis, plain": limiter(on.redis, "plain"),
    "redis, leases": limiter(on.redis, "leases", { options: { leases: true } }),
    "redis, deny cache": limiter(on.redis, "deny cache", { options: { denyCache: true } }),
    "redis, tokens": limiter(on.redis, "tokens", { more: (nth) => ({ idempotency: { token: `t${nth}`, ttlMs: DAY } }) }),
    "redis, concurrency": limiter(on.redis, "concurrency", { quotas: [{ concurrency: { limit, lifetimeMs: DAY } }, window] }),
    "upstash, plain": limiter(on.upstash, "rest"),
    "upstash, leases": limiter(on.upstash, "rest leases", { options: { leases: true } }),
    "gate, leases": gate("gate leases", {}, { lease: { slice: 20, lifetime_ms: 60_000 } }),
    "gate, near and fallback": gate("gate near", { near: { store: "memory", limit: "flood" }, fallback: "memory" }, {}),
    "gate, deny cache": gate("gate cache", { deny_cache: true }, {}),
  };
}

/** The names of the options. */
export const OPTIONS = Object.keys(decidersOn({}, "", 1));

/** How much of the deadline a call takes, in percent. */
export const PERCENTS = [20, 50, 90];

/** A store of which a call takes this part of the deadline. Its first connection is slow, too, and then it is as fast as `quick` and `slow` say. */
export async function slowStore(percent) {
  // A client needs two answers to open a connection.
  let delayMs = (DEADLINE_MS * Math.min(percent, 45)) / 100;
  const [redis, rest] = await Promise.all([server.redis, server.url].map((url) => slowly(new URL(url).port, () => delayMs)));
  return {
    /** A limiter or a gate with an option, and what its nth check says beside its key. */
    with(name, prefix, limit) {
      const { make, more } = decidersOn({ redis, upstash: `http://127.0.0.1:${rest}` }, prefix, limit)[name];
      return { decider: make(), more };
    },
    quick: () => (delayMs = 0),
    slow: () => (delayMs = (DEADLINE_MS * percent) / 100),
  };
}

/** On a machine that lets a process wait this long, an answer at 90 % of the deadline may come after it. */
const BUSY_MS = 60;
const ATTEMPTS = 5;

/** Plays a case, which says what was opened, and which other answers were wrong. Where the machine kept the store from answering in time, the case is played again. */
export async function inTime(play) {
  for (let nth = 1; ; nth++) {
    const lag = monitorEventLoopDelay({ resolution: 10 });
    lag.enable();
    const played = await play(nth);
    lag.disable();
    const { opened, others = [] } = played;
    if (opened.length + others.length === 0 || lag.max / 1e6 < BUSY_MS || nth === ATTEMPTS) return played;
  }
}

/** Whether a check passed because of a failure, or was decided without the store. */
export const isOpen = ({ failedOpen, origin }) => failedOpen || origin === "fallback";
