import { trimmed } from "../core/address.js";
import { newKey } from "../core/key.js";
import type { Facts } from "./request_facts.js";
import { field, isNumber, type Node, readJson } from "./rules/json.js";
import type { TokenRules } from "./rules/token_rules.js";

/** What a valid token claims. */
export interface Claims {
  readonly subject: string;
  readonly tier: string | undefined;
  /** The key in each dimension of the rules. */
  readonly keys: ReadonlyMap<string, string | undefined>;
  /** Any claim, by its name or by a pointer. */
  readonly named: (name: string) => Node | undefined;
}

/** Why a token is invalid, for logs and explanations: a client is not told. */
export type Reason = string;

export const NOT_SIGNED = "it is not a signed token";

/** The longest token that is verified. */
const LEN_MAX = 8_192;

/** The token of a request, or why it has none that can be valid. Undefined without a token, and with another scheme than `Bearer`. */
export function tokenOf({ header }: TokenRules, facts: Facts): { text: string } | Reason | undefined {
  const given = facts.field(header);
  if (given === undefined) return undefined;
  const value = trimmed(given);
  const [scheme] = /^bearer(?= |$)[ \t\n\f\r]*/i.exec(value) ?? [];
  if (scheme === undefined && header === "authorization") return undefined;
  const text = value.slice(scheme?.length ?? 0);
  return text.length <= LEN_MAX && /^[\w.-]*$/.test(text) ? { text } : NOT_SIGNED;
}

/** Reads the payload of a token whose signature is valid (RFC 7519, section 4.1), and checks that it is as the rules expect. */
export function claimsOf(payload: string, { issuers, audience, leewayMs, subject, tier, keys }: TokenRules, now: number): Claims | Reason {
  let claims: Node;
  try {
    claims = readJson(payload, false);
  } catch {
    return NOT_SIGNED;
  }
  if (!claims.table) return NOT_SIGNED;
  const [found, audiences] = [textsOf(field(claims, "iss")), textsOf(field(claims, "aud"))];
  const lacks = "it lacks the issuer or the audience";
  if (issuers.length > 0) {
    // RFC 7519 knows one issuer. Some write a list.
    if (!found) return lacks;
    if (!found.some((one) => issuers.includes(one))) return "it has another issuer";
  }
  if (!audiences && audience.length > 0) return lacks;
  // A token for somebody else is not for a server that has no name.
  if (audiences && !audiences.some((one) => audience.includes(one))) return "it has another audience";
  const [expiry, start] = [instantOf(field(claims, "exp")), instantOf(field(claims, "nbf"))];
  if (Number.isNaN(expiry)) return "exp or nbf is not a number";
  if (expiry === undefined) return "it never expires";
  if (now >= expiry + leewayMs) return "it has expired";
  if (Number.isNaN(start)) return "exp or nbf is not a number";
  if (start !== undefined && now < start - leewayMs) return "it is not valid yet";
  const named = (name: string) => (name.startsWith("/") ? pointed(claims, name) : field(claims, name));
  const claim = (name: string) => {
    const node = named(name);
    return (node?.text ?? (node?.bare !== undefined && isNumber(node.bare) ? node.bare : "")) || undefined;
  };
  const claimed = claim(subject);
  if (claimed === undefined) return "it has no subject";
  const keyOf = (dimension: string, text: string | undefined) => (text === undefined ? undefined : newKey(`${dimension}:${text}`));
  return { subject: claimed, tier: tier && claim(tier), keys: new Map(keys.map(([dimension, name]) => [dimension, keyOf(dimension, claim(name))])), named };
}

/** The value that a JSON pointer (RFC 6901) names. */
function pointed(claims: Node, pointer: string): Node | undefined {
  const steps = pointer.split("/").slice(1);
  return steps.reduce<Node | undefined>((node, step) => {
    if (node?.list && /^(?:0|[1-9]\d*)$/.test(step)) return node.list[Number(step)];
    return node && field(node, step.replace(/~([01])/g, (_, escaped) => (escaped === "0" ? "~" : "/")));
  }, claims);
}

/** A text, or each text of a list. */
function textsOf(node: Node | undefined): readonly string[] | undefined {
  if (node?.text !== undefined) return [node.text];
  const texts = node?.list?.map(({ text }) => text);
  return texts?.includes(undefined) ? undefined : (texts as string[] | undefined);
}

/** An instant in seconds as milliseconds, rounded up. NaN for something else than a number. */
function instantOf(node: Node | undefined): number | undefined {
  if (!node) return undefined;
  const [, sign, whole, fraction = "", exponent = "0"] = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(node.bare ?? "") ?? [];
  if (whole === undefined) return NaN;
  const digits = whole + fraction;
  const point = Math.min(whole.length + 3 + Number(exponent), digits.length + 400);
  const ms = point < digits.length ? Number(digits.slice(0, Math.max(point, 0))) : Number(`${digits}e${point - digits.length}`);
  if (sign) return -ms;
  return ms + Number(/[1-9]/.test(digits.slice(Math.max(point, 0))));
}
