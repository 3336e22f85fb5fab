// Rules files: what the TypeScript makes of them is what the Rust does, message for message and rule for rule.

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { addressOf, written as textOfAddress } from "../modules/core/address.js";
import { TidegateError } from "../modules/error.js";
import { calendarWindows } from "../modules/gate/calendar.js";
import { balances } from "../modules/gate/credits.js";
import { limitsFromData } from "../modules/gate/limits.js";
import { pricesOf } from "../modules/gate/rules/prices.js";
import { warnAt } from "../modules/gate/warn-at.js";
import { Facts } from "../modules/gate/request_facts.js";
import { compile } from "../modules/gate/rules/compile.js";
import { appliedTo, costOf, matching, opens, policyFor } from "../modules/gate/rules/find_rules.js";
import { rootOf } from "../modules/gate/rules/file_value.js";
import { field, readJson } from "../modules/gate/rules/json.js";
import { quoted } from "../modules/gate/rules/quoted_text.js";
import { suggestion } from "../modules/gate/rules/suggestion.js";
import { inLowerCase, readings, rulePath, segments } from "../modules/gate/rules/path.js";
import { textOf } from "../modules/gate/rules/pattern.js";
import { policiesOf } from "../modules/gate/rules/rules.js";
import { Chance, seeded, startedGate } from "./reference.mjs";

const SEED = seeded();
const STEPS = Number(process.env.STEPS ?? 2_000);
const STORES = ["default", "memory", "location"];

const { RulesGate } = await startedGate();

/** What a failure says of where it is. */
const place = (nth, text) => `seed ${SEED}, step ${nth}\n${text}`;

/** A file with every field. */
const EVERYTHING = {
  $schema: "https://example.com/schema.json",
  case_insensitive: true,
  exempt_preflights: true,
  dimensions: ["tenant", "user"],
  tokens: {
    header: "X-Token",
    algorithms: ["HS256", "EdDSA"],
    issuer: ["https://issuer.example", "b"],
    audience: ["a", "b"],
    leeway_ms: 1000,
    subject: "uid",
    tier: "plan",
    keys: { org: "org_id", team: "team_id" },
  },
  api_keys: { header: "X-Api-Key", tiers: { "2bb80d537b1da3e38bd30361aa855686": "pro", "4bb80d537b1da3e38bd30361aa855687": "nobody" }, without_tier: ["16367aacb67a4a017c8da8ab95682ccb"] },
  responses: { format: "problem", spread_retry_after_ms: 5000, draft_6_fields: true, retry_after_ms: true, payment_required: true },
  lists: { allow: ["192.0.2.0/24", "2001:db8::/32", "sub:alice", "key:2bb80d537b1da3e38bd30361aa855686"], deny: ["203.0.113.7", "::ffff:198.51.100.0/120"] },
  stores: {
    default: {
      fallback: { store: "memory", percent: 20, at_most_ms: 9000 },
      deny_cache: { hold_ms: 500, capacity: 10 },
      shadow: { api: "next", grouped: "grouped-next" },
      near: { store: "location", limit: "flood" },
    },
    memory: { deny_cache: true, fallback: "location" },
  },
  limits: {
    api: {
      quotas: [
        { algorithm: "token_bucket", capacity: 20, refill: 10, per_ms: 1000 },
        { algorithm: "fixed_window", limit: 10000, window_ms: 86400000, name: "daily", by: "sender", warn_at: [80, 100], limit_from: { claim: "/plan/daily", max: 50000, min: 10 } },
      ],
      charge_denied: false,
      tiers: { pro: { quotas: [{ algorithm: "sliding_window", limit: 200, window_ms: 60000 }] }, free: { unlimited: true } },
    },
    next: { quotas: [{ algorithm: "leaky_bucket", capacity: 8, refill: 2, per_ms: 500 }] },
    plan: { quotas: [{ algorithm: "calendar_window", limit: 900, every: "month", zone: "Europe/Berlin", anchor: "2026-01-31", carry_over: 90, name: "month", limit_from: { application: "plan", max: 5000, min: 50 } }] },
    flood: { quotas: [{ algorithm: "fixed_window", limit: 500, window_ms: 10000 }] },
    grouped: {
      group_by: "tenant",
      quotas: [
        { algorithm: "sliding_log", limit: 5, window_ms: 60000, by: "tenant" },
        { algorithm: "penalty", base_ms: 1000, factor: 2, cap_ms: 60000, by: "tenant" },
        { algorithm: "fixed_window", limit: 3, window_ms: 1000, by: "user" },
      ],
    },
    "grouped-next": { quotas: [{ algorithm: "fixed_window", limit: 3, window_ms: 1000, by: "user" }], group_by: "user" },
    slots: { quotas: [{ algorithm: "concurrency", limit: 4, lifetime_ms: 30000, returns_cost: true }, { algorithm: "fixed_window", limit: 5, window_ms: 1000 }] },
    pair: { quotas: [{ algorithm: "fixed_window", limit: 5, window_ms: 1000, by: ["ip", "ja4"] }, { algorithm: "block", cap_ms: 1000, by: ["ip", "ja4"] }, { algorithm: "fixed_window", limit: 9, window_ms: 1000, by: "tenant" }], group_by: ["ip", "ja4"] },
    login: { quotas: [{ algorithm: "fixed_window", limit: 5, window_ms: 1000, by: "ip" }, { algorithm: "block", cap_ms: 1000, by: "ip" }] },
    org: { quotas: [{ algorithm: "fixed_window", limit: 9, window_ms: 1000, by: "org", limit_from: { application: "org", max: 90 } }, { algorithm: "fixed_window", limit: 90, window_ms: 1000, by: "global" }] },
    paid: { quotas: [{ algorithm: "sliding_log", limit: 5, window_ms: 60000, by: "user" }, { algorithm: "token_bucket", capacity: 100, refill: 1, per_ms: 1000, by: "user" }, { algorithm: "balance", max: 100000, covers: true, by: "user", name: "credits" }] },
    lent: { quotas: [{ algorithm: "token_bucket", capacity: 1000, refill: 100, per_ms: 1000 }], lease: { slice: 20, lifetime_ms: 500, grace: 2 } },
  },
  prices: { "gpt-large": { input: 3, output: 15, cached: 0 }, "claude/mini": { input: 1 } },
  overrides: {
    "key:2bb80d537b1da3e38bd30361aa855686": { api: { daily: 5000, "api-1": 30 }, lent: { limit: 2000 } },
    "ip:2001:db8::/56": { login: { limit: 9 }, org: { "org-2": 7 } },
    "sub:a%20b": { lent: { lent: 2 } },
  },
  rules: [
    { name: "login", path: "/Login", methods: ["POST"], limits: ["login"], on_failure: "open", invalid_token: "refuse" },
    { path: "/api/*", limits: ["api", "login"], cost: 2, settle_within_ms: 1000 },
    { path: "/api/{id}", methods: ["GET", "PUT"], headers: ["X-Own", "accept"], limits: ["api"], estimate: 7 },
    { path: "/api/{id}", methods: ["GET"], limits: ["api"] },
    { path: "/api/{other}", methods: ["GET"], limits: ["next"] },
    { host: "api.example.com", path: "/b/c", limits: ["slots"], store: "memory" },
    { host: "*.example.com", bot_score_below: 30, challenge: "/challenge" },
    { path: "/grouped", limits: ["grouped"] },
    { path: "/lent", limits: ["lent"] },
    { path: "/plan", limits: ["plan", "flood"] },
    { limits: ["org"] },
  ],
};

