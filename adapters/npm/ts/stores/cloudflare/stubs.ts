import { Asking, type Asked } from "../../asking.js";
import { said } from "../../calls.js";
import type { Core } from "../../core.js";
import type { ObjectLimit } from "../../glue.js";
import type { Lending } from "../../leases.js";
import type { Question } from "../../question.js";

/** The part of a `DurableObjectNamespace` that is used. */
export interface Objects {
  getByName(name: string, options?: { locationHint?: never }): object;
}

/** An object as a Worker calls it. */
interface Stub {
  answer(question: string): Promise<unknown>;
}

/** An object, and what it is asked. */
type Words = readonly [name: string, question: string];

/** What the platform adds to its own errors. Each is one bit for the WebAssembly. */
const PROPERTIES = ["overloaded", "retryable", "remote"] as const;

/** The bit for a namespace that did not take the call. */
const NOT_TAKEN = 1 << PROPERTIES.length;

/** Asks the objects of a namespace. */
export class Stubs extends Asking<Words, ObjectLimit> {
  readonly name = "durable object";
  readonly #namespace: Objects;
  readonly #hint: object | undefined;

  constructor(core: Core<ObjectLimit>, namespace: Objects, hint: object | undefined, options: Lending & { isTimeless: boolean }) {
    super(core, options);
    this.#namespace = namespace;
    this.#hint = hint;
  }

  protected override asked(_kind: Question["kind"], text: string): Words {
    const at = text.lastIndexOf("?");
    return [text.slice(0, at), text.slice(at + 1)];
  }

  protected override call(question: Question, { what: [name, text], call }: Asked<Words>): Promise<unknown> {
    question.note = call;
    try {
      const object = this.#namespace.getByName(name, this.#hint as undefined) as Stub;
      return object.answer(text);
    } catch (thrown) {
      throw this.#error(NOT_TAKEN, said(thrown));
    }
  }

  protected override read(question: Question, answer: unknown): undefined {
    const text = typeof answer === "string" ? answer : `an answer of type ${typeof answer}`;
    this.about(question);
    this.core.took(this.core.limit.read(this.core.write(text), question.note));
  }

  protected override failed(_question: Question, thrown: unknown): never {
    const error = Object(thrown) as Record<string, unknown>;
    const how = PROPERTIES.reduce((bits, name, place) => bits | (error[name] ? 1 << place : 0), 0);
    throw this.#error(how, String(error["message"]));
  }

  #error(how: number, why: string): unknown {
    return this.core.error(this.core.limit.failed(how, this.core.write(why)));
  }
}
