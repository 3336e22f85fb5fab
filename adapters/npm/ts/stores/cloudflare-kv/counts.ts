import { said, type Store } from "../../calls.js";
import type { Core } from "../../core.js";
import type { KvEngine, KvLimit } from "../../glue.js";
import type { Question } from "../../question.js";
import type { Kv } from "./index.js";

/** The longest that the writes of a flush may take. */
const WRITES_MS_MAX = 30_000;

/** Whether the isolate's counts have their random numbers: Workers have none before their first request. */
let isSeeded = false;

/** Asks the isolate's counts, and carries what they read and write. */
export class Counts implements Store {
  readonly name = "Workers KV";
  readonly #engine: KvEngine;
  readonly #core: Core<KvLimit>;
  readonly #namespace: Kv;
  readonly #cacheTtl: number;

  constructor(engine: KvEngine, core: Core<KvLimit>, namespace: Kv, cacheTtl: number) {
    this.#engine = engine;
    this.#core = core;
    this.#namespace = namespace;
    this.#cacheTtl = cacheTtl;
  }

  send(question: Question): Promise<unknown> | undefined {
    if (!isSeeded) this.#seed();
    const { kind, cost, now, extra } = question;
    const length = this.#core.took(this.#core.limit.ask(kind, this.#core.pass(question), cost, now, extra));
    if (length === 0) return undefined;
    question.note = this.#core.extra;
    return this.#get(this.#core.text(length));
  }

  answered({ kind, key, cost, now, note }: Question, found: unknown): undefined {
    this.#core.push(key);
    const length = found instanceof ArrayBuffer ? this.#core.writeBytes(new Uint8Array(found)) : -1;
    this.#core.took(this.#core.limit.read(kind, length, cost, now, note));
  }

  threw(question: Question, thrown: unknown): undefined {
    this.#core.took(this.#alone(question, said(thrown)));
  }

  late(question: Question): boolean {
    return this.#alone(question, "no answer in time") === 0;
  }

  /** Writes what is due. Returns how long to wait until the next time, or a negative number if another request does it. */
  async flush(now: number): Promise<number> {
    if (!isSeeded) return -1;
    const [core, { limit }] = [this.#core, this.#core];
    const puts = Array.from({ length: limit.due(now) }, (_, nth) => {
      const bytes = core.bytes(limit.put(nth));
      const [expirationTtl, [key, name]] = [core.extra, core.text(limit.putNames(nth)).split("\n")];
      return { key: key!, name: name!, bytes, expirationTtl };
    });
    const until = Date.now() + WRITES_MS_MAX;
    for (const { key, name, bytes, expirationTtl } of puts) {
      let why: string | undefined;
      try {
        await within(until - Date.now(), this.#namespace.put(name, bytes.buffer, { expirationTtl }));
      } catch (thrown) {
        why = said(thrown);
      }
      core.push(key);
      if (why !== undefined) core.push(why);
      limit.wrote();
    }
    return limit.appoint(now);
  }

  async #get(name: string): Promise<ArrayBuffer | null> {
    return this.#namespace.get(name, { type: "arrayBuffer", cacheTtl: this.#cacheTtl });
  }

  /** Decides without a value. */
  #alone({ kind, key, cost, now, note }: Question, why: string): number {
    this.#core.push(key);
    return this.#core.limit.failed(kind, this.#core.write(why), cost, now, note);
  }

  #seed(): void {
    const [a, b] = crypto.getRandomValues(new Uint32Array(2));
    this.#engine.seed(a!, b!);
    isSeeded = true;
  }
}

/** Waits for work, for so many milliseconds at most. */
async function within<T>(ms: number, work: Promise<T>): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error("no answer in time")), Math.max(ms, 0));
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}
