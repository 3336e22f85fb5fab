// The busiest keys of each rule, and the most denied, in bounded memory, as core's `Tally` finds them.

import { invalid } from "../error.js";
import { Fields } from "../fields.js";
import type { Event, Sink } from "./events.js";

/** A key that was seen often. */
export interface TopKey {
  /** The hash of the key, `key` of the events. */
  key: string;
  /** How often it was seen, at most. */
  count: number;
  /** By how much `count` may be too high. */
  error: number;
}

/** What was counted of one rule. */
export interface RuleTally {
  rule: string;
  /** Requests that a limit admitted or denied, also those that a sample stands for. */
  decided: number;
  /** Of these, those that a limit denied. */
  denied: number;
  /** The keys with the most requests, most first. */
  busiest: readonly TopKey[];
  /** The keys that were denied most, most first. */
  mostDenied: readonly TopKey[];
}

/** How many keys and rules are remembered. */
export interface BusiestOptions {
  /** The most keys of each rule, once for the busiest and once for the most denied: 1 to 10,000. Default: 100. */
  capacity?: number | undefined;
  /** The most rules, 1 to 10,000. Others are counted together, as the rule `""`. Default: 256. */
  rules?: number | undefined;
}

/** A sink that finds the busiest keys. */
export interface Busiest extends Sink {
  /** What was counted so far, by rule, the rule with the most requests first. */
  read(): RuleTally[];
  /** The first keys of each rule, in the text format of Prometheus: put them after the other metrics of the process. */
  prometheus(first?: number): string;
  /** The first keys of each rule, as one line for a log. */
  line(first?: number): string;
}

const MOST = 10_000;

/** How many keys of a rule are shown unless the caller says so. */
const SHOWN = 10;

/**
 * Finds the busiest keys of each rule, and the most denied, in bounded memory: a sink of a gate's events.
 *
 *     const keys = busiest();
 *     const gate = Gate.fromRules(rules, { …, onEvent: [jsonLines(), keys] });
 *     app.get("/metrics", () => new Response(keys.prometheus()));
 *
 * By the Space-Saving algorithm (Metwally, Agrawal, El Abbadi, 2005): a key that has more than a part of `1 / capacity` of a rule's requests
 * is always among them. Its count is never too low, and too high by `error` at most, which is at most `requests / capacity`.
 */
export function busiest(options: BusiestOptions = {}): Busiest {
  const fields = new Fields(options, "", ["capacity", "rules"]);
  const [capacity, most] = [numberOf(fields, "capacity", 100), numberOf(fields, "rules", 256)];
  const rules = new Map<string, RuleCounts>();
  const countsOf = (rule: string): RuleCounts => {
    const name = rules.has(rule) || rules.size < most - 1 ? rule : "";
    let counts = rules.get(name);
    if (!counts) rules.set(name, (counts = { decided: 0, denied: 0, busiest: new SpaceSaving(capacity), mostDenied: new SpaceSaving(capacity) }));
    return counts;
  };
  const sink = ({ rule, outcome, key, weight = 1 }: Event) => {
    const isDenied = outcome === "denied" || outcome === "never_admissible";
    if (outcome !== "allowed" && !isDenied) return;
    const counts = countsOf(rule);
    counts.decided += weight;
    if (key !== undefined) counts.busiest.add(key, weight);
    if (!isDenied) return;
    counts.denied += weight;
    if (key !== undefined) counts.mostDenied.add(key, weight);
  };
  const read = () => {
    const all = [...rules].map(([rule, { decided, denied, busiest, mostDenied }]) => ({ rule, decided, denied, busiest: busiest.top, mostDenied: mostDenied.top }));
    return all.sort((one, two) => two.decided - one.decided || (one.rule < two.rule ? -1 : 1));
  };
  return Object.assign(sink, {
    read,
    prometheus: (first = SHOWN) => prometheus(read(), first),
    line: (first = SHOWN) => line(read(), first),
  });
}

interface RuleCounts {
  decided: number;
  denied: number;
  readonly busiest: SpaceSaving;
  readonly mostDenied: SpaceSaving;
}

