// Windows of a calendar: where they begin, what they admit, and that each store, the gate and the program have them.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { register } from "node:module";
import { test } from "node:test";
import { calendarWindow } from "@tidegate/edge/calendar";
import { Gate } from "@tidegate/edge/gate";
import { calendarWindows } from "@tidegate/edge/gate/calendar";
import { Tidegate as DenoKv } from "@tidegate/edge/deno-kv";
import { Tidegate as Memory } from "@tidegate/edge/memory";
import { Tidegate as Testing } from "@tidegate/edge/testing";
import { anyRule } from "../modules/core/algorithms/make_algorithm.js";
import { ZonedCalendar } from "../modules/core/calendar.js";
import { EXACT } from "../modules/core/capabilities.js";
import { longs, put } from "../modules/core/codec.js";
import { current } from "../modules/core/policy.js";
import { localTimeOf } from "../modules/core/zone.js";
import { Core } from "../modules/limiter_core.js";
import { policy as read } from "../modules/policy.js";
import { ask, CHECK } from "../modules/question.js";
import { Calls, writtenCall, writtenQuotas } from "../modules/stores/cloudflare/wire.js";
import { GENERAL, words } from "../modules/stores/redis/wire.js";

// Outside of Workers, their module is not there.
const hooks = `export const resolve = (name, context, next) => name === "cloudflare:workers" ? { url: "data:text/javascript,export const waitUntil = () => {}; export class DurableObject {}", shortCircuit: true } : next(name, context);`;
register(`data:text/javascript,${encodeURIComponent(hooks)}`);
const [{ Tidegate: Kv }, { Tidegate: RateLimit }] = await Promise.all(["cloudflare-kv", "cloudflare-ratelimit"].map((store) => import(`@tidegate/edge/${store}`)));

const at = (text) => Date.parse(text);
const iso = (instant) => new Date(instant).toISOString().replace(":00.000Z", "Z");
const HOUR = 3_600_000;

/** The start, the end and the next end of the window of an instant. */
function span(every, zone, anchor, instant) {
  const { start, end, next } = new ZonedCalendar(every, zone, anchor).span(at(instant));
  return [start, end, next].map(iso);
}

let named = 0;
const policyOf = (options, more) => ({ name: `calendar-${(named += 1)}`, quotas: [calendarWindow(options)], ...more });
const memoryOf = (options, more) => new Memory({ platform: "direct", failMode: "closed", onError: () => {}, policy: policyOf(options), ...more });

test("a month is counted from its anchor, and ends on its last day if it does not have the anchor's", () => {
  assert.deepEqual(span("month", "UTC", "2026-01-31", "2026-02-10T00:00Z"), ["2026-01-31T00:00Z", "2026-02-28T00:00Z", "2026-03-31T00:00Z"]);
  assert.deepEqual(span("month", "UTC", "2026-01-31", "2026-02-28T00:00Z"), ["2026-02-28T00:00Z", "2026-03-31T00:00Z", "2026-04-30T00:00Z"]);
  assert.deepEqual(span("month", "UTC", "2026-01-31", "2024-02-28T23:59Z"), ["2024-01-31T00:00Z", "2024-02-29T00:00Z", "2024-03-31T00:00Z"]);
  assert.deepEqual(span("year", "UTC", "2024-02-29", "2026-07-01T00:00Z"), ["2026-02-28T00:00Z", "2027-02-28T00:00Z", "2028-02-29T00:00Z"]);
  assert.deepEqual(span("week", "UTC", "2001-01-01", "2026-07-05T23:00Z"), ["2026-06-29T00:00Z", "2026-07-06T00:00Z", "2026-07-13T00:00Z"]);
});

