// Replays the fixtures of decisions against a store, and compares with the memory, as `conformance/src/judge/exact.rs` does.

import { readFileSync } from "node:fs";
import { calendarWindow } from "../calendar.js";
import type { Policy } from "../policy.js";
import { Tidegate as InMemory } from "../stores/memory/index.js";
import { forget } from "../stores/memory/memory.js";
import { Tidegate as OnStore } from "../stores/store/index.js";
import type { Limiter } from "../limiter.js";
import type { Verdict } from "../verdict.js";
import type { VersionedStore } from "../versioned_store.js";
import type { Result } from "./report.js";

/** Bursts of identical requests with a policy, as the repository's files have them. */
export interface Decisions {
  readonly id: string;
  readonly about: string;
  readonly start_ms?: number;
  readonly policy: WrittenPolicy;
  readonly steps: readonly Step[];
}

export interface Step {
  readonly at_ms: number;
  readonly op?: "check" | "peek" | "refund" | "reset";
  readonly burst?: number;
  readonly key: string;
  readonly cost?: number;
  readonly policy?: WrittenPolicy;
  readonly charged_at_ms?: number;
}

interface WrittenPolicy {
  readonly name: string;
  readonly charge_denied?: boolean;
  readonly quotas: readonly (Readonly<Record<string, unknown>> & { readonly algorithm: string; readonly name?: string })[];
}

const START_MS = 1_800_000_000_000;

/** So many limiters share the bursts. Half of them remember what they have written, and none knows of the others. */
const LIMITERS = 4;

/** The most answers that a line lists. */
const SHOWN = 3;

/** The fixtures that the package has. */
export function packed(): Decisions[] {
  return JSON.parse(readFileSync(new URL("../../dist/program/fixtures.json", import.meta.url), "utf8")) as Decisions[];
}

/** Several limiters on one store, which do not know of each other. */
export interface Limiters {
  /** Does a step of a fixture with so many requests at once, spread over the limiters, and returns the answer to each. */
  answers(fixture: Decisions, nth: number, prefix: string): Promise<string[]>;
}

/** Limiters of this process. */
export function limitersOn(store: VersionedStore): Limiters {
  const limiters = Array.from({ length: LIMITERS }, (_, nth) => stepsOn(store, nth % 2 === 1));
  let turn = 0;
  return {
    answers: (fixture, nth, prefix) => Promise.all(Array.from({ length: fixture.steps[nth]!.burst ?? 1 }, () => limiters[turn++ % LIMITERS]!(fixture, nth, prefix))),
  };
}

/** A limiter that does each step of fixtures once, and says what it has answered. */
export function stepsOn(store: VersionedStore, remember: boolean): (fixture: Decisions, nth: number, prefix: string) => Promise<string> {
  // Those of one policy in several fixtures use other keys.
  const limiterOf = remembered((policy: WrittenPolicy) => limiterOn(store, policy, remember));
  return (fixture, nth, prefix) => answered(limiterOf(policyAt(fixture, nth)), fixture, fixture.steps[nth]!, prefix);
}

/** The policy of a step: the last one that a step up to it has. */
function policyAt({ policy, steps }: Decisions, nth: number): WrittenPolicy {
  return steps.slice(0, nth + 1).reduce((last, step) => step.policy ?? last, policy);
}

/** Replays a fixture on limiters that share `store`. The answers in memory are expected. `prefix` begins all keys. */
export async function replayedOn(limiters: Limiters, store: VersionedStore, fixture: Decisions, prefix: string, expected: readonly (readonly string[])[]): Promise<Result> {
  const { id } = fixture;
  const [reasons, counts, used]: [string[], { offered: number; passed: number }, Map<string, () => Promise<void>>] = [[], { offered: 0, passed: 0 }, new Map()];
  let [due, admitted] = [0, 0];
  for (const [nth, step] of fixture.steps.entries()) {
    const policy = policyAt(fixture, nth);
    used.set(JSON.stringify([policy, step.key]), () => limiterOn(store, policy, false).reset(prefix + step.key));
    const found = await limiters.answers(fixture, nth, prefix);
    const isCheck = (step.op ?? "check") === "check";
    due += isCheck ? expected[nth]!.filter(isAllowed).length : 0;
    admitted += isCheck ? found.filter(isAllowed).length : 0;
    // A store that may read an old value may deny for too long, and never admits more.
    const tooMany = admitted > due ? `admitted ${admitted} by then, and ${due} are due at most` : undefined;
    const wrong = store.staleReads ? tooMany ?? found.find((answer) => answer.startsWith("error")) : difference(expected[nth]!, found);
    if (wrong !== undefined) reasons.push(`${named(nth, step)}: ${wrong}`);
    if (isCheck) {
      counts.offered += found.length;
      counts.passed += found.filter(isAllowed).length;
    }
  }
  for (const reset of used.values()) await reset().catch(() => undefined);
  return reasons.length > 0 ? { id, verdict: "fail", reasons, ...counts } : { id, verdict: "pass", reasons, ...counts };
}

/** The answers of the memory to each step. No other fixture may be replayed there meanwhile: time in memory is that of the last call. */
export async function inMemory(fixture: Decisions, prefix: string): Promise<string[][]> {
  forget();
  const limiterOf = remembered((policy: WrittenPolicy) => new InMemory({ ...COMMON, policy: policyOf(policy) }));
  const answers: string[][] = [];
  let policy = fixture.policy;
  for (const step of fixture.steps) {
    policy = step.policy ?? policy;
    const own: string[] = [];
    for (let nth = 0; nth < (step.burst ?? 1); nth++) own.push(await answered(limiterOf(policy), fixture, step, prefix));
    answers.push(own);
  }
  return answers;
}

