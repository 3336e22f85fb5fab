import { later } from "../../core/arithmetic.js";
import { type Decision, peek } from "../../core/decide.js";
import type { Policy } from "../../core/policy.js";
import { ALLOWED, ORIGIN, STATUS } from "../../decision_numbers.js";
import { Account, VALUES } from "./account.js";
import { Coarse } from "./coarse.js";
import { draws } from "./draws.js";
import { isDue } from "./pace.js";
import { decode } from "./record.js";
import { Slot, Table } from "./table.js";
import { Unwritten } from "./unwritten.js";

/** The most keys that an isolate holds. They take about 20 MB of the 128 MB that it has. */
const KEYS_MAX = 20_000;

/** The most writes of a flush. A Worker on the free plan has 50 operations per invocation. */
const PUTS_MAX = 8;

/** The most keys that a flush takes from those that wait, most of which it writes. */
const LOOKS_MAX = 64;

/** The longest wait for another flush. The platform stops work 30 s after the response. */
const LINGER_MAX = 25_000;

/** The least time to live of a value in Workers KV. */
const TTL_MIN = 60_000;

/** The origin of a decision by the isolate's own counts, because Workers KV has failed. */
const FROM_FALLBACK = 2;

/** What the error of a key says that is written too often. */
const THROTTLED = /failed: 429|Too many|Too Many/;

/** What is asked about a key. */
export interface KeyCheck {
  policy: Policy;
  /** The key, and the name of its counts. */
  key: string;
  name: string;
  now: number;
  cost: number;
  peeks: boolean;
}

/** A value to write. */
export interface Put {
  /** Whose counts it has. */
  name: string;
  /** Which of the values. */
  value: number;
  bytes: ArrayBuffer;
  /** How long to keep it, in seconds. */
  ttlS: number;
}

/**
 * What an isolate keeps between requests: its counts, and when to read and write each key. The same as in `isolate.rs` of
 * `tidegate-cloudflare`.
 *
 * It does no I/O and has no clock. `ask` says what to read, if anything, `learnt` takes the result, `planWrites` says what to write, and
 * `wrote` takes the result.
 */
export class Isolate {
  readonly #id: bigint;
  readonly #slots: Table;
  readonly #coarse = new Coarse();
  readonly #unwritten = new Unwritten();
  readonly #draw: () => bigint;
  readonly #keysMax: number;
  /** When the next flush is due that a caller waits for. */
  #flushAt = -1;

  /**
   * `seed` must be random: two isolates with the same seed ignore each other's counts, and a client that knows the seed can choose keys that
   * displace each other.
   */
  constructor(seed: bigint, keysMax = KEYS_MAX) {
    this.#draw = draws(seed);
    this.#id = this.#draw();
    this.#slots = new Table(keysMax, this.#draw());
    this.#keysMax = keysMax;
  }

  /** Decides by what is known, or says which of the key's values to read before. The values take turns. */
  ask(asked: KeyCheck): Decision | number {
    const slot = this.#find(asked);
    if (!(slot instanceof Slot) || !slot.claimsRead(asked.now)) return this.#decided(slot, asked);
    slot.lastRead = (slot.lastRead + 1) % VALUES;
    return slot.lastRead;
  }

