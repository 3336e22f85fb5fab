import * as glue from "#versioned/glue";
import module from "#versioned/module";
import { type Answer, CONFLICT_PAUSE_MS_MAX, pause, type Wanted } from "../../versioned.js";
import { Calls, NOTHING } from "../../calls.js";
import { start } from "../../engine.js";
import { invalid } from "../../error.js";
import { Fields } from "../../fields.js";
import { Limiter } from "../../limiter.js";
import { COMMON, common, type Options } from "../../options.js";
import { Queue } from "../../queue.js";

export * from "../../exports.js";

type Name = readonly [string, string];

/** The part of `Deno.Kv` that is used. */
export interface DenoKv {
  get(name: Name, options: { consistency: "strong" }): Promise<{ value: unknown; versionstamp: string | null }>;
  delete(name: Name): Promise<unknown>;
  atomic(): Atomic;
}

interface Atomic {
  check(entry: { key: Name; versionstamp: string | null }): Atomic;
  set(name: Name, value: Uint8Array, options: { expireIn: number }): Atomic;
  commit(): Promise<{ ok: boolean }>;
}

/** The options of a limiter on Deno KV. */
export interface DenoKvOptions extends Options {
  /** `await Deno.openKv()`. */
  kv: DenoKv;
  /** Keeps every state for at least this long. Only for tests whose time stands still. */
  minTtlMs?: number | undefined;
}

const engine = start(module, glue);

/** The error if another process uses the store's file at this moment. Then nothing was read or written. */
const LOCKED = "database is locked";

/** The most attempts to use such a file. */
const ATTEMPTS = 64;

/**
 * A limiter on Deno KV. It is exact at any concurrency: a decision is a read and an atomic write that checks the version stamp,
 * which are repeated if another write came first. The keys are `["tidegate", …]`.
 *
 *     const tidegate = new Tidegate({ kv: await Deno.openKv(), platform: "direct", failMode: "open", policy });
 */
export class Tidegate extends Limiter {
  constructor(options: DenoKvOptions) {
    const fields = new Fields(options, "", [...COMMON, "kv", "minTtlMs"]);
    const ready = { ...common(fields, 2_000), queue: new Queue(), storeName: "deno kv", readsLastWrite: true, minTtlMs: fields.whole("minTtlMs") ?? 0 };
    const right = "await Deno.openKv()";
    const kv = fields.need("kv", fields.get("kv"), right) as DenoKv;
    if ((["get", "atomic", "delete"] as const).some((name) => typeof kv[name] !== "function")) throw invalid("kv", `not a store; write ${right}`);
    super(engine, ready, (gate) => new Calls(gate, (wanted) => ask(kv, wanted), ready));
  }
}

async function ask(kv: DenoKv, wanted: string): Promise<Answer> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await askOnce(kv, wanted);
    } catch (thrown) {
      if (attempt === ATTEMPTS || (thrown as Error | undefined)?.message !== LOCKED) throw thrown;
      await pause(CONFLICT_PAUSE_MS_MAX);
    }
  }
}

async function askOnce(kv: DenoKv, wanted: string): Promise<Answer> {
  const [verb, key, bytes, version, ttlMs] = JSON.parse(wanted) as Wanted;
  const name = ["tidegate", key] as const;
  if (verb === "read") {
    const { value, versionstamp } = await kv.get(name, { consistency: "strong" });
    if (versionstamp === null) return [404, NOTHING];
    return [200, value instanceof Uint8Array ? value : NOTHING, versionstamp];
  }
  if (verb === "delete") {
    await kv.delete(name);
    return [200, NOTHING];
  }
  const write = kv.atomic().check({ key: name, versionstamp: version });
  const { ok } = await write.set(name, Uint8Array.from(bytes), { expireIn: ttlMs }).commit();
  if (ok) return [200, NOTHING];
  await pause(CONFLICT_PAUSE_MS_MAX);
  return [412, NOTHING];
}
