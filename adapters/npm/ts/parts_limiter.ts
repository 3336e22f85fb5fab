import { type Answering, BaseLimiter, type CheckKind, type LimiterParts, type ReadCheck } from "./base_limiter.js";
import type { CallOptions } from "./calls.js";
import { keysOf, optionsReader, peerOf } from "./check_options.js";
import type { Sender } from "./client_address.js";
import type { MakeRule } from "./core/policy.js";
import { plainSent } from "./core/response.js";
import { invalid, TidegateError } from "./error.js";
import { type Fields, shown, text, whole } from "./fields.js";
import { type DecidingKind, EXAMPLE, loadedQuota, type LoadedPolicy, type QuotaKind, readPolicy } from "./loaded_policy.js";
import { failures, type Options } from "./options.js";
import { ask } from "./question.js";

/** The options of every `RateLimiter`. */
export interface PartsOptions<Kind extends QuotaKind = DecidingKind> {
  /** A policy whose quotas functions make: `{ name: "api", quotas: [slidingWindow(100, "1 min")] }`. */
  policy: LoadedPolicy<Kind>;
  /** Whose requests count together: `clientAddress("vercel")`. Without it, each check has a `key`. */
  sender?: Sender | undefined;
  /** As of `Tidegate`. */
  onError?: Options["onError"];
  /** As of `Tidegate`. */
  onVerdict?: Options["onVerdict"];
}

/** The options of a `RateLimiter` that calls its store. */
export interface CalledPartsOptions<Kind extends QuotaKind = DecidingKind> extends PartsOptions<Kind> {
  /** As of `Tidegate`. */
  failMode: Options["failMode"];
  /** As of `Tidegate`. */
  deadlineMs?: Options["deadlineMs"];
}

/** The names of the options of every `RateLimiter`. */
export const PARTS = ["policy", "sender", "onError", "onVerdict"];

/** Those of one that calls its store. Without `...`, so that bundlers leave it out where it is not used. */
export const CALLED_PARTS = ["policy", "sender", "onError", "onVerdict", "failMode", "deadlineMs"];

const [POLICY, SENDER] = ['{ name: "api", quotas: [slidingWindow(100, "1 min")] }', 'clientAddress("vercel")'];

const readCheck = /* @__PURE__ */ optionsReader({ key: text, keys: keysOf, peer: peerOf, cost: whole, now: whole });

/** What every `RateLimiter` reads of its options, with the defaults filled in. */
export interface Parts extends Answering {
  sender: Sender | undefined;
}

/** Checks the options of a `RateLimiter`. */
export function partsOf(fields: Fields): Parts {
  const sender = fields.get("sender") as Sender | undefined;
  if (sender !== undefined && typeof sender.keyOf !== "function") throw invalid("sender", `${shown(sender)} finds no address; write ${SENDER}`);
  return {
    ...readPolicy(fields.need("policy", fields.get("policy"), POLICY), loadedQuota, EXAMPLE),
    sender,
    onError: fields.call("onError", "(event) => console.error(event)") as Options["onError"],
    onVerdict: fields.call("onVerdict", "(verdict) => console.log(verdict)") as Options["onVerdict"],
    // Memory does not fail.
    failsOpen: false,
    sentBy: plainSent,
    failedOpenHeader: true,
  };
}

/** Checks the options of a `RateLimiter` that calls its store, by default with this deadline. */
export function calledPartsOf(fields: Fields, deadlineMs: number): Parts & CallOptions {
  return { ...partsOf(fields), ...failures(fields, deadlineMs) };
}

/** Makes the algorithm of a quota that brings it. */
export const loadedRule: MakeRule = (ready, place) => {
  const { part } = ready;
  if (part && !part.changes) return part.rule(ready, place);
  throw invalid(place.slice(0, -1), `${part?.changes ?? "a binding counts it"}, and a RateLimiter only decides; write Tidegate in place of it`);
};

/** A limiter that decides, and does nothing else. It loads the algorithms of its policy, and how it finds the sender of a request. */
export abstract class PartsLimiter extends BaseLimiter {
  readonly #sender: Sender | undefined;

  protected constructor(options: Parts, parts: () => LimiterParts) {
    super(options, parts);
    this.#sender = options.sender;
  }

  protected read(options: unknown, kind: CheckKind): ReadCheck {
    const { key, keys, peer, now, cost = 1 } = readCheck(options);
    return { key, keys, peer, asked: { ...ask(kind, this.core.policy, now ?? 0), isTimed: now !== undefined, cost } };
  }

  protected senderOf(request: Request, peer: string | null | undefined): string {
    if (this.#sender) return this.#sender.keyOf(request, peer, {}, this.warnOf);
    throw new TidegateError("misconfigured", `key: missing; write check(request, { key }), or the option sender: ${SENDER}`, "key");
  }
}
