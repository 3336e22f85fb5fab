// The routes of the conformance suite, which take the time from the request. A deployed guest answers them only with a key.
// conformance/guests/protocol describes the messages.

import { calendarWindow } from "@tidegate/edge/calendar";
import { balance } from "@tidegate/edge/credits";
import { Gate } from "@tidegate/edge/gate";
import { calendarWindows } from "@tidegate/edge/gate/calendar";
import { balances } from "@tidegate/edge/gate/credits";
import { limitsFromData } from "@tidegate/edge/gate/limits";
import { warnAt } from "@tidegate/edge/gate/warn-at";

/** For rules with tokens: what verifies and signs those of the suite. */
const KEY = { kty: "oct", k: "A".repeat(43) };
const KEYS = { keys: [KEY] };

const JSON_TYPE = { "content-type": "application/json" };

/**
 * Whether a request is the suite's, in this mode: with `on`, or with the key that the mode is. A deployed guest has a key.
 *
 * @param {Request} request
 * @param {string | undefined} mode the variable TIDEGATE_TEST_MODE
 */
export function asks(request, mode = "off") {
  const admitted = mode === "on" || (mode.length >= 16 && request.headers.get("x-tidegate-suite-key") === mode);
  return admitted && /^\/[\w-]*\/?_tidegate\//.test(new URL(request.url).pathname);
}

/**
 * Handles the suite's requests. `make` makes a limiter from options.
 *
 * @param {(options: object) => import("@tidegate/edge").Limiter} make
 */
export function suite(make) {
  const limiters = new Map();
  const limiterOf = (policy) => {
    const name = JSON.stringify(policy);
    if (!limiters.has(name)) limiters.set(name, make({ policy: policyOf(policy), platform: "direct", onError: () => undefined }));
    return limiters.get(name);
  };

  /** The stores of all gates are the same. Each gate has its rules, the platform whose requests it gets, and the warnings that no answer has told yet. */
  const gates = new Map();
  const gateOf = ({ rules, stores: names = ["default"], sender }) => {
    const { platform, ipv6_prefix: ipv6Prefix = 64, trust_true_client_ip: trustTrueClientIp = false } = sender;
    const name = JSON.stringify([rules, platform, ipv6Prefix, trustTrueClientIp]);
    if (!gates.has(name)) {
      const stores = Object.fromEntries(names.map((name) => [name, make]));
      const warned = [];
      const gate = Gate.fromRules(rules, { platform, ipv6Prefix, trustTrueClientIp, stores, keys: KEYS, limits: limitsFromData, calendar: calendarWindows, credits: balances, warnAt: warnAt(({ warning }) => warned.push(warning)), onError: () => undefined });
      gates.set(name, { gate, warned });
    }
    return gates.get(name);
  };

  const routes = {
    async check(call, request, peeks) {
      const options = { ...counted(call), cost: call.cost, now: call.now_ms };
      if (call.token) options.idempotency = { token: call.token.text, ttlMs: call.token.ttl_ms };
      const limiter = limiterOf(call.policy);
      const verdict = await (peeks ? limiter.peek(request, options) : limiter.check(request, options));
      return verdict.error ? failure(503, verdict.error) : decided(verdict);
    },
    peek: (call, request) => routes.check(call, request, true),
    async settle(call) {
      return decided(await limiterOf(call.policy).settle(charged(call), { cost: call.cost, now: call.now_ms }));
    },
    async release(call) {
      return decided(await limiterOf(call.policy).release(charged(call), { now: call.now_ms }));
    },
    async refund(call) {
      const verdict = { ...counted(call), outcome: "allowed", decidedAtMs: call.charged_at_ms ?? call.now_ms };
      await limiterOf(call.policy).refund(verdict, { cost: call.cost, now: call.now_ms });
      return answer("done");
    },
    async block(call) {
      const { key, keys = key } = counted(call);
      await limiterOf(call.policy).block(keys, call.block_ms, { now: call.now_ms });
      return answer("done");
    },
    async grant(call) {
      const { token, cost, expires_at_ms: expires, now_ms: now } = call;
      const { key, keys = key } = counted(call);
      return decided(await limiterOf(call.policy).grant(keys, cost, { token: token.text, rememberMs: token.ttl_ms, expires, now }));
    },
    async reset(call) {
      const { key, keys = key } = counted(call);
      await limiterOf(call.policy).reset(keys);
      return answer("done");
    },
    async gate(call) {
      const { sender, tier, bot_score: botScore, ja4, keys = {}, limits, cost, token, now_ms: now } = call;
      const options = { peer: sender.peer, subject: sender.subject, tier, botScore, ja4, keys, limits, cost, token, now };
      const request = arrived(call);
      if (call.claims) request.headers.set(...(await signed(call)));
      const { gate, warned } = gateOf(call);
      return judged(await gate.check(request, options), warned);
    },
    async identify({ platform, peer, ipv6_prefix, trust_true_client_ip, headers, subject, api_key }) {
      const policy = { name: "identify", quotas: [{ fixedWindow: { limit: 1, windowMs: 1_000 } }] };
      const options = { policy, platform, onError: () => undefined, trustTrueClientIp: trust_true_client_ip, identify: () => ({ subject, apiKey: api_key }) };
      const limiter = make(ipv6_prefix === undefined ? options : { ...options, ipv6Prefix: ipv6_prefix });
      const key = await limiter.identify(new Request("https://example.com/", { headers }), peer);
      const sources = { "sub:": "subject", "key:": "api_key", "ip:": "client_ip" };
      const source = key === "ip:unknown" ? "missing" : sources[key.slice(0, key.indexOf(":") + 1)];
      return answer({ identity: { key, source: source ?? "other" } });
    },
    capabilities: () => answer({ capabilities: limiterOf({ name: "none", quotas: [{ algorithm: "fixed_window", limit: 1, window_ms: 1 }] }).capabilities }),
  };

  /** @param {Request} request */
  return async (request) => {
    const { pathname } = new URL(request.url);
    const route = routes[pathname.slice(pathname.lastIndexOf("/") + 1)];
    const body = await request.text();
    try {
      return await route(body ? JSON.parse(body) : {}, request);
    } catch (error) {
      return failure(error.kind === undefined || error.kind === "invalid" ? 400 : 503, error);
    }
  };
}

