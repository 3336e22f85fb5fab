import { quietly } from "../../callback.js";
import { MAX_INSTANT } from "../../core/arithmetic.js";
import { type Capabilities, EXACT } from "../../core/capabilities.js";
import { keyOf } from "../../core/key.js";
import type { Policy } from "../../core/policy.js";
import { AT } from "../../decision_numbers.js";
import type { StoreCore } from "../../limiter_core.js";
import { PEEK, type Question } from "../../question.js";
import { type Call, said, type Store } from "../../store.js";
import { type KeyCheck, Isolate } from "./isolate.js";

/** The part of a `KVNamespace` that is used. */
export interface Kv {
  get(key: string, options: { type: "arrayBuffer"; cacheTtl: number }): Promise<ArrayBuffer | null>;
  put(key: string, value: ArrayBuffer, options: { expirationTtl: number }): Promise<void>;
  delete(key: string): Promise<void>;
}

/** What isolates support that share their counts through Workers KV. */
export const SHARED: Capabilities = {
  ...EXACT,
  class: "approximate",
  ceiling: "limit x locations",
  accuracy: "approximate: limit <= admitted <= limit x locations",
  algorithms: ["fixed_window", "sliding_window", "token_bucket"],
  dimensions: "one",
  charge_denied: false,
  refund: false,
  reset: false,
  block: false,
  grant: false,
  idempotency: false,
};

/** The longest that the writes of a flush may take. */
const WRITES_MS_MAX = 30_000;

/** The most policies that are shared. */
const POLICIES_MAX = 64;

/** The counts of all limiters, so that two of the same policy count together. Workers have no randomness before their first request. */
let isolate: Isolate | undefined;

/** The one copy of each policy that all its keys share: an application may make a limiter for each request. */
const policies = new Map<string, Policy>();

/** Asks the isolate's counts, and carries what they read and write. */
export class Counts implements Store {
  readonly name = "Workers KV";
  readonly #core: StoreCore;
  readonly #policy: Policy;
  readonly #namespace: Kv;
  readonly #cacheTtl: number;
  readonly #decided: (now: number) => void;

  /** `decided` is called after each decision, with its time. */
  constructor(core: StoreCore, namespace: Kv, cacheTtl: number, decided: (now: number) => void) {
    this.#core = core;
    this.#policy = shared(core.policy);
    this.#namespace = namespace;
    this.#cacheTtl = cacheTtl;
    this.#decided = decided;
  }

  send(call: Call): Promise<unknown> | undefined {
    const { question } = call;
    this.#core.verify(question);
    isolate ??= seeded();
    const asked = this.#asked(question);
    const answer = isolate.ask(asked);
    if (typeof answer !== "number") return this.#leave(answer);
    call.note = answer;
    return this.#get(named(asked.name, answer));
  }

  answered(call: Call, found: unknown): undefined {
    return this.#learn(call, found instanceof ArrayBuffer ? found : null);
  }

  threw(call: Call): undefined {
    return this.#learn(call, undefined);
  }

  late(call: Call): boolean {
    try {
      this.#learn(call, undefined);
      return true;
    } catch {
      return false;
    }
  }

  /** Writes what is due. Returns how long to wait until the next time, or a negative number if another request does it. */
  async flush(now: number): Promise<number> {
    if (!isolate) return -1;
    const instant = Math.min(now, MAX_INSTANT);
    const until = Date.now() + WRITES_MS_MAX;
    for (const { name, value, bytes, ttlS } of isolate.planWrites(instant)) {
      let thrown: string | undefined;
      try {
        await within(until - Date.now(), this.#namespace.put(named(name, value), bytes, { expirationTtl: ttlS }));
      } catch (error) {
        thrown = said(error);
      }
      isolate.wrote(name, thrown);
    }
    return isolate.appoint(instant);
  }

  async #get(name: string): Promise<ArrayBuffer | null> {
    return this.#namespace.get(name, { type: "arrayBuffer", cacheTtl: this.#cacheTtl });
  }

  /** Decides by what was read: null if there is no value, and undefined if it is unknown. */
  #learn({ question, note }: Call, found: ArrayBuffer | null | undefined): undefined {
    return this.#leave(isolate!.learnt(this.#asked(question), note, found));
  }

  #asked({ policy: asked, key: text, kind, now, cost }: Question): KeyCheck {
    const policy = asked.text === this.#core.policy.text ? this.#policy : shared(asked);
    const key = keyOf(text, this.#core.policy.isOfGate);
    return { policy, key, name: `tg1:${policy.id}:${key}`, now, cost, peeks: kind === PEEK };
  }

  #leave(decision: StoreCore["decision"]): undefined {
    this.#core.decision = decision;
    quietly(() => this.#decided(decision[AT]!));
  }
}

/** The name of one of a key's values. No key has a `#`. */
function named(name: string, value: number): string {
  return `${name}#${value}`;
}

function seeded(): Isolate {
  const [high, low] = crypto.getRandomValues(new Uint32Array(2));
  return new Isolate((BigInt(high!) << 32n) | BigInt(low!));
}

/** The copy of a policy that all its limiters share. */
function shared(policy: Policy): Policy {
  const numbers = policy.id + JSON.stringify(policy.quotas);
  const known = policies.get(numbers);
  if (known) return known;
  if (policies.size >= POLICIES_MAX) policies.clear();
  policies.set(numbers, policy);
  return policy;
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
