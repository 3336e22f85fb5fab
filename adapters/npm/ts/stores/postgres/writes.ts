// Writes of different keys that come at the same time, which one statement makes.

import { REQUESTS_ARE_APART } from "../../calls.js";
import { TidegateError } from "../../error.js";

/** A write over a state, or over nothing. States are digits. */
export interface Write {
  readonly name: string;
  readonly state: string;
  readonly old: string | undefined;
  readonly ttlMs: number;
}

/** What has become of a write: what is there in its place, null if nothing is, and undefined if nobody knows. */
export type Written = { readonly written: true } | { readonly written: false; readonly state: unknown };

/** So many statements of writes are under way at most, and so many writes are in one: their rows are locked until it ends. */
const AT_ONCE = 4;
const TOGETHER = 64;

/** A statement that has no answer for so long does not keep the others waiting: a client may never tell that it has lost it. */
const TURN_MS_MAX = 1_000;

/** A write that waits, and how to tell what has become of it. */
type Waiting = { readonly write: Write; readonly since: number; readonly resolve: (written: Written) => void; readonly reject: (thrown: unknown) => void };

/** Sends a write at once while few are under way. Those that come meanwhile go together. */
export class Writes {
  readonly #one: (write: Write) => Promise<Written>;
  readonly #all: (writes: readonly Write[]) => Promise<readonly Written[]>;
  /** Whether what has been thrown can be the fault of one write, and has undone all. */
  readonly #isOfOne: (thrown: unknown) => boolean;
  readonly #waitMsMax: number;
  #waiting: Waiting[] = [];
  #underWay = 0;

  /** After `waitMsMax`, nobody waits for a write any more. */
  constructor(one: (write: Write) => Promise<Written>, all: (writes: readonly Write[]) => Promise<readonly Written[]>, isOfOne: (thrown: unknown) => boolean, waitMsMax: number) {
    [this.#one, this.#all, this.#isOfOne, this.#waitMsMax] = [one, all, isOfOne, waitMsMax];
  }

  make(write: Write): Promise<Written> {
    // No request may wait for another's call there.
    if (REQUESTS_ARE_APART) return this.#one(write);
    if (this.#underWay < AT_ONCE) return this.#turn(() => this.#one(write));
    this.#giveUp();
    return new Promise((resolve, reject) => this.#waiting.push({ write, since: performance.now(), resolve, reject }));
  }

  /** Makes none of the writes that nobody waits for: while the database is silent, they would be more and more. */
  #giveUp(): void {
    const until = performance.now() - this.#waitMsMax;
    const kept = this.#waiting.findIndex(({ since }) => since > until);
    const late = this.#waiting.splice(0, kept < 0 ? this.#waiting.length : kept);
    for (const { reject } of late) reject(new TidegateError("contended", "other writes kept this one from being made; nothing was charged"));
  }

  async #turn<T>(send: () => Promise<T>): Promise<T> {
    this.#underWay += 1;
    let isOver = false;
    const over = () => {
      if (isOver) return;
      isOver = true;
      this.#underWay -= 1;
      const next = this.#next();
      if (next.length > 0) void this.#turn(() => this.#together(next));
    };
    const late = setTimeout(over, TURN_MS_MAX);
    try {
      return await send();
    } finally {
      clearTimeout(late);
      over();
    }
  }

  /** The next ones, of one name only once. */
  #next(): Waiting[] {
    this.#giveUp();
    const [next, later, names] = [[] as Waiting[], [] as Waiting[], new Set<string>()];
    for (const waiting of this.#waiting) {
      const { name } = waiting.write;
      if (next.length >= TOGETHER || names.has(name)) later.push(waiting);
      else next.push(waiting);
      names.add(name);
    }
    this.#waiting = later;
    return next;
  }

  async #together(all: readonly Waiting[]): Promise<void> {
    try {
      const written = all.length === 1 ? [await this.#one(all[0]!.write)] : await this.#all(all.map(({ write }) => write));
      all.forEach(({ resolve }, nth) => resolve(written[nth]!));
    } catch (thrown) {
      if (all.length === 1 || !this.#isOfOne(thrown)) return all.forEach(({ reject }) => reject(thrown));
      for (const { write, resolve, reject } of all) await this.#one(write).then(resolve, reject);
    }
  }
}

/**
 * Reads the answer to a statement that makes several writes: the places of those that were made, `1 3`, and of those that were lost, each with
 * what is there, `2:14e8 4:-`. Undefined if it is not such an answer.
 */
export function writtenOf(writes: readonly Write[], done: unknown, lost: unknown): readonly Written[] | undefined {
  // Of a row that should be there and is in neither, nothing is there.
  const written = writes.map(({ old }): Written => ({ written: false, state: old === undefined ? undefined : null }));
  const words = (text: unknown) => (text === null || text === "" ? [] : String(text).trim().split(" "));
  for (const word of [...words(done), ...words(lost)]) {
    const [, digits, state] = /^(\d+)(?::(-|(?:[0-9a-f]{2})*))?$/.exec(word) ?? [];
    const place = Number(digits) - 1;
    if (!writes[place]) return undefined;
    if (state === undefined) written[place] = { written: true };
    else if (state !== "-") written[place] = { written: false, state };
  }
  return written;
}
