import type { Client } from "../core/address.js";
import { apiKeyOf, newKey, senderKey } from "../core/key.js";
import { invalid } from "../error.js";
import type { Keys } from "../verdict.js";
import type { Claims, Reason } from "./claims.js";
import { bytesOf, type Facts } from "./facts.js";
import type { RulesPolicy } from "./policy.js";
import { GLOBAL, IP, SENDER } from "./rules/by.js";
import type { List } from "./rules/lists.js";
import type { Rules } from "./rules/rules.js";

/** The sender of a request, and the keys that it counts against. */
export class Sender {
  /** The application's key, or that of a verified subject or a valid API key. */
  readonly verified: string | undefined;
  readonly client: Client | undefined;
  /** The place of its tier. */
  readonly tier: number | undefined;
  /** What its token claims, or why the token is invalid. Undefined without a token. */
  readonly claims: Claims | Reason | undefined;
  readonly #rules: Rules;
  readonly #given: Keys;

  constructor(rules: Rules, facts: Facts, client: Client | undefined, claims: Claims | Reason | undefined) {
    const { key, subject, apiKey, tier, keys } = facts.given;
    const valid = typeof claims === "object" ? claims : undefined;
    const [secret, place] = apiKey ? [apiKeyOf(apiKey)] : validKey(rules, facts);
    const named = tier ?? valid?.tier;
    const found = named === undefined ? place : rules.tiers.indexOf(named);
    this.tier = found === -1 ? undefined : found;
    const verified = subject || valid?.subject;
    this.verified = key !== undefined ? newKey(key) : verified ? senderKey(verified, undefined, undefined) : secret;
    this.client = client;
    this.claims = claims;
    this.#rules = rules;
    this.#given = keys;
  }

  isOn(list: List): boolean {
    if (list.isEmpty) return false;
    return (this.client !== undefined && list.hasAddress(this.client.address)) || (this.verified !== undefined && list.hasKey(this.verified));
  }

  /** The key in each dimension of a policy. Throws if the application gives none where it must. */
  keys({ dimensions }: RulesPolicy): Keys {
    return Object.fromEntries(dimensions.map(({ name }) => [name, this.key(name)]));
  }

  /** The key in a dimension. */
  key(dimension: string): string {
    if (dimension === "" || dimension === SENDER) return this.#main;
    if (dimension === IP) return this.#ip;
    if (dimension === GLOBAL) return GLOBAL;
    if (Object.hasOwn(this.#given, dimension)) return newKey(this.#given[dimension]!);
    if (this.#rules.tokens?.keys.some(([known]) => known === dimension)) {
      return (typeof this.claims === "object" ? this.claims.keys.get(dimension) : undefined) ?? this.#main;
    }
    throw invalid("keys", `the dimension "${dimension}" has no key; give one for each dimension`);
  }

  get #main(): string {
    return this.verified ?? this.#ip;
  }

  get #ip(): string {
    return senderKey(undefined, undefined, this.client?.name);
  }
}

/** The key of a request's valid API key, and the place of its tier. */
function validKey({ apiKeyHeader, apiKeys }: Rules, facts: Facts): [key?: string, tier?: number | undefined] {
  const value = apiKeyHeader === undefined ? undefined : facts.field(apiKeyHeader);
  const key = value === undefined ? undefined : apiKeyOf(bytesOf(value));
  return key !== undefined && apiKeys.has(key) ? [key, apiKeys.get(key)] : [];
}
