// Random histories of grants, requests and settlements on a real redis-server, where the limiter of the package and that of Rust take turns. So
// they share one balance. Each answer is that of the core's memory, which has the same history. `STEPS` is how many steps are taken.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { Redis } from "ioredis";
import { MAX_INSTANT } from "../modules/core/arithmetic.js";
import { Policy } from "../modules/core/policy.js";
import { anyRule } from "../modules/core/algorithms/make_algorithm.js";
import { BALANCES } from "../modules/balances.js";
import { TidegateError } from "../modules/error.js";
import { LAYER } from "../modules/layer.js";
import { written } from "../modules/policy.js";
import { CHECK, GRANT, PEEK, RESET, SETTLE } from "../modules/question.js";
import { addScript } from "../modules/stores/redis/balance_scripts.js";
import { scriptOf, scripts, sha1s } from "../modules/stores/redis/built.js";
import { Tidegate } from "../modules/stores/redis/index.js";
import { PAID, REPLAY } from "../modules/decision_numbers.js";
import { ask, calendarQuota, Chance, Reference, seeded, started } from "./reference.mjs";
import { redisServer } from "./servers.mjs";

const SEED = seeded();
const STEPS = Number(process.env.STEPS ?? 6_000);
const NOW = 1_800_000_000_000;
const HOUR = 3_600_000;
const [FIXED, SLIDING, LOG, BUCKET, LEAKY, SLOTS, PENALTY, CALENDAR, BALANCE] = [0, 1, 2, 3, 4, 5, 6, 8, 9];

const [memory, redis] = [await started("memory"), await started("redis")];
memory.seed(1, 2, 3, 4);
addScript(scripts, sha1s);
const server = await redisServer();
const client = new Redis(server.url);
after(async () => {
  client.disconnect();
  await server.stop();
});

let named = 0;

/** A policy with a balance, beside all that may be beside it: as in `balances.rs` of the tests in Rust. */
function optionsOf(chance) {
  const dimensions = chance.below(3);
  const user = (quota) => ({ place: "", refill: 0, name: undefined, by: dimensions > 0 ? "user" : undefined, ...quota });
  const other = (quota) => user({ by: dimensions > 0 ? "tenant" : undefined, ...quota });
  const beside = Array.from({ length: chance.below(3) }, () =>
    chance.from([
      other({ algorithm: SLIDING, amount: 15, span: 40 }),
      user({ algorithm: LOG, amount: 20, span: 30 }),
      other({ algorithm: LEAKY, amount: 20, span: 5, refill: 3 }),
      user({ algorithm: SLOTS, amount: 3, span: 100 }),
      other({ algorithm: BUCKET, amount: 25, span: 7, refill: 2 }),
      user({ algorithm: FIXED, amount: 40, span: 90 }),
      other(calendarQuota((end) => chance.below(end), NOW, 12)),
    ]),
  );
  const [amount, span] = [1 + chance.below(7), 1 + chance.below(49)];
  const included = chance.from([[], [user({ algorithm: FIXED, amount, span })], [user({ algorithm: BUCKET, amount, span, refill: 1 + chance.below(3) })]]);
  const own = user({ algorithm: BALANCE, amount: 20 + chance.below(60), span: 0, refill: included.length, part: BALANCES });
  const hasTenant = beside.some(({ by }) => by === "tenant");
  const penalty = chance.once(4) ? [user({ algorithm: PENALTY, amount: 30, span: 4, refill: 2 })] : [];
  return {
    ...{ platform: "direct", ipv6Prefix: 64, trustTrueClientIp: false, problem: false, look: { asProblem: false, draft6: false, retryAfterMs: false }, failedOpenHeader: false },
    ...{ name: `p${(named += 1)}`, chargeDenied: chance.once(2), groupBy: dimensions === 2 && hasTenant ? "user" : undefined, scopes: undefined, groupAt: -1, placeByKey: false },
    quotas: [...beside, ...included, own, ...penalty],
  };
}

