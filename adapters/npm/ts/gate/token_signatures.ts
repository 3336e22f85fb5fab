import type { CryptoKey, JWK, KeyObject } from "jose";
import { invalid, TidegateError } from "../error.js";
import { shown } from "../fields.js";

/** A JSON Web Key (RFC 7517). */
export interface Jwk {
  kty: string;
  kid?: string;
  use?: string;
  alg?: string;
  crv?: string;
  [name: string]: unknown;
}

/** A JWK set: the keys that verify tokens. */
export interface JwkSet {
  keys: readonly Jwk[];
}

/** Returns the key of a token by its header, as `createRemoteJWKSet(url)` of `jose` does. It throws if there is none. */
export type FindKey = (header: { alg: string; kid?: string }) => unknown;

/** What a gate verifies tokens with. */
export type TokenKeys = JwkSet | FindKey;

/** What a token can lack, in the words of `src/rules/verifier.rs`. */
const NOT_SIGNED = "it is not a signed token";
const NO_KEY = "no key of the set fits it";

/** The kind of key that an algorithm needs: its `kty` and its `crv`. */
const KINDS: Record<string, [kty: string, crv?: string]> = { HS256: ["oct"], RS256: ["RSA"], ES256: ["EC", "P-256"], EdDSA: ["OKP", "Ed25519"] };

/** The algorithms of signatures that a header may name, but that no rules allow. */
const OTHERS = ["HS384", "HS512", "RS384", "RS512", "PS256", "PS384", "PS512", "ES384"];

const KEYS_MAX = 100;

type Jose = Awaited<ReturnType<typeof load>>;
/** The key of one algorithm. It is imported once. */
type Known = { jwk: Jwk; algorithm: string; imported?: Promise<CryptoKey | Uint8Array> };

/** Verifies signatures by `jose`. What a payload claims is checked by the core. */
export class Tokens {
  readonly #find: FindKey | undefined;
  readonly #keys: Known[] = [];
  #jose: Promise<Jose> | undefined;

  constructor(keys: unknown) {
    if (typeof keys === "function") {
      this.#find = keys as FindKey;
      return;
    }
    const listed = Object(keys).keys as unknown;
    if (!Array.isArray(listed)) throw invalid("keys", `${typeof keys === "object" ? "no list `keys`" : shown(typeof keys)}; write { keys: [...] }, or (header) => key`);
    if (listed.length > KEYS_MAX) throw invalid("keys", `${listed.length} keys; write at most ${KEYS_MAX}`);
    listed.forEach((jwk: Jwk, place) => this.#add(jwk, `keys.keys[${place}]`));
    if (this.#keys.length === 0) throw invalid("keys", "no key for HS256, RS256, ES256 or EdDSA");
  }

  /** Adds a key, unless it is for something else, which RFC 7517, section 5, says to ignore. */
  #add(jwk: Jwk, place: string): void {
    const { kty, crv, use, alg, kid } = Object(jwk) as Partial<Jwk>;
    const algorithm = Object.keys(KINDS).find((name) => KINDS[name]![0] === kty && KINDS[name]![1] === (kty === "oct" || kty === "RSA" ? undefined : crv));
    if (!algorithm || (use !== undefined && use !== "sig") || (alg !== undefined && alg !== algorithm)) return;
    const bits = (name: string) => bytesOf(jwk[name], place).length * 8;
    if (algorithm === "HS256" && bits("k") < 256) throw invalid(place, "the secret is shorter than 32 bytes; HS256 needs that many");
    if (algorithm === "RS256" && (bits("n") < 2_048 || bits("n") > 4_104)) throw invalid(place, "the modulus does not have 2048 to 4096 bits");
    if (algorithm === "ES256" && (bits("x") !== 256 || bits("y") !== 256)) throw invalid(place, "the coordinates do not have 32 bytes each");
    if (algorithm === "EdDSA" && bits("x") !== 256) throw invalid(place, "the key does not have 32 bytes");
    if (kid !== undefined && this.#keys.some((known) => known.jwk.kid === kid)) throw invalid(place, "its kid is that of another key too");
    this.#keys.push({ jwk, algorithm });
  }

  /** The payload of a token whose signature is valid. Throws a reason, as an `invalid` error. */
  async verify(token: string, algorithms: readonly string[]): Promise<string> {
    const jose = await (this.#jose ??= load());
    let header: { alg?: unknown; kid?: unknown; crit?: unknown };
    try {
      header = jose.decodeProtectedHeader(token);
    } catch {
      throw bad(NOT_SIGNED);
    }
    const { alg, kid, crit } = header;
    if (typeof alg !== "string" || (!Object.hasOwn(KINDS, alg) && !OTHERS.includes(alg))) throw bad(NOT_SIGNED);
    if (!algorithms.includes(alg)) throw bad("the rules do not allow its algorithm");
    if (crit !== undefined) throw bad("it has a critical extension");
    if (kid !== undefined && typeof kid !== "string") throw bad(NOT_SIGNED);
    const key = await this.#key(jose, alg, kid, header);
    let payload: Uint8Array;
    try {
      ({ payload } = await jose.compactVerify(token, key, { algorithms: [alg] }));
    } catch (thrown) {
      throw bad(Object(thrown).code === "ERR_JWS_SIGNATURE_VERIFICATION_FAILED" ? "its signature does not match" : NOT_SIGNED);
    }
    try {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(payload);
    } catch {
      throw bad(NOT_SIGNED);
    }
  }

  async #key(jose: Jose, alg: string, kid: string | undefined, header: object): Promise<CryptoKey | KeyObject | JWK | Uint8Array> {
    if (this.#find) {
      const find = async () => this.#find!(header as Parameters<FindKey>[0]);
      const found = await find().catch(() => undefined);
      if (!found) throw bad(NO_KEY);
      return found as CryptoKey;
    }
    const fitting = this.#keys.filter(({ jwk, algorithm }) => algorithm === alg && (kid === undefined || jwk.kid === kid));
    const [known] = fitting;
    if (!known || fitting.length > 1) throw bad(NO_KEY);
    try {
      return await (known.imported ??= jose.importJWK({ ...known.jwk } as JWK, alg));
    } catch {
      throw bad(NO_KEY);
    }
  }
}

/** What verifies signatures of `jose`, and no more of it, which a bundle would have otherwise. Only rules with `tokens` load it. */
async function load() {
  const [verify, keys, header] = await Promise.all([import("jose/jws/compact/verify"), import("jose/key/import"), import("jose/decode/protected_header")]);
  return { ...verify, ...keys, ...header };
}

function bad(reason: string): TidegateError {
  return new TidegateError("invalid", reason);
}

/** The bytes of a number of a key. The message does not show them. */
function bytesOf(text: unknown, place: string): Uint8Array {
  if (typeof text !== "string" || !/^[\w-]*$/.test(text)) throw invalid(place, "its numbers are not base64url");
  return Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (byte) => byte.charCodeAt(0));
}