test("a day has the hours that its zone gives it, and one that the zone has left out has no window", () => {
  assert.deepEqual(span("day", "Europe/Berlin", "2001-01-01", "2026-03-29T12:00Z"), ["2026-03-28T23:00Z", "2026-03-29T22:00Z", "2026-03-30T22:00Z"]);
  assert.deepEqual(span("day", "Europe/Berlin", "2001-01-01", "2026-10-25T12:00Z"), ["2026-10-24T22:00Z", "2026-10-25T23:00Z", "2026-10-26T23:00Z"]);
  assert.deepEqual(span("day", "Pacific/Apia", "2001-01-01", "2011-12-30T09:59Z"), ["2011-12-29T10:00Z", "2011-12-30T10:00Z", "2011-12-31T10:00Z"]);
});

test("a local time that clocks skip is as much later, and of one that they show twice it is the first", () => {
  assert.deepEqual(span("day", "Europe/Berlin", "2001-01-01T02:30", "2026-03-29T12:00Z").slice(0, 2), ["2026-03-29T01:30Z", "2026-03-30T00:30Z"]);
  assert.deepEqual(span("day", "Europe/Berlin", "2001-01-01T02:30", "2026-10-25T12:00Z").slice(0, 2), ["2026-10-25T00:30Z", "2026-10-26T01:30Z"]);
});

test("an hour is 3,600 s long from the anchor on, also where a zone is off by half an hour or was by seconds", () => {
  assert.deepEqual(span("hour", "Asia/Kolkata", "2026-01-01", "2026-01-01T00:10Z").slice(0, 2), ["2025-12-31T23:30Z", "2026-01-01T00:30Z"]);
  assert.deepEqual(span("hour", "Europe/Berlin", "2001-01-01", "2026-10-25T00:59Z").slice(0, 2), ["2026-10-25T00:00Z", "2026-10-25T01:00Z"]);
  // Monrovia was 44 minutes and 30 seconds behind. 00:00 there was 00:44:30, which is rounded up.
  assert.deepEqual(span("hour", "Africa/Monrovia", "1970-01-01", "2026-01-01T00:50Z").slice(0, 2), ["2026-01-01T00:45Z", "2026-01-01T01:45Z"]);
});

test("before the epoch there is no window, and the first one after it is as long as any", () => {
  assert.deepEqual(span("month", "America/New_York", "2001-01-01", "1970-01-01T00:00Z"), ["1970-01-01T05:00Z", "1970-02-01T05:00Z", "1970-03-01T05:00Z"]);
  assert.ok(memoryOf({ limit: 1, every: "year", zone: "America/New_York" }).decide("a", { now: 0 }).allowed);
});

test("a window is computed once, and kept while it lasts", (t) => {
  const calls = t.mock.method(Intl.DateTimeFormat.prototype, "formatToParts").mock;
  const tidegate = memoryOf({ limit: 1_000, every: "day", zone: "Europe/Vienna" });
  tidegate.decide("a", { now: at("2026-05-01T00:00Z") });
  const first = calls.callCount();
  assert.ok(first > 0);
  for (let hour = 0; hour < 22; hour++) tidegate.decide("a", { now: at("2026-05-01T00:00Z") + hour * HOUR }).headers;
  assert.equal(calls.callCount(), first);
  tidegate.decide("a", { now: at("2026-05-01T22:00Z") });
  assert.ok(calls.callCount() > first);
});

test("a window admits its limit and what the one before has left, and a new key has all of that", () => {
  const tidegate = memoryOf({ limit: 10, every: "month", zone: "Europe/Berlin", carryOver: 3 });
  const take = (now, cost) => tidegate.decide("a", { now: at(now), cost });
  const told = ({ allowed, quotas: [{ limit, remaining, resetAfterMs }], retryAfterMs }) => [allowed, limit, remaining, resetAfterMs / HOUR, retryAfterMs && retryAfterMs / HOUR];
  // March has 743 hours in Berlin.
  assert.deepEqual(told(take("2026-02-28T23:00Z", 10)), [true, 13, 3, 743, null]);
  assert.deepEqual(told(take("2026-03-01T00:00Z", 2)), [true, 13, 1, 742 + 720, null], "April carries 1");
  assert.deepEqual(told(take("2026-03-31T21:00Z", 2)), [false, 13, 1, 1 + 720, 1]);
  assert.equal(take("2026-03-31T21:00Z", 11).retryAfterMs, null, "never admitted: it costs more than the limit");
  assert.deepEqual(told(take("2026-03-31T22:00Z", 10)), [true, 11, 1, 720 + 744, null]);
  // May was not used at all.
  assert.deepEqual(told(take("2026-06-10T00:00Z", 1)), [true, 13, 12, 20 * 24 + 22, null]);
  assert.equal(take("2026-06-10T00:00Z", 0).headers["ratelimit-policy"], `"${tidegate.decide("b").quotas[0].name}";q=13;w=2592000`, "June has 30 days");
});

