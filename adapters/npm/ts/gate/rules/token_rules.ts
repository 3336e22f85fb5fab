import { DIMENSIONS } from "./dimension_names.js";
import type { FileValue } from "./file_value.js";
import { fieldName } from "./pattern.js";
import { suggestion } from "./suggestion.js";

/** What the rules expect of a signed token. */
export interface TokenRules {
  /** The header field that has the token, in lower case. */
  readonly header: string;
  readonly algorithms: readonly string[];
  /** A token must have one of these. If there are none, it may have any. The same holds for `audience`. */
  readonly issuers: readonly string[];
  readonly audience: readonly string[];
  /** How long before `nbf` and after `exp` a token is valid. */
  readonly leewayMs: number;
  /** The claims of the subject and of the tier. */
  readonly subject: string;
  readonly tier: string | undefined;
  /** Dimensions, and the claim that has the key of each. */
  readonly keys: readonly (readonly [dimension: string, claim: string])[];
}

/** By their names in RFC 7518 and RFC 8037. */
const ALGORITHMS = ["HS256", "RS256", "ES256", "EdDSA"];

/** What is no claim's dimension: keys of senders begin with the first two. */
const TAKEN = ["sub", "key", ...DIMENSIONS];

/** Reads the table `tokens` of a file. */
export function tokensOf(item: FileValue): TokenRules {
  item.only(["header", "algorithms", "issuer", "audience", "leeway_ms", "subject", "tier", "keys"]);
  const listed = item.required("algorithms");
  const algorithms = listed.each((one) => {
    if (ALGORITHMS.includes(one.text)) return one.text;
    throw one.wrong(one.text, `is not supported; ${suggestion(one.text, ALGORITHMS)}`);
  });
  if (algorithms.length === 0) throw listed.invalid("empty; write those with which tokens may be signed");
  const issuer = item.field("issuer");
  const issuers = issuer ? (issuer.node.list ? issuer.each(some) : [some(issuer)]) : [];
  if (issuer && issuers.length === 0) throw issuer.invalid("empty; write the issuers whose tokens are accepted, or delete it");
  const leewayMs = item.numberIn("leeway_ms", 0, 600_000) ?? 60_000;
  const keys = item.field("keys")?.entries((dimension, claim) => {
    claim.checkedName("dimension", dimension);
    if (TAKEN.includes(dimension)) throw claim.wrong(dimension, "has a meaning of its own; write another name");
    return [dimension, claim.text] as const;
  });
  const header = item.field("header");
  const text = (name: string) => {
    const found = item.field(name);
    return found && some(found);
  };
  return {
    header: header ? fieldName(header) : "authorization",
    algorithms,
    issuers,
    audience: item.field("audience")?.each((one) => one.text) ?? [],
    leewayMs,
    subject: text("subject") ?? "sub",
    tier: text("tier"),
    keys: keys ?? [],
  };
}

/** A text that is not empty. */
function some(item: FileValue): string {
  if (item.text === "") throw item.invalid("empty; write a text or delete it");
  return item.text;
}
