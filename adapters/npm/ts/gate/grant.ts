// Grants to the balances of a gate's rules, without a request, as core's `gate/grant.rs` makes them.

import { keysOf } from "../check_options.js";
import { addressOf } from "../core/address.js";
import { apiKeyOf, type Keys, newKey, senderKey } from "../core/key.js";
import type { Policy } from "../core/policy.js";
import { invalid, TidegateError } from "../error.js";
import { Fields, shown, text } from "../fields.js";
import { standing } from "../settlement.js";
import { ask as granting, type GrantOptions } from "../granting.js";
import { ask, clamped, GRANT } from "../question.js";
import { Verdict } from "../verdict.js";
import type { Decider } from "./decide.js";
import { GLOBAL, IP, PART_MARK, SENDER } from "./rules/dimension_names.js";
import { quoted } from "./rules/quoted_text.js";
import { knownDimensions, type ReadPart, type Rules } from "./rules/rules.js";
import { suggestion } from "./rules/suggestion.js";
import type { RulesPolicy } from "./rules_policy.js";

/**
 * Whom a credit is for: the identity that is counted when this sender makes a request. `subject` is that of a verified token, or the one that the
 * application gives as `subject`. `apiKey` is a valid API key, `key` the key that the application gives as `key`, and `address` that of a
 * client without an identity.
 */
export type Grantee = { readonly subject: string } | { readonly apiKey: string } | { readonly key: string } | { readonly address: string };

/** Units for the balance of a limit of the rules: see `grant` of a gate. */
export interface Credit extends GrantOptions {
  /** The name of the limit. */
  limit: string;
  to: Grantee;
  /** How many units to add. */
  units: number;
  /**
   * The keys of other dimensions than the sender's and its address, for a balance that counts by one: those that requests give as `keys`, and
   * those of the claims of tokens. The claim `acme` of the dimension `tenant` is `{ tenant: "tenant:acme" }`.
   */
  keys?: Keys | undefined;
  /** The sender's tier, if requests have it from a token or from the application. That of an API key in the rules is known. */
  tier?: string | undefined;
  /** The name of the store, for a limit that rules count in several. */
  store?: string | undefined;
}

/** The option `credits` of a gate: what reads balances, and what grants to them. */
export interface CreditParts extends ReadPart {
  grant(decider: Decider, credit: Credit): Promise<Verdict>;
}

const KINDS = ["subject", "apiKey", "key", "address"] as const;

/** Adds units to the balance of a sender. */
export async function grant(decider: Decider, credit: Credit): Promise<Verdict> {
  const { rules, composed } = decider;
  const { options, units, ...read } = creditOf(credit);
  verify(decider, read);
  const tier = tierOf(rules, read);
  const [store, policy] = balanceOf(decider, read, tier);
  const keyIn = (dimension: string) => keyOf(decider, read, dimension);
  // A quota beside the balance may have a number of its own.
  const numbered = rules.numbers?.policy(policy, { tier, options: {}, key: keyIn, claim: () => undefined }) ?? policy;
  const asked = granting(ask(GRANT, numbered, clamped(Date.now())), units, options);
  const keys = Object.fromEntries(asked.policy.dimensions.map(({ name }) => [name, keyIn(name)]));
  const decision = await composed[store]!.layer.ask({ ...asked, keys });
  return new Verdict(standing({ policy: asked.policy, keys: undefined }, decision, rules.responses));
}

/** A credit that was read, beside what a limiter's grant has. */
interface ReadCredit {
  readonly limit: string;
  readonly kind: (typeof KINDS)[number];
  /** The identity. */
  readonly to: string;
  readonly keys: Keys;
  readonly tier: string | undefined;
  readonly store: string | undefined;
}

function creditOf(credit: unknown): ReadCredit & { readonly units: unknown; readonly options: object } {
  const fields = new Fields(credit, "", ["limit", "to", "units", "token", "expires", "rememberMs", "now", "keys", "tier", "store"]);
  const need = (name: string, right: string) => fields.need(name, fields.text(name, right), right);
  const { kind, to } = granteeOf(fields.need("to", fields.get("to"), "{ subject }"));
  const options = Object.fromEntries(["token", "expires", "rememberMs", "now"].map((name) => [name, fields.get(name)]));
  const keys = fields.get("keys");
  const named = (name: string) => fields.text(name, "its name");
  return { limit: need("limit", "the name of a limit"), kind, to, units: fields.get("units"), options, keys: keys === undefined ? {} : keysOf("keys", keys), tier: named("tier"), store: named("store") };
}

