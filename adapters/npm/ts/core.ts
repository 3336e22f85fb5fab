import type { Engine, Limit } from "./glue.js";
import type { Identity } from "./options.js";
import type { ReadyQuota } from "./policy.js";
import type { Question } from "./question.js";
import { Shared } from "./shared.js";
import type { Told } from "./verdict.js";

/** How many numbers a decision has, besides three for each quota. */
const FACTS = 7;

/** An option, as the WebAssembly gets it. */
type Given = string | number | boolean | undefined;

/** The options that all stores have. */
export interface Common {
  platform: string;
  ipv6Prefix: number;
  trustTrueClientIp: boolean;
  problem: boolean;
  name: string;
  chargeDenied: boolean;
  groupBy: string | undefined;
  scopes: string | undefined;
  groupAt: number;
  placeByKey: boolean;
  quotas: readonly ReadyQuota[];
}

/** What `text` of the WebAssembly leaves. */
const [DIMENSIONS, QUOTAS, FIELDS, CAPABILITIES] = [0, 1, 2, 3] as const;

/** The core's side of a limiter: its policy, its keys, and what its decisions mean. */
export class Core<L extends Limit = Limit> extends Shared implements Told {
  readonly limit: L;
  /** The names of the policy's quotas. */
  readonly names: readonly string[];
  /** Those of its dimensions, in the order in which the WebAssembly gets their keys. */
  readonly dimensions: readonly string[];
  /** The header fields that contain the client's address. */
  readonly fields: readonly string[];
  readonly #engine: Engine<L>;
  readonly #count: number;

  /** `own` are the store's options, in the order in which it reads them. Throws what is wrong with them. */
  constructor(engine: Engine<L>, options: Common, own: readonly Given[]) {
    super(engine);
    this.#engine = engine;
    for (const given of [...written(options), ...own]) this.push(given === undefined ? given : String(typeof given === "boolean" ? Number(given) : given));
    const limit = engine.Limit.make();
    if (!limit) this.took(-1 - this.extra);
    this.limit = limit!;
    this.names = this.describe(QUOTAS).split(",");
    this.dimensions = this.describe(DIMENSIONS).split(",");
    this.fields = this.describe(FIELDS).split(",").filter(Boolean);
    this.#count = FACTS + 3 * this.names.length;
  }

  /** A text about the policy or its store. */
  describe(which: number): string {
    return this.text(this.limit.text(which));
  }

  get capabilities(): Record<string, unknown> {
    return JSON.parse(this.describe(CAPABILITIES)) as Record<string, unknown>;
  }

  /** The key that a request counts against. */
  key(first: string | undefined, second: string | undefined, peer: string | undefined, { subject, apiKey }: Identity): string {
    for (const text of [first, second, peer, subject, apiKey]) this.push(text);
    return this.text(this.limit.key());
  }

  /** Passes the keys and the token of a question. Returns the length of a key that is alone. */
  pass(question: Question): number {
    if (question.token === undefined && question.others.length === 0) return this.write(question.key);
    this.pushAll(question);
    return 0;
  }

  /** Adds the token and the keys of a question to the texts that the next call takes. */
  pushAll({ key, others, token }: Question): void {
    if (token !== undefined) this.push(token);
    for (const other of others) this.push(other);
    this.push(key);
  }

  /** A copy of the last decision's numbers. */
  read(): number[] {
    const n = this.numbers;
    if (this.#count === 10) return [n[0]!, n[1]!, n[2]!, n[3]!, n[4]!, n[5]!, n[6]!, n[7]!, n[8]!, n[9]!];
    return Array.from(n.subarray(0, this.#count));
  }

  sent(numbers: readonly number[]): string {
    this.numbers.set(numbers);
    return this.text(this.limit.told());
  }

  /** What the client of a request is sent that was not decided on, because of an error of this kind. */
  undecided(kind: string, failsOpen: boolean): string {
    return this.text(this.#engine.undecided(this.write(kind), failsOpen));
  }
}

/** The options of all stores, in the order in which `src/limit.rs` reads them. */
function written(options: Common): Given[] {
  const { platform, ipv6Prefix, trustTrueClientIp, problem, name, chargeDenied, groupBy, scopes, groupAt, placeByKey, quotas } = options;
  const group = groupAt < 0 ? undefined : groupAt;
  return [
    ...[platform, ipv6Prefix, trustTrueClientIp, problem, name, chargeDenied, groupBy, scopes, group, placeByKey, quotas.length],
    ...quotas.flatMap(({ name, by, algorithm, place, amount, span, refill }) => [name, by, algorithm, place, amount, span, refill]),
  ];
}