const WINDOW = { algorithm: "fixed_window", limit: 5, window_ms: 1000 };
const LOG = { ...WINDOW, algorithm: "sliding_log" };
const BUCKET = { algorithm: "token_bucket", capacity: 5, refill: 1, per_ms: 1000 };
const SLOTS = { algorithm: "concurrency", limit: 5, lifetime_ms: 1000 };
const MONTH = { algorithm: "calendar_window", limit: 5, every: "month" };
const PENALTY = { algorithm: "penalty", base_ms: 5, factor: 2, cap_ms: 50 };
const CREDITS = { algorithm: "balance", max: 50 };

/** Rules with these limits: each its quotas and its other fields. */
const limited = (limits, rules = [{ limits: Object.keys(limits) }], more = {}) => ({
  ...more,
  limits: Object.fromEntries(Object.entries(limits).map(([name, [quotas, fields]]) => [name, { quotas, ...fields }])),
  rules,
});
const ruled = (...rules) => ({ rules });

const FROM = { application: "n", max: 20 };
const [HASH, HOUR] = ["2bb80d537b1da3e38bd30361aa855686", { ...BUCKET, capacity: 10, refill: 36000, per_ms: 3600000 }];
const TWO = [WINDOW, { ...LOG, name: "log" }, { algorithm: "block", cap_ms: 5 }];
/** A quota that takes its limit so. */
const from = (limit_from, quota = WINDOW, fields = {}, more = {}) => limited({ a: [[{ ...quota, limit_from }], fields] }, [{ limits: ["a"] }], more);
/** Rules with these overrides. */
const overridden = (overrides, fields = {}) => limited({ api: [[WINDOW], fields], two: [TWO] }, undefined, { overrides });