test("a change of the zone, the unit or the anchor keeps what was used until the old window or the new one ends", () => {
  const name = `calendar-${(named += 1)}`;
  const of = (options) => new Memory({ platform: "direct", failMode: "closed", policy: { name, quotas: [calendarWindow({ limit: 5, ...options })] } });
  const now = at("2026-05-10T12:00Z");
  assert.equal(of({ every: "month" }).decide("a", { now, cost: 5 }).allowed, true);
  const changed = of({ every: "month", zone: "Asia/Tokyo" }).decide("a", { now });
  assert.deepEqual([changed.allowed, iso(now + changed.retryAfterMs)], [false, "2026-05-31T15:00Z"]);
  assert.equal(of({ every: "month", zone: "Asia/Tokyo" }).decide("a", { now: at("2026-05-31T15:00Z") }).allowed, true);
  assert.equal(of({ every: "month", anchor: "2026-01-20" }).decide("a", { now: at("2026-06-19T23:59Z"), cost: 5 }).allowed, false);
});

test("a refund returns what was charged in this window only, and a settlement beyond the limit ends with it", async () => {
  const tidegate = memoryOf({ limit: 5, every: "day" });
  const [may, june] = [at("2026-05-31T23:59Z"), at("2026-06-01T00:01Z")];
  const verdict = await tidegate.limit("a", { now: may, cost: 4 });
  await tidegate.refund(verdict, { cost: 1, now: may });
  assert.equal((await tidegate.limit("a", { now: may, cost: 0 })).quotas[0].remaining, 2);
  await tidegate.limit("a", { now: june, cost: 4 });
  await tidegate.refund(verdict, { cost: 3, now: june });
  assert.equal((await tidegate.limit("a", { now: june, cost: 0 })).quotas[0].remaining, 1);
  const estimate = await tidegate.limit("b", { now: june, estimate: 5 });
  await tidegate.settle(estimate, { cost: 9, now: june });
  assert.deepEqual([june, june + 24 * HOUR].map((now) => tidegate.decide("b", { now }).allowed), [false, true]);
});

