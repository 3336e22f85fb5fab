import type { Command } from "../redis/scripts.js";
import type { HttpAnswer } from "./endpoint.js";

/** Sends a command as JSON. */
export type Post = (body: string, signal: AbortSignal | undefined) => Promise<HttpAnswer>;

/** What a database says to a command: a result, or the text of an error. */
export interface Reply {
  result?: unknown;
  error?: unknown;
}

/** Sends each command in a request of its own. */
export class Requests {
  readonly #post: Post;

  constructor(post: Post) {
    this.#post = post;
  }

  /** Whether a command is to be sent at once, and alone. */
  isAlone(_signal: AbortSignal | undefined): boolean {
    return true;
  }

  /** Sends a decision together with others. */
  join?(command: Command): Promise<Reply | HttpAnswer>;

  /** Sends a command alone. */
  async say(command: Command, signal?: AbortSignal): Promise<Reply | HttpAnswer> {
    return read(await this.#post(JSON.stringify(command), signal));
  }
}

/** What the database says, or the answer if it is the endpoint's own. */
function read(answer: HttpAnswer): Reply | HttpAnswer {
  if (answer.status !== 200 && answer.status !== 400) return answer;
  try {
    const said = Object(JSON.parse(answer.text)) as Reply;
    return "result" in said || typeof said.error === "string" ? said : answer;
  } catch {
    return answer;
  }
}
