// Limits from data: a claim of a verified token, a number of the application, or overrides of single keys. It is what core's
// `limit_numbers` does, to which `test/limit-numbers.test.mjs` holds it.

import { MAX_UNITS } from "../../core/arithmetic.js";
import { invalid, TidegateError } from "../../error.js";
import { isObject, whole } from "../../fields.js";
import type { FileValue } from "./file_value.js";
import type { Node } from "./json.js";
import { numbered } from "./numbered.js";
import { FIXED, type OfKeys, overridesOf } from "./overrides.js";
import { renamed } from "./quotas.js";
import { quoted } from "./quoted_text.js";
import type { Counted, ExplainedNumbers, LimitNumbers, Rule, Rules } from "./rules.js";
import { suggestion } from "./suggestion.js";
import { RulesPolicy } from "../rules_policy.js";

/** The fields in which somebody may expect what a client writes. */
const OF_THE_CLIENT = ["header", "headers", "field", "query", "cookie", "path", "body"];

/** The most policies with other numbers that are remembered of one. */
const NUMBERED_MAX = 256;

/** What gives a quota its limit, `limit_from`. */
interface LimitFrom {
  readonly limit: string;
  /** The place of the tier's policies. */
  readonly tier: number;
  readonly quota: string;
  /** Whether a claim of a verified token gives it. Otherwise, the application does. */
  readonly isClaim: boolean;
  readonly name: string;
  readonly min: number;
  readonly max: number;
}

/** The number that a quota has for a request, if it may have another than the file's, and where it comes from. */
interface LimitNumber {
  readonly number: number;
  readonly from: string;
}

export class Numbers implements LimitNumbers {
  readonly #from: LimitFrom[] = [];
  /** The overrides of the rules file, and these with those of their own file, which precede them. */
  #ofRules: OfKeys = new Map();
  #all: OfKeys = this.#ofRules;
  /** The limits whose numbers the platform has. */
  readonly #fixed = new Set<string>();
  /** The policies with other numbers, by the numbers: what depends on a policy alone is made once. */
  readonly #numbered = new WeakMap<RulesPolicy, Map<string, RulesPolicy>>();

  /** The file of overrides. */
  #own: FileValue | undefined;

  constructor(before: Numbers | undefined) {
    if (before) this.#own = before.#own;
  }

  /** The quotas that take their limit from data, each with its bounds and what gives it. For the program. */
  get told(): readonly (readonly [quota: string, from: string])[] {
    const all = this.#from.map((from) => [from.quota, `${from.min} to ${from.max}, from ${sourceOf(from)}`] as const);
    return [...new Map(all.map((one) => [one.join(" "), one])).values()];
  }

  /** How many keys have limits of their own. */
  get overridden(): number {
    return this.#all.size;
  }

  take(table: FileValue, policy: RulesPolicy, tier: number, hasTokens: boolean): number[] {
    const quotas = table.required("quotas").each((quota) => quota);
    return quotas.flatMap((quota, nth) => {
      const from = quota.field("limit_from");
      if (!from) return [];
      const name = quota.field("name")?.text ?? (quotas.length === 1 ? policy.name : `${policy.name}-${nth + 1}`);
      const found = limitFromOf(from, policy, tier, name, hasTokens);
      this.#from.push(found);
      return found.min;
    });
  }

  override(table: FileValue, rules: Rules): void {
    this.#all = this.#ofRules = overridesOf(table, rules, this.#fixed);
  }

