import type { Store } from "../../calls.js";
import type { Core } from "../../core.js";
import type { RedisLimit } from "../../glue.js";
import { type Question, RESET } from "../../question.js";
import { Words } from "../../words.js";

/** A command, as its words. */
export type Command = readonly string[];

/** The texts of `src/redis.rs`: for each script itself and its SHA-1, and the script for several decisions. */
const [GENERAL, PLAIN, BATCH] = [4, 6, 8] as const;

/** The script that a command has, and how it was sent: by its SHA-1, in full, or among others. */
const [IS_PLAIN, IN_FULL, AMONG_OTHERS] = [1, 2, 4] as const;

/** What `failed` of the WebAssembly takes in place of an HTTP status. */
const [NONSENSE, ERROR_REPLY] = [0, 1] as const;

/** How much of an answer that no script gives is shown. */
const SHOWN_MAX = 200;

/** A question's command, with the SHA-1 of its script. */
interface Made {
  command: Command;
  isPlain: boolean;
}

/** Asks a server that runs the scripts. */
export abstract class Scripts implements Store {
  abstract readonly name: string;
  readonly #core: Core<RedisLimit>;
  readonly #words: Words<Made>;
  readonly #sha1: readonly string[];
  /** Whether the server has each script: the general one, and that for plain checks. */
  readonly #has = [false, false];

  constructor(core: Core<RedisLimit>, { isTimeless }: { isTimeless: boolean }) {
    this.#core = core;
    this.#words = new Words(isTimeless);
    this.#sha1 = [GENERAL, PLAIN].map((script) => core.describe(script + 1));
  }

  /** Sends a command of a question. Calls `asSent` if it is the question's alone. */
  protected abstract carry(command: Command, question: Question, signal: AbortSignal | undefined, inFlight: number): Promise<unknown>;
  abstract answered(question: Question, answer: unknown, signal: AbortSignal | undefined): Promise<unknown> | undefined;
  abstract threw(question: Question, thrown: unknown, signal: AbortSignal | undefined): Promise<unknown> | undefined;

  send(question: Question, signal: AbortSignal | undefined, inFlight: number): Promise<unknown> {
    return this.#send(question, this.#words.get(question) ?? this.#make(question, false), signal, inFlight);
  }

  /** The command as it is sent alone: with the script itself, unless the server has it. */
  protected asSent(command: Command, question: Question): Command {
    if (question.kind === RESET || this.#has[question.note & IS_PLAIN]) return command;
    question.note |= IN_FULL;
    return ["EVAL", this.#core.describe(question.note & IS_PLAIN ? PLAIN : GENERAL), ...command.slice(2)];
  }

  /** Notes that the command is sent among others. */
  protected joins(question: Question): void {
    question.note |= AMONG_OTHERS;
  }

  /** The script for several decisions. */
  protected get batchScript(): string {
    return this.#core.describe(BATCH);
  }

  /** Reads a result. */
  protected took(question: Question, result: unknown, signal: AbortSignal | undefined): Promise<unknown> | undefined {
    const { kind, cost, now, extra, note } = question;
    if (kind === RESET && Number.isSafeInteger(result)) return undefined;
    if (kind === RESET || typeof result !== "string") throw this.failure(NONSENSE, JSON.stringify({ result }) ?? "");
    const isPlain = (note & IS_PLAIN) !== 0;
    if (!(note & AMONG_OTHERS)) this.#has[Number(isPlain)] = true;
    if (question.token !== undefined) this.#core.pass(question);
    const read = this.#core.limit.read(kind, this.#core.write(result), cost, now, extra, isPlain);
    if (this.#core.took(read) === 0) return undefined;
    return this.#send(question, this.#make(question, true), signal, 1);
  }

  /** Reads an error that the server has answered. Nothing was charged. */
  protected refused(question: Question, text: string, signal: AbortSignal | undefined): Promise<unknown> | undefined {
    const { note } = question;
    const { command, isPlain } = question.noted as Made;
    if (text.startsWith("NOSCRIPT") && question.kind !== RESET && !(note & (IN_FULL | AMONG_OTHERS))) {
      this.#has[Number(isPlain)] = false;
      return this.carry(command, question, signal, 1);
    }
    throw this.failure(ERROR_REPLY, text, command[question.kind === RESET ? 1 : 3]);
  }

  /** The error of an answer that is none of the scripts'. */
  protected nonsense(answer: unknown): unknown {
    return this.failure(NONSENSE, typeof answer === "string" ? answer : (JSON.stringify(answer) ?? String(answer)));
  }

  /** The error of an HTTP status, or of one of the numbers above. */
  protected failure(what: number, text: string, key?: string): unknown {
    this.#core.push(text.slice(0, SHOWN_MAX));
    if (key !== undefined) this.#core.push(key);
    try {
      return this.#core.took(this.#core.limit.failed(what));
    } catch (error) {
      return error;
    }
  }

  #send(question: Question, made: Made, signal: AbortSignal | undefined, inFlight: number): Promise<unknown> {
    question.note = Number(made.isPlain);
    question.noted = made;
    return this.carry(made.command, question, signal, inFlight);
  }

  #make(question: Question, isGeneral: boolean): Made {
    const { kind, cost, now, extra } = question;
    const words = this.#core.text(this.#core.limit.ask(kind, this.#core.pass(question), cost, now, extra, isGeneral)).split("\n");
    if (kind === RESET) return { command: ["DEL", ...words], isPlain: false };
    const isPlain = this.#core.extra === 1;
    const made = { command: ["EVALSHA", this.#sha1[Number(isPlain)]!, ...words], isPlain };
    if (!isGeneral) this.#words.set(question, made);
    return made;
  }
}

/** The error of a command that got no answer. What was thrown may contain the token, and does not say whether it was sent. */
export function lost(name: string, said: string): unknown {
  return ["unavailable", `${name}: no connection, or lost before the answer; the request may have been charged (${said})`];
}
