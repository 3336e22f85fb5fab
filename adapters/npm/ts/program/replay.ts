// Replays a gate fixture in memory, on virtual time, as `conformance/src/run/gate.rs` does.

import { TidegateError } from "../error.js";
import { Gate } from "../gate/index.js";
import { calendarWindows } from "../gate/calendar.js";
import { balances } from "../gate/credits.js";
import { limitsFromData } from "../gate/limits.js";
import { warnAt } from "../gate/warn-at.js";
import { Tidegate } from "../stores/memory/index.js";
import { forget } from "../stores/memory/memory.js";
import type { Verdict } from "../verdict.js";
import type { Expected, Fixture, Step } from "./fixture.js";
import { arrivedWith } from "./raw_request.js";
import type { Result } from "./report.js";
import { storeNames } from "./stores.js";
import { Tokens } from "./tokens.js";

/** Replays a fixture on a store that has counted nothing. */
export async function replayed(fixture: Fixture): Promise<Result> {
  const { id, rules, platform, text } = fixture;
  const tokens = rules.tokens && new Tokens(rules.tokens);
  const [first = "default", ...others] = storeNames(rules);
  const stores = Object.fromEntries([first, ...others].map((name) => [name, (limit: ConstructorParameters<typeof Tidegate>[0]) => new Tidegate(limit)]));
  forget();
  const warned: number[] = [];
  let gate: Gate;
  try {
    gate = Gate.fromRules(text, { platform, stores, name: "rules.json", limits: limitsFromData, calendar: calendarWindows, credits: balances, warnAt: warnAt(({ warning }) => warned.push(warning)), onError: () => undefined, ...(tokens && { keys: () => tokens.key }) });
  } catch (thrown) {
    const { kind, message } = TidegateError.from(thrown);
    return kind === "unsupported" ? { id, verdict: "unsupported", reasons: [message] } : { id, verdict: "fail", reasons: [message] };
  }
  const [reasons, counts]: [string[], { offered: number; passed: number }] = [[], { offered: 0, passed: 0 }];
  for (const [nth, step] of fixture.steps.entries()) {
    const verdicts = await sent(gate, fixture, step, tokens);
    reasons.push(...wrongIn(verdicts, warned.splice(0), step).map((wrong) => `whichever store counts: steps[${nth}] (${step.method} ${step.path} at ${step.at_ms} ms): ${wrong}`));
    counts.offered += step.burst;
    counts.passed += verdicts.filter(({ allowed }) => allowed).length;
  }
  return reasons.length > 0 ? { id, verdict: "fail", reasons } : { id, verdict: "pass", reasons, ...counts };
}

/** Sends the requests of a step at once. */
function sent(gate: Gate, { startMs }: Fixture, step: Step, tokens: Tokens | undefined): Promise<Verdict[]> {
  const now = startMs + step.at_ms;
  const signed = tokens && step.claims ? [tokens.field(step.claims, now)] : [];
  const request = arrivedWith({ ...step, headers: [...step.headers, ...signed] });
  const { peer, subject, tier, bot_score: botScore, ja4, keys, limits, cost } = step;
  const one = (nth: number) => gate.check(request, { peer, subject, tier, botScore, ja4, keys, limits, cost, now, token: step.token?.replaceAll("{n}", String(nth + 1)) });
  return Promise.all(Array.from({ length: step.burst }, (_, nth) => one(nth)));
}

/** What of the answers is not as expected. */
function wrongIn(verdicts: readonly Verdict[], warned: readonly number[], { expect }: Step): string[] {
  const wrong: string[] = [];
  const judged = verdicts.filter((verdict) => {
    const why = unexpected(verdict, expect.status);
    if (why !== undefined) wrong.push(why);
    return why === undefined;
  });
  const passed = judged.filter(({ allowed }) => allowed).length;
  if (passed !== expect.passed) wrong.push(`expected ${expect.passed} to pass, found ${passed}${undecided(judged.find(({ error }) => error))}`);
  const counts = judged.flatMap(({ quotas, binding }) => quotas[binding]?.remaining ?? []);
  const remaining = counts.length > 0 ? Math.min(...counts) : null;
  if (expect.remaining !== undefined && remaining !== expect.remaining) wrong.push(`expected ${expect.remaining ?? "none"} remaining, found ${remaining ?? "none"}`);
  return [...wrong, ...otherWarnings(judged, warned, expect)];
}

/** What else than expected was told of the parts of a limit that a step's requests have reached. */
function otherWarnings(judged: readonly Verdict[], warned: readonly number[], expect: Expected): string[] {
  const level = Math.max(0, ...judged.map(({ level }) => level ?? 0));
  if (expect.level !== undefined && level !== expect.level) return [`expected the level ${expect.level}, found ${level}`];
  const [wanted, found] = [expect.warned, [...warned].sort((a, b) => a - b)].map((list) => list && `[${list.join(", ")}]`);
  return wanted === undefined || wanted === found ? [] : [`expected warnings at ${wanted} %, found ${found}`];
}

/** Why an answer is not one that the step expects. */
function unexpected({ allowed, error, response }: Verdict, expected: number): string | undefined {
  const status = response?.status ?? 200;
  if (error && (error.kind === "unsupported" || status === 400)) return `expected a verdict, found ${error.kind}: ${error.message}`;
  if (allowed || status === expected) return undefined;
  return `expected the status ${expected}, found ${status}${error ? `; the request was not decided: ${error.kind}: ${error.message}` : ""}`;
}

function undecided(verdict: Verdict | undefined): string {
  return verdict?.error ? `; a request was not decided: ${verdict.error.kind}: ${verdict.error.message}` : "";
}
