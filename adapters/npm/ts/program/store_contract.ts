// What a store does by itself: the contract of `versioned_store.ts`, one part after another.

import { said } from "../store.js";
import { swapOf, valueOf, type VersionedStore, type VersionedValue } from "../versioned_store.js";
import type { Result } from "./report.js";

/** What is wrong, in one line. */
class Broken extends Error {}

/** Each call is late after this time. */
const LATE_MS = 10_000;

/** The times to live that are tried, and when a value must have gone. */
const [TTL_MS, GONE_AFTER_MS, KEPT_MS] = [3_000, 5_200, 3_600_000];

/** How many compete, and how often. */
const [CROWD, ROUNDS] = [32, 8];

type Part = (store: Checked) => Promise<void>;

/** The parts, by their ids. They run in this order, and after one that is broken, those that need it would only confuse. */
const PARTS: Readonly<Record<string, Part>> = {
  "contract/reads-what-was-written": async (store) => {
    const name = store.name("bytes");
    must((await store.read(name)) === undefined, "read returns a value for a name that was never written");
    const all = Uint8Array.from({ length: 256 }, (_, byte) => byte);
    await store.creates(name, all);
    await store.reads(name, all, "after create");
    const long = Uint8Array.from({ length: 16_384 }, (_, nth) => (nth * 31) % 256);
    await store.updates(name, long, (await store.found(name)).version);
    await store.reads(name, long, "after update");
  },
  "contract/names": async (store) => {
    const long = "x".repeat(511 - store.prefix.length);
    const names = ["a", "A", "a/b", "a%2Fb", "a:b@c=d+e-f~g|h.i_j", `${long}y`, `${long}z`].map((name) => store.name(name));
    for (const [nth, name] of names.entries()) {
      must((await store.read(name)) === undefined, `read returns a value for the name ${shortened(name)}, which was never written: another name counts as the same`);
      await store.creates(name, Uint8Array.of(nth));
    }
    for (const [nth, name] of names.entries()) await store.reads(name, Uint8Array.of(nth), `under the name ${shortened(name)}`);
  },
  "contract/creates-only-what-is-absent": async (store) => {
    const name = store.name("absent");
    await store.creates(name, Uint8Array.of(1));
    must(!(await store.create(name, Uint8Array.of(2))), "create returned true although there is a value: it must write only if there is none");
    await store.reads(name, Uint8Array.of(1), "after a create that came too late and returned false");
  },
  "contract/updates-only-the-same-version": async (store) => {
    const name = store.name("version");
    await store.creates(name, Uint8Array.of(1));
    const { version: first } = await store.found(name);
    await store.updates(name, Uint8Array.of(2), first);
    const { version: second } = await store.found(name);
    must(!(await store.update(name, Uint8Array.of(3), first)), "update returned true for the version of an older value: it must compare the version and write in one step");
    await store.reads(name, Uint8Array.of(2), "after an update of an older version, which returned false");
    await store.updates(name, Uint8Array.of(4), second);
    await store.reads(name, Uint8Array.of(4), "after update");
  },
  "contract/deletes": async (store) => {
    const name = store.name("deleted");
    await store.delete(name);
    await store.creates(name, Uint8Array.of(1));
    const { version } = await store.found(name);
    await store.delete(name);
    must((await store.read(name)) === undefined, "read returns a value that was deleted");
    must(!(await store.update(name, Uint8Array.of(2), version)), "update returned true for a value that was deleted");
    must((await store.read(name)) === undefined, "an update of a value that was deleted has written");
    await store.creates(name, Uint8Array.of(3));
  },
  "contract/one-of-many-creates": async (store) => {
    for (let round = 0; round < ROUNDS; round++) {
      const name = store.name(`creates-${round}`);
      const done = await Promise.all(crowd((nth) => store.create(name, Uint8Array.of(nth))));
      await one(store, name, done, "create of the same name");
    }
  },
  "contract/one-of-many-updates": async (store) => {
    for (let round = 0; round < ROUNDS; round++) {
      const name = store.name(`updates-${round}`);
      await store.creates(name, Uint8Array.of(255));
      const { version } = await store.found(name);
      const done = await Promise.all(crowd((nth) => store.update(name, Uint8Array.of(nth), version)));
      await one(store, name, done, "update of the same version");
    }
  },
  "contract/reads-the-last-write": async (store) => {
    const name = store.name("fresh");
    await store.creates(name, Uint8Array.of(0));
    for (let nth = 1; nth <= 40; nth++) {
      const { bytes, version } = await store.found(name);
      must(bytes[0] === nth - 1, `read returned an older value (write ${bytes[0]}, and the last one was ${nth - 1}); read from the primary, or set staleReads: true`);
      await store.updates(name, Uint8Array.of(nth), version);
    }
  },
  "contract/tells-versions": async (store) => {
    const name = store.name("told");
    const told = await store.swapped(() => store.own.create(name, Uint8Array.of(1), KEPT_MS), "create");
    const version = told.version ?? (await store.found(name)).version;
    must((await store.swapped(() => store.own.update(name, Uint8Array.of(2), version, KEPT_MS), "update")).isWritten, "update returned false for the version that create has told");
    const late = await store.swapped(() => store.own.create(name, Uint8Array.of(3), KEPT_MS), "create");
    if (late.present) must(late.present.bytes[0] === 2, "a write that came too late told another value than the present one");
    if (late.present) must((await store.swapped(() => store.own.update(name, Uint8Array.of(4), late.present!.version, KEPT_MS), "update")).isWritten, "update returned false for the version of the present value that a late write has told");
  },
};

