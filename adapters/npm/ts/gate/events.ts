import { quietly } from "../callback.js";
import type { Decision } from "../core/decide.js";
import { digest, type Keys } from "../core/key.js";
import { ALLOWED, BINDING, EACH, ORIGIN, ORIGINS, PAID, QUOTAS, REPLAY, STATUS, STATUSES, UNKNOWN } from "../decision_numbers.js";
import type { ErrorKind, TidegateError } from "../error.js";
import type { Question } from "../question.js";
import type { Outcome } from "../verdict.js";

/** What a gate did with one request. It has no address, no subject, no API key and no token. Unknown values are left out. */
export interface Event {
  /** When the request was checked, in milliseconds since the epoch. */
  atMs: number;
  /** The name of the rule. */
  rule: string;
  /** The names of the rule's limits, joined by `+`. Left out if no limit was asked. */
  policy?: string;
  outcome: Exclude<Outcome, "unlimited">;
  /** The binding quota. */
  quota?: string;
  /** A hash of the key that the binding quota counts by, with a secret of this process. */
  key?: string;
  /** The binding quota's limit. */
  limit?: number;
  /** How many more requests of cost 1 fit into the binding quota. */
  remaining?: number;
  /** How much of the cost a balance has paid. Left out if it is 0, and of a repeated answer. */
  fromBalance?: number;
  /** The component that decided. */
  origin?: string;
  /** The kind of the error, if the limiter did not decide. */
  error?: ErrorKind;
  /** How long the store took, in microseconds. On Cloudflare, time stands still while no request is awaited. */
  latencyUs?: number;
  /** How many requests this event stands for: more than 1 for a sample of those that were allowed. Left out if it is 1. */
  weight?: number;
}

/** What a store said of a request. */
export interface StoreAnswer {
  readonly check: Question;
  readonly decision?: Decision | undefined;
  readonly error?: TidegateError | undefined;
  /** Whether the request passes although the store has not decided. */
  readonly isOpen: boolean;
  /** The highest part of a limit that is reached, of those that warn. Or 0. */
  level: number;
}

/** The events of a gate. */
export class Events {
  readonly #sinks: readonly Sink[];
  readonly #every: number;
  readonly #graces = new Map<string, number>();
  #allowed = 0;
  #secret: string | undefined;

  /** Of the allowed requests, one in `every` has an event. */
  constructor(sinks: readonly Sink[], every: number) {
    this.#sinks = sinks;
    this.#every = every;
  }

  get isEmpty(): boolean {
    return this.#sinks.length === 0;
  }

  /** Tells what a store said, which was asked at this instant of the timer. */
  decided(rule: string, { check, decision, error, isOpen }: StoreAnswer, started: number): void {
    if (this.isEmpty) return;
    const latencyUs = Math.floor(performance.now() * 1_000) - Math.floor(started * 1_000);
    const event = { atMs: check.now, rule, policy: check.policy.name };
    if (!decision) return this.#tell({ ...event, outcome: isOpen ? "failed_open" : "failed_closed", latencyUs, ...(error && { error: error.kind }) });
    const isAllowed = decision[STATUS] === ALLOWED;
    if (isAllowed && this.#allowed++ % this.#every > 0) return;
    const { name, by } = check.policy.quotas[decision[BINDING]!]!;
    const [limit, remaining] = decision.slice(QUOTAS + EACH * decision[BINDING]!);
    this.#tell({
      ...event,
      outcome: STATUSES[decision[STATUS]!]!,
      quota: name,
      key: this.hash((check.keys as Keys)[by]!),
      limit: limit!,
      ...(remaining !== UNKNOWN && { remaining: remaining! }),
      latencyUs,
      ...(decision[PAID]! > 0 && !decision[REPLAY] && { fromBalance: decision[PAID]! }),
      origin: ORIGINS[decision[ORIGIN]!]!,
      ...(isAllowed && this.#every > 1 && { weight: this.#every }),
    });
  }

