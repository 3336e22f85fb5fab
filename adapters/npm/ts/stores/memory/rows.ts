import { later, MAX_SKEW } from "../../core/exact.js";
import type { Dimension, Policy } from "../../core/policy.js";
import type { Rule, State } from "../../core/rules/rule.js";

/** What marks the key of another text, and the name of a row that is not that of one key. */
const MARKS = /[%~|]/;

/** How many rows each decision looks at to remove those that have expired. */
const VISIT = 8;

/** So few rows may stay. */
const ROWS_MIN = 16;

/** A pass over all rows begins so often, in milliseconds. */
const PASS_MS = 1_024;

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
  #numbers = new Float64Array(0);
  #free: number[] = [];
  #used = 0;
  #left: Iterator<[string, number]> | undefined;
  #pass = -1;
  /** The longest time for which a row was kept. */
  #retention = 0;

  constructor({ quotas }: Policy, { first, end }: Dimension) {
    this.#rules = quotas.slice(first, end).map(({ rule }) => rule);
    const isSized = this.#rules.every(({ size }) => size > 0);
    this.#stride = 1 + (isSized ? this.#rules.reduce((sum, { size }) => sum + size, 0) : 0);
    this.#scratch = this.#rules.map((rule) => rule.unused());
    this.#grown = isSized ? undefined : [];
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
    if (until > this.#numbers[row]!) this.#numbers[row] = until;
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
    const place = this.#free.pop() ?? this.#used++;
    const length = (place + 1) * this.#stride;
    if (length > this.#numbers.length) {
      const grown = new Float64Array(Math.max(2 * this.#numbers.length, 16 * this.#stride));
      grown.set(this.#numbers);
      this.#numbers = grown;
    }
    this.#named(name).set(name, place);
    this.#numbers[place * this.#stride] = 0;
    this.store(place, states, until);
  }

  delete(name: string): void {
    const place = this.find(name);
    if (place === undefined) return;
    this.#named(name).delete(name);
    if (this.#grown) this.#grown[place] = [];
    if (this.size > 0) {
      this.#free.push(place);
    } else {
      [this.#numbers, this.#free, this.#used] = [new Float64Array(0), [], 0];
    }
  }

  /** Removes some of the rows that have expired. Returns how many. */
  tend(now: number, retention: number): number {
    if (retention > this.#retention) this.#retention = retention;
    const pass = Math.floor(now / PASS_MS);
    if (!this.#left) {
      if (pass === this.#pass || this.size <= ROWS_MIN) return 0;
      this.#left = this.#entries();
      this.#pass = pass;
    }
    const before = this.size;
    const latest = later(now, this.#retention + MAX_SKEW);
    for (let count = 0; count < VISIT && this.#left; count++) {
      const next: IteratorResult<[string, number], void> = this.#left.next();
      if (next.done) {
        this.#left = undefined;
      } else {
        const [name, place]: [string, number] = next.value;
        const row = place * this.#stride;
        // A wrong clock keeps no row for longer.
        if (this.#numbers[row]! > latest) this.#numbers[row] = latest;
        if (this.#numbers[row]! <= now) this.delete(name);
      }
    }
    return before - this.size;
  }

  #named(name: string): Map<string, number> {
    return MARKS.test(name) ? this.#marked : this.#places;
  }

  *#entries(): Generator<[string, number]> {
    yield* this.#places;
    yield* this.#marked;
  }
}
