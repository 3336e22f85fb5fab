import { type Client, written } from "../core/address.js";
import { apiKeyOf, type Keys, newKey, senderKey } from "../core/key.js";
import type { Policy } from "../core/policy.js";
import { invalid } from "../error.js";
import type { GateCheck } from "./check_options.js";
import { bytesOf, type Facts } from "./request_facts.js";
import { GLOBAL, IP, JA4, PART_MARK, SENDER } from "./rules/dimension_names.js";
import type { Node } from "./rules/json.js";
import type { List } from "./rules/lists.js";
import type { Rules } from "./rules/rules.js";
import type { Claims, Reason } from "./token_claims.js";

/** Who says that a request has an identity, most trusted first, and how it is explained. */
const SOURCES = ["verified by the application", "verified by the application", "of a valid token", "of a valid API key", "of a valid API key"] as const;

/** The sender of a request. One of its identities is counted. Its tier and its dimensions are that identity's. */
export class Sender {
  readonly client: Client | undefined;
  readonly options: GateCheck;
  readonly #rules: Rules;
  /** The key of each identity, in the order of `SOURCES`: the application's key and its subject, the subject of a valid token, the application's API key, and a valid one in the header field. */
  readonly #identities: (string | undefined)[];
  readonly #ja4: string | undefined;
  #claims: Claims | Reason | undefined;

  constructor(rules: Rules, facts: Facts, client: Client | undefined) {
    const { key, subject, apiKey } = facts.options;
    this.client = client;
    this.#rules = rules;
    this.options = facts.options;
    this.#ja4 = facts.ja4;
    this.#identities = [key === undefined ? key : newKey(key), subject ? subjectOf(subject) : undefined, undefined, apiKey ? apiKeyOf(apiKey) : undefined, validKey(rules, facts)];
  }

  /** What its token claims, or why the token is invalid. Undefined without a token. */
  get claims(): Claims | Reason | undefined {
    return this.#claims;
  }

  set claims(claims: Claims | Reason | undefined) {
    this.#claims = claims;
    this.#identities[2] = typeof claims === "object" ? subjectOf(claims.subject) : undefined;
  }

  /** The key of the identity that is counted, unless that is the address. */
  get verified(): string | undefined {
    return this.#identities.find((key) => key !== undefined);
  }

  /** How that identity is known. */
  get verifiedBy(): string {
    return SOURCES[this.#identities.findIndex((key) => key !== undefined)]!;
  }

  /** The place of its tier. */
  get tier(): number | undefined {
    const [key, subject, token, apiKey] = this.#identities;
    const { tiers, apiKeys } = this.#rules;
    const placeOf = (name: string | undefined) => {
      const place = name === undefined ? -1 : tiers.indexOf(name);
      return place < 0 ? undefined : place;
    };
    // The application's tier is that of the API key that it names, even if a token's subject is counted.
    const isAnothers = (key ?? subject) === undefined && token !== undefined && apiKey !== undefined;
    if (this.options.tier !== undefined && !isAnothers) return placeOf(this.options.tier);
    const claims = this.#counted;
    return claims ? placeOf(claims.tier) : apiKeys.get(this.verified!);
  }

  isOn(list: List): boolean {
    return this.entryOf(list) !== undefined;
  }

  /** The first of the request's addresses and identities that is on a list. */
  entryOf(list: List): string | undefined {
    if (list.isEmpty) return undefined;
    const { address, embedded } = this.client ?? {};
    const found = [address, embedded].find((address) => address && list.hasAddress(address));
    return found ? written(found) : this.#identities.find((key) => key !== undefined && list.hasKey(key));
  }

  /** What the token claims, if its subject is counted. */
  get #counted(): Claims | undefined {
    return typeof this.#claims === "object" && this.verified === this.#identities[2] ? this.#claims : undefined;
  }

  /** A claim of the token, if its subject is counted. */
  claim(name: string): Node | undefined {
    return this.#counted?.named(name);
  }

  /** The key in each dimension of a policy. Throws if the application gives none where it must. */
  keys({ dimensions }: Policy): Keys {
    return Object.fromEntries(dimensions.map(({ name }) => [name, this.key(name)]));
  }

  /** The key in a dimension. */
  key(dimension: string): string {
    const parts = dimension.split(PART_MARK);
    // No key has what is between those of the parts.
    if (parts.length > 1) return newKey(parts.map((part) => this.key(part)).join("|"));
    if (dimension === "" || dimension === SENDER) return this.#main;
    if (dimension === IP) return this.#ip;
    if (dimension === JA4) return newKey(`ja4:${this.#ja4 || "unknown"}`);
    if (dimension === GLOBAL) return GLOBAL;
    const { keys = {} } = this.options;
    if (Object.hasOwn(keys, dimension)) return newKey(keys[dimension]!);
    if (this.#rules.tokens?.keys.some(([known]) => known === dimension)) return this.#counted?.keys.get(dimension) ?? this.#main;
    throw invalid("keys", `the dimension "${dimension}" has no key; give one for each dimension`);
  }

  get #main(): string {
    return this.verified ?? this.#ip;
  }

  get #ip(): string {
    return senderKey(undefined, undefined, this.client?.name);
  }
}

function subjectOf(subject: string): string {
  return senderKey(subject, undefined, undefined);
}

/** The key of the valid API key in a request's header field. */
function validKey({ apiKeyHeader, apiKeys }: Rules, facts: Facts): string | undefined {
  const value = apiKeyHeader === undefined ? undefined : facts.field(apiKeyHeader);
  const key = value === undefined ? undefined : apiKeyOf(bytesOf(value));
  return key !== undefined && apiKeys.has(key) ? key : undefined;
}
