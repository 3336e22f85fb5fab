// Wraps the guest's Worker to count the operations on its bindings. Also contains object classes that misbehave.

import { DurableObject, WorkerEntrypoint, env } from "cloudflare:workers";
import unsafe from "workerd:unsafe";
import Guest, { Tidegate as Counted } from "./worker.mjs";

export default Guest;

const counts = { objectsMade: 0, objectCalls: 0, rowsRead: 0, rowsWritten: 0, alarmsSet: 0, limiterCalls: 0, denials: [] };

/** Calls `seen` with the arguments and the result of each call of a method. */
function watch(object, method, seen) {
  const prototype = Object.getPrototypeOf(object);
  const original = prototype[method];
  // A stub of another Worker has every method, and its prototype none.
  if (original === undefined || original.watched) return;
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

/** The answers that are still to be lost, and those that were. */
const answers = { toLose: 0, lost: 0 };

/** The guest's class. */
export class Tidegate extends DurableObject {
  constructor(state, env) {
    super(state, env);
    objects.add(state.id);
    counts.objectsMade += 1;
    try {
      watch(state.storage.kv, "get", () => (counts.rowsRead += 1));
      watch(state.storage.kv, "put", () => (counts.rowsWritten += 1));
      watch(state.storage.kv, "delete", (_, deleted) => (counts.rowsWritten += Number(deleted)));
    } catch {
      // The class has no SQLite storage. A test asks what Tidegate answers then.
    }
    watch(state.storage, "setAlarm", () => (counts.alarmsSet += 1));
    this.storage = state.storage;
    this.counted = new Counted(state, env);
  }

  answer(question) {
    counts.objectCalls += 1;
    const answer = this.counted.answer(question);
    return answers.toLose > 0 ? this.lose(answer) : answer;
  }

  /** Ends the object, with all its calls, when what it has answered is stored. */
  async lose(answer) {
    answers.toLose -= 1;
    await answer;
    await this.storage.sync();
    answers.lost += 1;
    // What the platform says then.
    this.ctx.abort("Network connection lost.");
  }

  corrupt() {
    for (const [key] of [...this.storage.kv.list()]) this.storage.kv.put(key, "not ours");
  }

  alarm() {
    return this.counted.alarm();
  }
}

/** Serves one call at a time, 20 per second. */
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

/** Ends five times before it answers, with something in the error that is for nobody's log. */
export class Telling extends Tidegate {
  static toFail = 5;

  answer(question) {
    if (Telling.toFail-- > 0) this.ctx.abort("Network connection lost: rediss://default:hunter2@198.51.100.7");
    return super.answer(question);
  }
}

function later(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** A class that is not Tidegate's. */
export class Stranger extends DurableObject {
  answer() {
    return "hello";
  }
}

/** A class that other Workers cannot call. */
export class Mute extends DurableObject {}

/** Answers the suite's own requests, which do not reach the guest. */
export class Host extends WorkerEntrypoint {
  async fetch(request) {
    switch (new URL(request.url).pathname) {
      case "/counts":
        return Response.json(counts);
      // Drops all objects from memory, as the platform does with an idle object.
      case "/evict":
        await unsafe.abortAllDurableObjects();
        return Response.json({});
      // Overwrites the state of every key. What objects have in memory does not change.
      case "/corrupt":
        await Promise.all([...objects].map((id) => this.env.TIDEGATE.get(id).corrupt()));
        return Response.json({});
      // Loses the next answers.
      case "/lose":
        answers.toLose = Number(new URL(request.url).searchParams.get("count"));
        return Response.json(answers.lost);
      case "/lost":
        return Response.json(answers.lost);
      case "/plain":
        return Response.json({ allowed: await plain(this.env.COUNTS, new URL(request.url).searchParams) });
      default:
        return new Response("not found", { status: 404 });
    }
  }
}

/** A counter without Tidegate: it reads, decides and writes. */
async function plain(kv, asked) {
  const key = `${asked.get("now")}|plain:${asked.get("key")}`;
  const used = Number(await kv.get(key)) || 0;
  if (used >= Number(asked.get("limit"))) return false;
  await kv.put(key, String(used + 1), { expirationTtl: 3_600 }).catch(() => {});
  return true;
}
