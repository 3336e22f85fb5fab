// Policies as functions make them and as objects are written, for the tests that compare both.

import * as parts from "@tidegate/edge/parts";

const { fixedWindow, leakyBucket, penalty, slidingLog, slidingWindow, tokenBucket } = parts;
const UNITS = [["ms", 1], ["s", 1_000], ["min", 60_000], ["h", 3_600_000], ["second", 1_000], ["minutes", 60_000]];

/** A span as a text, and in milliseconds. */
function span(chance) {
  const [unit, ms] = chance.from(UNITS);
  const count = 1 + chance.below(30);
  return [chance.from([`${count} ${unit}`, ` ${count}${unit} `]), count * ms];
}

/** A quota that counts, as a function makes it and as an object. */
export function counting(chance) {
  const [text, ms] = span(chance);
  const [limit, refill] = [1 + chance.below(20), 1 + chance.below(5)];
  return chance.from([
    () => [fixedWindow, { fixedWindow: { limit, windowMs: ms } }, limit, text],
    () => [slidingWindow, { slidingWindow: { limit, windowMs: ms } }, limit, text],
    () => [slidingLog, { slidingLog: { limit, windowMs: ms } }, limit, text],
    () => [tokenBucket, { tokenBucket: { capacity: limit, refill, perMs: ms } }, limit, refill, text],
    () => [leakyBucket, { leakyBucket: { capacity: limit, refill, perMs: ms } }, limit, refill, text],
  ])();
}

/** Two forms of a policy. */
export function policies(chance, name) {
  const quotas = Array.from({ length: chance.from([1, 1, 2, 3]) }, () => counting(chance));
  if (chance.once(4)) quotas.push([penalty, { penalty: { baseMs: 1_000, factor: 2, capMs: 60_000 } }, "1 s", 2, "1 min"]);
  const chargeDenied = chance.once(4);
  const by = quotas.length > 1 && quotas.at(-1)[0] !== penalty && chance.once(3) ? "tenant" : undefined;
  const options = (nth) => (by && nth === 1 ? { by } : chance.once(3) ? { name: `q${nth}` } : {});
  const chosen = quotas.map((_, nth) => options(nth));
  return {
    made: { name, chargeDenied, quotas: quotas.map(([make, , ...numbers], nth) => make(...numbers, chosen[nth])) },
    written: { name: `${name}w`, chargeDenied, quotas: quotas.map(([, object], nth) => ({ ...object, ...chosen[nth] })) },
    by,
  };
}

/** What a verdict tells, without the policy's name. */
export function toldBy(verdict, name) {
  const { decidedAtMs: _, ...told } = verdict.toJSON();
  const { status, body } = verdict.http ?? {};
  return JSON.parse(JSON.stringify({ ...told, headers: verdict.headers, status, body }).replaceAll(name, "P"));
}
