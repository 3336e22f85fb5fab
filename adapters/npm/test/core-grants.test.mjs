// Grants by a gate, held to those of `tidegate-core`: random rules with balances, and random credits, which both must put on the same row of the
// same store, or refuse for the same reason. `STEPS` is how many credits are granted.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { MAX_INSTANT } from "../modules/core/arithmetic.js";
import { Gate } from "../modules/gate/index.js";
import { balances } from "../modules/gate/credits.js";
import { limitsFromData } from "../modules/gate/limits.js";
import { LAYER } from "../modules/layer.js";
import { GRANT } from "../modules/question.js";
import { Chance, seeded, startedGate } from "./reference.mjs";

const SEED = seeded();
const STEPS = Number(process.env.STEPS ?? 4_000);
const NOW = 1_800_000_000_000;
const NAMES = ["main", "other"];
const SECRETS = ["secret-1", "secret-2"];
const HASHES = SECRETS.map((secret) => createHash("sha256").update(secret).digest("hex").slice(0, 32));
const ALGORITHMS = ["fixed_window", "sliding_window", "sliding_log", "token_bucket", "leaky_bucket", "concurrency", "penalty", "calendar_window"];
const EXACT = { class: "exact", ceiling: "limit", held: 0, accuracy: "exact: admitted = limit", algorithms: ALGORITHMS, max_quotas: 8, dimensions: "any", costs: true, charge_denied: true, peek: true, idempotency: true, grant: true, round_trips: 1 };
const ADDRESSES = ["192.0.2.1", "2001:db8::1", "2001:db8:1:2:3::4", "::ffff:192.0.2.1", "64:ff9b::c000:201", "64:ff9b::a00:1", "2002:c000:201::1", "0.0.0.0", "::", "2a06:98c0:3600::103"];
const BY = [undefined, undefined, "sender", "ip", "global", "ja4", "tenant", "org", ["sender", "tenant"], ["ip", "org"]];

const engine = await startedGate();

/** A limit, of which most have a balance. */
function anyLimit(chance) {
  const by = chance.from(BY);
  const other = chance.from([by, by, chance.from(BY)]);
  const at = (by) => (by === undefined ? {} : { by });
  const window = (by) => ({ algorithm: "fixed_window", limit: 1 + chance.below(20), window_ms: 60_000, ...at(by) });
  const balance = (more) => ({ algorithm: "balance", ...(chance.once(2) && { max: 50 + chance.below(50) }), ...at(by), ...more });
  const beside = chance.once(3) ? [window(other)] : [];
  return chance.from([[window(by)], [...beside, balance()], [...beside, balance()], [...beside, window(by), balance({ covers: true })]]).map((quota) => ({ ...quota }));
}

function anyRules(chance) {
  const limits = {};
  for (const name of ["api", "apj", "chat"].slice(0, 1 + chance.below(3))) {
    const tiers = Object.fromEntries(["pro", "free"].filter(() => chance.once(3)).map((tier) => [tier, chance.once(4) ? { unlimited: true } : { quotas: anyLimit(chance) }]));
    limits[name] = { quotas: anyLimit(chance), ...(chance.once(8) && { group_by: chance.from(["tenant", "sender"]) }), tiers };
  }
  const names = Object.keys(limits);
  const rules = Array.from({ length: 1 + chance.below(4) }, (_, nth) => ({
    path: `/${nth}`,
    limits: chance.once(3) ? names.filter(() => chance.once(2)) : [chance.from(names)],
    ...(chance.once(3) && { store: chance.from(NAMES) }),
  }));
  const overridden = () => ({ [chance.from(names)]: { limit: 1 + chance.below(40) } });
  return {
    dimensions: ["tenant"],
    tokens: { algorithms: ["HS256"], keys: { org: "org" } },
    ...(chance.once(2) && { api_keys: { header: "x-api-key", tiers: { [HASHES[0]]: "pro" }, without_tier: [HASHES[1]] } }),
    ...(chance.once(3) && { overrides: { "sub:alice": overridden(), "sub:alice%7Ct:1": overridden(), "ip:192.0.2.1": overridden(), global: overridden() } }),
    ...(chance.once(4) && { stores: { main: { deny_cache: true, ...(chance.once(2) && { fallback: "other" }) } } }),
    ...(chance.once(4) && { responses: { payment_required: chance.once(2) } }),
    limits,
    rules,
  };
}