/** Values that expire: by their names, how they are written. */
const EXPIRING: Readonly<Record<string, { goes: boolean; write: (store: Checked, name: string) => Promise<void>; wrong: string }>> = {
  created: { goes: true, write: (store, name) => store.creates(name, Uint8Array.of(1), TTL_MS), wrong: "create does not set the time to live" },
  shortened: {
    goes: true,
    async write(store, name) {
      await store.creates(name, Uint8Array.of(1));
      await store.updates(name, Uint8Array.of(2), (await store.found(name)).version, TTL_MS);
    },
    wrong: "update does not set the time to live",
  },
  extended: {
    goes: false,
    async write(store, name) {
      await store.creates(name, Uint8Array.of(1), TTL_MS);
      await store.updates(name, Uint8Array.of(2), (await store.found(name)).version);
    },
    wrong: "update keeps the time to live of the value before",
  },
};

const EXPIRES = "contract/expires";

/** Tries each part that is wanted. */
export async function triedContract(own: VersionedStore, prefix: string, isWanted: (id: string) => boolean, done: (result: Result) => void): Promise<void> {
  for (const [id, part] of Object.entries(PARTS)) {
    if (!isWanted(id)) continue;
    if (id === "contract/reads-the-last-write" && own.staleReads) {
      done({ id, verdict: "unsupported", reasons: ["the store declares staleReads"] });
      continue;
    }
    const store = new Checked(own, `${prefix}${id.slice("contract/".length)}.`);
    const result = await resultOf(id, () => part(store));
    await store.clear();
    done(result);
    // A store that hangs would hang at each.
    if (result.reasons[0]?.includes("no answer within")) return;
  }
}