  reload(root: FileValue, rules: Rules): void {
    root.only(["$schema", "overrides"]);
    const all = new Map(this.#ofRules);
    for (const [key, numbers] of overridesOf(root.required("overrides"), rules, this.#fixed)) {
      all.set(key, new Map([...(all.get(key) ?? []), ...numbers]));
    }
    [this.#all, this.#own] = [all, root];
  }

  fit(rules: Rules, fixed: readonly Rule[]): void {
    const scopes = fixed.flatMap(({ policies }) => policies.flatMap((policy) => policy?.parts.scopes!.split(",") ?? []));
    const isOverridden = (limit: string) => [...this.#all.values()].some((numbers) => [...numbers.keys()].some((name) => name.startsWith(`${limit} `)));
    for (const scope of scopes) {
      const limit = scope.split("@")[0]!;
      if (isOverridden(limit) || this.#from.some((from) => from.limit === limit)) {
        throw TidegateError.from(["unsupported", `limit ${quoted(limit)}: it ${FIXED}; delete limit_from and its overrides`]);
      }
      this.#fixed.add(limit);
    }
    if (this.#own) this.reload(this.#own, rules);
  }

  check(given: unknown): void {
    const known = this.#from.flatMap(({ isClaim, name }) => (isClaim ? [] : name));
    isObject(given, "limits", known);
    for (const [name, number] of Object.entries(given)) {
      if (!known.includes(name)) {
        const fix = known.length > 0 ? suggestion(name, known) : `write limit_from = { application = ${quoted(name)}, max = 10000 }`;
        throw invalid("limits", `no limit takes ${quoted(name)} from the application; ${fix}`);
      }
      if (number !== undefined) whole(`limits.${name}`, number);
    }
  }

  policy(policy: RulesPolicy, sender: Counted): RulesPolicy {
    return this.#from.length + this.#all.size === 0 ? policy : this.#applied(policy, this.#of(policy, sender));
  }

  explain(policy: RulesPolicy, sender: Counted): ExplainedNumbers {
    try {
      this.check(sender.options.limits ?? {});
      const numbers = this.#of(policy, sender);
      return { policy: this.#applied(policy, numbers), from: new Map([...numbers].map(([place, { from }]) => [place, from])) };
    } catch (thrown) {
      return { policy, from: new Map(), error: TidegateError.from(thrown) };
    }
  }

  /** The numbers of a policy's quotas that may have others than the file's, by their places. */
  #of({ parts, quotas }: RulesPolicy, sender: Counted): ReadonlyMap<number, LimitNumber> {
    const found = new Map<number, LimitNumber>();
    const scopes = parts.scopes!.split(",");
    const tier = sender.tier === undefined ? 0 : sender.tier + 1;
    quotas.forEach(({ name, by, rule }, place) => {
      const limit = scopes[place]!.split("@")[0]!;
      const override = this.#all.size > 0 ? this.#all.get(keyOf(sender, by))?.get(`${limit} ${name}`) : undefined;
      const from = this.#from.find((from) => from.quota === name && from.limit === limit && from.tier === tier);
      if (override !== undefined) found.set(place, { number: override, from: ", by an override" });
      else if (from) found.set(place, givenBy(from, rule.limit, sender));
    });
    return found;
  }

  /** A policy with these numbers. */
  #applied(policy: RulesPolicy, numbers: ReadonlyMap<number, LimitNumber>): RulesPolicy {
    const changed = [...numbers].flatMap(([place, { number }]) => (policy.quotas[place]!.rule.limit === number ? [] : [[place, number] as const]));
    if (changed.length === 0) return policy;
    const all = this.#numbered.get(policy) ?? new Map<string, RulesPolicy>();
    this.#numbered.set(policy, all);
    const name = changed.join();
    const found = all.get(name) ?? withLimits(policy, new Map(changed));
    if (all.size >= NUMBERED_MAX) all.clear();
    all.set(name, found);
    return found;
  }
}

function limitFromOf(item: FileValue, policy: RulesPolicy, tier: number, quota: string, hasTokens: boolean): LimitFrom {
  if (item.node.text !== undefined) throw item.invalid('expected a table; write one such as { claim = "rpm", max = 10000 }');
  item.entries((name, field) => {
    if (!OF_THE_CLIENT.includes(name)) return;
    throw field.wrong(name, "is what a client writes, and it would choose its limit; write claim, of a verified token, or application");
  });
  item.only(["claim", "application", "max", "min"]);
  const [claim, application] = [item.field("claim"), item.field("application")];
  const source = claim ?? application;
  if (!source || (claim && application)) throw item.invalid("write either claim or application");
  if (claim?.text === "") throw claim.invalid("empty; write the name of a claim");
  if (claim && !hasTokens) throw claim.invalid("the file verifies no tokens; write the table tokens, or application");
  const name = claim ? claim.text : source.checkedName("application", source.text);
  const place = policy.names.indexOf(quota);
  const { limit } = policy.quotas[place]!.rule;
  item.required("max");
  const bounds = { max: item.numberIn("max", limit, MAX_UNITS)!, min: item.numberIn("min", 1, limit) ?? 1 };
  for (const [field, number] of Object.entries(bounds)) {
    (item.field(field) ?? item).placing(() => numbered(policy.parts.quotas[place]!, number), renamed);
  }
  return { limit: policy.name, tier, quota, isClaim: claim !== undefined, name, ...bounds };
}

/** The same policy with other limits of some quotas, by their places, and the same stored state. */
function withLimits({ parts, shape }: RulesPolicy, limits: ReadonlyMap<number, number>): RulesPolicy {
  const quotas = parts.quotas.map((quota, nth) => (limits.has(nth) ? numbered(quota, limits.get(nth)!) : quota));
  return new RulesPolicy({ ...parts, quotas }, shape);
}

/** A key, or a text that is none. That it is missing is an error elsewhere. */
function keyOf(sender: Counted, by: string): string {
  try {
    return sender.key(by);
  } catch {
    return "";
  }
}

/** Such as `the claim "rpm"`. */
function sourceOf({ isClaim, name }: LimitFrom): string {
  return `the ${isClaim ? "claim" : "application's number"} ${quoted(name)}`;
}

function givenBy(from: LimitFrom, usual: number, sender: Counted): LimitNumber {
  const { limit, isClaim, name, min, max } = from;
  const what = sourceOf(from);
  const { limits } = sender.options;
  const own = limits !== undefined && Object.hasOwn(limits, name) ? limits[name] : undefined;
  const written = isClaim ? asWritten(sender.claim(name)) : own?.toString();
  if (written === undefined) return { number: usual, from: `, the default without ${what}` };
  const given = /^\d+$/.test(written) ? Number(written) : NaN;
  if (!Number.isSafeInteger(given)) {
    const shown = [...written].slice(0, 40).join("");
    throw new TidegateError("invalid", `limit ${quoted(limit)}: ${what} is ${shown}; give a whole number from 0 to ${Number.MAX_SAFE_INTEGER}`);
  }
  const number = Math.min(Math.max(given, min), max);
  const bound = given > number ? "at most" : "at least";
  return { number, from: `, from ${what}${given === number ? "" : `: ${given}, but ${bound} ${number}`}` };
}

/** A claim that gives a limit. A text is in quotes, as it gives none. */
function asWritten(node: Node | undefined): string | undefined {
  if (node?.text !== undefined) return quoted(node.text);
  if (!node || node.bare === "null") return undefined;
  return node.bare ?? (node.list ? "a list" : "a table");
}
