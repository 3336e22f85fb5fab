// Limits of single keys, from the rules file or from a file of their own.

import { addressOf, clientName } from "../../core/address.js";
import { MAX_UNITS } from "../../core/arithmetic.js";
import { isKey, MISSING_IP, newKey } from "../../core/key.js";
import { blocks } from "../../core/policy.js";
import { apiKey } from "./api_key.js";
import type { FileValue } from "./file_value.js";
import { numbered } from "./numbered.js";
import { renamed } from "./quotas.js";
import { quoted } from "./quoted_text.js";
import type { Rules } from "./rules.js";
import { limitsOf } from "./store_rules.js";
import { suggestion } from "./suggestion.js";

/** The numbers of each key, by the names of the limit and of the quota. */
export type OfKeys = ReadonlyMap<string, ReadonlyMap<string, number>>;

/** Why a limit has no other number. */
export const FIXED = "counts in a store whose numbers the platform has";

/** Reads a table of overrides. */
export function overridesOf(table: FileValue, rules: Rules, fixed: ReadonlySet<string>): OfKeys {
  const all = new Map<string, ReadonlyMap<string, number>>();
  table.entries((text, item) => {
    const key = keyOf(text, item);
    if (all.has(key)) throw item.invalid("this key is written twice; write it once");
    all.set(key, new Map(item.entries((limit, item) => ofLimit(limit, item, rules, fixed)).flat()));
  });
  return all;
}

function ofLimit(limit: string, item: FileValue, rules: Rules, fixed: ReadonlySet<string>): (readonly [name: string, number: number])[] {
  const named = rules.limits.map(({ name }) => name);
  const place = named.indexOf(limit);
  if (place < 0) throw item.wrong(limit, `is not a limit; ${named.length > 0 ? suggestion(limit, named) : "the rules have none"}`);
  if (rules.stores.flatMap(limitsOf).includes(limit)) throw item.wrong(limit, "is asked first or tried, with one number for all; delete this");
  if (fixed.has(limit)) throw item.wrong(limit, `${FIXED}; delete this`);
  const quotas = rules.limits[place]!.policies.flatMap((policy) => (policy ? policy.quotas.map(({ name, rule }, nth) => ({ name, rule, ready: policy.parts.quotas[nth]! })) : []));
  const counting = quotas.filter(({ rule }) => !blocks(rule) && rule.code !== "ba");
  const names = [...new Set(counting.map(({ name }) => name))];
  const sole = names.length === 1 ? names[0] : undefined;
  item.only(sole === undefined ? names : [...new Set(["limit", sole])]);
  const grace = rules.limits[place]!.lease?.grace ?? 0;
  const found = item.entries((field, at) => {
    const [name, number] = [sole ?? field, item.numberIn(field, 1, MAX_UNITS)!];
    for (const { ready } of counting.filter((quota) => quota.name === name)) at.placing(() => numbered(ready, number), renamed);
    if (number < grace) throw at.invalid(`the limit "${limit}" has a grace of ${grace}, which is more than ${number}; write at least ${grace}`);
    return [`${limit} ${name}`, number] as const;
  });
  if (found.length === 0) throw item.invalid("empty; write one such as { limit = 5000 }");
  if (sole !== undefined && found.length > 1) throw item.invalid("its only quota has two numbers; write limit alone");
  return found;
}

/** The key of this text, as explanations have it. */
function keyOf(text: string, item: FileValue): string {
  const [start, hash] = text.split("~");
  const parts = start!.split("%7C");
  if (parts.length > 1) {
    // Of a long key, only the start of the last part is written.
    if (hash) parts.pop();
    for (const part of parts) {
      const address = addressIn(part, item);
      if (address !== undefined && address !== part) throw item.wrong(part, `is counted as another; write ${quoted(address)}`);
    }
  } else {
    const address = addressIn(text, item);
    if (address !== undefined) return address;
  }
  if (text && isKey(text)) return text;
  throw item.wrong(text, `is not a key as tidegate explain prints it; write ${quoted(newKey(text))}`);
}

/** Checks a key, or a part of a joined one. The key of the address, if it is one. */
function addressIn(text: string, item: FileValue): string | undefined {
  // What follows may be the secret itself.
  if (text.startsWith("key:")) apiKey(text.slice(4), item);
  return text.startsWith("ip:") && text !== MISSING_IP ? addressKey(text, item) : undefined;
}

/** The key of an address or a network. */
function addressKey(text: string, item: FileValue): string {
  const [, written, bits] = /^ip:([^/]*)(?:\/(\d+))?$/.exec(text) ?? [];
  const address = written === undefined ? undefined : addressOf(written);
  const name = address && clientName(address, Number(bits ?? 64));
  const isV6 = name?.includes(":");
  if (!name || (!isV6 && bits !== undefined)) throw item.wrong(text, "is not the key of an address; write one such as ip:192.0.2.1 or ip:2001:db8::/64");
  const wide = clientName(address, 128)!;
  if (isV6 && bits === undefined) throw item.wrong(text, `is one address, and a network is counted; write "ip:${name}", or "ip:${wide}/128" for the address`);
  if (isV6 && name.split("/")[0] !== wide) throw item.wrong(text, `is counted as another; write "ip:${name}"`);
  return `ip:${name}`;
}