/** Tries that values expire, which takes some seconds. Others may be tried meanwhile. */
export async function triedExpiry(own: VersionedStore, prefix: string): Promise<Result> {
  if (own.keepsForever) return { id: EXPIRES, verdict: "unsupported", reasons: ["the store declares keepsForever"] };
  const store = new Checked(own, `${prefix}expires.`);
  const result = await resultOf(EXPIRES, async () => {
    const began = new Map<string, number>();
    const isKept = async (name: string) => {
      const isThere = (await store.read(store.name(name))) !== undefined;
      const after = Date.now() - began.get(name)!;
      must(isThere || after >= TTL_MS, `a value was gone ${after} ms after it was written for ${TTL_MS} ms: nothing may be removed before its time to live has passed`);
    };
    for (const [name, { write }] of Object.entries(EXPIRING)) {
      began.set(name, Date.now());
      await write(store, store.name(name));
      await new Promise((resolve) => setTimeout(resolve, 50));
      await isKept(name);
    }
    const last = Date.now();
    await new Promise((resolve) => setTimeout(resolve, TTL_MS / 2));
    for (const name of Object.keys(EXPIRING)) await isKept(name);
    await new Promise((resolve) => setTimeout(resolve, GONE_AFTER_MS - (Date.now() - last)));
    for (const [name, { goes, wrong }] of Object.entries(EXPIRING)) {
      const isThere = (await store.read(store.name(name))) !== undefined;
      must(isThere !== goes, goes ? `read returns a value ${GONE_AFTER_MS - TTL_MS} ms after its time to live: ${wrong}, or set keepsForever: true` : `a value has gone too early: ${wrong}`);
    }
    must(await store.create(store.name("created"), Uint8Array.of(3)), "create returned false where a value has expired: it must write over that");
  });
  await store.clear();
  return result;
}

/** Processes that call the same function of the store at once: what each gets. */
interface Others {
  call(call: "read" | "create" | "update", name: string): Promise<number[][]>;
}

/** What only several processes can try. Each of them has loaded the module itself. */
const SHARED: Readonly<Record<string, (store: Checked, others: Others) => Promise<void>>> = {
  "contract/is-shared-by-processes": async (store, others) => {
    const name = store.name("written");
    await store.creates(name, Uint8Array.of(1, 2, 3));
    for (const [nth, bytes] of (await others.call("read", name)).entries()) {
      must(bytes.length > 0, `process ${nth + 1} reads nothing where another one has written: each has a store of its own; count in a database that all share`);
      must(bytes.join() === "1,2,3", `process ${nth + 1} reads other bytes than another one has written`);
    }
  },
  "contract/one-of-many-processes": async (store, others) => {
    const once = async (call: "create" | "update", name: string) => {
      const made = (await others.call(call, name)).flat();
      const count = made.filter((isMade) => isMade === 1).length;
      must(count > 0, `none of ${made.length} at once of ${call} in several processes returned true: one must be made, or read has told an old version`);
      must(count === 1, `${count} of ${made.length} at once of ${call} in several processes returned true, and at most one may: the database must compare and write in one step, and no lock of a process is enough`);
    };
    for (let round = 0; round < ROUNDS_OF_PROCESSES; round++) {
      const name = store.name(`processes-${round}`);
      await once("create", name);
      await others.call("read", name);
      await once("update", name);
    }
  },
};

/** How often processes compete: whether two meet is a matter of time. */
const ROUNDS_OF_PROCESSES = 24;

export const SHARED_IDS: readonly string[] = Object.keys(SHARED);

/** Tries each part that is wanted of what processes must share, until one is broken. */
export async function triedShared(own: VersionedStore, prefix: string, others: Others, isWanted: (id: string) => boolean, done: (result: Result) => void): Promise<void> {
  for (const [id, part] of Object.entries(SHARED)) {
    if (!isWanted(id)) continue;
    const store = new Checked(own, `${prefix}${id.slice("contract/".length)}.`);
    const result = await resultOf(id, () => part(store, others));
    await store.clear();
    done(result);
    if (result.verdict === "fail") return;
  }
}

export const isExpiry = (isWanted: (id: string) => boolean): boolean => isWanted(EXPIRES);

export const CONTRACT_IDS: readonly string[] = [...Object.keys(PARTS), EXPIRES];

async function resultOf(id: string, run: () => Promise<void>): Promise<Result> {
  try {
    await run();
    return { id, verdict: "pass", reasons: [] };
  } catch (thrown) {
    return { id, verdict: "fail", reasons: [thrown instanceof Broken ? thrown.message : `the check itself failed: ${said(thrown)}`] };
  }
}

/** Throws what is wrong, unless a condition holds. */
function must(condition: boolean, wrong: string): asserts condition {
  if (!condition) throw new Broken(wrong);
}

function crowd<T>(make: (nth: number) => T): T[] {
  return Array.from({ length: CROWD }, (_, nth) => make(nth));
}

