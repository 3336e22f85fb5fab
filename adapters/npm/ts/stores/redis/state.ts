import type { State } from "../../core/algorithms/algorithm.js";
import type { Policy } from "../../core/policy.js";

// The states are text, so that `redis-cli GET` shows them: see `state.rs` of `tidegate-redis`.

/** How each algorithm's part is written. */
const PARTS: Readonly<Record<string, RegExp>> = {
  fw: /fw1 (\d+) (\d+);/y,
  sw: /sw1 (\d+) (\d+) (\d+);/y,
  sl: /sl1((?: \d+:\d+)*);/y,
  tb: /tb1 (\d+) (\d+);/y,
  lb: /lb1 (\d+) (\d+);/y,
  cc: /cc1((?: [\da-f]{16}:\d+:\d+)*);/y,
  pn: /pn1 (\d+) (\d+)(?: (\d+))?;/y,
};

const LOANS = /ln1 (\d+ \d+(?: \d+:\d+:\d+)*);/y;

/** A policy's states, and the numbers of what is lent of them. Throws if the scripts cannot have written the text. */
export function parse({ quotas }: Policy, text: string): { states: State[]; loans: number[] } {
  let at = 0;
  const states = quotas.map(({ rule }) => {
    const part = PARTS[rule.code]!;
    part.lastIndex = at;
    const found = part.exec(text);
    if (!found) throw corrupt(text, at);
    at = part.lastIndex;
    return stateOf(rule.code, found);
  });
  LOANS.lastIndex = at;
  const loans = at < text.length ? LOANS.exec(text) : null;
  if (loans) at = LOANS.lastIndex;
  if (at < text.length) throw corrupt(text, at);
  return { states, loans: loans ? loans[1]!.split(/[ :]/).map(Number) : [] };
}

function stateOf(code: string, { 1: first, 2: second, 3: third }: RegExpExecArray): State {
  const [a, b, c] = [Number(first), Number(second), Number(third ?? 0)];
  switch (code) {
    case "fw":
      return { start: a, used: b };
    case "sw":
      return { start: a, previous: b, current: c };
    case "sl":
      return { entries: entries(first!).map(([at, units]) => ({ at: Number(at), units: Number(units) })) };
    case "cc":
      return { slots: entries(first!).map(([id, at, cost]) => ({ id: id!, at: Number(at), cost: Number(cost) })) };
    case "pn":
      return { strikes: a, until: b, length: c };
    default:
      return { level: a, at: b };
  }
}

function entries(text: string): string[][] {
  return text.split(" ").slice(1).map((entry) => entry.split(":"));
}

function corrupt(text: string, at: number): unknown {
  return ["corrupt", `stored state: no state of this policy, at character ${at} of ${text.length}; delete the key, or find what else writes to it`];
}