/** Files with one mistake each, or with none that is far from it. */
const MISTAKES = [
  ...["x-limit", 7, {}, { max: 20 }, { claim: "a", application: "b", max: 20 }, { header: "x", max: 20 }, { max: 20, query: 5 }, { application: "n" }].map((one) => from(one)),
  ...[{}, { every: undefined }, { limit: undefined }, { every: "mounth" }, { every: 7 }, { every: "" }, { zone: "Europe/Berln" }, { zone: "Mars" }, { zone: 1 }, { zone: "" }, { zone: "UTC" }].map((one) => limited({ a: [[{ ...MONTH, ...one }]] })),
  ...["2026-01-31", "2026-01-31T06:00", "2026-01-32", "2026-02-29", "2024-02-29", "2026-1-1", "2026-01-31T24:00", "2026-01-31 06:00", "0000-01-01", "", 32].map((anchor) => limited({ a: [[{ ...MONTH, anchor }]] })),
  ...[0, 5, 6, -1, 1.5, "1", 2 ** 32].map((carry_over) => limited({ a: [[{ ...MONTH, carry_over }]] })),
  ...[2 ** 32 - 1, 2 ** 32].map((carry_over) => limited({ a: [[{ ...MONTH, limit: 2 ** 40, carry_over }]] })),
  ...[0, 2 ** 51, 2 ** 51 + 1].map((limit) => limited({ a: [[{ ...MONTH, limit, carry_ovr: 1 }]], b: [[{ ...MONTH, limit }]] })),
  ...[{ max: 20 }, { max: 4 }, { min: 1 }].map((one) => from({ ...FROM, ...one }, { ...MONTH, carry_over: 3 })),
  ...[{ max: 4 }, { max: 5 }, { max: 0 }, { max: 2 ** 51 + 1 }, { min: 6 }, { min: 0 }, { mim: 1 }, { min: 5 }, { application: "a b" }, { application: "" }, { application: 7 }].map((one) => from({ ...FROM, ...one })),
  ...["rpm", "/a/b", "", 7].flatMap((claim) => [{}, { tokens: { algorithms: ["HS256"] } }].map((more) => from({ claim, max: 20 }, WINDOW, {}, more))),
  ...[625499948, 625499949, 1000000000].map((max) => from({ ...FROM, max }, HOUR)),
  ...[1000, 1001].flatMap((max) => [LOG, SLOTS].map((quota) => from({ ...FROM, max }, quota))),
  ...[PENALTY, { algorithm: "block", cap_ms: 5 }].map((quota) => limited({ a: [[WINDOW, { ...quota, limit_from: FROM }]] })),
  ...[1, 2].map((min) => from({ ...FROM, min }, WINDOW, { lease: { grace: 2 } })),
  from(FROM, WINDOW, { tiers: { pro: { quotas: [{ ...WINDOW, limit: 30, limit_from: FROM }] } } }),
  from(FROM, WINDOW, { tiers: { pro: { quotas: [WINDOW] }, all: { unlimited: true }, free: { quotas: [{ ...BUCKET, limit_from: { ...FROM, max: 5 } }] } } }),
  ...[[], [0], [101], [80, 80], [100, 80], [1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4, 5, 6, 7, 8, 9], [1.5], ["80"], 80, null, [1e3], { at: 80 }].map((warn_at) => limited({ a: [[{ ...WINDOW, warn_at }]] })),
  ...[SLOTS, BUCKET, LOG, PENALTY, CREDITS, { algorithm: "block", cap_ms: 5 }].map((quota) => limited({ a: [[WINDOW, { ...quota, name: "other", warn_at: [50] }]] })),
  ...[{ lease: true }, { lease: false }, { charge_denied: true }, { group_by: "ip", charge_denied: true }, { warn_at: [80] }].map((fields) => limited({ a: [[{ ...WINDOW, warn_at: [80] }], fields] })),
  limited({ a: [[WINDOW], { lease: true, tiers: { pro: { quotas: [{ ...WINDOW, warn_at: [80] }] } } }] }),
  limited({ a: [[WINDOW], { charge_denied: true, tiers: { pro: { quotas: [{ ...WINDOW, warn_at: [80] }] } } }] }),
  limited({ a: [[{ ...WINDOW, warn_att: [80] }]] }),
  ...[{ near: { store: "memory", limit: "a" } }, { shadow: { a: "a" } }].map((around) => limited({ a: [[{ ...WINDOW, warn_at: [80] }]] }, undefined, { stores: { default: around } })),
  ...["near", "shadow"].map((around) => from(FROM, WINDOW, {}, { stores: { default: { [around]: around === "near" ? { store: "memory", limit: "a" } : { a: "a" } } } })),
  ...[7, [], { "sub:a": 5 }, { "sub:a": {} }, { "sub:a": { apo: { limit: 5 } } }, { "sub:a": { api: 5 } }, { "sub:a": { api: {} } }].map((one) => overridden(one)),
  ...[{ limit: 0 }, { limit: "5" }, { limits: 5 }, { limit: 5, api: 6 }, { api: 6 }, { limit: 2 ** 51 + 1 }].map((api) => overridden({ "sub:a": { api } })),
  ...[{ limit: 5 }, { log: 1001 }, { log: 1000, "two-1": 5 }, { "two-2": 5 }, { "two-3": 5 }].map((two) => overridden({ "sub:a": { two } })),
  ...["", "key:secret", `key:${HASH}`, "tenant:a*", "sub:a b", "sub:a%20b", "x", "global", "~", "é"].map((key) => overridden({ [key]: { api: { limit: 5 } } })),
  ...["", "unknown", "somebody", "192.0.2.1", "192.0.2.1/32", "192.0.2.0/24", "192.0.2.01", "0.0.0.0", "::", "::ffff:192.0.2.1", "::ffff:192.0.2.1/128", "64:ff9b::c000:201", "64:ff9b::a00:1", "2002:c000:201::"].map((key) => overridden({ [`ip:${key}`]: { api: { limit: 5 } } })),
  ...["2001:db8::1", "2001:db8::/64", "2001:db8::1/64", "2001:DB8::/64", "2001:db8:0:0::1/128", "2001:db8::/47", "2001:db8::/48", "2001:db8::/129", "2001:db8::/+64", "2001:db8::/064", "2001:db8::/", "2001:db8::1%eth0", "[2001:db8::1]"].map((key) => overridden({ [`ip:${key}`]: { api: { limit: 5 } } })),
  overridden({ "ip:2001:db8::1/128": { api: { limit: 5 } }, "ip:2001:DB8::1/128": { api: { limit: 5 } } }),
  ...[1, 2].map((limit) => overridden({ "sub:a": { api: { limit } } }, { lease: { grace: 2 } })),
  { ...overridden({ "sub:a": { api: { limit: 5 } } }), stores: { default: { near: { store: "memory", limit: "api" } } } },
  { overrides: { "sub:a": { api: { limit: 5 } } } },
  ...[[LOG], [WINDOW, { ...WINDOW, by: "ip" }], [SLOTS], [WINDOW, { ...BUCKET, by: "sender" }]].map((quotas) => limited({ a: [quotas, { lease: true }] })),
  limited({ a: [[WINDOW], { lease: true, charge_denied: true }] }),
  limited({ a: [[WINDOW], { lease: true, tiers: { pro: { quotas: [LOG] } } }] }),
  limited({ a: [[WINDOW], { lease: false, charge_denied: true }] }),
  ...[true, false, {}, { slice: 0 }, { slice: 1, lifetime_ms: 60_001 }, { slices: 1 }, { grace: 1 }, { grace: 51 }, { slice: 5, grace: 6 }, { grace: -1 }, { grace: 0 }, { grase: 1 }, 7].map((lease) => limited({ a: [[BUCKET], { lease }] })),
  limited({ a: [[WINDOW], { lease: true }] }, [{ limits: ["a"], estimate: 5 }]),
  ...[4, 5, 6, 50].map((grace) => limited({ a: [[WINDOW, BUCKET], { lease: { grace } }] })),
  ...[4, 5].map((grace) => limited({ a: [[BUCKET], { lease: { grace }, tiers: { pro: { quotas: [{ ...WINDOW, limit: 4 }] }, all: { unlimited: true } } }] })),
  limited({ a: [[WINDOW], { lease: true }], b: [[WINDOW]] }),
  limited({ a: [[WINDOW], { lease: true }], b: [[WINDOW]] }, [{ limits: ["b"] }], { stores: { default: { near: { store: "memory", limit: "a" } } } }),
  limited({ a: [[WINDOW], { lease: true }], b: [[WINDOW]] }, [{ limits: ["b"] }], { stores: { default: { shadow: { b: "a" } } } }),
  limited({ a: [[WINDOW]], b: [[{ ...WINDOW, by: "ip" }]] }, [{ limits: ["a"] }], { stores: { default: { shadow: { a: "b" } } } }),
  limited({ a: [[WINDOW]], b: [[WINDOW]] }, [{ limits: ["a"] }], { stores: { default: { shadow: { b: "a" }, fallback: "default" } } }),
  ...["default", "memory"].map((store) => limited({ a: [[WINDOW]], b: [[SLOTS]] }, [], { stores: { default: { near: { store, limit: "b" } } } })),
  ...["default", "memory"].map((store) => limited({ a: [[WINDOW]] }, [], { stores: { default: { near: { store, limit: "a" } } } })),
  ...["x", "default", "memory"].map((store) => limited({ a: [[WINDOW]] }, [], { stores: { default: { fallback: { store, at_most_ms: 0, percent: 100 } } } })),
  limited({ a: [[{ ...SLOTS, returns_cost: true }, { ...SLOTS, returns_cost: true }]] }),
  limited({ a: [[WINDOW, { ...SLOTS, returns_cost: true }]] }),
  limited({ a: [[WINDOW, { ...SLOTS, returns_cost: true, by: "ip" }]] }),
  limited({ a: [[{ ...SLOTS, returns_cost: true }]], b: [[WINDOW]] }),
  limited({ a: [[{ ...SLOTS, returns_cost: true }]] }),
  ...[{ max: 0 }, { max: 2 ** 51 + 1 }, { max: 1.5 }, { max: "x" }, { max: undefined }, { covers: false }, { covers: true }, { covers: 1 }, { limit: 5 }, { limit_from: FROM }, { warn_at: [50] }].map((more) => limited({ a: [[WINDOW, { ...CREDITS, ...more, name: "credits" }]] })),
  ...[WINDOW, BUCKET, LOG, SLOTS, PENALTY, MONTH].flatMap((quota) => [[quota, { ...CREDITS, covers: true }], [{ ...quota, warn_at: [50] }, { ...CREDITS, covers: true }], [{ ...quota, by: "ip" }, { ...CREDITS, covers: true }]]).map((quotas) => limited({ a: [quotas] })),
  ...[[CREDITS, CREDITS], [{ ...SLOTS, returns_cost: true }, CREDITS], [CREDITS, WINDOW, { ...CREDITS, name: "other" }], [WINDOW, { ...CREDITS, covers: true }, LOG], [{ ...WINDOW, warn_at: [50] }, CREDITS], [WINDOW, { ...LOG, warn_at: [50] }, WINDOW, { ...CREDITS, covers: true }]].map((quotas) => limited({ a: [quotas.map((quota, nth) => ({ ...quota, name: `q${nth}` }))] })),
  limited({ a: [[CREDITS]], b: [[{ ...CREDITS, name: "c" }]] }),
  limited({ a: [[WINDOW, { ...CREDITS, covers: true }], { lease: true }] }),
  limited({ a: [[WINDOW, { ...CREDITS, covers: true }]] }, undefined, { overrides: { "sub:x": { a: { limit: 5 } } } }),
  ...[[PENALTY], [WINDOW, PENALTY, PENALTY], [PENALTY, WINDOW], [{ algorithm: "block", cap_ms: 5 }], [WINDOW, PENALTY, { algorithm: "block", cap_ms: 5 }]].map((quotas) => limited({ a: [quotas] })),
  ...[8, 9].map((length) => limited({ a: [Array.from({ length }, () => WINDOW)] })),
  limited({ a: [Array.from({ length: 5 }, () => WINDOW)], b: [Array.from({ length: 4 }, () => WINDOW)] }),
  limited({ a: [[WINDOW], { charge_denied: true }], b: [[WINDOW]] }),
  limited({ a: [[WINDOW], { group_by: "sender" }], b: [[WINDOW]] }),
  limited({ a: [[WINDOW], { group_by: "ip" }] }),
  limited({ a: [[{ ...WINDOW, by: "ip" }], { group_by: "sender" }] }),
  limited({ a: [[{ ...WINDOW, name: "x" }]], b: [[{ ...WINDOW, name: "x" }]] }),
  limited({ a: [[{ ...WINDOW, name: "windowMs: 7" }]] }),
  limited({ a: [[{ ...WINDOW, name: "é".repeat(50) }]] }),
  limited({ a: [[{ ...WINDOW, name: "groupBy" }, { ...WINDOW, name: "groupBy" }]] }),
  limited({ ["l".repeat(32)]: [[WINDOW, BUCKET]], b: [[WINDOW, BUCKET]] }, [{ limits: ["b"] }], { stores: { default: { shadow: { b: "l".repeat(32) } } } }),
  limited({ ["l".repeat(33)]: [[WINDOW]] }),
  limited({ ["__proto__"]: [[WINDOW]], constructor: [[BUCKET]] }, [{ limits: ["__proto__"] }, { limits: ["constructor"], path: "/__proto__" }]),
  limited({ a: [[{ ...BUCKET, capacity: 2 ** 50, per_ms: 4 }]] }),
  limited({ a: [[{ ...BUCKET, capacity: 2 ** 50, per_ms: 4, refill: 2 }]] }),
  limited({ a: [[{ ...SLOTS, limit: 1001 }]] }),
  limited({ a: [[{ ...PENALTY, cap_ms: 4 }, WINDOW]] }),
  limited({ a: [[{ ...PENALTY, base_ms: 0 }, WINDOW]] }),
  limited({ a: [[{ ...PENALTY, factor: 0 }, WINDOW]] }),
  limited({ a: [[WINDOW], { tiers: { pro: { unlimited: true, quotas: [WINDOW] }, free: {} } }] }),
  limited({ a: [[WINDOW], { tiers: { pro: { unlimited: true } } }], b: [[WINDOW]] }),
  limited({ a: [[WINDOW]] }, [{ limits: ["a", "a"] }]),
  ruled({ methods: ["GET"], path: "/a" }, { methods: ["GET", "POST"], path: "/a" }, { path: "/a" }, { path: "/a", headers: ["b"] }, { path: "/a/" }),
  ruled({ methods: ["GET", "POST"] }, { methods: ["POST", "PUT"] }, { methods: ["DELETE"] }, { bot_score_below: 5 }, { bot_score_below: 5, headers: [] }),
  ruled({ bot_score_below: 9 }, { bot_score_below: 5 }, { headers: ["a"] }, { headers: ["b"] }, { headers: ["B", "a"] }, {}, {}, {}),
  ruled({ path: "/{a}/x" }, { path: "/{b}/%78" }, { path: "/{}/X" }, { host: "A.b" }, { host: "a.B" }, { host: "*.a.b" }),
  ruled({ name: "x" }, { name: "x", path: "/y" }),
  ruled({ path: "/%7Bx%7D" }, { path: "/{x}" }, { path: "/%7bx%7d" }, { path: "/%2A" }, { path: "/*" }, { path: "/{y}" }, { path: "/{é \"}" }),
  ruled({ path: "/café" }, { path: "/caf%c3%a9" }, { path: "/CAF%C3%89" }, { path: '/a"b<>`|^ c' }, { path: "/a%22b%3c%3E%60%7c%5E%20c" }),
  { ...ruled({ path: "/café" }, { path: "/CAF%C3%89" }, { path: "/\u039f\u03a3/\u0130" }, { path: "/%CE%BF%CF%82/i%CC%87" }, { path: "/%E2%84%AA%FF" }), case_insensitive: true },
  ...["/{a", "/a}", "/{a}{b}", "/{a{b}}", "/{a}/..", "/{a}b/..", "/{a\\b}", "/{}", "/{%7D}", "/%7B/{", "/\ud83d\ude00/{\u0000}", "/{a/b}"].map((path) => ruled({ path })),
  ruled({ path: `/{a}b/${"x/".repeat(40)}{b}c` }),
  ruled({ path: `${"/x".repeat(40)}/{b}c` }),
  ruled({ path: "/x".repeat(32) }, { path: `${"/x".repeat(32)}/*` }, { path: "/x".repeat(33) }),
  ...["/", "//", "c", "https://", "http://a", `/${"c".repeat(511)}`, `/${"c".repeat(512)}`, '/"', "/\\", "/<", "/é", "/ "].map((challenge) => ruled({ challenge })),
  ...["", "a".repeat(64), "a".repeat(65), "é", "a b", "!#$%&'*+-.^_`|~"].map((name) => ruled({ headers: [name] }, { methods: [name.toUpperCase()] })),
  ...["", "*", "*.", "*.*", "a:80", "[::1]", ".a", "a.", "a_b", "a/b", "é.com"].map((host) => ruled({ host })),
  { api_keys: { tiers: { "2bb80d537b1da3e38bd30361aa855686": "pro" } } },
  { api_keys: { without_tier: ["2bb80d537b1da3e38bd30361aa855686"] } },
  { api_keys: { header: "a", without_tier: ["2bb80d537b1da3e38bd30361aa855686", "secret"] } },
  { api_keys: { header: "a", tiers: { "2bb80d537b1da3e38bd30361aa855686": "" }, without_tier: ["2bb80d537b1da3e38bd30361aa855686"] } },
  { api_keys: { header: "a", tiers: { "2bb80d537b1da3e38bd30361aa855686": "" }, without_tier: ["3bb80d537b1da3e38bd30361aa855686", "3bb80d537b1da3e38bd30361aa855686"] } },
  { api_keys: { header: "a", tiers: { "2BB80d537b1da3e38bd30361aa855686": "pro" } } },
  { tokens: { algorithms: [] } },
  { tokens: { algorithms: ["HS256"], issuer: [] } },
  ...["sub", "key", "ip", "a b"].map((name) => ({ tokens: { algorithms: ["HS256"], keys: { [name]: "x" } } })),
  ...["issuer", "subject", "tier"].map((name) => ({ tokens: { algorithms: ["HS256"], [name]: "" } })),
  { dimensions: ["a", "a"] },
  { dimensions: ["a", "ip"] },
  { dimensions: ["a", ""] },
  [],
  7,
];