test("a wrong option has an error that says what to write", () => {
  const options = { limit: 10, every: "month" };
  for (const [more, message] of [
    [{ limit: undefined }, "limit: missing; write a whole number"],
    [{ limit: 0 }, "limit: 0 is out of range; write a whole number from 1 to 2251799813685248"],
    [{ every: undefined }, "every: missing; write hour or day or week or month or year"],
    [{ every: "mounth" }, 'every: unknown value "mounth"; did you mean "month"?'],
    [{ zone: "Europe/Berln" }, 'zone: "Europe/Berln" is not a time zone; did you mean "Europe/Berlin"? Write a name of the IANA database, such as "Europe/Berlin" or "UTC"'],
    [{ zone: "+01:00" }, 'zone: "+01:00" is not a time zone; write a name of the IANA database, such as "Europe/Berlin" or "UTC"'],
    [{ zone: 1 }, 'zone: 1 is not a time zone; write a name of the IANA database, such as "Europe/Berlin" or "UTC"'],
    [{ anchor: 32 }, 'anchor: 32 is not a date; write a date such as "2026-01-31", or with a time such as "2026-01-31T06:00"'],
    ...["2026-01-32", "2026-02-29", "2026-13-01", "2026-1-1", "2026-01-31 06:00", "2026-01-31T24:00", "2026-01-31T06:60", ""].map((anchor) => [
      { anchor },
      `anchor: "${anchor}" is not a date; write a date such as "2026-01-31", or with a time such as "2026-01-31T06:00"`,
    ]),
    [{ carryOver: 11 }, "carryOver: 11 is out of range; write a whole number from 0 to 10"],
    [{ limit: 2 ** 40, carryOver: 2 ** 32 }, "carryOver: 4294967296 is out of range; write a whole number from 0 to 4294967295"],
    [{ carry_over: 1 }, 'carry_over: unknown field "carry_over"; did you mean "carryOver"?'],
  ]) {
    assert.throws(() => calendarWindow({ ...options, ...more }), { name: "TidegateError", kind: "invalid", message });
  }
  const both = { ...calendarWindow(options), fixedWindow: { limit: 1, windowMs: 1_000 } };
  assert.throws(() => new Memory({ platform: "direct", failMode: "closed", policy: { name: "both", quotas: [both] } }), /^TidegateError: policy\.quotas\[0\]\.fixedWindow: unknown field/);
});

test("a quota has a name and counts by a dimension, among others", () => {
  const quotas = [{ ...calendarWindow({ limit: 2, every: "day" }), name: "daily", by: "tenant" }, calendarWindow({ limit: 5, every: "month", name: "monthly" }), "9 / min"];
  const tidegate = new Memory({ platform: "direct", failMode: "closed", policy: { name: `calendar-${(named += 1)}`, quotas } });
  const ask = (hour) => tidegate.decide({ "": "a", tenant: "t" }, { now: at("2026-05-10T00:00Z") + hour * HOUR });
  assert.deepEqual([0, 1, 2, 24, 25, 26, 48, 49].map((hour) => ask(hour).allowed), [true, true, false, true, true, false, true, false]);
  assert.deepEqual(ask(50).quotas.map(({ name, remaining }) => [name, remaining]), [["daily", 1], ["monthly", 0], [tidegate.decide({ "": "b", tenant: "u" }).quotas[2].name, 9]]);
});

test("a limiter for tests counts in the months of its own clock", async () => {
  const tidegate = new Testing({ policy: policyOf({ limit: 1, every: "month", zone: "Europe/Berlin" }), now: at("2026-01-31T22:59Z") });
  const ask = async () => [(await tidegate.limit("a")).allowed, (await tidegate.peek(new Request("https://example.com/"), { key: "a" })).retryAfterMs];
  assert.deepEqual([await ask(), await ask()], [[true, 60_000], [false, 60_000]]);
  tidegate.advance(60_000);
  assert.deepEqual(await ask(), [true, 28 * 24 * HOUR]);
});

test("a store with versions keeps a window's counts, and carries them over", async () => {
  const values = new Map();
  const kv = {
    get: async ([name, key], options) => values.get(JSON.stringify([name, key])) ?? { key: [name, key], value: null, versionstamp: null },
    atomic: () => {
      const asked = {};
      const self = {
        check: (check) => ((asked.check = check), self),
        set: (key, value) => ((asked.set = [key, value]), self),
        delete: (key) => ((asked.delete = key), self),
        commit: async () => {
          values.set(JSON.stringify(asked.set[0]), { key: asked.set[0], value: asked.set[1], versionstamp: String(values.size + Math.random()) });
          return { ok: true };
        },
      };
      return self;
    },
    delete: async () => {},
  };
  const tidegate = new DenoKv({ kv, platform: "direct", failMode: "closed", policy: policyOf({ limit: 3, every: "month", carryOver: 1 }) });
  const take = async (now, cost) => (await tidegate.limit("a", { now: at(now), cost })).allowed;
  assert.deepEqual([await take("2026-01-31T23:59Z", 3), await take("2026-01-31T23:59Z", 1), await take("2026-01-31T23:59Z", 1)], [true, true, false]);
  assert.deepEqual([await take("2026-02-01T00:00Z", 3), await take("2026-02-27T00:00Z", 1), await take("2026-03-01T00:00Z", 3)], [true, false, true]);
});

