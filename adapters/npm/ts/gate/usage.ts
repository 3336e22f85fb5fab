// What a sender has used of its limits, as core's `gate/usage.rs` tells it.

import { hasMissingIp, type Keys } from "../core/key.js";
import { response, type Sent, unavailable, undecided } from "../core/response.js";
import { EACH, FROM_STORE, ORIGIN, ORIGINS, QUOTAS, UNKNOWN } from "../decision_numbers.js";
import { needsPeer, TidegateError } from "../error.js";
import { only } from "../fields.js";
import { notRequest } from "../front_end.js";
import { TELL } from "../log.js";
import { addressOf, type NodeRequest, requestOf, routingOf } from "../middleware/node_request.js";
import { ask, clamped, PEEK } from "../question.js";
import { checkPolicy, checkSupport } from "./combinators/store_support.js";
import type { Decider } from "./decide.js";
import { readGateCheck } from "./check_options.js";
import { type BaseGate, type GateCheckOptions, INSIDE } from "./gate.js";
import { Facts } from "./request_facts.js";
import { SENDER } from "./rules/dimension_names.js";
import type { Rule } from "./rules/rules.js";
import { quoted } from "./rules/quoted_text.js";
import { RulesPolicy } from "./rules_policy.js";
import type { Sender } from "./sender.js";

export type { NodeRequest } from "../middleware/node_request.js";

/** What a sender has used of one quota. A number that is not known is null. */
export interface QuotaUsage {
  /** The name of the limit. */
  policy: string;
  /** The name of the quota. */
  quota: string;
  /** The dimension that it counts by, such as `ip`. */
  by: string;
  /** The name of the store that counts, if the rules name it. It is not sent to clients. */
  store?: string;
  /** The most units that are admitted at once, for this sender. */
  limit: number;
  /** How many more requests of cost 1 would be admitted now. Null for a penalty that does not block. */
  remaining: number | null;
  /** The limit less what remains. A debt counts as nothing remaining. */
  used: number | null;
  /** How long until the quota is unused, if nothing else arrives. Null for a concurrency limit. */
  resetAfterMs: number | null;
  /** The component that counts: another than the `store` if that is down. */
  origin: (typeof ORIGINS)[number];
}

/** What a sender is told. */
export class Usage {
  /** Each quota, in the order of the rules. Empty if the sender is not told. */
  readonly quotas: readonly QuotaUsage[];
  /** Why nobody knows. */
  readonly error: TidegateError | undefined;
  readonly #refused: Sent | undefined;

  constructor(quotas: readonly QuotaUsage[], refused?: Sent, error?: TidegateError) {
    this.quotas = quotas;
    this.error = error;
    this.#refused = refused;
  }

  /** Whether the sender is told its usage. */
  get told(): boolean {
    return this.#refused === undefined;
  }

  /**
   * The response to send: a 200 with JSON that has no key, no identity and no store; a 403 for a sender on the list `deny`, a 401 for an
   * invalid token if a rule refuses those, a 503 if a store does not answer. Nobody may store it.
   */
  get response(): Response {
    const { http } = this;
    return new Response(http.body, http);
  }

  /** The same for hosts without `Response`. */
  get http(): Sent {
    const sent = this.#refused ?? response(200, { quotas: this.quotas.map(written) });
    return { ...sent, headers: { ...sent.headers, "cache-control": "no-store" } };
  }
}

/** How the requests of a handler are read. */
export interface UsageOptions<Received = Request, Context = unknown> {
  /** What only the application knows of a request, as for the gate's `check`, such as `{ subject }`. If it throws, the response is a 400. */
  check?: ((request: Received, context: Context) => GateCheckOptions | Promise<GateCheckOptions>) | undefined;
}

/** The part of Node.js's `ServerResponse` that is used. */
export interface UsageResponse {
  statusCode: number;
  setHeader(name: string, value: string): unknown;
  end(body?: string): unknown;
}

const METHODS = ["GET", "HEAD"];

