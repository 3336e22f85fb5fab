// The guest's Worker with the suite's eyes on its bindings: what it does there is counted, and none of it changed.

import { DurableObject, WorkerEntrypoint, env } from "cloudflare:workers";
import unsafe from "workerd:unsafe";
import Guest, { Tidegate as Counted } from "./worker.mjs";

export default Guest;

const counts = { objectsMade: 0, objectCalls: 0, rowsWritten: 0, alarmsSet: 0, limiterCalls: 0, denials: [] };

/** Lets `seen` look at what each call of a method takes and answers. */
function watch(object, method, seen) {
  const prototype = Object.getPrototypeOf(object);
  const original = prototype[method];
  if (original.watched) return;
  prototype[method] = function (...args) {
    const answer = original.apply(this, args);
    seen(args, answer);
    return answer;
  };
  prototype[method].watched = true;
}

for (const binding of Object.values(env)) {
  if (typeof binding?.limit === "function") watch(binding, "limit", () => (counts.limiterCalls += 1));
  if (typeof binding?.writeDataPoint === "function") {
    watch(binding, "writeDataPoint", ([point]) => counts.denials.push(point));
  }
}

const objects = new Set();

/** The guest's class. */
export class Tidegate extends DurableObject {
  constructor(state, env) {
    super(state, env);
    objects.add(state.id);
    counts.objectsMade += 1;
    try {
      watch(state.storage.kv, "put", () => (counts.rowsWritten += 1));
      watch(state.storage.kv, "delete", (_, deleted) => (counts.rowsWritten += Number(deleted)));
    } catch {
      // A class without SQLite: what Tidegate says to that is what a test asks.
    }
    watch(state.storage, "setAlarm", () => (counts.alarmsSet += 1));
    this.storage = state.storage;
    this.counted = new Counted(state, env);
  }

  answer(question) {
    counts.objectCalls += 1;
    return this.counted.answer(question);
  }

  corrupt() {
    for (const [key] of [...this.storage.kv.list()]) this.storage.kv.put(key, "not ours");
  }

  alarm() {
    return this.counted.alarm();
  }
}

/** Serves one call at a time, 20 a second. */
export class Slow extends Tidegate {
  last = Promise.resolve();

  answer(question) {
    this.last = this.last.then(() => later(50));
    return this.last.then(() => super.answer(question));
  }
}

/** Answers no call within any deadline. */
export class Stuck extends Tidegate {
  answer(question) {
    return later(60_000).then(() => super.answer(question));
  }
}

function later(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** Some class that is not Tidegate's. */
export class Stranger extends DurableObject {
  answer() {
    return "hello";
  }
}

/** One that other Workers cannot call at all. */
export class Mute extends DurableObject {}

/** What the suite asks of it, past the guest. */
export class Host extends WorkerEntrypoint {
  async fetch(request) {
    switch (new URL(request.url).pathname) {
      case "/counts":
        return Response.json(counts);
      // Drops every object's memory, as the platform does with one that is idle or moves.
      case "/evict":
        await unsafe.abortAllDurableObjects();
        return Response.json({});
      // Writes over the state of every key. What an object has in memory stays as it is.
      case "/corrupt":
        await Promise.all([...objects].map((id) => this.env.TIDEGATE.get(id).corrupt()));
        return Response.json({});
      case "/plain":
        return Response.json({ allowed: await plain(this.env.COUNTS, new URL(request.url).searchParams) });
      default:
        return new Response("not found", { status: 404 });
    }
  }
}

/** The counter that one would write without Tidegate: it reads, decides and writes. */
async function plain(kv, asked) {
  const key = `${asked.get("now")}|plain:${asked.get("key")}`;
  const used = Number(await kv.get(key)) || 0;
  if (used >= Number(asked.get("limit"))) return false;
  await kv.put(key, String(used + 1), { expirationTtl: 3_600 }).catch(() => {});
  return true;
}
