// Lists of senders that are always allowed or denied.

import { type Address, addressOf, mapped } from "../../core/address.js";
import { isKey } from "../../core/key.js";
import type { FileValue } from "./file_value.js";

/** The first and the last address of a network, as texts in the order of their bits. */
type Network = readonly [first: string, last: string];

/** Networks and keys. A look-up takes as long as a binary search. */
export class List {
  /** Disjoint and sorted. */
  readonly #networks: Network[] = [];
  readonly #keys = new Set<string>();

  constructor(list?: FileValue) {
    const networks: Network[] = [];
    list?.each((item) => {
      const entry = item.text;
      const found = network(entry);
      if (found) {
        networks.push(found);
      } else if (/^(?:sub|key):/.test(entry) && isKey(entry)) {
        this.#keys.add(entry);
      } else {
        throw item.wrong(entry, "is neither a network nor a key; write one such as 192.0.2.0/24, 2001:db8::/32 or sub:alice");
      }
    });
    networks.sort(([one], [other]) => (one < other ? -1 : 1));
    for (const [first, last] of networks) {
      const before = this.#networks.at(-1);
      if (!before || before[1] < first) this.#networks.push([first, last]);
      else if (before[1] < last) this.#networks.splice(-1, 1, [before[0], last]);
    }
  }

  get isEmpty(): boolean {
    return this.#networks.length + this.#keys.size === 0;
  }

  hasAddress(address: Address): boolean {
    const text = written(mapped(address));
    let [from, to] = [0, this.#networks.length];
    while (from < to) {
      const middle = (from + to) >> 1;
      if (this.#networks[middle]![1] < text) from = middle + 1;
      else to = middle;
    }
    const found = this.#networks[from];
    return found !== undefined && found[0] <= text;
  }

  hasKey(key: string): boolean {
    return this.#keys.has(key);
  }
}

function written(groups: Address): string {
  return String.fromCharCode(...groups);
}

/** A network such as `192.0.2.0/24`, or of one address. */
function network(text: string): Network | undefined {
  const [, start, bits] = /^([^/]*)(?:\/\+?(\d+))?$/.exec(text) ?? [];
  const address = start === undefined ? undefined : addressOf(start);
  const length = address?.length === 4 ? 32 : 128;
  if (!address || Number(bits ?? length) > length) return undefined;
  const kept = 128 - length + Number(bits ?? length);
  // Of the bits of the host, those in a group.
  const host = (nth: number) => (1 << Math.min(Math.max(16 * (nth + 1) - kept, 0), 16)) - 1;
  const groups = mapped(address);
  return [written(groups.map((group, nth) => group & ~host(nth))), written(groups.map((group, nth) => group | host(nth)))];
}