/**
 * What the sender of a request has used of its limits: of each limit by which a rule counts, whatever the request asks for, with the
 * sender's tier, identity and numbers. Nothing is charged. What one store decides together is asked for in one call.
 *
 *     const { quotas } = await usageOf(gate, request, { subject: user.id });
 *
 * `options` are those of `gate.check`. It rejects only for what is no `Request`, and if a store of the rules cannot peek.
 */
export async function usageOf(gate: BaseGate, request: Request, options: GateCheckOptions = {}): Promise<Usage> {
  const mistake = notRequest(request);
  if (mistake) throw mistake;
  canPeek(gate[INSIDE][0]);
  return answer(gate, async () => new Facts(request, readGateCheck(options)));
}

/**
 * A handler of `/usage` for hosts of the Fetch API, such as Hono, Next.js and Workers: `app.get("/usage", (c) => usage(c.req.raw, c))`.
 *
 * The path is limited like any other: put it behind the gate, and give it a rule. Throws if a store of the rules cannot peek.
 */
export function usageHandler<Context = unknown>(gate: BaseGate, options: UsageOptions<Request, Context> = {}): (request: Request, context?: Context) => Promise<Response> {
  only(options as unknown, "", ["check"]);
  canPeek(gate[INSIDE][0]);
  return async (request, context) => {
    if (!METHODS.includes(request.method)) return new Response(null, { status: 405, headers: { allow: METHODS.join(", "), "cache-control": "no-store" } });
    const given = async () => new Facts(request, readGateCheck((await options.check?.(request, context as Context)) ?? {}));
    return (await answer(gate, given)).response;
  };
}

/** The same for Node.js's `(req, res)`, of Express, Connect and Polka: `app.get("/usage", nodeUsageHandler(gate))`. */
export function nodeUsageHandler<Received extends NodeRequest>(gate: BaseGate, options: UsageOptions<Received> = {}): (req: Received, res: UsageResponse) => Promise<void> {
  only(options as unknown, "", ["check"]);
  canPeek(gate[INSIDE][0]);
  return async (req, res) => {
    const send = (status: number, headers: Readonly<Record<string, string>>, body?: string) => {
      res.statusCode = status;
      for (const name in headers) res.setHeader(name, headers[name]!);
      res.end(req.method === "HEAD" ? undefined : body);
    };
    if (!METHODS.includes(req.method ?? "GET")) return send(405, { allow: METHODS.join(", "), "cache-control": "no-store" });
    const given = async () => {
      const said = (await options.check?.(req, undefined)) ?? {};
      return new Facts(requestOf(req), readGateCheck({ ...routingOf(req), ...said, peer: said.peer ?? addressOf(req) }));
    };
    const { status, headers, body } = (await answer(gate, given)).http;
    return send(status, headers, body);
  };
}

/** Throws with the first rule whose store cannot tell what is used. */
function canPeek(decider: Decider): void {
  for (const rule of decider.rules.rules) {
    try {
      const what = "a peek, which tells what is used; count this rule's limits in one that does";
      checkSupport(decider.composed[decider.place(rule)]!.layer.capabilities.peek, what);
    } catch (thrown) {
      const { kind, message } = TidegateError.from(thrown);
      throw new TidegateError(kind, `rule ${quoted(rule.name)}: ${message}`);
    }
  }
}

async function answer(gate: BaseGate, given: () => Promise<Facts>): Promise<Usage> {
  let isOfRequest = true;
  try {
    const [[decider, senderOf], facts] = [gate[INSIDE], await given()];
    const sender = await senderOf(facts);
    isOfRequest = false;
    const refused = refusal(decider, sender);
    if (refused) return new Usage([], refused);
    if (sender.isOn(decider.rules.allowed)) return new Usage([]);
    const questions = questionsOf(decider, sender);
    const isUnknown = ({ keys }: Question) => Object.values(keys).some(hasMissingIp);
    if (facts.options.peer === null && decider.source.readsPeer && questions.some(isUnknown)) {
      return new Usage([], undecided("misconfigured", false, false), needsPeer("the platform"));
    }
    return new Usage((await Promise.all(questions.map((question) => told(decider, facts, question)))).flat());
  } catch (thrown) {
    const error = TidegateError.from(thrown);
    gate[TELL](error);
    return new Usage([], isOfRequest ? undecided(error.kind, false, false) : unavailable(error.kind), error);
  }
}