function questionOf(chance, policy, now) {
  const kind = chance.from([...Array(6).fill(CHECK), ...Array(4).fill(GRANT), ...Array(4).fill(SETTLE), PEEK, RESET]);
  const question = { ...ask(kind, now), policy, cost: chance.below(kind === PEEK ? 90 : 20) };
  if (kind === GRANT) {
    const lasts = chance.from([0, 0, 0, 1, ...Array(6).fill(2 + chance.below(148))]);
    Object.assign(question, { token: `grant-${chance.below(40)}`, cost: 1 + chance.below(29), extra: HOUR, expires: lasts === 0 ? MAX_INSTANT : now + (lasts === 1 ? 0 : lasts) });
  }
  if (kind === CHECK && (policy.holdsSlots || chance.once(2))) Object.assign(question, { token: `check-${chance.below(6)}`, extra: HOUR });
  if (kind === SETTLE) Object.assign(question, { token: `check-${chance.below(6)}`, cost: chance.once(5) ? -1 : chance.below(40) });
  return question;
}

/** What a limiter tells: the numbers of a decision, nothing of a reset, or an error. */
async function told({ kind }, answer) {
  try {
    const decision = await answer();
    return kind === RESET ? [] : [...decision];
  } catch (thrown) {
    const error = TidegateError.from(thrown);
    return [error.kind, error.message];
  }
}

/** The limiter of Rust on the server: it makes the command, and reads the answer. */
async function byRust(reference, question) {
  const { kind, cost, now, extra } = question;
  const words = reference.text(reference.limit.ask(kind, reference.pass(question), cost, now, extra, false)).split("\n");
  const script = reference.extra & 3;
  let answered;
  try {
    answered = await client.call("EVAL", scriptOf(script, false), ...words);
  } catch (error) {
    reference.push(error.message);
    reference.push(words[1]);
    reference.took(reference.limit.failed(1));
  }
  if (question.token !== undefined || question.others.length > 0) reference.pass(question);
  reference.took(reference.limit.read(kind, reference.write(answered), cost, now, extra, script));
  return reference.decision;
}

test("the package and Rust share a balance on Redis, and each answer is that of the core", async () => {
  const chance = new Chance(SEED);
  const seen = {};
  for (let taken = 0; taken < STEPS; ) {
    const options = optionsOf(chance);
    const [oracle, rust] = [new Reference(memory, options, []), new Reference(redis, options, [false, false, 86_400_000, 0, 0, 0])];
    const policy = new Policy(options, anyRule);
    const own = new Tidegate({ client, platform: "direct", failMode: "closed", clock: "caller", minTtlMs: 86_400_000, deadlineMs: 60_000, policy: written(policy.parts) });
    const keys = policy.dimensions.map(({ name }) => name || "user");
    let now = NOW;
    const history = [];
    for (let left = 1 + chance.below(60); left > 0; left--, taken++) {
      now += chance.from([0, chance.below(60), -chance.below(60)]);
      // Some grants are repeated.
      const grant = history.findLast(({ kind }) => kind === GRANT);
      const question = { ...(grant && chance.once(8) ? grant : questionOf(chance, policy, now)), policy, now };
      Object.assign(question, { key: keys.at(-1), others: keys.slice(0, -1), keys: Object.fromEntries(policy.dimensions.map(({ name }, nth) => [name, keys[nth]])) });
      const isOwn = chance.once(2);
      history.push({ ...question, policy: undefined, isOwn });
      const { kind, cost, extra } = question;
      const expected = await told(question, () => (oracle.took(oracle.limit.ask(kind, oracle.pass(question), cost, now, extra)), oracle.decision));
      const answer = await told(question, () => (isOwn ? own[LAYER].ask({ ...question }) : byRust(rust, question)));
      assert.deepEqual(answer, expected, `seed ${SEED}: ${JSON.stringify(options.quotas)}\n${history.map((one) => JSON.stringify(one)).join("\n")}`);
      const what = typeof answer[0] === "string" ? answer.join(" ").replace(/\d+/g, "n") : `${kind}${answer[PAID] > 0 ? " paid" : ""}${answer[REPLAY] ? " again" : ""}`;
      seen[what] = (seen[what] ?? 0) + 1;
    }
    for (const limiter of [oracle, rust]) limiter.limit.free();
  }
  const wanted = [`${CHECK} paid`, `${CHECK} paid again`, `${GRANT}`, `${GRANT} again`, `${SETTLE}`, `${SETTLE} again`, "token_reused", "invalid units", "invalid expires", "unknown_charge"];
  for (const what of wanted) assert.ok(Object.keys(seen).some((one) => one.startsWith(what)), `${what}: ${JSON.stringify(seen)}`);
});
