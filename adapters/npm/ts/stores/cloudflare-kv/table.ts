import { later } from "../../core/arithmetic.js";
import type { Account } from "./account.js";
import { hashOf } from "./draws.js";
import { Pace, REFRESH } from "./pace.js";

/** The most slots of a set. Larger sets would fill more evenly, and take longer to search. */
const WAYS = 32;

/** How many bits of a hash an origin has, so that it is a number. */
const ORIGIN_BITS = 52;

/** The first groups of an address. */
const [NETWORK, SITE] = [/^ip:[^.:]*[.:][^.:]*/, /^ip:(?:[^.:]*[.:]){2}[^.:]*/];

/**
 * Hashes of the networks that a key's client belongs to: a /48 and a /32 in IPv6, a /24 and a /16 in IPv4. A key that is not an address is an
 * origin of its own.
 *
 * An IPv6 client can have more /64 prefixes than an isolate has slots, but they are all in one network.
 */
export interface Origin {
  readonly site: number;
  readonly network: number;
}

/** What an isolate holds of one key: its counts, and when to read and write them. */
export class Slot {
  readonly name: string;
  readonly origin: Origin;
  readonly account: Account;
  /** The value that was read last. */
  lastRead: number;
  /** Until when it is not read again. Before the first answer, that is undefined. */
  #freshUntil: number | undefined = undefined;
  readonly pace = new Pace();
  /** Whether the key waits to be written. */
  waits = false;
  /** Whether the last read failed, so that the isolate decides by its own counts. */
  isAlone = false;

  constructor(name: string, origin: Origin, account: Account, now: number) {
    this.name = name;
    this.origin = origin;
    this.account = account;
    this.lastRead = account.value(now);
  }

  /** Whether to read now. Every caller reads until the first answer arrives. Then one caller reads each time the answer becomes too old. */
  claimsRead(now: number): boolean {
    const until = this.#freshUntil;
    if (until === undefined) return true;
    const next = later(now, REFRESH);
    if (until > now && until <= next) return false;
    this.#freshUntil = next;
    return true;
  }

  wasRead(now: number): void {
    this.#freshUntil = Math.max(this.#freshUntil ?? 0, later(now, REFRESH));
  }

  /** Whether nothing is lost by dropping the slot: it counts nothing, and its last read is too old to use. */
  isIdle(now: number): boolean {
    return this.account.isUnused(now) && (this.#freshUntil ?? 0) <= now;
  }
}

/** A slot that a full set gives up, and the part of its origin that keeps its count. */
export interface Victim {
  slot: Slot;
  rememberedAs: number;
}

/**
 * The slots of an isolate, by their keys. A hash of the key selects a set, and a full set gives up a slot for a new key. So a request searches
 * one small set, never all keys.
 */
export class Table {
  readonly #slots = new Map<string, Slot>();
  readonly #sets: readonly Slot[][];
  readonly #ways: number;
  readonly #seed: bigint;

  constructor(keysMax: number, seed: bigint) {
    this.#ways = Math.min(keysMax, WAYS);
    this.#sets = Array.from({ length: Math.floor(keysMax / this.#ways) }, () => []);
    this.#seed = seed;
  }

  get(name: string): Slot | undefined {
    return this.#slots.get(name);
  }

  /** The set of a key, by the name of its counts. */
  setOf(name: string): Slot[] {
    return this.#sets[Number(this.#hash(name) % BigInt(this.#sets.length))]!;
  }

  /** The origin of a key, which is not the name of its counts. */
  originOf(key: string): Origin {
    const [site, network] = [SITE.exec(key)?.[0] ?? key, NETWORK.exec(key)?.[0] ?? key];
    const hash = (part: string) => Number(BigInt.asUintN(ORIGIN_BITS, this.#hash(part)));
    return { site: hash(site), network: hash(network) };
  }

  /**
   * Makes room in a set: drops its idle slots, and chooses the slot to give up if it is still full.
   *
   * The slot is one of the network with the most slots in the set, and there of the site with the most, so a client that rotates its addresses
   * displaces itself. Of these slots it is the one that has used least.
   */
  room(set: Slot[], now: number): Victim | undefined {
    for (const slot of set.filter((slot) => slot.isIdle(now))) this.#remove(slot, set);
    if (set.length < this.#ways) return undefined;
    let [victim, ofNetwork, ofSite, used] = [set[0]!, 0, 0, 0];
    for (const slot of set) {
      const { site, network } = slot.origin;
      let [networks, sites] = [0, 0];
      for (const { origin } of set) {
        if (origin.network === network) networks += 1;
        if (origin.site === site) sites += 1;
      }
      const more = networks - ofNetwork || sites - ofSite;
      if (more < 0) continue;
      const own = slot.account.used(now);
      if (more > 0 || own < used) [victim, ofNetwork, ofSite, used] = [slot, networks, sites, own];
    }
    const { site, network } = victim.origin;
    // A site that fills the set keeps the count itself. If a network rotates its sites, the network keeps it.
    return { slot: victim, rememberedAs: ofSite > 1 && 2 * ofSite > ofNetwork ? site : network };
  }

  /** Adds a slot to its set, in place of one if the set is full. */
  insert(set: Slot[], slot: Slot, victim: Slot | undefined): void {
    if (victim) this.#remove(victim, set);
    set.push(slot);
    this.#slots.set(slot.name, slot);
  }

  #remove(slot: Slot, set: Slot[]): void {
    set.splice(set.indexOf(slot), 1);
    this.#slots.delete(slot.name);
  }

  /** Clients do not know the seed, so they cannot choose keys that share a set. */
  #hash(text: string): bigint {
    return hashOf(this.#seed, text);
  }
}