function granteeOf(to: unknown): Pick<ReadCredit, "kind" | "to"> {
  const fields = new Fields(to, "to", KINDS);
  const [kind, ...others] = KINDS.filter((kind) => fields.get(kind) !== undefined);
  if (!kind || others.length > 0) throw invalid("to", "write one of { subject }, { apiKey }, { key } and { address }");
  const named = text(fields.place(kind), fields.get(kind));
  if (kind === "address" && !addressOf(named)) throw invalid("to.address", `${shown(named)} is not an address; write one such as "192.0.2.1"`);
  return { kind, to: named };
}

/** Throws unless all names are those of something. */
function verify({ rules, stores }: Decider, { limit, store, keys }: ReadCredit): void {
  const limits = [...new Set(rules.rules.flatMap(({ policies }) => policies.flatMap((policy) => (policy ? scopesOf(policy) : []))))].sort();
  if (!limits.includes(limit)) throw invalid("limit", unknown(limit, "a limit of any rule", limits));
  if (store !== undefined && !stores.includes(store)) throw invalid("store", `there is no store ${quoted(store)}; ${suggestion(store, stores)}`);
  const dimensions = knownDimensions(rules);
  for (const name of Object.keys(keys)) if (!dimensions.includes(name)) throw invalid("keys", unknown(name, "a dimension", dimensions));
}

function unknown(name: string, what: string, known: readonly string[]): string {
  return `${quoted(name)} is not ${what}; ${known.length === 0 ? "there is none" : suggestion(name, known)}`;
}

/** The place of the sender's tier. */
function tierOf({ tiers, apiKeys }: Rules, { tier, kind, to }: ReadCredit): number | undefined {
  if (tier === undefined) return kind === "apiKey" ? apiKeys.get(apiKeyOf(to)) : kind === "key" ? apiKeys.get(newKey(to)) : undefined;
  const place = tiers.indexOf(tier);
  if (place < 0) throw invalid("tier", unknown(tier, "a tier", tiers));
  return place;
}

/** The place of the store and the policy of the balance. */
function balanceOf(decider: Decider, credit: ReadCredit, tier: number | undefined): [store: number, policy: RulesPolicy] {
  const { rules, stores } = decider;
  let found: [store: number, policy: RulesPolicy] | undefined;
  for (const rule of rules.rules) {
    const policy = rule.policies[tier === undefined ? 0 : tier + 1];
    if (!policy || limitOfBalance(policy) !== credit.limit) continue;
    const store = decider.place(rule);
    if (credit.store !== undefined && credit.store !== stores[store]) continue;
    if (found && found[0] !== store) {
      throw wrong(credit, "store", `rules count in ${quoted(stores[found[0]]!)} and in ${quoted(stores[store]!)}; name one with store`);
    }
    found ??= [store, policy];
  }
  if (found) return found;
  const whom = credit.tier === undefined ? "" : ` for the tier ${quoted(credit.tier)}`;
  const place = credit.store === undefined ? "" : ` in the store ${quoted(credit.store)}`;
  throw wrong(credit, "limit", `it has no balance${whom}${place}; add a quota with algorithm = "balance"`);
}

/** The names of the limits of a policy's quotas. */
function scopesOf({ parts }: RulesPolicy): string[] {
  return parts.scopes!.split(",").map((scope) => scope.split("@")[0]!);
}

/** The limit that has the balance, of those that were joined. */
function limitOfBalance(policy: RulesPolicy): string | undefined {
  return scopesOf(policy)[policy.quotas.findIndex(({ rule }) => rule === (policy as Policy).balance)];
}

/** The key that a request of this sender counts by. */
function keyOf(decider: Decider, credit: ReadCredit, dimension: string): string {
  const { kind, to, keys } = credit;
  const parts = dimension.split(PART_MARK);
  // No key has what is between those of the parts.
  if (parts.length > 1) return newKey(parts.map((part) => keyOf(decider, credit, part)).join("|"));
  if (dimension === GLOBAL) return GLOBAL;
  const isSenders = dimension === "" || dimension === SENDER;
  if (isSenders && to === "") throw wrong(credit, "to", "the text is empty, which identifies nobody; write the sender's");
  if (isSenders && kind !== "address") return kind === "key" ? newKey(to) : kind === "subject" ? senderKey(to, undefined, undefined) : apiKeyOf(to);
  if (isSenders || dimension === IP) {
    if (kind !== "address") throw wrong(credit, "to", "it counts by the client's address; give an address");
    // In each platform's field, an address alone is the client's.
    const name = decider.source.find(to, undefined, to)?.name;
    if (name === undefined) throw wrong(credit, "to", `${to} identifies no client; give the address of one`);
    return senderKey(undefined, undefined, name);
  }
  if (Object.hasOwn(keys, dimension)) return newKey(keys[dimension]!);
  throw wrong(credit, "keys", `it counts by ${quoted(dimension)}; give that key with keys`);
}

/** An error about the limit. */
function wrong({ limit }: ReadCredit, field: string, what: string): TidegateError {
  return invalid(field, `of the limit ${quoted(limit)}: ${what}`);
}
