// How the benchmarks in JavaScript measure and record: like src/lib.rs, which describes the lines.

import { appendFileSync } from "node:fs";

/** The rounds of a measurement. */
export const ROUNDS = 7;

/** A tenth of a duration or a count if TIDEGATE_BENCH_QUICK is set. */
export const shortened = (whole) => (process.env.TIDEGATE_BENCH_QUICK === undefined ? whole : Math.ceil(whole / 10));

/** Records `{ group, name, at?, unit, aim?, ours, peer? }`: one value for each round, and the peer's of the same rounds. */
export function record(measurement) {
  const { group, name, at, ours, peer } = measurement;
  const wrong = [...ours, ...(peer?.values ?? [])].find((value) => !(Number.isFinite(value) && value >= 0));
  if (wrong !== undefined) throw new Error(`${group}, ${name}: measured ${wrong}`);
  const line = `${JSON.stringify(measurement)}\n`;
  const file = process.env.TIDEGATE_BENCH;
  if (file === undefined) return process.stdout.write(line);
  console.error(`measured ${group}: ${name}${at ? `, ${JSON.stringify(at)}` : ""}`);
  appendFileSync(file, line);
}

/**
 * Measures each of `{ name: async () => value }` in turn, in every round, after one that does not count. Returns the values of
 * each. Every other round is in reverse order.
 */
export async function inTurn(measures) {
  const values = Object.fromEntries(Object.keys(measures).map((name) => [name, []]));
  for (let round = 0; round <= ROUNDS; round += 1) {
    const turns = Object.entries(measures);
    for (const [name, measure] of round % 2 === 0 ? turns : turns.reverse()) {
      const value = await measure();
      if (round > 0) values[name].push(value);
    }
  }
  return values;
}

/** The median. Of an even number of values, the larger of both in the middle. */
export const median = (values) => values.toSorted((a, b) => a - b)[values.length >> 1];

/** Runs `ask` with so many calls in flight for a time, and returns how many ended in a second. */
export async function perSecond(ask, inFlight, roundMs) {
  const began = performance.now();
  let done = 0;
  const worker = async () => {
    while (performance.now() - began < shortened(roundMs)) {
      await ask();
      done += 1;
    }
  };
  await Promise.all(Array.from({ length: inFlight }, worker));
  return (done / (performance.now() - began)) * 1_000;
}
