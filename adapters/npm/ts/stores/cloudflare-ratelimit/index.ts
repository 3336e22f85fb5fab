import { calledStore } from "../../called_store.js";
import type { Rule } from "../../core/algorithms/algorithm.js";
import { checkedAmount, checkWindow, FIXED_WINDOW } from "../../core/algorithms/make_algorithm.js";
import { MAX_UNITS } from "../../core/arithmetic.js";
import { type Capabilities, chargesDenials, costs, NATIVE, tooMany } from "../../core/capabilities.js";
import { keyLater } from "../../core/key.js";
import { QUOTAS_MAX, type ReadyQuota, solePolicy, wrongCount } from "../../core/policy.js";
import { invalid } from "../../error.js";
import { Fields, shown, whole } from "../../fields.js";
import { Core, ExactCore, type StoreCore } from "../../limiter_core.js";
import { type LoadedQuota, namesIn, READY } from "../../loaded_policy.js";
import { COMMON, common, missing, type Options, type Platform } from "../../options.js";
import { CALLED_PARTS, calledPartsOf, type CalledPartsOptions, PartsLimiter } from "../../parts_limiter.js";
import type { Question } from "../../question.js";
import type { QuotaOptions } from "../../quotas.js";
import { RemoteLimiter } from "../../remote_limiter.js";
import { type Binding, BindingCalls } from "./calls.js";

export * from "../../store_exports.js";
export type { Binding } from "./calls.js";

/** What the binding supports, and how exact it is: `Tidegate.capabilities`, for who uses a `RateLimiter`. */
export const capabilities: Capabilities = NATIVE;

/** The option of a limiter on the binding. */
interface BindingOptions {
  /** `env.LIMITER`, the binding. If it is missing, the first check reports it. */
  binding: Binding | undefined;
}

/** The options of a limiter on the Rate Limiting binding. */
export interface RateLimitOptions extends Omit<Options, "platform">, BindingOptions {
  /** Default: `cloudflare`. */
  platform?: Platform | undefined;
}

/** The options of a `RateLimiter` on the Rate Limiting binding. */
export interface RateLimiterOptions extends CalledPartsOptions<"binding_window" | "fixed_window">, BindingOptions {}

/** How long a decision may take, unless the options say it. */
const DEADLINE_MS = 250;

/** The periods that the platform offers. */
const PERIODS_MS = [10_000, 60_000];

const RIGHT = "the binding counts one fixed window; write one quota with its numbers, such as { fixedWindow: { limit: 100, windowMs: 60000 } }";

/**
 * A limiter on Cloudflare's Rate Limiting binding, which counts at each location for itself and costs nothing. The policy has one
 * fixed window with the limit and the period of the binding, of 10 or 60 seconds. A request costs 1, and a verdict does not
 * know what remains.
 *
 *     // wrangler.jsonc: "ratelimits": [{ "name": "LIMITER", "namespace_id": "1001", "simple": { "limit": 100, "period": 60 } }]
 *     const policy = { name: "api", quotas: [{ fixedWindow: { limit: 100, windowMs: 60_000 } }] };
 *     const tidegate = new Tidegate({ binding: env.LIMITER, failMode: "open", policy });
 */
export class Tidegate extends RemoteLimiter {
  constructor(options: RateLimitOptions) {
    const fields = new Fields(options, "", [...COMMON, "binding"]);
    const ready = { ...common(fields, DEADLINE_MS, "cloudflare"), ...bound(fields) };
    const nameIn = (core: StoreCore) => (question: Question) => {
      core.verify(question);
      return core.storage(question).rows[0]!;
    };
    super(ready, () => new Core(ready, NATIVE, anyWindow), (core) => new BindingCalls(core, ready.binding!, ready.deadlineMs, nameIn(core)));
  }
}

/**
 * The window of a binding: its limit, and its period in seconds, as in `wrangler.jsonc`. It loads no algorithm, because the binding counts. It
 * is a quota of a `RateLimiter` on the binding, and of every `Tidegate`.
 */
export function bindingWindow(limit: number, period: 10 | 60, options: QuotaOptions = {}): LoadedQuota<"binding_window"> {
  const span = period * 1_000;
  if (!PERIODS_MS.includes(span)) throw invalid("period", `${shown(period)} is not a period of a binding; write 10 or 60`);
  checkedAmount("", "limit", whole("limit", limit), MAX_UNITS);
  const names = namesIn(new Fields(options, "", ["name", "by"]));
  const ready: ReadyQuota = { algorithm: FIXED_WINDOW, place: "", amount: limit, span, refill: 0, name: undefined, by: undefined };
  return { [READY]: ready, ...names };
}

/**
 * The same limiter in less code, for an application that bundles it: its quota is `bindingWindow`, or `fixedWindow` of `@tidegate/edge/parts`,
 * which loads an algorithm that nothing uses here. It decides, and does nothing else. Both count together, if their policies are the same.
 *
 *     const policy = { name: "api", quotas: [bindingWindow(100, 60)] };
 *     const limiter = new RateLimiter({ binding: env.LIMITER, failMode: "open", policy });
 */
export class RateLimiter extends PartsLimiter {
  constructor(options: RateLimiterOptions) {
    const fields = new Fields(options, "", [...CALLED_PARTS, "binding"]);
    const ready = { ...calledPartsOf(fields, DEADLINE_MS), ...bound(fields) };
    super(ready, () => {
      const core = new ExactCore(solePolicy(ready, window, (count) => (count > 0 && count <= QUOTAS_MAX ? tooMany(1, count) : wrongCount(count))));
      chargesDenials(false, ready);
      const nameOf = ({ policy, cost, key }: Question) => {
        costs(false, cost);
        return named(`tg1:${policy.id}:`, keyLater(key));
      };
      return calledStore(ready, core, new BindingCalls(core, ready.binding!, ready.deadlineMs, nameOf));
    });
  }
}

async function named(start: string, key: string | Promise<string>): Promise<string> {
  return start + (await key);
}

/** Checks the binding. */
function bound(fields: Fields) {
  const binding = fields.get("binding") as Binding | undefined;
  const right = `"ratelimits": [{ "name": "LIMITER", "namespace_id": "1001", "simple": { "limit": 100, "period": 60 } }]`;
  if (binding !== undefined && typeof binding.limit !== "function") {
    throw invalid("binding", `not a Rate Limiting binding; in wrangler.jsonc, write ${right}`);
  }
  return { binding, broken: binding === undefined ? missing("binding", `in wrangler.jsonc, write ${right}`) : undefined };
}

/** The window of any policy. */
function anyWindow(ready: ReadyQuota, path: string): Rule {
  if (ready.algorithm === FIXED_WINDOW) checkWindow(path + ready.place, ready.amount, ready.span);
  return window(ready, path);
}

/** A window whose numbers are checked, without an algorithm: the binding counts. It has numbers of its own, of which the policy has a copy. */
function window({ algorithm, place, amount, span: unit }: ReadyQuota, path: string): Rule {
  if (algorithm !== FIXED_WINDOW) throw ["unsupported", `${path.slice(0, -1)}: ${RIGHT}`];
  if (!PERIODS_MS.includes(unit)) {
    throw invalid(`${path}${place}windowMs`, `the Rate Limiting binding cannot count ${unit} ms; write 10000 or 60000, or count in Durable Objects`);
  }
  const numbers: Partial<Rule> = { name: "fixed_window", code: "fw", shape: `fw${unit}`, amount, unit, last: 0, limit: amount, window: unit, retention: unit };
  return numbers as Rule;
}
