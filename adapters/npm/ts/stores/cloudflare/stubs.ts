import { type Asked, Asking, type AskingOptions } from "../../asking.js";
import type { StoreCore } from "../../limiter_core.js";
import { digest } from "../../core/key.js";
import type { LoanQuestion } from "../../core/lending/lender.js";
import type { Question } from "../../question.js";
import { type Call, said } from "../../store.js";
import { lost } from "./errors.js";
import { answersApart, CALLS_MAX, readAnswer, together, type WireOptions, writtenCall, writtenQuotas } from "./wire.js";

/** The part of a `DurableObjectNamespace` that is used. */
export interface Objects {
  jurisdiction?(name: never): object;
  getByName(name: string, options?: { locationHint?: never }): object;
}

/** An object as a Worker calls it. */
interface Stub {
  answer(question: string): Promise<unknown>;
}

/** An object, and what it is asked. */
type Words = readonly [name: string, question: string];

/** What is told, and how to end it. */
interface Told {
  readonly text: string;
  readonly resolve: (answer: unknown) => void;
  readonly reject: (thrown: unknown) => void;
}

/** The options of a limiter that asks objects. */
export interface StubOptions extends AskingOptions, WireOptions {
  /** In how many objects all keys are counted. 0 for one object for each key. */
  shards: number;
}

/** Asks the objects of a namespace. */
export class Stubs extends Asking<Words> {
  readonly name = "durable object";
  readonly #namespace: Objects;
  readonly #hint: object | undefined;
  readonly #options: StubOptions;
  /** Those of the policy, as calls have them. */
  readonly #quotas: string;
  /** What is told together, by the name of the object. */
  #told = new Map<string, Told[]>();
  /** Whether an object has answered. */
  #hasAnswered = false;

  constructor(core: StoreCore, namespace: Objects, hint: object | undefined, options: StubOptions) {
    super(core, options);
    this.#namespace = namespace;
    this.#hint = hint;
    this.#options = options;
    this.#quotas = writtenQuotas(core.policy);
  }

  override words(question: Question, loan: LoanQuestion | undefined): Words {
    const { place, rows } = this.core.storage(question);
    const { policy } = question;
    const quotas = policy.text === this.core.policy.text ? this.#quotas : writtenQuotas(policy);
    // The capabilities leave no policy without a place.
    return [objectOf(place!, this.#options.shards), writtenCall(this.core, question, loan, quotas, rows, this.#options)];
  }

  override begin(call: Call, asked: Asked<Words>): Promise<unknown> {
    call.noted = asked;
    const [name, text] = asked.what;
    // Without shards, each key has an object of its own.
    if (!call.isTogether || this.#options.shards === 0) return this.#call(name, text);
    return new Promise((resolve, reject) => {
      const told = this.#told.get(name) ?? [];
      this.#told.set(name, [...told, { text, resolve, reject }]);
    });
  }

  override told(): void {
    const told = this.#told;
    this.#told = new Map();
    for (const [name, all] of told) {
      for (let at = 0; at < all.length; at += CALLS_MAX) void this.#tellAll(name, all.slice(at, at + CALLS_MAX));
    }
  }

  /** Sends an object what several of its keys tell. One of an earlier release takes no several calls. */
  async #tellAll(name: string, all: Told[]): Promise<void> {
    try {
      const several = all.length > 1 ? await this.#call(name, together(all.map(({ text }) => text))) : undefined;
      const answers = answersApart(several, all.length);
      all.forEach(({ text, resolve }, place) => resolve(answers?.[place] ?? this.#call(name, text)));
    } catch (thrown) {
      all.forEach(({ reject }) => reject(thrown));
    }
  }

  #call(name: string, text: string): Promise<unknown> {
    try {
      const object = this.#namespace.getByName(name, this.#hint as undefined) as Stub;
      return object.answer(text);
    } catch (thrown) {
      throw ["refused", `durable object: the namespace did not take the call: ${said(thrown)}; nothing was charged`];
    }
  }

  override read({ question, noted }: Call, answer: unknown): undefined {
    const { loan } = noted as Asked<Words>;
    this.#hasAnswered = true;
    const read = readAnswer(typeof answer === "string" ? answer : `an answer of type ${typeof answer}`, question.policy);
    if (loan) this.lent(question, loan, read);
    else this.core.decision = read.decision;
  }

  override failed(_call: Call, thrown: unknown): never {
    throw lost(Object(thrown) as Record<string, unknown>, !this.#hasAnswered);
  }
}

/** The name of the object that counts what has this storage key. That of a shard contains the number of shards. */
export function objectOf(place: string, shards: number): string {
  if (shards === 0 || shards >= 2 ** 32) return place;
  // The first eight bytes of the hash are a number, whose low byte comes first.
  const bytes = digest(place).slice(0, 16).match(/../g)!;
  const shard = bytes.reduceRight((rest, byte) => (rest * 256 + parseInt(byte, 16)) % shards, 0);
  return `tg1:shard:${shard}of${shards}`;
}
