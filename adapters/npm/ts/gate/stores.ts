import { type Capabilities, EXACT } from "../core/capabilities.js";
import type { Decision } from "../core/decide.js";
import type { Policy as AnyPolicy } from "../core/policy.js";
import { EACH, QUOTAS } from "../decision_numbers.js";
import { invalid, TidegateError } from "../error.js";
import { shown } from "../fields.js";
import { LAYER, type Layer } from "../layer.js";
import type { Limiter } from "../limiter.js";
import type { Platform } from "../options.js";
import { type Policy, written } from "../policy.js";
import type { Lease, Question } from "../question.js";
import { StoreLayer } from "../store_health.js";
import { RulesPolicy } from "./rules_policy.js";

/** The options of a limiter that counts for a gate: those that the gate chooses. Spread them, as in `new Tidegate({ ...limit })`. */
export interface Limit {
  policy: Policy;
  platform: Platform;
  /** The gate decides what happens to a request when the store fails, by `on_failure` of its rule. */
  failMode: "closed";
  /** The bounds of its loans, if the limit has a `lease`: the option `leases` of a store that lends. */
  leases?: { slice: number; lifetimeMs: number; grace: number };
}

/** The most limiters of policies that are not of the rules. */
const OTHERS_MAX = 1_024;

/** Makes the limiter of a policy on a store. */
export type Store = (limit: Limit) => Limiter;

/** A store of the application: a limiter for each policy that counts in it. */
export class OwnStore extends StoreLayer {
  readonly name: string;
  /** Those of its limiters. Until one is made, nobody knows. */
  capabilities: Capabilities = EXACT;
  readonly #make: Store;
  readonly #platform: Platform;
  /** Those of the rules' policies. */
  readonly #limiters = new Map<string, Limiter>();
  /** Those of other policies, such as joined ones, of which a client chooses the path. */
  readonly #others = new Map<string, Limiter>();

  constructor(name: string, make: Store, platform: Platform) {
    super();
    this.name = name;
    this.#make = make;
    this.#platform = platform;
  }

  /** Finds out what the store supports. It should support the part of this policy that counts by its first key. */
  probe({ parts, dimensions }: RulesPolicy): void {
    const quotas = parts.quotas.slice(0, dimensions[0]!.end);
    const scopes = parts.scopes!.split(",").slice(0, quotas.length).join();
    const groupAt = dimensions.length === 1 ? parts.groupAt : -1;
    try {
      this.capabilities = this.#limiter(new RulesPolicy({ ...parts, quotas, scopes, groupAt }), undefined).capabilities;
    } catch (thrown) {
      // The gate says which rule needs what this store lacks.
      if (TidegateError.from(thrown).kind !== "unsupported") throw thrown;
      const any = { algorithm: 0, place: "", amount: 1, span: 60_000, refill: 0, name: undefined, by: undefined };
      this.capabilities = this.#made(RulesPolicy.ofLimit("probe", [any], false, undefined), undefined).capabilities;
    }
  }

  /** Makes the limiter of a policy of the rules, unless there is one. */
  prepare(policy: RulesPolicy, lease: Lease | undefined): void {
    this.#limiters.set(nameOf(policy, lease), this.#limiter(policy, lease));
  }

  assertReady(): void {
    for (const limiter of this.#limiters.values()) limiter.assertReady();
  }

  protected decideNow(question: Question): Decision | undefined {
    return question.lease && this.#layerOf(question).known?.(question);
  }

  protected async decide(question: Question): Promise<Decision> {
    const decision = await this.#layerOf(question).ask(question);
    if (decision.length === QUOTAS + EACH * question.policy.quotas.length) return decision;
    throw new TidegateError("corrupt", "the store's limiter decides by another policy; write stores: { default: (limit) => new Tidegate({ ...limit }) }");
  }

  #layerOf({ policy, lease }: Question): Layer {
    return this.#limiter(policy, lease)[LAYER];
  }

  /** One limiter for policies of one shape, because its connections and its loans live in it. */
  #limiter(policy: AnyPolicy, lease: Lease | undefined): Limiter {
    const name = nameOf(policy, lease);
    const known = this.#limiters.get(name) ?? this.#others.get(name);
    if (known) return known;
    const made = this.#made(policy, lease);
    if (this.#others.size >= OTHERS_MAX) this.#others.clear();
    this.#others.set(name, made);
    return made;
  }

  #made(policy: AnyPolicy, lease: Lease | undefined): Limiter {
    const limit: Limit = { policy: written(policy.parts), platform: this.#platform, failMode: "closed" };
    return lease ? this.#borrowing(limit, lease) : this.#limiterOf(limit);
  }

  /** What the application's function returns. */
  #limiterOf(limit: Limit): Limiter {
    const made = this.#make(limit) as Partial<Limiter> | undefined;
    if (made?.[LAYER]) return made as Limiter;
    const what = typeof (made as PromiseLike<unknown> | undefined)?.then === "function" ? "a promise" : shown(made);
    throw invalid(`stores.${this.name}`, `returned ${what}, which is no limiter; write (limit) => new Tidegate({ ...limit })`);
  }

  /** A limiter that borrows. A store that does not know the option, or a function that does not pass it on, is an error. */
  #borrowing(limit: Limit, { slice, lifetimeMs, grace }: Lease): Limiter {
    const refused = `limit "${limit.policy.name}": it has a lease, and the store "${this.name}" does not borrow; delete lease, or write a store that has the option "leases", as in (limit) => new Tidegate({ ...limit, waitUntil })`;
    let limiter: Limiter;
    try {
      limiter = this.#limiterOf({ ...limit, leases: { slice, lifetimeMs, grace } });
    } catch (cause) {
      if (TidegateError.from(cause).field !== "leases") throw cause;
      throw new TidegateError("unsupported", refused, "leases", { cause });
    }
    if (limiter.capabilities.held !== 2 * slice) throw new TidegateError("unsupported", refused, "leases");
    return limiter;
  }
}

/** The same text for policies that differ in the number of a limit only, with equal leases. */
function nameOf(policy: AnyPolicy, lease: Lease | undefined): string {
  const { shape } = policy as RulesPolicy;
  return lease ? `${lease.slice} ${lease.lifetimeMs} ${lease.grace} ${shape}` : shape;
}