const COMMON = { platform: "direct", failMode: "closed", onError: () => undefined } as const;

function limiterOn(store: VersionedStore, policy: WrittenPolicy, remember: boolean): OnStore {
  // Virtual time stands still while the store's clock goes on.
  return new OnStore({ ...COMMON, store, remember, policy: policyOf(policy), deadlineMs: 20_000, minTtlMs: 3_600_000 });
}

function remembered<T>(make: (policy: WrittenPolicy) => T): (policy: WrittenPolicy) => T {
  const made = new Map<string, T>();
  return (policy) => {
    const name = JSON.stringify(policy);
    if (!made.has(name)) made.set(name, make(policy));
    return made.get(name)!;
  };
}

/** A policy of a fixture, as the package takes it. */
function policyOf({ name, quotas, charge_denied: chargeDenied }: WrittenPolicy): Policy {
  const quotaOf = ({ algorithm, name, ...numbers }: WrittenPolicy["quotas"][0]) => {
    const renamed = Object.fromEntries(Object.entries(numbers).map(([number, value]) => [camel(number), value]));
    const own = name === undefined ? {} : { name };
    return algorithm === "calendar_window" ? calendarWindow({ ...renamed, ...own } as unknown as Parameters<typeof calendarWindow>[0]) : { [camel(algorithm)]: renamed, ...own };
  };
  return { name, quotas: quotas.map(quotaOf), ...(chargeDenied && { chargeDenied }) } as unknown as Policy;
}

function camel(name: string): string {
  return name.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase());
}

const REQUEST = new Request("https://example.com/");

/** Does what a step does once, and says what was answered. */
async function answered(limiter: Limiter, fixture: Decisions, step: Step, prefix: string): Promise<string> {
  const { op = "check", cost = 1 } = step;
  const [key, now] = [prefix + step.key, instant(fixture, step.at_ms)];
  try {
    switch (op) {
      case "check":
        return inWords(await limiter.check(REQUEST, { key, cost, now }));
      case "peek":
        return inWords(await limiter.peek(REQUEST, { key, cost, now }));
      case "reset":
        await limiter.reset(key);
        return "done";
      case "refund":
        await limiter.refund(chargedAt(key, instant(fixture, step.charged_at_ms ?? step.at_ms)), { cost, now });
        return "done";
    }
  } catch (thrown) {
    return failed(thrown);
  }
}

function chargedAt(key: string, decidedAtMs: number): Verdict {
  return { key, outcome: "allowed", decidedAtMs } as Verdict;
}

function instant({ start_ms: start = START_MS }: Decisions, atMs: number): number {
  return start + atMs;
}

const isAllowed = (answer: string) => answer.startsWith("allowed");

/** All of a decision that two answers are compared by. */
function inWords({ outcome, error, quotas, binding, retryAfterMs, delayMs }: Verdict): string {
  if (error) return failed(error);
  const each = quotas.map(({ limit, remaining, resetAfterMs }, nth) => {
    const told = (number: number | null | undefined) => number ?? "?";
    return `${quotas.length > 1 && nth === binding ? "binding: " : ""}${told(remaining)} of ${limit} remaining, reset after ${told(resetAfterMs)} ms`;
  });
  const wait = retryAfterMs === null ? "" : `; retry after ${retryAfterMs} ms`;
  return `${outcome.replace("_", " ")} (${each.join("; ")}${wait}${delayMs > 0 ? `; delay ${delayMs} ms` : ""})`;
}

function failed(thrown: unknown): string {
  const { kind, message } = thrown as { kind?: string; message?: string };
  // What the memory refuses, each store has to refuse alike. Of others, the message says what has failed.
  return kind === "invalid" ? "error invalid" : `error ${kind}: ${message}`;
}

/** How the answers to a burst differ, if they do. Their order does not matter. */
function difference(expected: readonly string[], found: readonly string[]): string | undefined {
  const counts = new Map<string, number>();
  for (const one of expected) counts.set(one, (counts.get(one) ?? 0) + 1);
  for (const one of found) counts.set(one, (counts.get(one) ?? 0) - 1);
  const missing = [...counts].filter(([, count]) => count > 0);
  const unexpected = [...counts].filter(([, count]) => count < 0);
  if (missing.length + unexpected.length === 0) return undefined;
  const [due, passed] = [expected, found].map((answers) => answers.filter(isAllowed).length);
  const admitted = due === passed ? "" : `admitted ${passed}, and ${due} are due: `;
  return `${admitted}expected ${listed(missing)}; found ${listed(unexpected)}`;
}

function listed(answers: readonly (readonly [string, number])[]): string {
  if (answers.length === 0) return "nothing in their place";
  const shown = answers.slice(0, SHOWN).map(([answer, count]) => `${Math.abs(count)} x ${answer}`);
  const rest = answers.slice(SHOWN).reduce((sum, [, count]) => sum + Math.abs(count), 0);
  return shown.join(", ") + (rest > 0 ? `, and ${rest} others` : "");
}

/** How a line names a step. */
function named(nth: number, { at_ms, op = "check", burst = 1, cost = 1, key }: Step): string {
  const shown = JSON.stringify(key.length > 40 ? `${key.slice(0, 37)}...` : key);
  return `steps[${nth}] (${at_ms} ms, ${op}${burst === 1 ? "" : ` x${burst}`}${cost === 1 ? "" : ` of cost ${cost}`}, ${shown})`;
}