/** The rules of all tests of the gate, and a file with every field. */
const FILES = [
  EVERYTHING,
  ...["../../../fixtures/gate/", "../../../fixtures/lending/"].flatMap((folder) => {
    const here = new URL(folder, import.meta.url);
    return readdirSync(here).map((name) => JSON.parse(readFileSync(new URL(name, here), "utf8")).rules ?? []);
  }),
  ...["cloudflare/examples/worker", "fastly/examples", "spin/examples"].map((folder) =>
    JSON.parse(readFileSync(new URL(`../../${folder}/rules.json`, import.meta.url), "utf8")),
  ),
].filter((rules) => !Array.isArray(rules));

/** What may be written in place of a value, and of a name. */
const VALUES = [
  ...[0.15, 2.5, 1.0e-7, 1.25e20, { input: 0.1234567890123 }, { input: 3 }],
  ...[0, 1, 7, 60000, 1.5, -1, -0.5, 256, 2 ** 51, 2 ** 51 + 1, 31536000001, true, false, null, "", [], {}, "sender", "ip", "global", "tenant", "open", "default"],
  ...[["ip", "ja4"], ["ip", "ip"], ["ja4"], ["tenant", "nobody", "ip"], "ip+ja4", "tenant+sender", "ja4", ["a".repeat(20), "ip", "b".repeat(12)]],
  ...["memory", "/a/../%62é/{x}", "/api/{id}", "/*", "/a/*/b", "/a?b", "/{a}b", "a", "/%2f/./", "/x/".repeat(33), "*.example.com", "Api.Example.com", ".a", "é\n\u202e\"\\"],
  ...["POST", "post", "x y", "api", "apo", "next", "flood", "login", "fixed_window", "token_bucket", "concurrency", "penalty", "block", "sliding_log", "b".repeat(33), "b".repeat(90)],
  ...["10.0.0.0/8", "10.0.0.0/33", "10.1/8", "1.2.3.4", "::1/0", "::/129", "1:2:3:4:5:6:7::/+064", "sub:a b", "sub:a%20b", "key:x", "ip:1.2.3.4", "/c", "https://e.com/ü"],
  ...[["GET"], ["GET", "POST"], ["api"], ["api", "login"], ["lent", "api"], ["x-a"], { quotas: [] }, { unlimited: true }],
  { algorithm: "concurrency", limit: 2, lifetime_ms: 5, returns_cost: true },
  { algorithm: "penalty", base_ms: 5, factor: 2, cap_ms: 50 },
  { algorithm: "block", cap_ms: 50 },
  { algorithm: "calendar_window", limit: 2, every: "day", carry_over: 1 },
  { algorithm: "balance" },
  { algorithm: "balance", max: 20, covers: true },
  { algorithm: "fixed_window", limit: 2, window_ms: 5, by: "ip" },
  { algorithm: "fixed_window", limit: 2, window_ms: 5, name: "own" },
];
const NAMES = ["name", "limit", "quotas", "windw_ms", "by", "é", "__proto__", "constructor", "lease", "tiers", "pro", "group_by", "store", "estimate", "cost", "charge_denied", "sub", "ip"];
const PIECES = [...'{}[]",:\\é😀\n\t 0e-', "\\u00e9", "\\ud83d\\ude00", "\\ud83d", "\\ude00", "\\x", "18446744073709551615", "18446744073709551616", "9007199254740993", "nul", "-0", "\u0000"];

