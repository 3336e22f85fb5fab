// Decides on a store with conditional writes. `versioned_store.ts` has the contract of one.

import { type Capabilities, COUNTING, EXACT } from "./core/capabilities.js";
import { bytesOf, hexOf, statesOf, written } from "./core/codec.js";
import { copied, type Decision, decide, expiresAfter, peek, refund, unused, verify } from "./core/decide.js";
import type { StoreCore } from "./limiter_core.js";
import { CHECK, PEEK, type Question, REFUND, RESET } from "./question.js";
import type { Queue } from "./queue.js";
import type { Call, Store } from "./store.js";
import { swapOf, thrownBy, valueOf, type VersionedStore } from "./versioned_store.js";

/** What such a store supports. A request that reads an old value is denied for too long. */
export function versioned(readsLastWrite: boolean, remembers = false): Capabilities {
  const accuracy = readsLastWrite ? {} : { class: "approximate" as const, accuracy: "approximate: limit <= admitted <= limit" };
  return { ...EXACT, ...accuracy, algorithms: COUNTING, dimensions: "one", block: false, grant: false, idempotency: false, round_trips: remembers ? 1 : 2 };
}

/** The longest pause between a conflicting write and the next read. */
const CONFLICT_PAUSE_MS_MAX = 20;

/** If three isolates compete for a key, each wins one of three attempts, and one decision in 2^37 needs more attempts. */
const ATTEMPTS_MAX = 64;

/** So many attempts follow at once, if the store has told the present value. Of many that compete for a key, some then pause. */
const ATTEMPTS_AT_ONCE = 4;

/** How much longer than it can matter a value is kept: other hosts' clocks may be behind. */
const SLACK_MS = 10_000;

/** The most values that are remembered, and the most digits of one. */
const REMEMBERED_MAX = 4_096;
const REMEMBERED_DIGITS_MAX = 1_024;

/** Waits for a random time, because limiters that retry at the same pace could conflict forever. */
export function pause(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, Math.random() * CONFLICT_PAUSE_MS_MAX));
}

/** What is stored under a name, as digits. Without a version, nothing is. */
interface Stored {
  readonly text: string | undefined;
  readonly version: unknown;
  /** When it expires by this host's clock, if it is known. It is then created again. */
  readonly until?: number;
}

const NOTHING: Stored = { text: undefined, version: undefined };

const NEVER = new Promise<never>(() => undefined);

/** Calls that are decided together: those of one key that have waited for the same turn. */
interface Flight {
  readonly name: string;
  readonly policy: Question["policy"];
  readonly calls: Call[];
  /** What each gets once the flight has ended. */
  readonly results: Map<Call, Result>;
  /** How many answers of the store have been taken. Each call brings the same ones. */
  taken: number;
  /** How many writes came too late. */
  lost: number;
  /** The digits on their way to the store. Undefined while it is read. */
  writing: string | undefined;
  /** How long those are kept. */
  ttl: number;
  /** The next answer, and what gives it to the calls that join. */
  pending: Promise<unknown>;
  join: (answer: Promise<unknown> | undefined) => void;
}

/** A decision, or an error in its place. */
type Result = { readonly decision: Decision } | { readonly thrown: unknown };

/** How a limiter uses its store. */
export interface Use {
  /** Keeps every value for at least this long. */
  ttlMin: number;
  /** Whether the last value of a key is remembered, so that a decision is one swap. */
  remembers: boolean;
  /** The calls that wait for their key's turn. */
  queue: Queue | undefined;
}

/**
 * Reads a value, decides, and swaps the new one in for the version that was read, until no other write comes between. A value that it
 * remembers takes the place of the first read. Then only a swap counts: a denial is read again.
 */
export class Versioned implements Store {
  readonly name: string;
  readonly #core: StoreCore;
  readonly #store: VersionedStore;
  readonly #use: Use;
  readonly #remembered = new Map<string, Stored>();
  /** The flight that calls join at this moment. */
  #open: Flight | undefined;

  constructor(name: string, core: StoreCore, store: VersionedStore, use: Use) {
    this.name = name;
    this.#core = core;
    this.#store = store;
    this.#use = use;
  }

  send(call: Call): Promise<unknown> | undefined {
    const { question } = call;
    this.#core.verify(question);
    const name = this.#core.storage(question).rows[0]!;
    if (question.kind === RESET) {
      this.#remembered.delete(name);
      return asked(() => this.#store.delete(name));
    }
    if (this.#open) {
      call.noted = this.#open;
      call.note = this.#open.taken;
      this.#open.calls.push(call);
      return this.#open.pending;
    }
    const flight: Flight = { name, policy: question.policy, calls: [call], results: new Map(), taken: 0, lost: 0, writing: undefined, ttl: 0, pending: NEVER, join: () => undefined };
    call.noted = flight;
    const isKnown = this.#use.remembers && question.kind !== PEEK;
    return isKnown ? this.#decide(flight, this.#recall(name), false) : this.#read(flight);
  }

  answered(call: Call, answer: unknown): Promise<unknown> | undefined {
    if (call.question.kind === RESET) return undefined;
    const flight = call.noted as Flight;
    // The first call that brings an answer goes on for all.
    if (!hasEnded(flight) && call.note === flight.taken) {
      flight.taken += 1;
      this.#take(flight, answer);
    }
    call.note = flight.taken;
    return hasEnded(flight) ? this.#end(call, flight) : flight.pending;
  }

  threw(_call: Call, thrown: unknown): never {
    throw thrownBy(this.name, thrown);
  }

  /** Leaves what a call gets. Other decisions have left theirs since it was made. */
  #end(call: Call, { results }: Flight): undefined {
    const result = results.get(call)!;
    if ("thrown" in result) throw result.thrown;
    this.#core.decision = result.decision;
  }

