// Runs what the suites of other packages ask of a store, with their own and with ours. See cases.mjs.
//
//   cargo make peer-suites

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, afterEach, beforeEach, test } from "node:test";
import FakeTimers from "@sinonjs/fake-timers";
import { TidegateStore } from "../../../adapters/npm/dist/middleware/express-rate-limit.js";
import { Tidegate } from "../../../adapters/npm/dist/stores/memory/index.js";
import { REQUESTS, STORES } from "./cases.mjs";
import { CLIENT, PACKAGES } from "./packages.mjs";

/** A multiple of two days, so that windows which begin with the first request and those at multiples of their length are the same. */
const START = 1_800_057_600_000;
const [LIMIT, WINDOW_MS] = [5, 60_000];

let [clock, named] = [undefined, 0];
beforeEach(() => (clock = FakeTimers.install({ now: START, toFake: ["Date", "setInterval", "clearInterval"] })));
afterEach(() => clock.uninstall());

/** Our store for a limiter with these options. */
function ours({ limit = LIMIT, policyLimit = limit, windowMs = WINDOW_MS }) {
  const quotas = [{ fixedWindow: { limit: policyLimit, windowMs } }];
  return new TidegateStore(new Tidegate({ platform: "direct", failMode: "closed", onError: () => {}, policy: { name: `suite-${(named += 1)}`, quotas } }));
}

/** Runs a case of requests. Throws at the first response that differs. */
async function requests({ options, steps }, { app: made }, storeOf) {
  const limiters = [options].flat().map((options) => ({ options, store: storeOf(options) }));
  const app = await made(limiters, clock);
  try {
    for (const [place, step] of steps.entries()) await taken(step, app, `step ${place + 1}`);
  } finally {
    app.close();
  }
}

async function taken(step, app, place) {
  if (step.tick) return clock.tick(step.tick);
  if (step.reset) return app.resetKey(step.reset);
  if ("hits" in step) return assert.equal((await app.getKey(step.key ?? CLIENT))?.totalHits, step.hits, `${place}: hits`);
  const { path, key, status, text, json, fields = {}, absent = [], info = {} } = step;
  const response = await app.send(key === undefined ? path : `${path}?key=${key}`);
  assert.equal(response.status, status, `${place}: the status`);
  const body = await response.text();
  if (text !== undefined) assert.equal(body, text, place);
  if (json !== undefined) assert.deepEqual(JSON.parse(body), json, place);
  for (const [name, value] of Object.entries(fields)) assert.equal(response.headers.get(name), value, `${place}: ${name}`);
  for (const name of absent) assert.equal(response.headers.get(name), null, `${place}: ${name}`);
  const told = JSON.parse(response.headers.get("x-told") ?? "{}");
  for (const [property, counts] of Object.entries(info)) {
    for (const [name, count] of Object.entries(counts)) assert.equal(told[property]?.[name], count, `${place}: ${property}.${name}`);
    assert.ok(!Number.isNaN(Date.parse(told[property].resetTime)), `${place}: ${property}.resetTime`);
  }
}

/** Runs a case of a store by itself. */
async function calls({ steps }, _package, storeOf) {
  const options = { limit: LIMIT, windowMs: WINDOW_MS };
  const store = storeOf(options);
  await store.init(options);
  for (const [place, [method, argument, hits]] of steps.entries()) {
    const told = method === "tick" ? clock.tick(argument) : await store[method](argument);
    if (steps[place].length < 3) continue;
    assert.equal(told?.totalHits, hits, `step ${place + 1}: ${method}`);
    if (hits !== undefined) assert.ok(told.resetTime instanceof Date);
  }
}

const counts = {};
for (const [name, peer] of Object.entries(PACKAGES)) {
  const { version } = JSON.parse(readFileSync(new URL(`../node_modules/${name}/package.json`, import.meta.url), "utf8"));
  const count = (counts[`${name} ${version}`] = { passed: 0, reasons: [] });
  for (const [run, all] of [[requests, REQUESTS], [calls, STORES]]) {
    for (const one of all.filter(({ only = name }) => only === name)) {
      test(`${name}: ${one.name}`, async () => {
        await run(one, peer, peer.own);
        clock.reset();
        clock.setSystemTime(START);
        if (one.cannot) {
          await assert.rejects(async () => run(one, peer, ours), "our store can do this: delete `cannot`");
          count.reasons.push(`${one.name}: ${one.cannot}`);
        } else {
          await run(one, peer, ours);
          count.passed += 1;
        }
      });
    }
  }
}
after(() => {
  for (const [name, { passed, reasons }] of Object.entries(counts)) {
    console.log(`${name}: ${passed} of ${passed + reasons.length} cases with our store`);
    for (const reason of reasons) console.log(`  not ${reason}`);
  }
});