/** All places of a value, each with its list or table. */
function places(inside, found = []) {
  for (const key of Object.keys(inside)) {
    found.push([inside, key]);
    if (typeof inside[key] === "object" && inside[key] !== null) places(inside[key], found);
  }
  return found;
}

/** Changes a value, or a name. */
function change(rules, chance) {
  const all = places(rules);
  // The changes before may have left nothing.
  if (all.length === 0) return;
  const [inside, key] = chance.from(all);
  switch (chance.below(6)) {
    case 0:
      return Array.isArray(inside) ? inside.splice(key, 1) : delete inside[key];
    case 1:
      return Array.isArray(inside) ? inside.splice(key, 0, structuredClone(inside[key])) : (inside[chance.from(NAMES)] = structuredClone(inside[key]));
    case 2: {
      const [other, name] = chance.from(all);
      return (inside[key] = structuredClone(other[name]));
    }
    case 3: {
      if (typeof inside[key] !== "string" || inside[key] === "") break;
      const at = chance.below(inside[key].length);
      return (inside[key] = inside[key].slice(0, at) + chance.from(["", "x", inside[key].slice(at, at + 2)]) + inside[key].slice(at + 1));
    }
    case 4:
      if (Array.isArray(inside)) break;
      inside[chance.from([`${key}x`, key.slice(1), key.toUpperCase(), ...NAMES])] = inside[key];
      return delete inside[key];
  }
  inside[key] = structuredClone(chance.from(VALUES));
}

/** The text of a rules file with a few mistakes. */
function mistaken(chance) {
  const rules = structuredClone(chance.from(chance.once(2) ? [EVERYTHING] : FILES));
  for (let left = chance.below(4); left > 0; left--) change(rules, chance);
  let text = JSON.stringify(rules, null, chance.from([0, 1, 2]));
  if (chance.once(4)) {
    const at = chance.below(text.length);
    text = text.slice(0, at) + chance.from(PIECES) + text.slice(at + chance.below(3));
  }
  return chance.once(8) ? text.replace(/\d+/g, (digits) => (chance.once(40) ? chance.from(["0", "18446744073709551615", "99999999999999999999", "4503599627370496"]) : digits)) : text;
}

/** What was thrown, or what comes out. */
function outcome(run) {
  try {
    return run();
  } catch (thrown) {
    if (Array.isArray(thrown)) return thrown;
    assert.ok(thrown instanceof TidegateError, String(thrown?.stack ?? thrown));
    if (thrown.message.startsWith("rules.json:")) assert.equal(thrown.field, undefined);
    return [thrown.kind, thrown.message];
  }
}

function rulesOf(text) {
  const rules = compile(rootOf({ name: "rules.json", text }, (text) => readJson(text, true)), limitsFromData(), calendarWindows, warnAt()(), balances);
  pricesOf(rules.prices);
  return rules;
}
const gateOf = () => new RulesGate(STORES.join("\0"), "direct", 64, false, 0);

/** A policy as the reference writes it. */
function written({ parts }) {
  const scopes = parts.scopes.split(",");
  const quotas = parts.quotas.map(({ algorithm, amount, span, refill, name, by }, nth) => [algorithm, amount, span, refill, name, by ?? "", scopes[nth]]);
  return [parts.name, parts.chargeDenied, parts.groupAt, parts.placeByKey, quotas];
}

/** What the reference says of rules that it has read. */
function told(rules) {
  return { warnings: rules.warnings, tokens: rules.tokens?.algorithms ?? null };
}

/** The policies of all rules, each with the place of its store and its lease. Undefined if the gate refuses the rules. */
function loaded(gate) {
  const said = outcome(() => JSON.parse(gate.load()));
  if (Array.isArray(said)) return undefined;
  const known = [];
  return said.policies.map(([store, nth, policy]) => [store, (known[nth] = policy ?? known[nth])]);
}

/** The same of the rules. */
function policies({ rules }) {
  return rules.flatMap(({ store, lease, policies }) => {
    const terms = lease ? [lease.slice, lease.lifetimeMs, lease.grace] : null;
    return policies.filter(Boolean).map((policy) => [Math.max(STORES.indexOf(store), 0), [...written(policy), terms]]);
  });
}

const ZONES = ["UTC", ...Intl.supportedValuesOf("timeZone")];

/** A mistake without the time zone that the core suggests, if that is one of the aliases, such as `Iran`, which `Intl` does not list. */
function comparable(told, theirs) {
  const near = /is not a time zone; did you mean "(.*)"\? /.exec(theirs[1])?.[1];
  if (!Array.isArray(told) || near === undefined || ZONES.includes(near)) return told;
  return told.map((text) => text.replace(/did you mean ".*"\? W/, "w"));
}

test("a rules file has the same mistakes, warnings and policies", () => {
  const chance = new Chance(SEED);
  const texts = [...FILES, ...MISTAKES].map((rules) => JSON.stringify(rules, null, 2));
  let valid = 0;
  for (let nth = 0; nth < texts.length + STEPS; nth++) {
    const text = texts[nth] ?? mistaken(chance);
    const gate = gateOf();
    const [theirs, rules] = [outcome(() => JSON.parse(gate.read("rules.json", text))), outcome(() => rulesOf(text))];
    if (Array.isArray(theirs)) {
      assert.deepEqual(comparable(rules, theirs), comparable(theirs, theirs), place(nth, text));
      continue;
    }
    assert.deepEqual(told(rules), theirs, place(nth, text));
    const chosen = loaded(gate);
    if (chosen) assert.deepEqual(policies(rules), chosen, place(nth, text));
    valid += Number(chosen !== undefined);
  }
  const all = texts.length + STEPS;
  assert.ok(valid > all / 20 && valid < all / 2, `${valid} of ${all} files are loaded`);
});

/** What a gate creates in each store before the first request. */
test("a store is asked by the policies of its rules, and of the stores that it replaces", () => {
  const limit = (limit) => ({ quotas: [{ algorithm: "fixed_window", limit, window_ms: 60_000 }] });
  const rules = rulesOf(
    JSON.stringify({
      stores: { main: { fallback: "backup", near: { store: "edge", limit: "flood" } } },
      limits: { api: limit(9), login: limit(3), pay: limit(2), flood: limit(50) },
      rules: [{ limits: ["api"] }, { path: "/login", limits: ["login"], store: "second" }, { path: "/pay", limits: ["pay"], store: "main" }],
    }),
  );
  const asked = { main: ["api", "pay"], second: ["login"], backup: ["api", "pay"], edge: ["flood"], other: [] };
  for (const [store, names] of Object.entries(asked)) {
    assert.deepEqual(policiesOf(rules, store, store === "main").map(({ parts }) => parts.name), names, store);
  }
});

