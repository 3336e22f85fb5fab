import type { ErrorKind } from "../error.js";

/** What a gate did with one request. It has no address, no subject, no API key and no token. Unknown values are left out. */
export interface Event {
  /** When the request was checked, in milliseconds since the epoch. */
  atMs: number;
  /** The name of the rule. */
  rule: string;
  /** The names of the rule's limits, joined by `+`. Left out if no limit was asked. */
  policy?: string;
  outcome: "allowed" | "denied" | "never_admissible" | "listed" | "challenged" | "invalid_token" | "failed_open" | "failed_closed";
  /** The binding quota. */
  quota?: string;
  /** A hash of the key that the binding quota counts by, with a secret of this process. */
  key?: string;
  /** The binding quota's limit. */
  limit?: number;
  /** How many more requests of cost 1 fit into the binding quota. */
  remaining?: number;
  /** The component that decided. */
  origin?: string;
  /** The kind of the error, if the limiter did not decide. */
  error?: ErrorKind;
  /** How long the store took, in microseconds. On Cloudflare, time stands still while no request is awaited. */
  latencyUs?: number;
  /** How many requests this event stands for: more than 1 for a sample of those that were allowed. Left out if it is 1. */
  weight?: number;
}

/** Receives events. It is not awaited, and what it throws is ignored. */
export type Sink = (event: Event) => unknown;

/** Writes each event as a line of JSON, with the names of the core's `JsonLines`. */
export function jsonLines(write: (line: string) => unknown = console.log): Sink {
  return ({ atMs, latencyUs, ...rest }) => write(JSON.stringify({ at_ms: atMs, ...rest, latency_us: latencyUs }));
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
  createHistogram(name: string, options?: { description?: string; unit?: string }): { record(value: number, attributes?: Record<string, string>): void };
}

/**
 * Counts events with a meter of OpenTelemetry, as `metrics.getMeter("tidegate")`: `tidegate_requests_total` by `rule`, `outcome` and
 * `origin`, and the histogram `tidegate_store_seconds` by `rule`. No attribute has a key, so their number is bounded.
 */
export function openTelemetry(meter: Meter): Sink {
  const requests = meter.createCounter("tidegate_requests_total", { description: "Requests by rule, outcome and origin" });
  const seconds = meter.createHistogram("tidegate_store_seconds", { description: "How long stores took", unit: "s" });
  return ({ rule, outcome, origin = "none", weight = 1, latencyUs }) => {
    requests.add(weight, { rule, outcome, origin });
    if (latencyUs !== undefined) seconds.record(latencyUs / 1_000_000, { rule });
  };
}

/** An event as the WebAssembly writes it. */
export type WrittenEvent = Omit<Event, "atMs" | "latencyUs"> & { at_ms: number; latency_us?: number };

/** The event with the names of JavaScript. */
export function eventOf({ at_ms: atMs, latency_us, ...rest }: WrittenEvent): Event {
  return latency_us === undefined ? { atMs, ...rest } : { atMs, ...rest, latencyUs: latency_us };
}