function anyCredit(chance) {
  const to = chance.from([{ subject: "alice" }, { subject: chance.from(["alice", "bob", "é x", ""]) }, { apiKey: chance.from([...SECRETS, "none", ""]) }, { key: chance.from(["account:42", `key:${HASHES[0]}`, "x y", ""]) }, { address: chance.from(ADDRESSES) }, { address: "192.0.2.1" }]);
  const keys = { ...(chance.below(3) && { tenant: chance.from(["t:1", "ü"]) }), ...(chance.below(3) && { org: "org:o1" }), ...(chance.once(4) && { ja4: "ja4:t13d" }), ...(chance.once(20) && { tenat: "x" }) };
  return {
    limit: chance.from(["api", "api", "api", "apj", "chat", "apo"]),
    to,
    units: chance.from([1, 7, 60, 2 ** 51]),
    token: `order-${chance.below(5)}`,
    keys,
    now: NOW + chance.below(1_000),
    ...(chance.once(3) && { expires: NOW + 5_000 + chance.below(5_000) }),
    ...(chance.once(3) && { rememberMs: 1 + chance.below(90_000) }),
    ...(chance.once(4) && { tier: chance.from(["pro", "free", "pre"]) }),
    ...(chance.once(4) && { store: chance.from([...NAMES, "othr"]) }),
  };
}

/** What a store answers, by its number of quotas: a decision, or an error. */
function answerOf(chance, quotas, now) {
  if (chance.once(6)) return chance.from(["unavailable", "timeout", "refused", "token_reused"]);
  const counts = Array.from({ length: quotas }, () => [1 + chance.below(100), chance.below(50), chance.from([-1, chance.below(90_000)])]);
  return [0, chance.below(quotas), -1, 0, now, 0, chance.below(2), 0, ...counts.flat()];
}

function capabilities(can) {
  const bits = (flags) => flags.reduce((bits, flag, place) => bits | (Number(flag) << place), 0);
  const dimensions = ["one", "grouped", "any"].indexOf(can.dimensions);
  return [Uint32Array.from([bits(ALGORITHMS.map(() => true)), can.max_quotas, dimensions, bits([can.costs, can.charge_denied, can.idempotency, can.grant]), 1, 0]), can.ceiling];
}

/** The quotas by which a grant is asked, as texts. */
const asText = (quotas) => quotas.map(([algorithm, amount, , , name, by]) => [algorithm === 9 ? "balance" : "other", amount, name, by].join(" "));

/** What the core asks for a credit, and says of the answer. */
async function byCore(core, policies, { limit, to, units, token, keys, now, expires, rememberMs, tier, store }, answer) {
  const caller = core.caller();
  const told = { address: 0, subject: 1, apiKey: 2, key: 3 };
  for (const [kind, text] of Object.entries(to)) caller.tell(told[kind], text);
  caller.tell(5, token);
  if (tier !== undefined) caller.tell(4, tier);
  for (const [name, key] of Object.entries(keys)) caller.key(name, key);
  const asked = [];
  let said = caller.grant(limit, store, units, expires ?? -1, rememberMs ?? 90 * 86_400_000, now);
  while (said.startsWith("[")) {
    const [verb, place, policy, written, own, cost, at, charge, ttl, ends] = JSON.parse(said);
    if (written) policies[policy] = written;
    const quotas = asText(policies[policy][4]);
    asked.push(JSON.stringify([verb, place, policies[policy][0], quotas, own, cost, at, charge, ttl, Math.min(ends, MAX_INSTANT)]));
    const answered = answer(quotas.length, at);
    said = typeof answered === "string" ? caller.failed(answered, `it is ${answered}`) : caller.decided(Float64Array.from(answered));
  }
  return { asked, decision: JSON.parse(said).decision };
}

/** A store that remembers what it is asked. */
function storeOf(place, can, asked, answer) {
  const ask = async (question) => {
    const { kind, policy, keys, cost, now, token, extra, expires } = question;
    assert.equal(kind, GRANT);
    const quotas = policy.quotas.map(({ name, by, rule }) => [rule.code === "ba" ? "balance" : "other", rule.amount, name, by].join(" "));
    asked.push(JSON.stringify(["grant", place, policy.name, quotas, keys, cost, now, token, extra, expires]));
    const answered = answer(quotas.length, now);
    if (typeof answered === "string") throw [answered, `it is ${answered}`];
    return answered;
  };
  return { capabilities: can, [LAYER]: { ask } };
}

/** What the core says in its own words. */
function renamed(message) {
  return message.replace("give a Grantee::Address", "give an address").replace("give that key with Credit::keys", "give that key with keys").replace("name one with Credit::store", "name one with store");
}