  /**
   * Decides after a read. `found` is null if there was no value, and undefined if the read failed. A value that cannot be decoded is ignored
   * and overwritten.
   */
  learnt(asked: KeyCheck, value: number, found: ArrayBuffer | null | undefined): Decision {
    const [{ now, policy }, slot] = [asked, this.#slots.get(asked.name)];
    if (slot) {
      slot.wasRead(now);
      slot.isAlone = found === undefined;
    }
    if (slot && found !== undefined) {
      const { account, pace } = slot;
      const entries = (found && decode(policy, found, now)) ?? [];
      // If another isolate has overwritten this isolate's entry, the entry is written again.
      const isLost = value === account.value(now) && !account.isIn(entries) && account.isWorthWriting(now) && pace.isSettled(now);
      account.learn(now, entries);
      if (isLost) this.#enqueue(slot, now);
    }
    return this.#decided(this.#find(asked), asked);
  }

  /** The values that are due to be written. */
  planWrites(now: number): Put[] {
    const puts: Put[] = [];
    for (let looks = 0; looks < LOOKS_MAX && puts.length < PUTS_MAX; looks++) {
      const { first } = this.#unwritten;
      if (!first || !isDue(first.at, now)) break;
      this.#unwritten.pop();
      const slot = this.#slots.get(first.name);
      // A key that was forgotten while it waited may wait twice.
      if (!slot?.waits) continue;
      const { account, name, pace } = slot;
      // It waits for its turn, too, if a wrong clock has said since when it waits.
      const at = pace.due;
      if (!isDue(at, now)) {
        this.#unwritten.push({ at, name });
        continue;
      }
      slot.waits = false;
      if (!account.isWorthWriting(now)) continue;
      pace.tried(now, Math.ceil(account.known / VALUES), this.#draw());
      const ttlS = Math.ceil(Math.max(account.expiresAfter(now), TTL_MIN) / 1_000);
      puts.push({ name, value: account.value(now), bytes: account.written(), ttlS });
    }
    return puts;
  }

  /** Takes the result of a write: what it has thrown, if anything. */
  wrote(name: string, thrown: string | undefined): void {
    const slot = this.#slots.get(name);
    if (!slot) return;
    if (thrown === undefined) return slot.pace.succeeded();
    slot.pace.failed(THROTTLED.test(thrown));
    this.#enqueue(slot, slot.pace.due);
  }

  /**
   * How long the caller should wait before it writes again. Negative if another caller already waits, if nothing is left to write, or if the
   * wait is longer than a Worker may run.
   */
  appoint(now: number): number {
    const { first } = this.#unwritten;
    if (!first) return -1;
    const wait = isDue(first.at, now) ? 0 : first.at - now;
    const at = later(now, wait);
    if (wait > LINGER_MAX || (this.#flushAt > now && this.#flushAt <= at)) return -1;
    this.#flushAt = at;
    return wait;
  }

  /** The slot of a key. A decision if the isolate does not hold the key, and the counts of its group deny it. */
  #find(asked: KeyCheck): Slot | Decision {
    const slot = this.#slots.get(asked.name);
    if (!slot) return this.#add(asked);
    // If the limits have changed, the counts stay.
    slot.account.policy = asked.policy;
    return slot;
  }

  #decided(slot: Slot | Decision, { now, cost, peeks }: KeyCheck): Decision {
    if (!(slot instanceof Slot)) return slot;
    const { account } = slot;
    const before = account.total;
    const decision = peeks ? account.peek(now, cost) : account.decide(now, cost);
    if (slot.isAlone) decision[ORIGIN] = FROM_FALLBACK;
    if (account.total !== before) this.#enqueue(slot, now);
    return decision;
  }

  /** Adds a key, unless the counts of its group deny the request. If that takes the slot of another key, the group of that key keeps its count. */
  #add({ policy, key, name, now, cost }: KeyCheck): Slot | Decision {
    const origin = this.#slots.originOf(key);
    const carried = this.#coarse.of(policy, origin, now);
    if (carried) {
      const decision = peek(policy, carried, now, cost);
      if (decision[STATUS] !== ALLOWED) return decision;
    }
    const set = this.#slots.setOf(name);
    const victim = this.#slots.room(set, now);
    if (victim) {
      const { account } = victim.slot;
      if (!this.#coarse.remember(victim.rememberedAs, account.policy, account.alone, now)) {
        throw ["refused", "this isolate is full: it has forgotten keys of too many policies; use fewer policies; nothing was charged"];
      }
    }
    // The high half is the isolate's.
    const id = ((this.#id >> 32n) << 32n) | (this.#draw() >> 32n);
    const slot = new Slot(name, origin, new Account(policy, id, carried), now);
    this.#slots.insert(set, slot, victim?.slot);
    return slot;
  }

  /** Adds a key to those whose counts wait to be written, from this instant on. */
  #enqueue(slot: Slot, since: number): void {
    if (slot.waits) return;
    slot.waits = true;
    // Some waiting keys may have been forgotten. There are this many only if nobody flushes.
    if (this.#unwritten.size >= this.#keysMax) {
      const oldest = this.#slots.get(this.#unwritten.pop()!.name);
      if (oldest) oldest.waits = false;
    }
    this.#unwritten.push({ at: Math.max(slot.pace.due, since), name: slot.name });
  }
}