/** How long the package has what can be told together wait. */
const PAUSE = 100;
const laterOn = globalThis.setTimeout;

/**
 * Handles the suite's requests, and has what limiters do after a response be done before it: virtual time stands still, so no pause would
 * end. `make` makes a handler from what keeps work alive.
 *
 * @param {(waitUntil: (work: Promise<unknown>) => void) => (request: Request) => Promise<Response>} make
 */
export function withoutPauses(make) {
  const begun = new Set();
  const handler = make((work) => {
    const done = work.then(() => begun.delete(done));
    begun.add(done);
  });
  return async (request) => {
    globalThis.setTimeout = (run, ms, ...rest) => laterOn(run, ms === PAUSE ? 0 : ms, ...rest);
    const response = await handler(request);
    await Promise.all(begun);
    return response;
  };
}

/** A policy of the suite, as the package takes it. */
function policyOf({ name, quotas, charge_denied: chargeDenied, group_by: groupBy, ...rest }) {
  const quotaOf = ({ algorithm, name, by, ...numbers }) => {
    const renamed = Object.fromEntries(Object.entries(numbers).map(([number, value]) => [camel(number), value]));
    const made = { calendar_window: calendarWindow, balance }[algorithm]?.({ ...renamed, name, by });
    return made ?? { [camel(algorithm)]: renamed, name, by };
  };
  return { ...rest, name, quotas: quotas.map(quotaOf), chargeDenied, groupBy };
}

function camel(name) {
  return String(name).replace(/_(\w)/g, (_, letter) => letter.toUpperCase());
}

/** The key of a call, or the key of each dimension. */
function counted({ key = "", keys }) {
  return keys ? { keys } : { key };
}

/** A verdict on the request whose charge a call names. */
function charged(call) {
  return { ...counted(call), outcome: "allowed", charge: { token: call.settles } };
}

function answer(said) {
  return new Response(JSON.stringify(said), { headers: JSON_TYPE });
}

/** The status and the fields are those that a client would get. The body is the suite's answer. */
function decided(verdict) {
  const quotas = verdict.quotas.map(({ limit, remaining, resetAfterMs }) => ({ limit, remaining, reset_after_ms: resetAfterMs }));
  const { outcome: status, binding, retryAfterMs: retry_after_ms, delayMs: delay_ms, fromBalance: from_balance, replayed } = verdict;
  const { headers, status: code } = verdict.response ?? verdict.onto(new Response());
  headers.set("content-type", "application/json");
  return new Response(JSON.stringify({ decision: { status, binding, quotas, retry_after_ms, delay_ms, from_balance, replayed } }), { status: code, headers });
}

/** A request as it arrived: a `Request` would change its path. */
function arrived({ method, path, host = "", sender }) {
  return { method, url: `https://${host}${path}`, headers: new Headers(sender.headers) };
}

/** The field with a valid token that has the claims of a call. */
async function signed({ rules: { tokens }, claims, now_ms: now }) {
  const encoder = new TextEncoder();
  const encoded = (bytes) => btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  const [iss] = [tokens.issuer ?? []].flat();
  const payload = { iss, aud: tokens.audience, exp: Math.floor(now / 1_000) + 3_600, ...claims };
  const text = [{ alg: "HS256" }, payload].map((part) => encoded(encoder.encode(JSON.stringify(part)))).join(".");
  const key = await crypto.subtle.importKey("jwk", KEY, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  const signature = encoded(new Uint8Array(await crypto.subtle.sign("HMAC", key, encoder.encode(text))));
  const { header = "authorization" } = tokens;
  return [header, `${header === "authorization" ? "Bearer " : ""}${text}.${signature}`];
}

/** The answer to a request for a gate, and to what it was warned of. */
function judged(verdict, warned) {
  const { headers, status } = verdict.response ?? verdict.onto(new Response());
  if (verdict.error) return failure(status, verdict.error);
  headers.set("content-type", "application/json");
  const remaining = verdict.quotas[verdict.binding]?.remaining ?? undefined;
  return new Response(JSON.stringify({ verdict: { passes: verdict.allowed, remaining, level: verdict.level ?? undefined, warned: warned.splice(0) } }), { status, headers });
}

function failure(status, { kind = "invalid", message }) {
  const conflicts = kind === "token_reused" || kind === "unknown_charge";
  return new Response(JSON.stringify({ error: { kind, message } }), { status: conflicts ? 409 : status, headers: JSON_TYPE });
}