test("a store's script and an object get three numbers of the window, and no zone", () => {
  const policy = policyOf({ limit: 7, every: "day", zone: "Asia/Kolkata", carryOver: 2 });
  const core = new Core({ ...read(policy), platform: "direct", ipv6Prefix: 64, trustTrueClientIp: false, look: {}, failedOpenHeader: true }, EXACT, anyRule);
  const now = at("2026-05-10T12:00Z");
  const asked = { ...ask(CHECK, current(core.policy, now), now), key: "a" };
  const numbers = [7, (at("2026-05-09T18:30Z") / 60_000) * 2 ** 20 + 1_440, 2 * 2 ** 20 + 1_440];
  const sent = words(core, asked, GENERAL, { isTimeless: false, minTtlMs: 0 });
  assert.deepEqual(sent.slice(-4), ["cw", ...numbers.map(String)]);
  assert.equal(sent[1], `{tg1:${policy.name}:cwd:a}`, "the key has the unit, and no number");
  const quotas = writtenQuotas(asked.policy);
  assert.equal(quotas, put(1, 1) + put(8, 1) + longs(...numbers));
  const call = new Calls().read(writtenCall(core, asked, undefined, quotas, ["row"], { isTimeless: false, minTtlMs: 0 }));
  assert.deepEqual(call.policy.quotas.map(({ rule: { code, amount, unit, last } }) => [code, amount, unit, last]), [["cw", ...numbers]]);
  for (const wrong of [[0, numbers[1], numbers[2]], [1, numbers[1], numbers[2]], [7, numbers[1] - 1_440, numbers[2]], [7, numbers[1], numbers[2] - 1_440], [7, 2 ** 53 - 1, numbers[2]]]) {
    const text = writtenCall(core, asked, undefined, put(1, 1) + put(8, 1) + longs(...wrong), ["row"], { isTimeless: false, minTtlMs: 0 });
    assert.throws(() => new Calls().read(text), ({ kind }) => kind === "invalid", String(wrong));
  }
});

test("a store that cannot count by a calendar says so", () => {
  const namespace = { get() {}, put() {}, delete() {} };
  const options = { platform: "cloudflare", failMode: "closed", policy: policyOf({ limit: 7, every: "day" }) };
  assert.throws(() => new RateLimit({ ...options, binding: { limit() {} } }), { kind: "unsupported" });
  assert.throws(() => new Kv({ ...options, namespace }), { kind: "unsupported", message: "policy: this store does not support calendar_window (only fixed_window, sliding_window, token_bucket)" });
});

const RULES = { limits: { plan: { quotas: [{ algorithm: "calendar_window", limit: 5, every: "day", zone: "Europe/Berlin", carry_over: 2 }] } }, rules: [{ limits: ["plan"] }] };
const gateOf = (rules, more) => Gate.fromRules(rules, { platform: "direct", stores: { default: (limit) => new Memory(limit) }, onError: () => {}, calendar: calendarWindows, ...more });
const changed = (more) => ({ limits: { plan: { quotas: [{ ...RULES.limits.plan.quotas[0], ...more }] } }, rules: RULES.rules });

test("a gate counts by a calendar, and explains it", async () => {
  const gate = gateOf(RULES);
  const request = new Request("https://example.com/");
  const check = (now) => gate.check(request, { peer: "192.0.2.1", now: at(now), cost: 4 });
  const day = await check("2026-03-29T12:00Z");
  assert.deepEqual([day.allowed, day.quotas[0].limit, day.quotas[0].remaining, day.headers["ratelimit-policy"]], [true, 7, 3, '"plan";q=7;w=82800']);
  assert.deepEqual([(await check("2026-03-29T21:59Z")).retryAfterMs, (await check("2026-03-29T22:00Z")).quotas[0].remaining], [60_000, 3]);
  const explained = await gate.explain(request, { peer: "192.0.2.1", now: at("2026-03-29T12:00Z") });
  assert.match(explained, /^limit {4}plan: calendar_window of 5 each day in Europe\/Berlin, from 2001-01-01, now from 2026-03-28T23:00Z to 2026-03-29T22:00Z, and up to 2 that the one before has left, by sender = /m);
});