/** What the credits must have come to. */
const OUTCOMES = [
  ...["granted", "replayed", "warned", "rules", "it is unavailable", "it is token_reused"],
  ...["limit: … is not a limit of any rule", "limit: of the limit …: it has no balance", "limit: of the limit …: it has no balance for the tier …", "limit: of the limit …: it has no balance in the store …"],
  ...["store: there is no store …", "store: of the limit …: rules count in … and in …", "tier: … is not a tier", "keys: … is not a dimension"],
  ...["keys: of the limit …: it counts by …", "to: of the limit …: it counts by the client's address", "to: of the limit …: the text is empty, which identifies nobody", "to: of the limit …: it identifies no client"],
];

test("a gate grants on the row of the same store as the core, or refuses for the same reason", async () => {
  const chance = new Chance(SEED);
  const seen = {};
  const unseen = () => OUTCOMES.filter((outcome) => !seen[outcome]);
  // Some are rare, and need more steps.
  for (let step = 0; step < STEPS || (unseen().length > 0 && step < 50 * STEPS); ) {
    const text = JSON.stringify(anyRules(chance));
    const dimensions = chance.from(["any", "any", "grouped"]);
    const can = { ...EXACT, dimensions };
    const platform = chance.from(["cloudflare", "vercel", "spin", "netlify", "direct"]);
    const seeds = { now: 0 };
    let random;
    const answer = (quotas, now) => answerOf(random, quotas, now);
    const core = new engine.RulesGate(NAMES.join("\0"), platform, 64, false, 0);
    const asked = [];
    const stores = Object.fromEntries(NAMES.map((name, place) => [name, () => storeOf(place, can, asked, answer)]));
    const policies = [];
    const load = () => {
      const { warnings } = JSON.parse(core.read("rules.json", text));
      NAMES.forEach((_, place) => core.store(place, ...capabilities(can)));
      for (const [, place, written] of JSON.parse(core.load()).policies) if (written) policies[place] = written;
      core.seed(new Uint8Array(24), 1);
      return warnings;
    };
    let [gate, warnings, refused] = [];
    try {
      warnings = load();
    } catch (thrown) {
      refused = thrown;
    }
    const options = { platform, keys: { keys: [{ kty: "oct", k: Buffer.alloc(32).toString("base64url") }] }, limits: limitsFromData, credits: balances, onError: () => {}, stores };
    if (refused) {
      step += 1;
      seen.rules = (seen.rules ?? 0) + 1;
      assert.throws(() => Gate.fromRules(text, options), { kind: refused[0] }, text);
      continue;
    }
    gate = Gate.fromRules(text, options);
    assert.deepEqual(gate.warnings, warnings, text);
    if (warnings.some((warning) => warning.includes("no denial is a 402"))) seen.warned = (seen.warned ?? 0) + 1;
    for (let nth = 0; nth < 20; nth++, step++) {
      const credit = anyCredit(chance);
      const about = `seed ${SEED}\n${platform} ${dimensions}\n${text}\n${JSON.stringify(credit)}`;
      seeds.now = chance.below(2 ** 30);
      const outcome = async (act) => {
        [random, asked.length] = [new Chance(seeds.now), 0];
        try {
          return await act();
        } catch (thrown) {
          return Array.isArray(thrown) ? { error: [thrown[0], renamed(thrown[1])] } : { error: [thrown.kind, thrown.message] };
        }
      };
      const expected = await outcome(() => byCore(core, policies, credit, answer));
      const actual = await outcome(async () => {
        const { binding, retryAfterMs, delayMs, decidedAtMs, origin, replayed, quotas } = await gate.grant(credit);
        const decision = [binding, retryAfterMs, delayMs, decidedAtMs, origin, replayed, ...quotas.flatMap(({ limit, remaining, resetAfterMs }) => ["", limit, remaining, resetAfterMs])];
        return { asked: [...asked], decision };
      });
      assert.deepEqual(actual, expected, about);
      const what = expected.error ? expected.error[1].replace(/"[^"]*"/g, "…").replace(/^(to: .*): [\d.:a-f]+ identifies/, "$1: it identifies").split(";")[0] : "granted";
      seen[what] = (seen[what] ?? 0) + 1;
      if (expected.decision?.[5]) seen.replayed = (seen.replayed ?? 0) + 1;
    }
  }
  assert.deepEqual(unseen(), [], `seed ${SEED}: ${JSON.stringify(seen)}`);
});
