// Who is counted, with which tier and dimensions, and who is on a list, as the core's page on keys says.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Gate } from "@tidegate/edge/gate";
import { Tidegate } from "@tidegate/edge/memory";
import { base64url, SignJWT } from "jose";

/** Each request has a window of its own. */
const [START_MS, WINDOW_MS] = [1_800_000_000_000, 60_000];
const SECRET = new Uint8Array(32).fill(7);

/** The table, which the core replays, too. */
const { rules, rows } = JSON.parse(readFileSync(new URL("../../../core/tests/data/identities.json", import.meta.url), "utf8"));

const LAYER = Symbol.for("@tidegate/edge/layer");

/** The keys that the store was asked to count, those of the last request last. */
const counted = [];
const store = (limit) => {
  const memory = new Tidegate(limit);
  const layer = memory[LAYER];
  const { ask } = layer;
  layer.ask = (question) => {
    counted.push(question.keys);
    return ask.call(layer, question);
  };
  return memory;
};
const options = { platform: "cloudflare", stores: { default: store }, keys: { keys: [{ kty: "oct", k: base64url.encode(SECRET) }] } };
const gate = Gate.fromRules(rules, options);

/** The field of a token with these claims, or of an invalid one. */
async function field(token) {
  const signed = typeof token === "string" ? token : await new SignJWT({ ...token, exp: 4_000_000_000 }).setProtectedHeader({ alg: "HS256" }).sign(SECRET);
  return `Bearer ${signed}`;
}

/** What the gate does with the request of this number, in the words of the table. */
async function found({ path = "/", address, token, apiKey, given }, nth) {
  const fields = Object.entries({ "cf-connecting-ip": address, authorization: token, "x-api-key": apiKey });
  const request = new Request(`https://example.com${path}`, { headers: fields.filter(([, value]) => value) });
  const verdict = await gate.check(request, { ...given, now: START_MS + nth * WINDOW_MS });
  if (verdict.outcome === "unlimited") return "unlimited";
  if (verdict.outcome !== "allowed") return { status: verdict.http.status };
  const { sender: key = counted.at(-1)[""], org } = counted.at(-1);
  return { key, org, limit: verdict.quotas[0].limit };
}

test("the table of identities holds", async () => {
  const wrong = [];
  for (const [nth, { about, path, address = "192.0.2.1", token, api_key: apiKey, given: { api_key: givenKey, ...given } = {}, expect }] of rows.entries()) {
    const sent = { path, address, apiKey, token: token && (await field(token)), given: { ...given, apiKey: givenKey } };
    const is = await found(sent, nth);
    if (JSON.stringify(is) !== JSON.stringify(expect)) wrong.push(`${about}: ${JSON.stringify(is)}, and not ${JSON.stringify(expect)}`);
  }
  assert.equal(wrong.join("\n"), "");
});

const PRO = { key: "key:fd51d1f881ad3e03850010f53348042a", tier: "pro" };
const USUAL = { key: "key:1e3d52c4b0ba9c6bca8ed8e893236ac6" };
const ALLOWED = { key: "key:805dace707ae4140a8cefd8e1286068b", on: "allow" };
const DENIED = { key: "key:34149418a83ef4dc400f2ba8b5acc770", tier: "pro", on: "deny" };
const UNKNOWN = { key: "key:4efb69b9e37fc631dca0c80ae9e9339c" };
const NONE = [undefined, undefined];

/** The ways in which each part of a request may be, most trusted first: what is sent, and the identity that it is, if it is one. */
const PARTS = {
  key: [NONE, ["account:42", { key: "account:42" }], ["sub:ops", { key: "sub:ops", on: "allow" }], ["sub:mallory", { key: "sub:mallory", on: "deny" }]],
  subject: [NONE, ["carol", { key: "sub:carol" }], ["alice", { key: "sub:alice" }], ["ops", { key: "sub:ops", on: "allow" }], ["mallory", { key: "sub:mallory", on: "deny" }]],
  token: [
    NONE,
    [await field("invalid"), undefined],
    [await field({ sub: "alice", plan: "team", org: "acme" }), { key: "sub:alice", tier: "team", org: "org:acme" }],
    [await field({ sub: "bob" }), { key: "sub:bob" }],
    [await field({ sub: "ops" }), { key: "sub:ops", on: "allow" }],
    [await field({ sub: "mallory", plan: "pro" }), { key: "sub:mallory", tier: "pro", on: "deny" }],
  ],
  givenKey: [NONE, ["pro key", PRO], ["unknown key", UNKNOWN], ["allowed key", ALLOWED], ["denied pro key", DENIED]],
  apiKey: [NONE, ["unknown key", undefined], ["pro key", PRO], ["usual key", USUAL], ["allowed key", ALLOWED], ["denied pro key", DENIED]],
  address: [
    NONE,
    ["192.0.2.1", { key: "ip:192.0.2.1" }],
    ["64:ff9b::198.51.100.7", { key: "ip:198.51.100.7", on: "deny" }],
    ["2002:cb00:7101::1", { key: "ip:203.0.113.1", on: "allow" }],
    ["203.0.113.66", { key: "ip:203.0.113.66", on: "deny" }],
    ["64:ff9b::192.0.2.129", { key: "ip:192.0.2.129", on: "deny" }],
  ],
};

/** What has to become of a request, by the page on keys alone. */
function expected(all, tier, refuses) {
  const known = all.map(([, known]) => known);
  const [key, subject, token, givenKey] = known;
  if (known.some((known) => known?.on === "deny")) return { status: 403 };
  if (refuses && all[2][0] && !token) return { status: 401 };
  if (known.some((known) => known?.on === "allow")) return "unlimited";
  const counted = known.find(Boolean)?.key ?? "ip:unknown";
  const same = known.filter((known) => known?.key === counted);
  // The application's tier is that of the API key that it names, and not that of a token which precedes it.
  const isOfTheApiKey = !key && !subject && token && givenKey;
  const chosen = (isOfTheApiKey ? undefined : tier) ?? same.find(({ tier }) => tier)?.tier;
  return { key: counted, org: same.find(({ org }) => org)?.org ?? counted, limit: { pro: 50, team: 20 }[chosen] ?? 5 };
}

test("every combination of identities is decided as an independent function says", async () => {
  const combinations = Object.values(PARTS).reduce((all, ways) => all.flatMap((some) => ways.map((way) => [...some, way])), [[]]);
  const rest = [[undefined, "/"], ["team", "/strict"], ["none", "/"], [undefined, "/strict"]];
  for (const [nth, all] of combinations.entries()) {
    const [key, subject, token, givenKey, apiKey, address] = all.map(([sent]) => sent);
    const [tier, path] = rest[nth % rest.length];
    const is = await found({ path, address, token, apiKey, given: { key, subject, apiKey: givenKey, tier } }, nth);
    assert.deepEqual(is, expected(all, tier, path === "/strict"), JSON.stringify([all, tier, path]));
  }
  assert.equal(combinations.length, 21_600);
});