/** Exactly one of those at once must have written, and its value must be there. */
async function one(store: Checked, name: string, done: readonly boolean[], what: string): Promise<void> {
  const won = done.flatMap((isWritten, nth) => (isWritten ? [nth] : []));
  must(won.length > 0, `none of ${CROWD} at once of ${what} returned true: one must be made, or read has told an old version`);
  must(won.length === 1, `${won.length} of ${CROWD} at once of ${what} returned true, and at most one may: it must compare and write in one step`);
  const { bytes } = await store.found(name);
  must(bytes[0] === won[0], `the ${what} that returned true is not what is stored: one that returned false has written, or read has told an old value`);
}

/** A store whose answers are checked. */
class Checked {
  readonly #names = new Set<string>();

  constructor(
    readonly own: VersionedStore,
    readonly prefix: string,
  ) {}

  name(name: string): string {
    const full = this.prefix + name;
    this.#names.add(full);
    return full;
  }

  async read(name: string): Promise<VersionedValue | undefined> {
    const answer = await called("read", () => this.own.read(name));
    return usable(() => valueOf("read", answer));
  }

  async swapped(write: () => unknown, what: string): Promise<ReturnType<typeof swapOf>> {
    const answer = await called(what, write);
    return usable(() => swapOf(what, answer));
  }

  async create(name: string, bytes: Uint8Array, ttlMs = KEPT_MS): Promise<boolean> {
    return (await this.swapped(() => this.own.create(name, bytes.slice(), ttlMs), "create")).isWritten;
  }

  async update(name: string, bytes: Uint8Array, version: unknown, ttlMs = KEPT_MS): Promise<boolean> {
    return (await this.swapped(() => this.own.update(name, bytes.slice(), version, ttlMs), "update")).isWritten;
  }

  async creates(name: string, bytes: Uint8Array, ttlMs?: number): Promise<void> {
    must(await this.create(name, bytes, ttlMs), "create returned false although there is no value");
  }

  async updates(name: string, bytes: Uint8Array, version: unknown, ttlMs?: number): Promise<void> {
    must(await this.update(name, bytes, version, ttlMs), "update returned false for the version that was just read, although nobody else writes");
  }

  async delete(name: string): Promise<void> {
    await called("delete", () => this.own.delete(name));
  }

  async found(name: string): Promise<VersionedValue> {
    const value = await this.read(name);
    must(value !== undefined, "read returns nothing although a write returned true: nothing was written, or it is not read");
    return value;
  }

  async reads(name: string, bytes: Uint8Array, when: string): Promise<void> {
    const { bytes: found } = await this.found(name);
    must(found.length === bytes.length, `read returned ${found.length} bytes ${when}, and ${bytes.length} were written`);
    const at = bytes.findIndex((byte, nth) => byte !== found[nth]);
    must(at < 0, `read returned other bytes ${when}: byte ${at} is ${found[at]}, and ${bytes[at]} was written`);
  }

  /** Removes what was written, as far as the store can. */
  async clear(): Promise<void> {
    for (const name of this.#names) {
      const isDone = await called("delete", () => this.own.delete(name)).then(() => true, () => false);
      if (!isDone) return;
    }
  }
}

function usable<T>(read: () => T): T {
  try {
    return read();
  } catch (thrown) {
    throw new Broken((thrown as [string, string])[1]);
  }
}

/** Calls a function of the store, which must answer in time. */
async function called(what: string, call: () => unknown): Promise<unknown> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => (timer = setTimeout(() => reject(new Broken(`${what} gave no answer within ${LATE_MS / 1_000} s`)), LATE_MS)));
  try {
    return await Promise.race([(async () => call())(), late]);
  } catch (thrown) {
    throw thrown instanceof Broken ? thrown : new Broken(`${what} has thrown ${said(thrown)}`);
  } finally {
    clearTimeout(timer);
  }
}

function shortened(name: string): string {
  return JSON.stringify(name.length > 60 ? `${name.slice(0, 57)}...` : name);
}