/** The count of a key, and by how much it may be too high. */
interface Counted {
  count: number;
  error: number;
  /** The place in the heap. */
  place: number;
  readonly key: string;
}

/** The most frequent keys. A heap has the smallest count first, so that each event takes a time that grows with the logarithm of the capacity. */
class SpaceSaving {
  readonly #capacity: number;
  readonly #keys = new Map<string, Counted>();
  readonly #heap: Counted[] = [];

  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  add(key: string, weight: number): void {
    const known = this.#keys.get(key);
    if (known) {
      known.count += weight;
      return this.#down(known);
    }
    if (this.#heap.length < this.#capacity) {
      const counted = { key, count: weight, error: 0, place: this.#heap.length };
      this.#keys.set(key, counted);
      this.#heap.push(counted);
      return this.#up(counted);
    }
    // The new key takes the place and the count of the smallest.
    const { key: smallest, count } = this.#heap[0]!;
    this.#keys.delete(smallest);
    const counted = { key, count: count + weight, error: count, place: 0 };
    this.#keys.set(key, counted);
    this.#heap[0] = counted;
    return this.#down(counted);
  }

  /** The keys, most first. */
  get top(): TopKey[] {
    const all = this.#heap.map(({ key, count, error }) => ({ key, count, error }));
    return all.sort((one, two) => two.count - one.count || (one.key < two.key ? 1 : -1));
  }

  #up(counted: Counted): void {
    while (counted.place > 0) {
      const above = this.#heap[(counted.place - 1) >> 1]!;
      if (!isLess(counted, above)) return;
      this.#swap(counted, above);
    }
  }

  #down(counted: Counted): void {
    for (;;) {
      const [left, right] = [this.#heap[2 * counted.place + 1], this.#heap[2 * counted.place + 2]];
      const below = right && isLess(right, left!) ? right : left;
      if (!below || !isLess(below, counted)) return;
      this.#swap(counted, below);
    }
  }

  #swap(one: Counted, two: Counted): void {
    [one.place, two.place] = [two.place, one.place];
    this.#heap[one.place] = one;
    this.#heap[two.place] = two;
  }
}

/** By the count, then by the key, as the core does: so both lose the same keys. */
function isLess(one: Counted, two: Counted): boolean {
  return one.count < two.count || (one.count === two.count && one.key < two.key);
}

const METRICS = [
  ["tidegate_busiest_key_requests", "busiest", "count", "Requests of the busiest keys of a rule, at most"],
  ["tidegate_busiest_key_requests_error", "busiest", "error", "By how much that may be too high"],
  ["tidegate_most_denied_key_requests", "mostDenied", "count", "Denied requests of the most denied keys of a rule, at most"],
  ["tidegate_most_denied_key_requests_error", "mostDenied", "error", "By how much that may be too high"],
] as const;

function prometheus(rules: readonly RuleTally[], first: number): string {
  let text = "";
  for (const [name, list, number, help] of METRICS) {
    text += `# HELP ${name} ${help}\n# TYPE ${name} gauge\n`;
    for (const tally of rules) {
      // The names of rules need no escapes.
      for (const top of tally[list].slice(0, first)) text += `${name}{rule="${tally.rule}",key="${top.key}"} ${top[number]}\n`;
    }
  }
  return text;
}

function line(rules: readonly RuleTally[], first: number): string {
  const listed = (all: readonly TopKey[]) => all.slice(0, first).map(({ key, count, error }) => ({ key, count, error }));
  return JSON.stringify({
    busiest_keys: rules.map(({ rule, decided, denied, busiest, mostDenied }) => ({ rule, decided, denied, busiest: listed(busiest), most_denied: listed(mostDenied) })),
  });
}

function numberOf(fields: Fields, name: string, usual: number): number {
  const number = fields.whole(name) ?? usual;
  if (number === 0 || number > MOST) throw invalid(name, `${number} is out of range; write 1 to ${MOST}`);
  return number;
}
