import { type Asked, Asking } from "../../asking.js";
import type { Core } from "../../core.js";
import type { RedisLimit } from "../../glue.js";
import type { Lending } from "../../leases.js";
import type { Question } from "../../question.js";

/** A command, as its words. */
export type Command = readonly string[];

/**
 * A call's number is that of its script, and `QUESTION` times that of a borrower's question. The scripts are 0 to 2: the general one, that
 * for plain checks, and that for states with loans.
 */
const [LENDING, SCRIPTS, QUESTION] = [2, 3, 4] as const;

/** The texts of `src/redis.rs` begin here: each script, and after it its SHA-1. */
const TEXTS = 4;

/** What `failed` of the WebAssembly takes in place of an HTTP status. */
const [NONSENSE, ERROR_REPLY] = [0, 1] as const;

/** How much of an answer that no script gives is shown. */
const SHOWN_MAX = 200;

/** How a command was sent: by the SHA-1 of its script, with the script itself, or among others. */
type Way = "sha1" | "full" | "joined";

/** Asks a server that runs the scripts. */
export abstract class Scripts extends Asking<Command, RedisLimit> {
  readonly #sha1: readonly string[];
  /** Whether the server has each script. */
  readonly #has = [false, false, false];

  constructor(core: Core<RedisLimit>, options: Lending & { isTimeless: boolean }) {
    super(core, options);
    this.#sha1 = this.#has.map((_, script) => core.describe(TEXTS + 2 * script + 1));
  }

  /** Sends a command. */
  protected abstract carry(command: Command, question: Question, signal: AbortSignal | undefined, inFlight: number): Promise<unknown>;

  protected override asked(_kind: Question["kind"], text: string, call: number): Command {
    return ["EVALSHA", this.#sha1[scriptOf(call)]!, ...text.split("\n")];
  }

  protected override call(question: Question, { what, call }: Asked<Command>, signal: AbortSignal | undefined, inFlight: number): Promise<unknown> {
    question.note = call;
    question.noted = what;
    question.way = "sha1" satisfies Way;
    return this.carry(what, question, signal, inFlight);
  }

  /** The command as it is sent alone: with the script itself, unless the server has it. */
  protected alone(command: Command, question: Question): Command {
    const script = scriptOf(question.note);
    if (this.#has[script]) return command;
    question.way = "full" satisfies Way;
    return ["EVAL", this.core.describe(TEXTS + 2 * script), ...command.slice(2)];
  }

  /** Whether a command may be sent among others. Those know the words of two scripts. */
  protected mayJoin({ note }: Question): boolean {
    return note < LENDING;
  }

  /** Notes that the command is sent among others. */
  protected joins(question: Question): void {
    question.way = "joined" satisfies Way;
  }

  /** The script for several decisions. */
  protected get batchScript(): string {
    return this.core.describe(TEXTS + 2 * SCRIPTS);
  }

  /** Reads a result. */
  protected took(question: Question, result: unknown, signal: AbortSignal | undefined): Promise<unknown> | undefined {
    const { kind, cost, now, extra, note } = question;
    if (typeof result !== "string") throw this.failure(NONSENSE, JSON.stringify({ result }) ?? "");
    if (question.way !== "joined") this.#has[scriptOf(note)] = true;
    this.about(question);
    const text = note >= QUESTION ? `${questionOf(question.noted as Command)}\n${result}` : result;
    const read = this.core.limit.read(kind, this.core.write(text), cost, now, extra, note);
    if (this.core.took(read) === 0) return undefined;
    // The state has loans.
    return this.call(question, this.ask(question, true)!, signal, 1);
  }

  /** Reads an error that the server has answered. Nothing was charged. */
  protected refused(question: Question, text: string, signal: AbortSignal | undefined): Promise<unknown> | undefined {
    const command = question.noted as Command;
    if (text.startsWith("NOSCRIPT") && question.way === "sha1") {
      this.#has[scriptOf(question.note)] = false;
      return this.carry(command, question, signal, 1);
    }
    throw this.failure(ERROR_REPLY, text, command[3]);
  }

  /** The error of an answer that is none of the scripts'. */
  protected nonsense(answer: unknown): unknown {
    return this.failure(NONSENSE, typeof answer === "string" ? answer : (JSON.stringify(answer) ?? String(answer)));
  }

  /** The error of an HTTP status, or of one of the numbers above. */
  protected failure(what: number, text: string, key?: string): unknown {
    this.core.push(text.slice(0, SHOWN_MAX));
    if (key !== undefined) this.core.push(key);
    return this.core.error(this.core.limit.failed(what));
  }
}

function scriptOf(call: number): number {
  return call % QUESTION;
}

/** The borrower's question in a command: the word after its keys. */
function questionOf(command: Command): string {
  return command[3 + Number(command[2])]!;
}

/** The error of a command that got no answer. What was thrown may contain the token, and does not say whether it was sent. */
export function lost(name: string, said: string): unknown {
  return ["unavailable", `${name}: no connection, or lost before the answer; the request may have been charged (${said})`];
}