const SEGMENTS = ["a", "b", "A", "api", "%61", "{id}", "{x}", "é", "a%2fb", "..", "."];
const ODD_SEGMENTS = ["%c3%A9", "É", "%7Bx%7d", 'a"b', "a b", "😀", "\u03a3", "%E2%84%AA", "%2A"];
const HOSTS = ["example.com", "api.example.com", "a.b.example.com", "example.org", "__proto__", ""];
const LIMITS = ["one", "two", "three", "four", "lent"];

/** Some of these, perhaps none. */
const some = (chance, choices) => choices.filter(() => chance.once(3));

/** Rules that often match the same requests. */
function overlapping(chance) {
  const limit = (name, nth) => ({
    quotas: [{ algorithm: "fixed_window", limit: nth + 1, window_ms: 1000, by: chance.from(["ip", "sender", "global", "ja4", ["sender", "ja4"]]) }],
    charge_denied: chance.once(12),
    tiers: chance.once(2) ? { pro: chance.once(2) ? { unlimited: true } : { quotas: [{ algorithm: "sliding_log", limit: 9, window_ms: 5, name }] } } : undefined,
  });
  const limits = Object.fromEntries(LIMITS.map((name, nth) => [name, limit(name, nth)]));
  limits.lent = { quotas: [{ algorithm: "fixed_window", limit: 7, window_ms: 1000 }], lease: true };
  const rule = () => ({
    path: chance.once(8) ? undefined : `/${Array.from({ length: chance.below(4) }, () => chance.from(chance.once(4) ? ODD_SEGMENTS : SEGMENTS)).join("/")}${chance.from(["", "", "/", "/*", "/*"])}`,
    host: chance.once(3) ? chance.from([...HOSTS.slice(0, 4), "*.example.com", "*.com", "__proto__"]) : undefined,
    methods: chance.once(2) ? some(chance, ["GET", "POST", "HEAD", "OPTIONS"]) : undefined,
    headers: chance.once(3) ? some(chance, ["X-Own", "accept"]) : undefined,
    bot_score_below: chance.once(4) ? chance.from([1, 30, 255]) : undefined,
    limits: chance.once(8) ? ["lent"] : some(chance, LIMITS.slice(0, 4)),
    cost: chance.once(2) ? chance.below(4) : undefined,
    on_failure: chance.from(["open", "closed", undefined]),
  });
  const networks = ["192.0.2.0/24", "192.0.2.64/26", "192.0.3.0/24", "10.0.0.0/8", "2001:db8::/32", "2001:db8::/33", "::ffff:198.51.100.0/124", "::/0", "0.0.0.0/0", "203.0.113.9"];
  const lists = { allow: some(chance, networks.slice(2)), deny: some(chance, [...networks.slice(0, 7), "203.0.113.9", "sub:al%20ice", "key:b"]) };
  return { case_insensitive: chance.once(3), exempt_preflights: chance.once(3), lists: chance.once(2) ? lists : undefined, limits, rules: Array.from({ length: 1 + chance.below(12) }, rule) };
}

/** A long path of few pieces, which leads to where rules are, or not. */
function hostile(chance) {
  const pieces = ["/", "//", "/.", "/..", "/%2e", "/.%2E", "/%2e%2e", "\\", "\\..", "/a", "/b/..", "/é", "%2f", "%5c", "%252e", "%25252f", "%61", "%E2%84%AA", "%", '"', "/...", ";"];
  const few = Array.from({ length: 1 + chance.below(4) }, () => chance.from(pieces));
  const start = chance.from(["/", "/a", "/a/b", "/api/%61", "//"]);
  const end = chance.from(["", "/a", "/../a/b", "/", "/.", "/x/%2e%2e", "\\a"]);
  return start + Array.from({ length: chance.from([40, 400, 2_000]) }, () => chance.from(few)).join("") + end;
}

function requested(chance) {
  const pieces = ["a", "b", "A", "api", "%61", "%2e", "%2E%2e", "..", ".", "", "é", "%c3%a9", "a%2fb", "a\\b", "c", "%", "{x}"];
  const odd = ["%C3%89", "É", "e\u0301", "%7bx%7D", "😀", "%F0%9f%98%80", "%f0%9f%98", 'a"b', "a%22b", "a b", "a%20b", "\u03a3", "\u03c2", "%cf%82", "%CF%83"];
  odd.push("k", "%e2%84%aa", "*", "%2a", "%C3%C3%a9", "%cz%c3%a9", "%c0%af", "%ed%a0%80%C3%A9", "%FF", "\u007f", "`", "|", "^", "%%c3");
  odd.push(`%${chance.below(256).toString(16).padStart(2, "0")}`);
  const path = chance.once(20)
    ? hostile(chance)
    : Array.from({ length: chance.below(chance.once(20) ? 60 : 6) }, () => chance.from(["/", "/", "/", "\\", "//"]) + chance.from(chance.once(4) ? odd : pieces)).join("");
  const has = [...some(chance, ["x-own", "accept"]), ...(chance.once(2) ? ["origin", "access-control-request-method"] : some(chance, ["origin"]))];
  const hosts = Array.from({ length: chance.once(4) ? 1 + chance.below(3) : 1 }, () => chance.from(HOSTS) + chance.from(["", "", "", ".", ":80", ".:80", ":x"]));
  const host = hosts.map((name) => (chance.once(5) ? name.toUpperCase() : name)).join(chance.from([", ", ","]));
  return {
    method: chance.from(["GET", "POST", "HEAD", "get", "OPTIONS"]),
    host,
    hosts: new Facts({ method: "GET", url: "https://a.example.org/", headers: new Headers({ host }) }, {}).hosts,
    path: (path.replace(/^\\/, "/") || "/") + chance.from(["", "", "", "/", "?a=/b", "#c"]),
    botScore: chance.once(2) ? undefined : chance.from([0, 1, 29, 30, 254, 255]),
    has: (field) => has.includes(field),
    tier: chance.once(3) ? chance.from(["pro", "other"]) : undefined,
    peer: chance.from(["192.0.2.70", "192.0.3.255", "192.0.4.0", "10.255.0.1", "2001:db8::1", "2001:db8:8000::", "2001:db9::", "::ffff:198.51.100.15", "198.51.100.16", "203.0.113.9"]),
    key: chance.once(4) ? chance.from(["sub:al ice", "key:b", "sub:c"]) : undefined,
  };
}

/** How the reference explains a request. */
function explained(gate, fields, request) {
  const caller = gate.caller();
  for (const [what, text] of [[0, request.peer], [3, request.key], [4, request.tier]]) if (text !== undefined) caller.tell(what, text);
  caller.numbers(request.botScore ?? -1, -1, false, false);
  const values = fields.map((name) => (name === "host" ? request.host : request.has(name) ? "x" : "\0")).join("\n");
  return caller.check(request.method, `https://a.example.org${request.path}`, values, 0, true);
}