  /** Tells of a request that no store was asked about. */
  refused(rule: string, atMs: number, outcome: Event["outcome"], error?: ErrorKind): void {
    this.#tell({ atMs, rule, outcome, ...(error && { error }) });
  }

  /** Tells what the largest grace of a store's leases is now. */
  lends(store: string, grace: number): void {
    const more = grace - (this.#graces.get(store) ?? 0);
    this.#graces.set(store, grace);
    if (more !== 0) for (const sink of this.#sinks) quietly(() => sink.grace?.(store, more));
  }

  #tell(event: Event): void {
    for (const sink of this.#sinks) quietly(() => sink(event));
  }

  /** Nobody can find an address by trying all: the secret is drawn by each process. Workers have no randomness before their first request. */
  hash(key: string): string {
    this.#secret ??= crypto.randomUUID();
    return digest(this.#secret + key).slice(0, 16);
  }
}

/** Receives events. It is not awaited, and what it throws is ignored. */
export interface Sink {
  (event: Event): unknown;
  /** Hears, where the rules are loaded, by how much the largest grace of a store's leases grows or, if negative, shrinks. */
  grace?(store: string, more: number): unknown;
}

/** Writes each event, or each warning of `warnAt`, as a line of JSON, that of the core's `JsonLines`. */
export function jsonLines(write: (line: string) => unknown = console.log): (event: object) => unknown {
  return (event) => write(JSON.stringify(Object.fromEntries(Object.entries(event).map(([name, value]) => [name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`), value]))));
}

/** The part of a binding of Workers Analytics Engine that is used. */
export interface AnalyticsEngine {
  writeDataPoint(point: { indexes?: string[]; blobs?: string[]; doubles?: number[] }): void;
}

/**
 * Writes each event as a data point of Workers Analytics Engine: the index is the rule; the blobs are the outcome, the policy, the
 * quota, the origin, the error and the key's hash; the doubles are the weight, what remains, the limit and the latency in
 * microseconds. Unknown texts are empty, and unknown numbers are -1.
 */
export function analyticsEngine(dataset: AnalyticsEngine): Sink {
  return ({ rule, outcome, policy = "", quota = "", origin = "", error = "", key = "", weight = 1, remaining = -1, limit = -1, latencyUs = -1 }) =>
    dataset.writeDataPoint({ indexes: [rule], blobs: [outcome, policy, quota, origin, error, key], doubles: [weight, remaining, limit, latencyUs] });
}

/** The part of a meter of `@opentelemetry/api` that is used. */
export interface Meter {
  createCounter(name: string, options?: { description?: string }): { add(value: number, attributes?: Record<string, string>): void };
  createUpDownCounter(name: string, options?: { description?: string }): { add(value: number, attributes?: Record<string, string>): void };
  createHistogram(name: string, options?: { description?: string; unit?: string }): { record(value: number, attributes?: Record<string, string>): void };
}

/**
 * Counts events with a meter of OpenTelemetry, as `metrics.getMeter("tidegate")`: `tidegate_requests_total` by `rule`, `outcome` and
 * `origin`, and the histogram `tidegate_store_seconds` by `rule`. No attribute has a key, so their number is bounded.
 * `tidegate_lease_grace` by `store` is the largest grace of the store's leases: its sum over all processes is what a client may get beyond a limit.
 */
export function openTelemetry(meter: Meter): Sink {
  const requests = meter.createCounter("tidegate_requests_total", { description: "Requests by rule, outcome and origin" });
  const seconds = meter.createHistogram("tidegate_store_seconds", { description: "How long stores took", unit: "s" });
  const graces = meter.createUpDownCounter("tidegate_lease_grace", { description: "What this process may admit beyond a limit" });
  const sink: Sink = ({ rule, outcome, origin = "none", weight = 1, latencyUs }) => {
    requests.add(weight, { rule, outcome, origin });
    if (latencyUs !== undefined) seconds.record(latencyUs / 1_000_000, { rule });
  };
  sink.grace = (store, more) => graces.add(more, { store });
  return sink;
}