test("a gate without the option says what to import, and a wrong field what to write", () => {
  assert.throws(() => gateOf(RULES, { calendar: undefined }), {
    message: 'limits.plan.quotas[0].algorithm: write the option calendar: calendarWindows, of "@tidegate/edge/gate/calendar"',
  });
  for (const [more, message] of [
    [{ every: "mounth" }, 'every: "mounth" is not a unit of a calendar; did you mean "month"? Write one of "hour", "day", "week", "month", "year"'],
    [{ zone: "Europe/Berln" }, 'zone: "Europe/Berln" is not a time zone; did you mean "Europe/Berlin"? Write a name of the IANA database, such as "Europe/Berlin" or "UTC"'],
    [{ anchor: 32 }, 'anchor: expected a text; write a date such as "2026-01-31"'],
    [{ anchor: "2026-01-32" }, 'anchor: "2026-01-32" is not a date; write a date such as "2026-01-31", or with a time such as "2026-01-31T06:00"'],
    [{ carry_over: 6 }, "carry_over: 6 is out of range; write a whole number from 0 to 5"],
    [{ windw_ms: 1 }, /^limits\.plan\.quotas\[0\]\.windw_ms: unknown field `windw_ms`; write one of "algorithm", "name", "by", "limit", "every", "zone", "anchor", "carry_over", "limit_from", "warn_at"$/],
  ]) {
    const wrong = message instanceof RegExp ? message : new RegExp(`^limits\\.plan\\.quotas\\[0\\][.:] ?${message.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}$`);
    assert.throws(() => gateOf(changed(more)), ({ message }) => (assert.match(message, wrong), true));
  }
});

test("the local time of a zone is that of its formatter, also in leap years and before the year 100", () => {
  for (const [zone, instant, local] of [["Europe/Berlin", "2024-02-29T23:30Z", "2024-03-01T00:30Z"], ["Asia/Kathmandu", "2026-01-01T00:00Z", "2026-01-01T05:45Z"], ["UTC", "0050-03-01T00:00Z", "0050-03-01T00:00Z"]]) {
    assert.equal(localTimeOf(zone)(at(instant.padStart(17, "0"))), at(local), zone);
  }
});

test("the README's quota has the months that it says", () => {
  const readme = readFileSync(new URL("../README.md", import.meta.url), "utf8");
  const [, printed] = readme.split("\n## Days and months of a calendar\n")[1].match(/^```js\nimport \{ calendarWindow \} from "@tidegate\/edge\/calendar";\n(.*?)^```$/ms);
  const options = { platform: "direct", failMode: "closed", onError: () => {} };
  const tidegate = new Function("calendarWindow", "Tidegate", "options", `${printed}; return tidegate;`)(calendarWindow, Memory, options);
  const starts = ["2026-01-31", "2026-02-28", "2026-03-31"].map((date) => at(`${date}T00:00+0${date === "2026-03-31" ? 2 : 1}:00`));
  for (const start of starts) {
    assert.equal(tidegate.decide("a", { now: start - 1, cost: 0 }).quotas[0].limit, start === starts[0] ? 12_000 : 10_000 + (start === starts[1] ? 2_000 : 0), iso(start));
    // 100 in a minute, so in many: all that the window has.
    for (let minute = 1; tidegate.decide("a", { now: start + minute * 60_000, cost: 100 }).allowed; minute++);
    assert.equal(tidegate.decide("a", { now: start + 300 * 60_000 }).allowed, false);
  }
});
