import { waitUntil } from "cloudflare:workers";
import { said, type Store } from "../../calls.js";
import type { Core } from "../../core.js";
import type { ObjectLimit } from "../../glue.js";
import { ask, CHECK, type Question } from "../../question.js";
import { Words } from "../../words.js";

/** The part of a `DurableObjectNamespace` that is used. */
export interface Objects {
  getByName(name: string, options?: { locationHint?: never }): object;
}

/** An object as a Worker calls it. */
interface Stub {
  answer(question: string): Promise<unknown>;
}

/** What an object is asked, and its name. */
type Asked = readonly [name: string, question: string];

/** What the platform adds to its own errors. Each is one bit for the WebAssembly. */
const PROPERTIES = ["overloaded", "retryable", "remote"] as const;

/** The bit for a namespace that did not take the call. */
const NOT_TAKEN = 1 << PROPERTIES.length;

/** Asks the objects of a namespace. */
export class Stubs implements Store {
  readonly name = "durable object";
  readonly #core: Core<ObjectLimit>;
  readonly #namespace: Objects;
  readonly #hint: object | undefined;
  readonly #words: Words<Asked>;
  readonly #borrows: boolean;

  constructor(core: Core<ObjectLimit>, namespace: Objects, hint: object | undefined, { isTimeless, borrows }: { isTimeless: boolean; borrows: boolean }) {
    this.#core = core;
    this.#namespace = namespace;
    this.#hint = hint;
    this.#words = new Words(isTimeless && !borrows);
    this.#borrows = borrows;
  }

  send(question: Question): Promise<unknown> | undefined {
    const sent = this.#send(question);
    if (this.#borrows) this.#return(question.now);
    return sent;
  }

  answered({ kind, key, note }: Question, answer: unknown): undefined {
    const text = typeof answer === "string" ? answer : `an answer of type ${typeof answer}`;
    if (this.#borrows) this.#core.push(key);
    this.#core.took(this.#core.limit.read(kind, this.#core.write(text), note));
  }

  threw(question: Question, thrown: unknown): undefined {
    const error = Object(thrown) as Record<string, unknown>;
    const how = PROPERTIES.reduce((bits, name, place) => bits | (error[name] ? 1 << place : 0), 0);
    this.#core.took(this.#failed(question, how, String(error["message"])));
  }

  late(question: Question): boolean {
    if (this.#borrows) this.#failed(question, 0, "late");
    return false;
  }

  #send(question: Question): Promise<unknown> | undefined {
    const known = this.#words.get(question);
    if (known) return this.#call(question, known);
    const { kind, cost, now, extra } = question;
    const length = this.#core.took(this.#core.limit.ask(kind, this.#core.pass(question), cost, now, extra));
    if (length === 0) return undefined;
    const [nth, asked] = [this.#core.extra, read(this.#core.text(length))];
    if (nth < 0) {
      this.#inBackground(question, -nth, asked);
      return undefined;
    }
    question.note = nth;
    this.#words.set(question, asked);
    return this.#call(question, asked);
  }

  #call(question: Question, [name, text]: Asked): Promise<unknown> | undefined {
    try {
      const object = this.#namespace.getByName(name, this.#hint as undefined) as Stub;
      return object.answer(text);
    } catch (thrown) {
      this.#core.took(this.#failed(question, NOT_TAKEN, said(thrown)));
      return undefined;
    }
  }

  /** Has idle keys return what they hold. */
  #return(now: number): void {
    for (let length = this.#core.limit.due(now); length > 0; length = this.#core.limit.due(now)) {
      const [nth, text] = [this.#core.extra, this.#core.text(length)];
      const at = text.indexOf("\n");
      this.#inBackground({ ...ask(CHECK, now), key: text.slice(0, at) }, nth, read(text.slice(at + 1)));
    }
  }

  /** Asks what nobody waits for. If it fails, what is lent stays lent until its end. */
  #inBackground(question: Question, nth: number, asked: Asked): void {
    const own: Question = { ...question, note: nth };
    const answered = async () => {
      try {
        this.answered(own, await this.#call(own, asked));
      } catch (thrown) {
        // An error that was read has ended the question.
        if (!Array.isArray(thrown)) this.#failed(own, 0, said(thrown));
      }
    };
    keepAlive(answered());
  }

  /** Ends a question that has no answer. Leaves the error. */
  #failed({ kind, key, note }: Question, how: number, why: string): number {
    if (this.#borrows) this.#core.push(key);
    return this.#core.limit.failed(kind, how, this.#core.write(why), note);
  }
}

function read(text: string): Asked {
  const at = text.lastIndexOf("?");
  return [text.slice(0, at), text.slice(at + 1)];
}

/** Has the platform wait for work after the response. */
function keepAlive(work: Promise<unknown>): void {
  try {
    waitUntil(work);
  } catch {
    // Outside of a request, it runs as long as the isolate does.
  }
}
