import { said } from "../../calls.js";
import type { Core } from "../../core.js";
import type { RedisLimit } from "../../glue.js";
import type { Lending } from "../../leases.js";
import type { Question } from "../../question.js";
import { type Command, lost, Scripts } from "../redis/scripts.js";
import { Batches, type Said } from "./batches.js";
import { type Answer, Endpoint } from "./endpoint.js";
import type { Place } from "./place.js";

/** The options of a database over REST. */
interface RestOptions extends Lending {
  /** Undefined if each check ends before it asks. */
  place: Place | undefined;
  isTimeless: boolean;
  /** Whether a state is longer, the more requests it counts. */
  statesGrow: boolean;
}

/** A database over REST. */
export class Rest extends Scripts {
  readonly name = "upstash";
  readonly #batches: Batches;
  readonly #token: string;
  readonly #statesGrow: boolean;

  constructor(core: Core<RedisLimit>, options: RestOptions) {
    super(core, options);
    const endpoint = options.place && new Endpoint(options.place);
    this.#batches = new Batches((body, signal) => endpoint!.post(body, signal), () => this.batchScript);
    this.#token = options.place?.token ?? "";
    this.#statesGrow = options.statesGrow;
  }

  /** The answers contain the states, so that long ones of some clients could make the answer to several too long or too late for all. */
  protected override carry(command: Command, question: Question, signal: AbortSignal | undefined): Promise<unknown> {
    if (this.#statesGrow || !this.mayJoin(question) || this.#batches.isAlone(signal)) {
      return this.#batches.say(this.alone(command, question), signal);
    }
    this.joins(question);
    return this.#batches.join(command);
  }

  protected override read(question: Question, answer: unknown, signal: AbortSignal | undefined): Promise<unknown> | undefined {
    const { result, error } = answer as Said;
    if (result !== undefined) return this.took(question, result, signal);
    if (typeof error === "string") return this.refused(question, error, signal);
    return this.failed(question, answer);
  }

  protected override failed(_question: Question, thrown: unknown): never {
    const { status, text } = Object(thrown) as Answer;
    if (typeof status !== "number") {
      const why = said(thrown);
      throw lost(this.name, this.#token ? why.replaceAll(this.#token, "…") : why);
    }
    throw status === 200 || status === 400 ? this.nonsense(text) : this.failure(status, text);
  }
}
