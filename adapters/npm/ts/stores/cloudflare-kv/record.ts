import { IMPLAUSIBLE_AFTER, type State } from "../../core/algorithms/algorithm.js";
import { later, MAX_INSTANT } from "../../core/arithmetic.js";
import type { Policy } from "../../core/policy.js";
import { type Long, plain } from "./bucket.js";

// A value is `tgk1` and an entry for each isolate that counts the key: see `record.rs` of `tidegate-cloudflare`. An entry has the isolate's
// id for this key, when the isolate last charged, how much it has charged, and its states in the core's encoding: for each quota a byte and
// integers. Integers have eight bytes, low ones first. The policy determines how many.

/** The most entries of a value. */
export const ENTRIES_MAX = 32;

/** `tgk1`, low byte first. */
const MAGIC = 0x316b6774;

const MAGIC_LENGTH = 4;
const HEAD_LENGTH = 24;
const LONG = 8;

/** The first byte of each algorithm's state: version 1, and its number. */
const HEADERS: Readonly<Record<string, number>> = { fw: 0x11, sw: 0x12, tb: 0x14 };

/** What one isolate has admitted of a key. It contains nothing that the isolate has learned from others. */
export interface Entry {
  /** Identifies an isolate (high half), and one of the accounts that it has had for a key (low half). */
  readonly id: bigint;
  at: number;
  /** Grows with each charge, so the greater of two totals of one id is the newer one. */
  total: Long;
  readonly states: State[];
}

/** The numbers of a state while it is read or written. */
const numbers = new Float64Array(3);

export function encode(policy: Policy, entries: readonly Entry[]): ArrayBuffer {
  const view = new DataView(new ArrayBuffer(MAGIC_LENGTH + entries.length * lengthOf(policy)));
  let at = 0;
  const put = (long: Long) => {
    view.setBigUint64(at, BigInt(long), true);
    at += LONG;
  };
  view.setUint32(0, MAGIC, true);
  at = MAGIC_LENGTH;
  for (const { id, at: charged, total, states } of entries) {
    for (const long of [id, charged, total]) put(long);
    policy.quotas.forEach(({ rule }, nth) => {
      view.setUint8(at++, HEADERS[rule.code]!);
      rule.save(states[nth]!, numbers, 0);
      for (let place = 0; place < rule.size; place++) put(numbers[place]!);
    });
  }
  return view.buffer as ArrayBuffer;
}

/** Reads what `encode` wrote by `now`. Undefined for anything else. */
export function decode(policy: Policy, bytes: ArrayBuffer, now: number): Entry[] | undefined {
  const [length, latest] = [lengthOf(policy), later(now, IMPLAUSIBLE_AFTER)];
  const rest = bytes.byteLength - MAGIC_LENGTH;
  // There is no view of a buffer that was transferred, whose length is 0.
  if (rest < 0 || rest % length > 0 || rest > ENTRIES_MAX * length) return undefined;
  const view = new DataView(bytes);
  if (view.getUint32(0, true) !== MAGIC) return undefined;
  const entries: Entry[] = [];
  let at: number = MAGIC_LENGTH;
  const take = () => view.getBigUint64((at += LONG) - LONG, true);
  while (at < bytes.byteLength) {
    const [id, charged, total, states] = [take(), Number(take()), plain(take()), [] as State[]];
    if (charged > MAX_INSTANT || entries.some((entry) => entry.id === id)) return undefined;
    for (const { rule } of policy.quotas) {
      if (view.getUint8(at++) !== HEADERS[rule.code]) return undefined;
      const state = rule.unused();
      // From 2^53 on, numbers may be rounded. No state has such a number.
      for (let place = 0; place < rule.size; place++) numbers[place] = Number(take());
      rule.load(state, numbers, 0);
      if (!rule.fits(state, latest)) return undefined;
      states.push(state);
    }
    entries.push({ id, at: charged, total, states });
  }
  return entries;
}

function lengthOf({ quotas }: Policy): number {
  return quotas.reduce<number>((sum, { rule }) => sum + 1 + LONG * rule.size, HEAD_LENGTH);
}
