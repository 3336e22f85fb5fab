import type { StoreCore } from "../../limiter_core.js";
import { type Call, said } from "../../store.js";
import { lost, status } from "../redis/errors.js";
import { type Command, type ScriptOptions, Scripts } from "../redis/scripts.js";
import { Batches, type Reply } from "./batches.js";
import type { Database } from "./database.js";
import { type HttpAnswer, Endpoint } from "./endpoint.js";

/** The options of a database over REST. */
interface RestOptions extends ScriptOptions {
  /** Undefined if each check ends before it asks. */
  place: Database | undefined;
  /** Whether the state of a key that has sent many requests is long. */
  statesAreLong: boolean;
}

/** A database over REST. */
export class Rest extends Scripts {
  readonly name = "upstash";
  readonly #batches: Batches;
  readonly #token: string;
  readonly #statesAreLong: boolean;

  constructor(core: StoreCore, options: RestOptions) {
    super(core, options);
    const endpoint = options.place && new Endpoint(options.place);
    this.#batches = new Batches((body, signal) => endpoint!.post(body, signal), () => this.batchScript);
    this.#token = options.place?.token ?? "";
    this.#statesAreLong = options.statesAreLong;
  }

  /** The answers contain the states, so that long ones of some clients could make the answer to several too long or too late for all. */
  protected override carry(command: Command, call: Call): Promise<unknown> {
    const { signal, isTogether } = call;
    if (this.#statesAreLong || !this.mayJoin(call) || (!isTogether && this.#batches.isAlone(signal))) {
      return this.#batches.say(this.alone(command, call), signal);
    }
    this.joins(call);
    return this.#batches.join(command);
  }

  protected override read(call: Call, answer: unknown): Promise<unknown> | undefined {
    const { result, error } = answer as Reply;
    if (result !== undefined) return this.took(call, result);
    if (typeof error === "string") return this.refused(call, error);
    return this.failed(call, answer);
  }

  protected override failed(_call: Call, thrown: unknown): never {
    const answer = Object(thrown) as HttpAnswer;
    if (typeof answer.status !== "number") {
      const why = said(thrown);
      throw lost(this.name, this.#token ? why.replaceAll(this.#token, "…") : why);
    }
    throw answer.status === 200 || answer.status === 400 ? this.nonsense(answer.text) : status(answer.status, answer.text);
  }
}
