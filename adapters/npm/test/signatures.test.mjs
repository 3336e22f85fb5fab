// Signatures of tokens, beside what `jose` takes for valid, on tokens that are changed at random. To repeat a run: SEED=number.

import assert from "node:assert/strict";
import { createSecretKey, generateKeyPairSync, KeyObject, randomBytes, randomInt } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import * as jose from "jose";
import { decoded, isSignature, keyFor, partsOf } from "../modules/gate/signatures.js";

const seed = Number(process.env.SEED ?? randomInt(2 ** 31));
let state = seed;
/** Marsaglia's xorshift. */
const below = (count) => {
  for (const shift of [13, -17, 5]) state ^= shift > 0 ? state << shift : state >>> -shift;
  return (state >>> 0) % count;
};
const one = (list) => list[below(list.length)];

const secret = randomBytes(32);
const pairs = {
  RS256: generateKeyPairSync("rsa", { modulusLength: 2_048 }),
  ES256: generateKeyPairSync("ec", { namedCurve: "P-256" }),
  EdDSA: generateKeyPairSync("ed25519"),
};
/** By algorithm: what signs, and each form of what verifies. */
const KEYS = { HS256: { signs: secret, forms: [new Uint8Array(secret), createSecretKey(secret), { kty: "oct", k: secret.toString("base64url") }] } };
for (const [alg, { publicKey, privateKey }] of Object.entries(pairs)) {
  const jwk = publicKey.export({ format: "jwk" });
  KEYS[alg] = { signs: privateKey, forms: [publicKey, jwk, await jose.importJWK(jwk, alg)], jwk: privateKey.export({ format: "jwk" }) };
}
KEYS.HS256.forms.push(await crypto.subtle.importKey("raw", secret, { name: "HMAC", hash: "SHA-256" }, false, ["verify"]));
const OTHERS = [
  generateKeyPairSync("rsa", { modulusLength: 1_024 }).publicKey,
  generateKeyPairSync("ec", { namedCurve: "P-384" }).publicKey,
  await crypto.subtle.importKey("raw", secret, { name: "HMAC", hash: "SHA-512" }, false, ["verify"]),
  await jose.importJWK(pairs.RS256.publicKey.export({ format: "jwk" }), "RS512"),
  await jose.importJWK(pairs.RS256.publicKey.export({ format: "jwk" }), "PS256"),
  {},
  null,
  "a secret of more than thirty-two bytes",
];

/** The payload of a token whose signature is valid by this key. */
async function ours(token, alg, key) {
  const parts = partsOf(token);
  if (parts?.header.alg !== alg) return undefined;
  const fitting = await keyFor(alg, key).catch(() => undefined);
  if (!fitting || !(await isSignature(alg, fitting, parts.signature, parts.signed))) return undefined;
  return new TextDecoder().decode(parts.payload);
}
async function theirs(token, alg, key) {
  const { payload } = await jose.compactVerify(token, key, { algorithms: [alg] }).catch(() => ({}));
  return payload && new TextDecoder().decode(payload);
}

const LETTERS = "ABab09-_.=";
/** The same token, or one with a change. */
function changed(token) {
  const [at, parts] = [below(token.length), token.split(".")];
  return one([
    () => token,
    () => token.slice(0, at) + one([...LETTERS]) + token.slice(at + 1),
    () => token.slice(0, at) + token.slice(at + 1),
    () => token.slice(0, at) + one([...LETTERS]) + token.slice(at),
    () => [parts[0], parts[1], ""].join("."),
    () => [...parts, parts[below(3)]].join("."),
    () => [parts[0], parts[2], parts[1]].join("."),
    () => parts.slice(0, 2).join("."),
    () => [jose.base64url.encode(JSON.stringify({ alg: one(["none", "HS256", "RS256", "ES256", "EdDSA", 7]) })), parts[1], parts[2]].join("."),
  ])();
}

test(`a signature is valid if jose takes it for valid (SEED=${seed})`, async () => {
  let [valid, invalid] = [0, 0];
  for (let nth = 0; nth < 1_000; nth++) {
    const alg = one(Object.keys(KEYS));
    const payload = JSON.stringify({ nth, sub: "ä".repeat(below(20)) });
    const token = await new jose.CompactSign(new TextEncoder().encode(payload)).setProtectedHeader({ alg }).sign(KEYS[alg].signs);
    const sent = changed(token);
    const expected = below(4) > 0 ? alg : one(Object.keys(KEYS));
    const key = one(below(4) > 0 ? KEYS[expected].forms : [...OTHERS, ...KEYS[one(Object.keys(KEYS))].forms]);
    const [found, known] = [await ours(sent, expected, key), await theirs(sent, expected, key)];
    assert.equal(found, known, `${sent} by ${expected}, with ${key instanceof KeyObject ? JSON.stringify(key.export({ format: "jwk" })) : String(key)}`);
    found === undefined ? (invalid += 1) : (valid += 1);
  }
  assert.ok(valid > 50 && invalid > 50, `${valid} valid, ${invalid} invalid`);
});

test("a public key is no secret, whichever form it has", async () => {
  const payload = new TextEncoder().encode("{}");
  for (const { forms } of [KEYS.RS256, KEYS.ES256, KEYS.EdDSA]) {
    for (const form of forms) await assert.rejects(keyFor("HS256", form), String(form));
  }
  const der = pairs.RS256.publicKey.export({ format: "der", type: "spki" });
  const forged = await new jose.CompactSign(payload).setProtectedHeader({ alg: "HS256" }).sign(der);
  assert.equal(await ours(forged, "HS256", pairs.RS256.publicKey), undefined);
  for (const alg of ["RS256", "ES256", "EdDSA"]) for (const form of KEYS.HS256.forms) await assert.rejects(keyFor(alg, form), `${alg} ${form}`);
});

test("a private key of a set stands for its public half", async () => {
  for (const alg of ["RS256", "ES256", "EdDSA"]) {
    const token = await new jose.CompactSign(new TextEncoder().encode(alg)).setProtectedHeader({ alg }).sign(KEYS[alg].signs);
    assert.equal(await ours(token, alg, KEYS[alg].jwk), alg);
  }
});

test("base64url has no padding and no other letters", () => {
  for (const text of ["=", "AA==", "A", "AAAAA", "AA A", "A+", "A/", "AA\n", "ä"]) assert.equal(decoded(text), undefined, JSON.stringify(text));
  assert.deepEqual([...decoded("-_8")], [251, 255]);
  assert.deepEqual([...decoded("")], []);
});

test("the package imports nothing but what its platform has", () => {
  const root = path.join(import.meta.dirname, "../dist");
  // Bundlers warn of an import that they cannot resolve, also if it is optional.
  const known = /^(\.{1,2}\/|#toml\/module$|cloudflare:workers$|node:|crypto$)/;
  for (const file of readdirSync(root, { recursive: true }).filter((name) => name.endsWith(".js") && !name.startsWith("toml"))) {
    const text = readFileSync(path.join(root, file), "utf8");
    const imports = [...text.matchAll(/^(?:import|export)\b[^"]*?from "([^"]+)"|^import "([^"]+)"|\bimport\("([^"]+)"\)/gm)].map(([, one, two, three]) => one ?? two ?? three);
    assert.deepEqual(imports.filter((name) => !known.test(name)), [], file);
  }
});
