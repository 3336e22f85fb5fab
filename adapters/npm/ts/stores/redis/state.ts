import type { Rule, State } from "../../core/algorithms/algorithm.js";
import type { Policy } from "../../core/policy.js";

// The states are text, so that `redis-cli GET` shows them: see `state.rs` of `tidegate-redis`.

/** How each algorithm's part is written. Those that are not here have as many numbers as their state. */
const PARTS: Record<string, RegExp> = {
  sl: /sl1((?: \d+:\d+)*);/y,
  cc: /cc1((?: [\da-f]{16}:\d+:\d+)*);/y,
  ba: /ba1 (\d+(?: \d+:\d+)*);/y,
  pn: /pn1 (\d+) (\d+)(?: (\d+))?;/y,
};

const LOANS = /ln1 (\d+ \d+(?: \d+:\d+:\d+)*);/y;

/** A policy's states, and the numbers of what is lent of them. Throws if the scripts cannot have written the text. */
export function parse({ quotas }: Policy, text: string): { states: State[]; loans: number[] } {
  let at = 0;
  const states = quotas.map(({ rule }) => {
    const part = (PARTS[rule.code] ??= new RegExp(`${rule.code}1${" (\\d+)".repeat(rule.size)};`, "y"));
    part.lastIndex = at;
    const found = part.exec(text);
    if (!found) throw corrupt(text, at);
    at = part.lastIndex;
    return stateOf(rule, found.slice(1));
  });
  LOANS.lastIndex = at;
  const loans = at < text.length ? LOANS.exec(text) : null;
  if (loans) at = LOANS.lastIndex;
  if (at < text.length) throw corrupt(text, at);
  return { states, loans: loans ? loans[1]!.split(/[ :]/).map(Number) : [] };
}

function stateOf(rule: Rule, found: readonly string[]): State {
  if (rule.stateOf) return rule.stateOf(found[0]!.split(/[ :]/).map(Number));
  const state = rule.unused();
  if ("entries" in state) state.entries = entries(found[0]!).map(([at, units]) => ({ at: Number(at), units: Number(units) }));
  else if ("slots" in state) state.slots = entries(found[0]!).map(([id, at, cost]) => ({ id: id!, at: Number(at), cost: Number(cost) }));
  else rule.load(state, found.map((digits) => Number(digits ?? 0)), 0);
  return state;
}

function entries(text: string): string[][] {
  return text.split(" ").slice(1).map((entry) => entry.split(":"));
}

function corrupt(text: string, at: number): unknown {
  return ["corrupt", `stored state: no state of this policy, at character ${at} of ${text.length}; delete the key, or find what else writes to it`];
}
