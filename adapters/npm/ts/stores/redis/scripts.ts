import { scriptOf, scripts, sha1Of, sha1s } from "./built.js";
import { type Asked, Asking, type AskingOptions } from "../../asking.js";
import type { StoreCore } from "../../limiter_core.js";
import type { LoanQuestion } from "../../core/lending/lender.js";
import { type Question, RESET } from "../../question.js";
import type { Call } from "../../store.js";
import { nonsense, refused } from "./errors.js";
import { answer, GENERAL, LENDING, type Script, scriptFor, type WireOptions, words } from "./wire.js";

/** A command, as its words. */
export type Command = readonly string[];

/** A command, and its script. */
interface Words {
  readonly command: Command;
  readonly script: Script;
}

/** The options of a server that runs the scripts. */
export interface ScriptOptions extends AskingOptions, WireOptions {
  /** Whether the scripts lock only their own keys. */
  keyLocking: boolean;
}

/** How a command was sent: by the SHA-1 of its script, with the script itself, or among others. */
type Way = "sha1" | "full" | "joined";

/** The note of a call whose server does not have the script for states with loans, which this limiter does not have either. */
const NO_LENDER = -1;

/** The error of a state that only this script can decide on. */
const HAS_LOANS = ["unsupported", "a limiter with leases has lent a part of this key's limit; write Tidegate in place of RateLimiter"];

/** Asks a server that runs the scripts. */
export abstract class Scripts extends Asking<Words> {
  readonly #options: ScriptOptions;
  /** Whether the server has each script. */
  readonly #has: boolean[] = [];

  constructor(core: StoreCore, options: ScriptOptions) {
    super(core, options);
    this.#options = options;
    options.loans?.addScript(scripts);
    core.policy.balance?.parts.addScript(scripts, sha1s);
  }

  /** Sends a command. */
  protected abstract carry(command: Command, call: Call): Promise<unknown>;

  override words(question: Question, loan: LoanQuestion | undefined, isLent: boolean): Words {
    return this.#wordsFor(loan || isLent ? LENDING : scriptFor(question, this.#options, this.borrows), question, loan);
  }

  #wordsFor(script: Script, question: Question, loan?: LoanQuestion): Words {
    return { command: ["evalsha", sha1Of(script, this.#options.keyLocking), ...words(this.core, question, script, this.#options, loan)], script };
  }

  override begin(call: Call, asked: Asked<Words>): Promise<unknown> {
    call.noted = asked;
    call.way = "sha1" satisfies Way;
    return this.carry(asked.what.command, call);
  }

  /** The command as it is sent alone: with the script itself, unless the server has it. */
  protected alone(command: Command, call: Call): Command {
    const { script } = wordsOf(call);
    if (this.#has[script] || !scripts[script]) return command;
    call.way = "full" satisfies Way;
    return ["eval", scriptOf(script, this.#options.keyLocking), ...command.slice(2)];
  }

  /** Whether a command may be sent among others. Those know no words for states with loans but a borrower's. */
  protected mayJoin({ noted }: Call): boolean {
    const { what, loan } = noted as Asked<Words>;
    return what.script < LENDING || loan !== undefined;
  }

  /** Notes that the command is sent among others. */
  protected joins(call: Call): void {
    call.way = "joined" satisfies Way;
  }

  /** Reads a result. */
  protected took(call: Call, result: unknown): Promise<unknown> | undefined {
    if (typeof result !== "string") throw this.nonsense(JSON.stringify({ result }));
    const { question } = call;
    const { what, loan } = call.noted as Asked<Words>;
    if (call.way !== "joined") this.#has[what.script] = true;
    if (question.kind === RESET) return undefined;
    if (loan) {
      this.lent(question, loan, this.#options.loans!.lent(question, loan.question, this.#options, result));
      return undefined;
    }
    const decision = answer(question, what.script, this.#options, result);
    if (decision) {
      this.core.decision = decision;
      return undefined;
    }
    // The state probably has loans. Who has lent them has put the script there that decides on it.
    if (call.note === NO_LENDER) throw HAS_LOANS;
    return this.begin(call, { what: this.words(question, undefined, true), loan: undefined });
  }

  /** Reads an error that the server has answered. Nothing was charged. */
  protected refused(call: Call, text: string): Promise<unknown> | undefined {
    const { command, script } = wordsOf(call);
    if (text.startsWith("NOSCRIPT") && call.way !== ("full" satisfies Way)) {
      if (!scripts[script]) {
        call.note = NO_LENDER;
        return this.begin(call, { what: this.#wordsFor(GENERAL, call.question), loan: undefined });
      }
      this.#has[script] = false;
      return this.carry(command, call);
    }
    const { balance, rows } = call.question.policy;
    // The key that the error is about.
    const quota = Number(/quotas\[(\d+)/.exec(text)?.[1] ?? 0);
    throw balance?.parts.refused(text) ?? refused(text, command[3 + rows.findIndex(({ end }) => quota < end)]!);
  }

  /** The error of an answer that is none of the scripts'. */
  protected nonsense(answer: unknown): unknown {
    return nonsense(this.name, typeof answer === "string" ? answer : (JSON.stringify(answer) ?? String(answer)));
  }
}

function wordsOf({ noted }: Call): Words {
  return (noted as Asked<Words>).what;
}