/** The same, but for the lines about the sender and the store, and the keys. */
function found(rules, request) {
  const applied = appliedTo(rules, request, [request.path]);
  const named = ({ name, pattern }) => `${name}: ${textOf(pattern)}`;
  if (applied.length === 0) return "rule     none matches: not limited\n";
  const others = matching(rules, request, [request.path]).filter((rule) => !applied.includes(rule));
  const lines = [`rule     ${named(applied[0])}`];
  lines.push(...applied.slice(1).map((rule) => `         and, as the path can be read so, ${named(rule)}`));
  lines.push(...others.map((rule) => `         more specific than ${named(rule)}`));
  const peer = addressOf(request.peer.replace("::ffff:", ""));
  const entryOf = (list) => [textOfAddress(peer), request.key?.replace(" ", "%20")].find((entry, nth) => entry && (nth === 0 ? list.hasAddress(peer) : list.hasKey(entry)));
  const [denied, allowed] = [rules.denied, rules.allowed].map(entryOf);
  if (denied) return [...lines, `list     deny has ${denied}: refused with a 403`, ""].join("\n");
  if (allowed) return [...lines, `list     allow has ${allowed}: not limited`, ""].join("\n");
  const place = rules.tiers.indexOf(request.tier);
  const tier = place < 0 ? undefined : place;
  const policy = outcome(() => policyFor(rules, applied, tier));
  if (Array.isArray(policy)) return [...lines, `limit    those of each rule, one after another: ${policy[1]}`, ""].join("\n");
  if (!policy) return [...lines, "limit    none", ""].join("\n");
  lines.push(`cost     ${costOf(applied, tier)}`);
  lines.push(...policy.quotas.map(({ name, rule, by }) => `limit    ${name}: ${rule.name} of ${rule.limit} in ${rule.unit < 1000 ? `${rule.unit} ms` : `${rule.unit / 1000} s`}, by ${by || "sender"}`));
  lines.push(opens(applied, tier) ? "failure  open: not limited while the store is down" : "failure  closed: a 503 while the store is down", "");
  return lines.join("\n");
}

test("the same rules apply to requests", () => {
  const chance = new Chance(SEED);
  const seen = {};
  for (let nth = 0; nth < STEPS / 10; nth++) {
    const text = JSON.stringify(overlapping(chance));
    const gate = gateOf();
    const theirs = outcome(() => JSON.parse(gate.read("rules.json", text)));
    const rules = outcome(() => rulesOf(text));
    if (Array.isArray(theirs)) {
      assert.deepEqual(rules, theirs, place(nth, text));
      continue;
    }
    assert.deepEqual(told(rules), theirs, place(nth, text));
    const { fields } = JSON.parse(gate.load());
    for (let left = 80; left > 0; left--) {
      const request = requested(chance);
      const whole = explained(gate, fields, request);
      const expected = whole.replace(/^(?:sender|store|lease) .*\n/gm, "").replace(/^(limit .*, by [\w+]+) = .*$/gm, "$1");
      assert.equal(found(rules, request), expected, `${place(nth, text)}\n${JSON.stringify(request)}`);
      for (const word of ["and, as the path", "more specific", "one after another", "allow has", "deny has", "none matches", "open:", "closed:"]) {
        if (whole.includes(word)) seen[word] = (seen[word] ?? 0) + 1;
      }
    }
  }
  assert.equal(Object.keys(seen).length, 8, JSON.stringify(seen));
  for (const [word, times] of Object.entries(seen)) assert.ok(times > STEPS / 100, `${word}: ${times}`);
});

/** All readings of a path. */
const all = (path) => allWith(path).map(([reading]) => reading);

/** The same, each with what it does with escapes. */
function allWith(path) {
  const found = [];
  // A reading of a path without a slash has none either.
  readings(path, [34, Infinity], (segments, escapes) => {
    found.push([path && `/${segments.join("/")}`, escapes]);
    return false;
  });
  return found;
}

/** The first reading. */
const normal = (path) => all(path)[0];

test("each step of a reading may be left out", () => {
  const cases = {
    "/a/b": ["/a/b"],
    "/.well-known/x?y": ["/.well-known/x"],
    "/": ["/"],
    "": [""],
    "/a/": ["/a", "/a/"],
    "/a\\b": ["/a/b", "/a\\b"],
    "/l%6fgin": ["/login", "/l%6fgin"],
  };
  for (const [path, expected] of Object.entries(cases)) assert.deepEqual(all(path), expected, path);
  const among = {
    "/files/..//x/y": ["/x/y", "//x/y", "/files/../x/y", "/files/..//x/y"],
    // A WHATWG URL resolves dots and keeps empty segments.
    "/a//../b": ["/b", "/a/b", "/a//../b"],
    "/a/%2e%2e/l%6fgin": ["/login", "/l%6fgin", "/a/%2e%2e/l%6fgin", "/a/../login"],
    "/api/.": ["/api", "/api/", "/api/."],
  };
  for (const [path, expected] of Object.entries(among)) {
    assert.equal(all(path)[0], expected[0]);
    for (const reading of expected) assert.ok(all(path).includes(reading), `${path}: ${reading}`);
  }
  // Of 36, those that are written alike are found once.
  assert.equal(all("/a\\..//%2e/b%20?").length, 20);
  let count = 0;
  readings("/a//b", [34, Infinity], () => (count += 1) > 0);
  assert.equal(count, 1, "it stops when one is found");
});

test("equivalent paths have the same segments", () => {
  const same = ["/api/login", "/api/login/", "//api///login", "/api/./login", "/api/x/../login", "/../api/login", "/%61pi/l%6Fgin"];
  same.push("/%61pi/l%6fgin?next=/", "/api\\login", "/x/%2e%2E/api/login#top", "api/login");
  for (const path of same) assert.deepEqual(segments(normal(path)), ["api", "login"], path);
});

test("of a long path the beginning is kept", () => {
  const long = "/a".repeat(40);
  assert.deepEqual(all(long), ["/a".repeat(34)], "nothing else is to be done");
  assert.equal(normal(`${long}/`), "/a".repeat(34));
  // What is behind still counts: here it leads back to the first segments.
  assert.equal(normal(long + "/..".repeat(39)), "/a");
  assert.equal(normal(`${long}${"/..".repeat(8)}/b`), `${"/a".repeat(32)}/b`);
  assert.equal(normal(`${long}${"/..".repeat(50)}/b/./c`), "/b/c");
});

test("other escapes stay in upper case", () => {
  const cases = { "/a%2fb": "/a%2Fb", "/it%27s%28%21%29": "/it's(!)", "/%40me%5C%22": "/@me%5C%22", "/%c3%a9": "/%C3%A9", "/%": "/%", "/%4": "/%4" };
  Object.assign(cases, { "/%7bx%7D": "/%7Bx%7D", "/{x}": "/%7Bx%7D", '/a "<>`\x7f': "/a%20%22%3C%3E%60%7F", "/é": "/%C3%A9", "/%zz/%41": "/%zz/A" });
  // Overlong, cut off, a surrogate: bytes of no character.
  Object.assign(cases, { "/%c0%af%C3/%ed%a0%80": "/%C0%AF%C3/%ED%A0%80", "/\ud83d": "/%EF%BF%BD", "/😀/%F0%9f%98%80": "/%F0%9F%98%80/%F0%9F%98%80" });
  Object.assign(cases, { "/é%2e": "/%C3%A9.", "/%25%32%65": "/%252e", "/a/..%2Fb": "/a/..%2Fb", "/%é": "/%%C3%A9", "/%2é": "/%2%C3%A9", "/a%+1": "/a%+1" });
  for (const [path, expected] of Object.entries(cases)) {
    assert.equal(normal(path), expected, path);
    assert.equal(normal(expected), expected, "what is normal stays");
  }
});

test("a reading says what it does with escapes", () => {
  assert.deepEqual(allWith("/a"), [["/a", "kept"]]);
  assert.deepEqual(allWith("/a/"), [["/a", "kept"], ["/a/", "kept"]]);
  assert.deepEqual(allWith("/é?"), [["/%C3%A9", "normal"], ["/é", "raw"], ["/%C3%A9", "normal"]]);
  assert.deepEqual(allWith("/%C3%A9"), [["/%C3%A9", "normal"], ["/%C3%A9", "kept"]]);
  assert.deepEqual(allWith('/"'), [["/%22", "normal"], ['/"', "raw"], ["/%22", "normal"]]);
});

