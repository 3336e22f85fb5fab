import { createHmac, generateKeyPairSync, type KeyObject, randomBytes, sign } from "node:crypto";
import { field, type Node } from "../gate/rules/json.js";
import type { TokenRules } from "../gate/rules/token_rules.js";
import { jsonOf } from "./rules_file.js";

/** A key, and what signs with it. */
interface Signer {
  readonly key: KeyObject | Uint8Array;
  sign(data: Buffer): Buffer;
}

/** By the names of the algorithms. The fastest come first. */
const SIGNERS: Readonly<Record<string, () => Signer>> = {
  HS256: () => {
    const key = randomBytes(32);
    return { key: new Uint8Array(key), sign: (data) => createHmac("sha256", key).update(data).digest() };
  },
  EdDSA: () => {
    const { publicKey, privateKey } = generateKeyPairSync("ed25519");
    return { key: publicKey, sign: (data) => sign(null, data, privateKey) };
  },
  ES256: () => {
    const { publicKey, privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
    return { key: publicKey, sign: (data) => sign("sha256", data, { key: privateKey, dsaEncoding: "ieee-p1363" }) };
  },
  RS256: () => {
    const { publicKey, privateKey } = generateKeyPairSync("rsa", { modulusLength: 2_048 });
    return { key: publicKey, sign: (data) => sign("sha256", data, privateKey) };
  },
};

/** The claims that say whether a token is valid. */
const REGISTERED = ["iss", "aud", "exp", "nbf"];

/** Signs valid tokens, as rules expect them. */
export class Tokens {
  readonly #expected: TokenRules;
  readonly #algorithm: string;
  readonly #signer: Signer;

  constructor(expected: TokenRules) {
    this.#expected = expected;
    this.#algorithm = Object.keys(SIGNERS).find((name) => expected.algorithms.includes(name))!;
    this.#signer = SIGNERS[this.#algorithm]!();
  }

  /** The key that verifies them. */
  get key(): KeyObject | Uint8Array {
    return this.#signer.key;
  }

  /** The header field with a token that has these claims and is valid now, which a fixture's token is. */
  field(claims: Node, now: number): readonly [name: string, value: string] {
    const { header, issuers, audience } = this.#expected;
    const kept = claims.table!.filter(([name]) => !REGISTERED.includes(name));
    const payload = { at: 0, table: [...kept, ...valid(claims, "iss", issuers), ...valid(claims, "aud", audience)] };
    const parts = [JSON.stringify({ alg: this.#algorithm }), jsonOf({ at: 0, table: [...payload.table, ["exp", { at: 0, bare: String(Math.floor(now / 1_000) + 3_600) }]] })];
    const signed = parts.map((part) => Buffer.from(part).toString("base64url")).join(".");
    const token = `${signed}.${this.#signer.sign(Buffer.from(signed)).toString("base64url")}`;
    return [header, header === "authorization" ? `Bearer ${token}` : token];
  }
}

/** A claim that must be one of the expected values: that of the fixture, if it is. */
function valid(claims: Node, name: string, expected: readonly string[]): [string, Node][] {
  const given = field(claims, name);
  const texts = [given?.text, ...(given?.list ?? []).map(({ text }) => text)];
  if (given && texts.some((text) => text !== undefined && expected.includes(text))) return [[name, given]];
  return expected[0] === undefined ? [] : [[name, { at: 0, text: expected[0] }]];
}
