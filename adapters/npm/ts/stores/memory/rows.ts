import type { Rule, State } from "../../core/algorithms/algorithm.js";
import { later, MAX_INSTANT, MAX_SKEW } from "../../core/arithmetic.js";
import type { Dimension, Policy } from "../../core/policy.js";

/** What marks the key of another text, and the name of a row that is not that of one key. */
const MARKS = /[%~|]/;

/** How many rows each decision looks at to remove those that have expired. */
const VISIT = 8;

/** So few rows may stay. */
const ROWS_MIN = 16;

/** A pass over all rows begins so often, in milliseconds. */
const PASS_MS = 1_024;

/** How many rows are drawn, of which one makes room. */
const DRAWN = 8;

/**
 * The states of one dimension's keys. States of some numbers lie in one array, where they take a fraction of what objects do. The
 * first number of a row is when it expires.
 */
export class Rows {
  readonly #rules: readonly Rule[];
  /** How many numbers a row has. */
  readonly #stride: number;
  /** The states of the row that was read last, for policies whose states all have a size. */
  readonly #scratch: State[];
  /** Those of all rows, for other policies. */
  readonly #grown: State[][] | undefined;
  /** The place of each row, by its name, and those of marked names. */
  readonly #places = new Map<string, number>();
  readonly #marked = new Map<string, number>();
  /** The name of the row at each place. A free place has none. */
  #names: (string | undefined)[] = [];
  #numbers = new Float64Array(0);
  #free: number[] = [];
  /** The next place of a pass over all rows. 0 between two passes. */
  #next = 0;
  #pass = -1;
  /** How many counts keys share, once they have. */
  shares = 0;
  /** The longest time for which a row was kept. What is granted may be there for ever. */
  #retention = 0;
  readonly #isGranted: boolean;

  constructor({ quotas }: Policy, { first, end }: Dimension) {
    this.#rules = quotas.slice(first, end).map(({ rule }) => rule);
    const isSized = this.#rules.every(({ size }) => size > 0);
    this.#stride = 1 + (isSized ? this.#rules.reduce((sum, { size }) => sum + size, 0) : 0);
    this.#scratch = this.#rules.map((rule) => rule.unused());
    this.#grown = isSized ? undefined : [];
    this.#isGranted = this.#rules.some(({ code }) => code === "ba");
    if (this.#isGranted) this.#retention = MAX_INSTANT;
  }

  get size(): number {
    return this.#places.size + this.#marked.size;
  }

  /** The place of a row. */
  find(name: string): number | undefined {
    return this.#named(name).get(name);
  }

  /** That of a text's key, if the text is the key. No other text is an unmarked name. */
  findText(text: string): number | undefined {
    return this.#places.get(text);
  }

  /** The states of a row. They are its own until the next call, and must be stored then. */
  states(place: number): State[] {
    if (this.#grown) return this.#grown[place]!;
    let at = place * this.#stride + 1;
    for (let nth = 0; nth < this.#rules.length; nth++) {
      const rule = this.#rules[nth]!;
      rule.load(this.#scratch[nth]!, this.#numbers, at);
      at += rule.size;
    }
    return this.#scratch;
  }

  /** Stores the states of a row, and keeps it until then. */
  store(place: number, states: State[], until: number): void {
    const row = place * this.#stride;
    if (until > this.#numbers[row]! || this.#isGranted) this.#numbers[row] = until;
    if (this.#grown) {
      this.#grown[place] = states;
      return;
    }
    let at = row + 1;
    for (let nth = 0; nth < this.#rules.length; nth++) {
      const rule = this.#rules[nth]!;
      rule.save(states[nth]!, this.#numbers, at);
      at += rule.size;
    }
  }

  /** Adds a row. */
  add(name: string, states: State[], until: number): void {
    const place = this.#free.pop() ?? this.#names.length;
    const length = (place + 1) * this.#stride;
    if (length > this.#numbers.length) {
      const grown = new Float64Array(Math.max(2 * this.#numbers.length, 16 * this.#stride));
      grown.set(this.#numbers);
      this.#numbers = grown;
    }
    this.#named(name).set(name, place);
    this.#names[place] = name;
    this.#numbers[place * this.#stride] = 0;
    this.store(place, states, until);
  }

  /** Removes some of the rows that have expired. */
  tend(now: number, retention: number): void {
    if (retention > this.#retention) this.#retention = retention;
    if (this.#next === 0) {
      const pass = Math.floor(now / PASS_MS);
      if (pass === this.#pass || this.size <= ROWS_MIN) return;
      this.#pass = pass;
    }
    const latest = later(now, this.#retention + MAX_SKEW);
    const end = Math.min(this.#next + VISIT, this.#names.length);
    for (let place = this.#next; place < end; place++) {
      const name = this.#names[place];
      if (name === undefined) continue;
      const row = place * this.#stride;
      // A wrong clock keeps no row for longer.
      if (this.#numbers[row]! > latest) this.#numbers[row] = latest;
      if (this.#numbers[row]! <= now) this.#remove(name, place);
    }
    this.#next = end < this.#names.length ? end : 0;
  }

  /**
   * The place of a row that makes room for another one: of some that are drawn, one that has expired, or else the one that has used the
   * least of its limit. Undefined if all of them hold what must not be forgotten: a slot, a balance or a block.
   */
  leastUsed(now: number): number | undefined {
    let [found, most]: [number | undefined, number] = [undefined, -1];
    for (let nth = 0; nth < DRAWN; nth++) {
      let place = Math.floor(Math.random() * this.#names.length);
      while (this.#names[place] === undefined) place = (place + 1) % this.#names.length;
      const left = this.#numbers[place * this.#stride]! <= now ? 1 : this.#left(place, now);
      if (left > most) [found, most] = [place, left];
    }
    return found;
  }

  /** Removes the row at a place, if there is one. */
  evict(place: number | undefined): void {
    const name = this.#names[place!];
    if (name !== undefined) this.#remove(name, place!);
  }

  /** Which part of its limit a row has left, by the quota with the least. -1 if it holds a slot, a balance or a block. */
  #left(place: number, now: number): number {
    const states = this.states(place);
    let least = 1;
    for (let nth = 0; nth < this.#rules.length; nth++) least = Math.min(least, this.#rules[nth]!.left(states[nth]!, now));
    return least;
  }

  #remove(name: string, place: number): void {
    this.#named(name).delete(name);
    this.#names[place] = undefined;
    if (this.#grown) this.#grown[place] = [];
    if (this.size > 0) {
      this.#free.push(place);
    } else {
      [this.#names, this.#numbers, this.#free, this.#next] = [[], new Float64Array(0), [], 0];
    }
  }

  #named(name: string): Map<string, number> {
    return MARKS.test(name) ? this.#marked : this.#places;
  }
}
