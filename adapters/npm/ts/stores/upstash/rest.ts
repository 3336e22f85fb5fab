import type { StoreCore } from "../../limiter_core.js";
import { type Call, said } from "../../store.js";
import { lost, status } from "../redis/errors.js";
import { type Command, type ScriptOptions, Scripts } from "../redis/scripts.js";
import type { Database } from "./database.js";
import { type HttpAnswer, Endpoint } from "./endpoint.js";
import { type Post, type Reply, Requests } from "./requests.js";

/** The options of a database over REST. */
interface RestOptions extends ScriptOptions {
  /** Undefined if each check ends before it asks. */
  place: Database | undefined;
  /** Makes what sends several decisions together, if something does. */
  batches?: ((post: Post) => Requests) | undefined;
}

/** A database over REST. */
export class Rest extends Scripts {
  readonly name = "upstash";
  readonly #requests: Requests;
  readonly #token: string;

  constructor(core: StoreCore, options: RestOptions) {
    super(core, options);
    const endpoint = options.place && new Endpoint(options.place);
    const post: Post = (body, signal) => endpoint!.post(body, signal);
    this.#requests = options.batches?.(post) ?? new Requests(post);
    this.#token = options.place?.token ?? "";
  }

  protected override carry(command: Command, call: Call): Promise<unknown> {
    const { signal, isTogether } = call;
    const requests = this.#requests;
    if (!requests.join || !this.mayJoin(call) || (!isTogether && requests.isAlone(signal))) {
      return requests.say(this.alone(command, call), signal);
    }
    this.joins(call);
    return requests.join(command);
  }

  override read(call: Call, answer: unknown): Promise<unknown> | undefined {
    const { result, error } = answer as Reply;
    if (result !== undefined) return this.took(call, result);
    if (typeof error === "string") return this.refused(call, error);
    return this.failed(call, answer);
  }

  override failed(_call: Call, thrown: unknown): never {
    const answer = Object(thrown) as HttpAnswer;
    if (typeof answer.status !== "number") {
      const why = said(thrown);
      throw lost(this.name, this.#token ? why.replaceAll(this.#token, "…") : why);
    }
    throw answer.status === 200 || answer.status === 400 ? this.nonsense(answer.text) : status(answer.status, answer.text);
  }
}
