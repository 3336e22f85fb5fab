// Emulates Workers KV as Cloudflare documents it. Miniflare's own emulation shows every write everywhere at once. This
// is a Worker behind the guest's real KV binding:
//
// - A location sees its own writes at once, and other locations' writes after a delay.
// - A location caches what it reads, including the absence of a value.
// - A key accepts one write per second. Further writes are answered with 429.
// - A key has at most 512 bytes, and a value lives for at least 60 s.
//
// Time is virtual: each operation puts its time in front of the key, as in `1800000000000|key`. Without it, the wall
// clock applies.

import { WorkerEntrypoint } from "cloudflare:workers";

const REPLICATION_MS = 60_000;
const CACHE_S = 60;
const CACHE_MIN_S = 30;
const WRITE_SPACING_MS = 1_000;
const TTL_MIN_S = 60;
const KEY_BYTES_MAX = 512;

/** The writes to each key in the order of their arrival: `{ at, location, value, until }`. */
const written = new Map();
/** The cached reads of each location: `{ until, value }`. */
const cached = new Map();
const counts = { kvReads: 0, kvWrites: 0, kvThrottled: 0, kvKeyBytesMax: 0 };
/** The answers to writes that are still to be lost, and those that were. */
const answers = { toLose: 0, lost: 0 };

/** A binding whose calls fail. */
export class Failing extends WorkerEntrypoint {
  limit() {
    throw new Error("internal error; reference = 0a1b");
  }
}

/** The namespace as seen from one location. */
export class Location extends WorkerEntrypoint {
  async fetch(request) {
    const url = new URL(request.url);
    const { now, key } = timed(decodeURIComponent(url.pathname.slice(1)));
    const { location } = this.ctx.props;
    const bytes = new TextEncoder().encode(key).length;
    counts.kvKeyBytesMax = Math.max(counts.kvKeyBytesMax, bytes);
    if (bytes > KEY_BYTES_MAX) return refused(414, `UTF-8 encoded length of ${bytes} exceeds key length limit`);
    switch (request.method) {
      case "GET":
        return get(location, key, now, number(url, "cache_ttl", CACHE_S));
      case "PUT":
        return put(location, key, now, number(url, "expiration_ttl", Infinity), await request.arrayBuffer());
      default:
        return refused(405, "Method Not Allowed");
    }
  }
}

function get(location, key, now, cacheSeconds) {
  counts.kvReads += 1;
  if (cacheSeconds < CACHE_MIN_S) return refused(400, `Invalid cache_ttl of ${cacheSeconds}`);
  const place = JSON.stringify([location, key]);
  let found = cached.get(place);
  if (found === undefined || found.until <= now) {
    found = { until: now + cacheSeconds * 1_000, value: visible(location, key, now) };
    cached.set(place, found);
  }
  return found.value === undefined ? refused(404, "Not Found") : new Response(found.value);
}

function visible(location, key, now) {
  const sees = (write) => write.location === location || write.at + REPLICATION_MS <= now;
  const newest = written.get(key)?.findLast(sees);
  return newest !== undefined && newest.until > now ? newest.value : undefined;
}

function put(location, key, now, ttlSeconds, value) {
  counts.kvWrites += 1;
  if (ttlSeconds < TTL_MIN_S) return refused(400, `Invalid expiration_ttl of ${ttlSeconds}`);
  const writes = written.get(key) ?? [];
  if (writes.length > 0 && Math.abs(now - writes.at(-1).at) < WRITE_SPACING_MS) {
    counts.kvThrottled += 1;
    return refused(429, "Too Many Requests");
  }
  writes.push({ at: now, location, value, until: now + ttlSeconds * 1_000 });
  written.set(key, writes);
  cached.delete(JSON.stringify([location, key]));
  if (answers.toLose === 0) return new Response();
  answers.toLose -= 1;
  answers.lost += 1;
  return refused(500, "Internal Server Error");
}

function timed(name) {
  const [, virtual, key] = /^(?:(\d+)\|)?(.*)$/s.exec(name);
  return { now: virtual === undefined ? Date.now() : Number(virtual), key };
}

function number(url, parameter, otherwise) {
  const value = url.searchParams.get(parameter);
  return value === null ? otherwise : Number(value);
}

function refused(status, statusText) {
  return new Response(statusText, { status, statusText });
}

/** Everything that the namespace remembers, in a form that JSON can hold. */
function dump() {
  const bytes = ({ value, ...rest }) => ({ ...rest, value: value && [...new Uint8Array(value)] });
  const all = (map, change) => [...map].map(([key, of]) => [key, change(of)]);
  return { counts, written: all(written, (writes) => writes.map(bytes)), cached: all(cached, bytes) };
}

function load(dumped) {
  const whole = ({ value, until, ...rest }) => ({ ...rest, until: until ?? Infinity, value: value && new Uint8Array(value) });
  Object.assign(counts, dumped.counts);
  for (const [key, writes] of dumped.written) written.set(key, writes.map(whole));
  for (const [place, read] of dumped.cached) cached.set(place, whole(read));
}

/** Answers the suite's own requests, which do not use the binding. */
export default {
  async fetch(request) {
    switch (new URL(request.url).pathname) {
      case "/counts":
        return Response.json(counts);
      case "/corrupt":
        for (const write of [...written.values()].flat()) write.value = new TextEncoder().encode("not ours");
        cached.clear();
        return Response.json({});
      // Loses the answers to the next writes.
      case "/lose":
        answers.toLose = Number(new URL(request.url).searchParams.get("count"));
        return Response.json(answers.lost);
      case "/lost":
        return Response.json(answers.lost);
      // The namespace outlives this process.
      case "/dump":
        return Response.json(dump());
      case "/load":
        load(await request.json());
        return Response.json({});
      default:
        return refused(404, "Not Found");
    }
  },
};
