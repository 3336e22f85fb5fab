// Signatures of tokens (RFC 7515 and RFC 7518). Web Crypto verifies them; here are the parts of a token, and which key fits.

/** What Web Crypto calls the algorithms. */
const ALGORITHMS: Record<string, { name: string; hash?: string; namedCurve?: string }> = {
  HS256: { name: "HMAC", hash: "SHA-256" },
  RS256: { name: "RSASSA-PKCS1-v1_5", hash: "SHA-256" },
  ES256: { name: "ECDSA", hash: "SHA-256", namedCurve: "P-256" },
  EdDSA: { name: "Ed25519" },
};
const RSA_BITS_MIN = 2_048;

/** The fields of the public half of a JSON Web Key. */
const PUBLIC = ["kty", "crv", "n", "e", "x", "y"];

/** A token of three parts, of which the first two are signed. Undefined if it is none. */
export function partsOf(token: string): { header: Record<string, unknown>; payload: Uint8Array; signature: Uint8Array; signed: Uint8Array } | undefined {
  const parts = token.split(".");
  const [head, payload, signature] = parts.map(decoded);
  if (parts.length !== 3 || !head || !payload || !signature) return undefined;
  try {
    const header: unknown = JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(head));
    if (typeof header !== "object" || header === null || Array.isArray(header)) return undefined;
    return { header: header as Record<string, unknown>, payload, signature, signed: new TextEncoder().encode(`${parts[0]}.${parts[1]}`) };
  } catch {
    return undefined;
  }
}

/** The bytes of a text in base64url without padding. Undefined if it is none. */
export function decoded(text: string): Uint8Array | undefined {
  if (!/^[\w-]*$/.test(text) || text.length % 4 === 1) return undefined;
  return Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (byte) => byte.charCodeAt(0));
}

/**
 * A key for this algorithm: a `CryptoKey`, a `KeyObject` of Node.js, a JSON Web Key, or the bytes of a secret. A private key stands for its
 * public half. Throws if it is none, or is for another algorithm: a public key must not verify as a secret.
 */
export async function keyFor(alg: string, key: unknown): Promise<CryptoKey> {
  const algorithm = ALGORITHMS[alg]!;
  const kind: unknown = Object(key)[Symbol.toStringTag];
  if (kind === "CryptoKey") return fitting(algorithm, key as CryptoKey);
  if (kind === "KeyObject") return keyFor(alg, (key as { export(options: { format: "jwk" }): unknown }).export({ format: "jwk" }));
  const jwk = key as Record<string, string>;
  const secret = kind === "Uint8Array" ? (key as Uint8Array) : jwk["kty"] === "oct" ? decoded(jwk["k"]!) : undefined;
  const usages: KeyUsage[] = ["verify"];
  if (secret) {
    if (alg !== "HS256") throw new TypeError("a secret is for HS256");
    return crypto.subtle.importKey("raw", secret as BufferSource, algorithm, false, usages);
  }
  const half = Object.fromEntries(PUBLIC.flatMap((name) => (jwk[name] === undefined ? [] : [[name, jwk[name]]])));
  return fitting(algorithm, await crypto.subtle.importKey("jwk", half as JsonWebKey, algorithm, false, usages));
}

function fitting({ name, hash, namedCurve }: { name: string; hash?: string; namedCurve?: string }, key: CryptoKey): CryptoKey {
  const own = key.algorithm as KeyAlgorithm & { hash?: KeyAlgorithm; namedCurve?: string; modulusLength?: number };
  const fits =
    own.name === name &&
    own.namedCurve === namedCurve &&
    (own.hash === undefined || own.hash.name === hash) &&
    (own.modulusLength === undefined || own.modulusLength >= RSA_BITS_MIN);
  if (!fits) throw new TypeError("the key is for another algorithm, or too short");
  return key;
}

/** Whether a signature is that of these bytes. */
export function isSignature(alg: string, key: CryptoKey, signature: Uint8Array, signed: Uint8Array): Promise<boolean> {
  return crypto.subtle.verify(ALGORITHMS[alg]!, key, signature as BufferSource, signed as BufferSource);
}