  /** Takes an answer, and asks again or ends the flight. */
  #take(flight: Flight, answer: unknown): void {
    try {
      const { writing } = flight;
      if (writing === undefined) {
        const found = valueOf(this.name, answer);
        this.#decide(flight, found ? { text: hexOf(found.bytes), version: found.version } : NOTHING, true);
        return;
      }
      const { isWritten, version, present } = swapOf(this.name, answer);
      flight.writing = undefined;
      if (isWritten) return this.#remember(flight.name, version === undefined ? NOTHING : { text: writing, version, until: Date.now() + flight.ttl });
      flight.lost += 1;
      flight.results.clear();
      if (flight.lost >= ATTEMPTS_MAX) throw ["contended", `this key changed during each of ${ATTEMPTS_MAX} attempts; retry, or allow more attempts`];
      const isQuick = present !== undefined && flight.lost < ATTEMPTS_AT_ONCE;
      if (isQuick) this.#decide(flight, present ? { text: hexOf(present.bytes), version: present.version } : NOTHING, true);
      else flight.pending = pause().then(() => this.#store.read(flight.name));
    } catch (thrown) {
      flight.writing = undefined;
      for (const call of flight.calls) flight.results.set(call, { thrown });
    }
  }

  /**
   * Decides by a value, and writes the new one. `isTold` says that the store has just told it: otherwise it only counts if it can be
   * swapped for another one. Undefined if the flight has ended.
   */
  #decide(flight: Flight, found: Stored, isTold: boolean): Promise<unknown> | undefined {
    this.#gather(flight);
    let next: Promise<unknown> | undefined;
    try {
      if (isTold) this.#remember(flight.name, found);
      next = this.#swap(flight, found) ?? (isTold ? undefined : this.#read(flight));
      return next;
    } finally {
      flight.join(next);
    }
  }

  /** Decides all calls, one after another, and writes what they make of a value. Undefined if that is the same. */
  #swap(flight: Flight, found: Stored): Promise<unknown> | undefined {
    const { policy, calls, results, name } = flight;
    const { quotas } = policy;
    let states = found.text === undefined ? unused(policy) : statesOf(quotas, found.text);
    const before = written(quotas, states);
    let earliest = Infinity;
    for (const call of calls) {
      if (call.isOver) continue;
      const { kind, cost, now, extra } = call.question;
      try {
        verify(policy, states, now);
        const after = copied(quotas, states);
        if (kind === REFUND) refund(policy, after, extra, now, cost);
        results.set(call, { decision: kind === CHECK ? decide(policy, after, now, cost) : peek(policy, after, now, kind === PEEK ? cost : 0) });
        states = after;
        earliest = Math.min(earliest, now);
      } catch (thrown) {
        results.set(call, { thrown });
      }
    }
    const text = written(quotas, states);
    // A state that is unused by now still has to overwrite the stored one.
    if (text === before) return undefined;
    const ttl = Math.max(expiresAfter(policy, states, earliest) + SLACK_MS, this.#use.ttlMin);
    [flight.writing, flight.ttl] = [text, ttl];
    const { version } = found;
    return (flight.pending = asked(() => (version === undefined ? this.#store.create(name, bytesOf(text), ttl) : this.#store.update(name, bytesOf(text), version, ttl))));
  }

  #read(flight: Flight): Promise<unknown> {
    flight.results.clear();
    return (flight.pending = asked(() => this.#store.read(flight.name)));
  }

  /** Has the calls that wait for their turn join, if they can be decided one after another. */
  #gather(flight: Flight): void {
    const { key } = flight.calls[0]!.question;
    const { queue } = this.#use;
    flight.join = () => undefined;
    if (!queue?.waits(key)) return;
    flight.pending = new Promise((resolve) => (flight.join = resolve));
    // Perhaps none joins.
    flight.pending.catch(() => undefined);
    this.#open = flight;
    queue.startAll(key, ({ kind, policy }) => kind !== RESET && policy === flight.policy);
    this.#open = undefined;
  }

  #recall(name: string): Stored {
    const stored = this.#remembered.get(name);
    return stored && !(Date.now() >= stored.until!) ? stored : NOTHING;
  }

  #remember(name: string, stored: Stored): void {
    if (!this.#use.remembers) return;
    const remembered = this.#remembered;
    remembered.delete(name);
    if (stored.text === undefined || stored.text.length > REMEMBERED_DIGITS_MAX) return;
    if (remembered.size >= REMEMBERED_MAX) for (const oldest of remembered.keys()) if (remembered.delete(oldest)) break;
    remembered.set(name, stored);
  }
}

/** Whether each of the calls has a result. */
function hasEnded({ writing, results }: Flight): boolean {
  return writing === undefined && results.size > 0;
}

/** Asks a store, which may throw before it returns a promise, or return none. */
function asked(ask: () => unknown): Promise<unknown> {
  try {
    return Promise.resolve(ask());
  } catch (thrown) {
    return Promise.reject(thrown);
  }
}
