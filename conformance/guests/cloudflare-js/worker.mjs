// A small rate-limited app for Cloudflare in JavaScript: each path is limited by one of the stores, per client address.

import { Tidegate as Objects } from "@tidegate/edge/cloudflare";
import { Tidegate as Kv } from "@tidegate/edge/cloudflare-kv";
import { Tidegate as RateLimit } from "@tidegate/edge/cloudflare-ratelimit";
import { TidegateObject } from "@tidegate/edge/credits/cloudflare";
import { env } from "cloudflare:workers";
import { asks, suite } from "../edge/suite.mjs";

export { TidegateObject as Tidegate };

const capacity = Number(env.CAPACITY ?? 5);
const policy = { name: "api", quotas: [{ tokenBucket: { capacity, refill: Number(env.REFILL_PER_S ?? 1), perMs: 1_000 } }] };
const slice = Number(env.SLICE ?? 10);
const leases = { slice, lifetimeMs: Number(env.LEASE_MS ?? 2_000) };
const { TIDEGATE, COUNTS, LIMITER_100_60 } = env;

const limiters = {
  do: new Objects({ namespace: TIDEGATE, failMode: "open", policy }),
  "do-leased": new Objects({ namespace: TIDEGATE, failMode: "open", policy, leases }),
  kv: new Kv({ namespace: COUNTS, failMode: "open", policy }),
  ratelimit: new RateLimit({
    binding: LIMITER_100_60,
    failMode: "open",
    policy: { name: "location", quotas: [{ fixedWindow: { limit: 100, windowMs: 60_000 } }] },
  }),
};

/** In tests, virtual time stands still while the objects' clock advances, and many requests are in flight. */
const objects = { namespace: TIDEGATE, failMode: "closed", clock: "caller", deadlineMs: 25_000, minTtlMs: 3_600_000 };

const inTests = {
  do: suite((options) => new Objects({ ...objects, ...options })),
  "do-leased": suite((options) => new Objects({ ...objects, leases, ...options })),
  kv: suite((options) => new Timed({ failMode: "closed", ...options })),
};

/** What a limiter or a gate asks, and the kind of question that charges nothing. */
const [LAYER, PEEK] = [Symbol.for("@tidegate/edge/layer"), 1];

/** A limiter on the suite's virtual time, which is part of each key, as in `1800000000000|key`. */
class Timed extends Kv {
  static #now = 0;

  constructor(options) {
    const timed = (key) => `${Timed.#now}|${key}`;
    const namespace = {
      get: (key, options) => COUNTS.get(timed(key), options),
      put: (key, value, options) => COUNTS.put(timed(key), value, options),
      delete: (key) => COUNTS.delete(timed(key)),
    };
    // Virtual time does not advance until the next write is due.
    super({ ...options, namespace, lingerMs: 0 });
    // A gate asks as the limiter itself does.
    const layer = this[LAYER];
    const ask = layer.ask.bind(layer);
    layer.ask = async (question) => {
      Timed.#now = question.now;
      const decision = await ask(question);
      if (question.kind !== PEEK) await this.write(question.now);
      return decision;
    };
  }

  /** Written before the response, because the next step must find what this one writes. */
  decided() {}
}

export default {
  /** @param {Request} request */
  async fetch(request) {
    const [, store] = new URL(request.url).pathname.split("/");
    if (inTests[store] && asks(request, env.TIDEGATE_TEST_MODE)) return inTests[store](request);
    const tidegate = limiters[store];
    if (!tidegate) return new Response("not found\n", { status: 404 });
    const verdict = await tidegate.check(request);
    return verdict.response ?? verdict.onto(new Response("allowed\n"));
  },
};