/** A sender learns nothing here that other requests would not tell it. */
function refusal({ rules }: Decider, sender: Sender): Sent | undefined {
  if (sender.isOn(rules.denied)) return response(403, { error: "forbidden" });
  if (typeof sender.claims !== "string" || !rules.rules.some(({ refusesInvalidTokens }) => refusesInvalidTokens)) return undefined;
  return response(401, { error: "invalid_token" }, { "www-authenticate": 'Bearer error="invalid_token"' });
}

/** What one store is asked in one step. */
interface Question {
  readonly rule: Rule;
  readonly store: number;
  /** It may be of several limits. */
  readonly policy: RulesPolicy;
  readonly keys: Keys;
}

/** Each limit by which rules count the sender, once in each store. */
function questionsOf(decider: Decider, sender: Sender): Question[] {
  const { rules, composed } = decider;
  const place = sender.tier === undefined ? 0 : sender.tier + 1;
  const [seen, found]: [Set<string>, { rule: Rule; store: number; policy: RulesPolicy }[]] = [new Set(), []];
  for (const rule of rules.rules) {
    const [store, { capabilities }] = [decider.place(rule), composed[decider.place(rule)]!.layer];
    const placed = (policy: RulesPolicy) => (capabilities.dimensions === "grouped" ? policy.placed : policy);
    for (const limit of rule.limits) {
      const policy = rules.limits[limit]!.policies[place];
      const name = `${rule.store} ${limit}`;
      if (!policy || seen.has(name)) continue;
      seen.add(name);
      // Without a key in each dimension, nothing counts the sender.
      if (!hasKeys(sender, policy)) continue;
      // A store decides by a limit that it lends alone.
      const others = rule.lease ? [] : found.filter((other) => other.store === store && !other.rule.lease);
      const joined = others.some((other) => {
        try {
          const both = placed(RulesPolicy.joined([other.policy, placed(policy)]));
          checkPolicy(capabilities, both);
          other.policy = both;
          return true;
        } catch {
          return false;
        }
      });
      if (!joined) found.push({ rule, store, policy: placed(policy) });
    }
  }
  return found.map((one) => ({ ...one, keys: sender.keys(one.policy), policy: rules.numbers?.policy(one.policy, sender) ?? one.policy }));
}

function hasKeys(sender: Sender, policy: RulesPolicy): boolean {
  try {
    sender.keys(policy);
    return true;
  } catch {
    return false;
  }
}

async function told({ composed }: Decider, { options }: Facts, { rule, store, policy, keys }: Question): Promise<QuotaUsage[]> {
  const { layer } = composed[store]!;
  // A charge of nothing is not denied by what is asked first.
  const cost = layer.capabilities.costs ? 0 : 1;
  const decision = await layer.ask({ ...ask(PEEK, policy, options.now ?? clamped(Date.now())), keys, cost, isTimed: options.now !== undefined });
  const scopes = policy.parts.scopes!.split(",");
  return policy.quotas.map(({ name, by }, place) => {
    const [limit, left, reset] = decision.slice(QUOTAS + EACH * place) as [number, number, number];
    const [remaining, resetAfterMs] = [left, reset].map((number) => (number === UNKNOWN ? null : number)) as [number | null, number | null];
    return {
      policy: scopes[place]!.split("@")[0]!,
      quota: name,
      by: by || SENDER,
      ...(rule.store !== undefined && { store: rule.store }),
      limit,
      remaining,
      used: remaining === null ? null : Math.max(limit - remaining, 0),
      resetAfterMs,
      origin: ORIGINS[decision[ORIGIN] ?? FROM_STORE]!,
    };
  });
}

/** A quota as clients get it. */
function written({ policy, quota, by, limit, remaining, used, resetAfterMs, origin }: QuotaUsage): object {
  return { policy, quota, by, limit, remaining, used, reset_after_ms: resetAfterMs, ...(origin !== "store" && { origin }) };
}
