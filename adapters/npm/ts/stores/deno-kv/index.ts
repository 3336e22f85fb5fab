import { invalid } from "../../error.js";
import { Fields } from "../../fields.js";
import { COMMON, type Options } from "../../options.js";
import { pause } from "../../versioned.js";
import { VersionedLimiter } from "../../versioned_limiter.js";
import type { VersionedStore } from "../../versioned_store.js";

export * from "../../store_exports.js";

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
export class Tidegate extends VersionedLimiter {
  constructor(options: DenoKvOptions) {
    const fields = new Fields(options, "", [...COMMON, "kv", "minTtlMs"]);
    const right = "await Deno.openKv()";
    const kv = fields.need("kv", fields.get("kv"), right) as DenoKv;
    if ((["get", "atomic", "delete"] as const).some((name) => typeof kv[name] !== "function")) throw invalid("kv", `not a store; write ${right}`);
    const { kv: _, ...others } = options;
    super({ ...others, store: storeOf(kv) });
  }
}

function storeOf(kv: DenoKv): VersionedStore {
  const nameOf = (name: string): Name => ["tidegate", name];
  const swap = (name: string, bytes: Uint8Array, versionstamp: string | null, ttlMs: number) =>
    whileLocked(async () => {
      const write = kv.atomic().check({ key: nameOf(name), versionstamp });
      return (await write.set(nameOf(name), bytes, { expireIn: ttlMs }).commit()).ok;
    });
  return {
    name: "deno kv",
    read: (name) =>
      whileLocked(async () => {
        const { value, versionstamp } = await kv.get(nameOf(name), { consistency: "strong" });
        return versionstamp === null ? undefined : { bytes: value instanceof Uint8Array ? value : new Uint8Array(0), version: versionstamp };
      }),
    create: (name, bytes, ttlMs) => swap(name, bytes, null, ttlMs),
    update: (name, bytes, version, ttlMs) => swap(name, bytes, version as string, ttlMs),
    delete: (name) => whileLocked(() => kv.delete(nameOf(name))),
  };
}

async function whileLocked<T>(use: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await use();
    } catch (thrown) {
      if (attempt === ATTEMPTS || (thrown as Error | undefined)?.message !== LOCKED) throw thrown;
      await pause();
    }
  }
}