test("a rule's path has a normal form and one as it is written", () => {
  const cases = [
    ["/a/b", "/a/b", "/a/b"],
    ["/é/{id}", "/%C3%A9/{id}", "/é/{id}"],
    ["/%c3%A9/x y", "/%C3%A9/x%20y", "/%c3%A9/x y"],
    ['/%61/../%62\\/{é "}', "/b/{%C3%A9%20%22}", "/%62/{%C3%A9%20%22}"],
    ["/%7Bx%7d/{}", "/%7Bx%7D/{}", "/%7Bx%7d/{}"],
  ];
  for (const [path, ...both] of cases) assert.deepEqual(rulePath(path), both);
  for (const path of ["/{a}b", "/{a{b}}", "/{", "/}", "/{a}{b}", "/a/{b/c}", "/{a}b/.."]) assert.equal(rulePath(path), undefined, path);
});

test("letters of all scripts have a lower case", () => {
  const cases = [
    ["/A", "kept", "/a"],
    ["/CAF%C3%89%2F", "normal", "/caf%c3%a9%2f"],
    ["/%E2%84%AA%FF%C3", "normal", "/k%ff%c3"],
    ["/%CE%9F%CE%94%CE%9F%CE%A3/%C4%B0", "normal", "/%ce%bf%ce%b4%ce%bf%cf%82/i%cc%87"],
    ["/CAFÉ%C3%89", "raw", "/café%c3%89"],
    ["/%C3%89", "kept", "/%c3%89"],
    ["/%%%4/A%C3%", "normal", "/%%%4/a%c3%"],
    ["/%C3%C3%89%CZ%C3%89", "normal", "/%c3%c3%a9%cz%c3%a9"],
  ];
  for (const [path, escapes, expected] of cases) assert.equal(inLowerCase(path, escapes), expected, path);
});

/** The names of the rules that apply to a path, in order. */
const applying = (rules, path) => appliedTo(rules, { method: "GET", hosts: [""], has: () => false }, [path]).map(({ name }) => name);
const named = (paths) => rulesOf(JSON.stringify({ rules: Object.entries(paths).map(([name, path]) => ({ name, path })) }));

// Routers take an empty segment for none, for a parameter, or for a segment that no parameter takes.
test("a request has the rules of each router for its empty segments", () => {
  const table = JSON.parse(readFileSync(new URL("../../../core/tests/data/readings.json", import.meta.url), "utf8"));
  for (const { rules, paths } of table) {
    for (const [path, expected] of Object.entries(paths)) assert.deepEqual(applying(named(rules), path), expected, path);
  }
});

test("a path outside ASCII has its rule however a client writes it", () => {
  const rules = named({ cafe: "/café", below: "/ü/{id}", smile: "/😀/*", quote: '/a"b', space: "/a b", brace: "/%7Bx%7D", pipe: "/a|b^%5B" });
  const cases = {
    cafe: ["/café", "/caf%C3%A9", "/caf%c3%A9/", "/%63afé", "//café?x=y"],
    below: ["/ü/7", "/%C3%BC/é", "/x/../ü\\😀"],
    smile: ["/😀", "/%F0%9F%98%80/😀"],
    quote: ['/a"b', "/a%22b"],
    space: ["/a b", "/a%20b"],
    brace: ["/{x}", "/%7bx%7D"],
    pipe: ["/a|b^[", "/a%7Cb%5e%5B"],
  };
  for (const [name, paths] of Object.entries(cases)) for (const path of paths) assert.deepEqual(applying(rules, path), [name], path);
  // Unicode has two forms of this letter. No router takes one for the other, so neither do rules. Bytes that are not UTF-8 are no letter.
  for (const path of ["/cafe\u0301", "/caf%E9", "/caf%C3", "/login", "/x", "/a+b", "/%C0%AFcaf%C3%A9"]) assert.deepEqual(applying(rules, path), [], path);
});

test("a path that is not as the rule is written has the less specific rule, too", () => {
  const cases = [
    ["/café", "/café", ["own"]],
    ["/café", "/caf%C3%A9", ["own", "any"]],
    ["/café", "/caf%c3%a9", ["own", "any"]],
    ["/caf%C3%A9", "/caf%C3%A9", ["own"]],
    ["/caf%C3%A9", "/café", ["own", "any"]],
    ["/caf%C3%A9", "/caf%c3%a9", ["own", "any"]],
    ["/%6cogin", "/login", ["own", "any"]],
    ["/%6cogin", "/%6cogin", ["own", "any"]],
    ["/login", "/%6cogin", ["own", "any"]],
    ["/login", "/login", ["own"]],
    ['/a"', '/a"', ["own"]],
    ['/a"', "/a%22", ["own", "any"]],
  ];
  for (const [own, path, expected] of cases) assert.deepEqual(applying(named({ any: "/{x}", own }), path), expected, `${own} ${path}`);
});

test("a request has the rules of each host that a server may take it for", () => {
  const rules = rulesOf(JSON.stringify({ rules: [{ name: "own", host: "api.example.com" }, { name: "below", host: "*.example.com" }, { name: "site" }] }));
  const applyingTo = (host) => {
    const { hosts } = new Facts({ method: "GET", url: "https://example.org/", headers: new Headers({ host }) }, {});
    return appliedTo(rules, { method: "GET", hosts, has: () => false }, ["/"]).map(({ name }) => name);
  };
  const cases = { "API.example.com.:80": ["own"], "other, api.example.com": ["site", "own"], "api.example.com,x,b.example.com": ["own", "below"], "x": ["site"] };
  for (const [host, expected] of Object.entries(cases)) assert.deepEqual(applyingTo(host), expected, host);
});

test("a rule of escaped braces is no parameter", () => {
  const rules = rulesOf(JSON.stringify({ rules: [{ path: "/%7Bx%7D" }, { path: "/%7bx%7d/{id}" }, { path: "/%2A" }] }));
  assert.deepEqual(rules.rules.map(({ name }) => name), ["/%7Bx%7D", "/%7Bx%7D/{id}", "/%2A"]);
  assert.deepEqual(rules.warnings, []);
  assert.deepEqual(applying(rules, "/login"), []);
  assert.deepEqual(applying(rules, "/*"), ["/%2A"]);
  assert.deepEqual(applying(rules, "/%2a"), ["/%2A"]);
});

test("of names that are written twice, the last value counts, if they may be", () => {
  const node = readJson('{"a": 1, "__proto__": [true], "a": "\\ud83d\\ude00\\u0000"}', false);
  assert.deepEqual(field(node, "a"), { at: 35, text: "😀\0" });
  assert.deepEqual(field(node, "__proto__"), { at: 22, list: [{ at: 23, bare: "true" }] });
  assert.equal(field(node, "constructor"), undefined);
  assert.throws(() => readJson('{"a": 1, "a": 2}', true), { at: 9, what: '"a" is written twice; write it once' });
});

test("a near name is named first, and what cannot be seen is escaped", () => {
  const known = ["sender", "ip", "global"];
  assert.equal(suggestion("ipp", known), 'did you mean "ip"? Write one of "sender", "ip", "global"');
  assert.equal(suggestion("gloabl", known), 'did you mean "global"? Write one of "sender", "ip", "global"');
  assert.equal(suggestion("ip".repeat(99), known), 'write one of "sender", "ip", "global"');
  assert.equal(quoted("\u001b[31m\u0085\u202ex\ufeff\"\\\n"), String.raw`"\u{1b}[31m\u{85}\u{202e}x\u{feff}\"\\\n"`);
});
