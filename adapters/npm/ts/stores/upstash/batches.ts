import { REQUESTS_ARE_APART } from "../../calls.js";
import type { Command } from "../redis/scripts.js";
import type { HttpAnswer } from "./endpoint.js";
import { type Post, type Reply, Requests } from "./requests.js";

/** The most decisions in a command. The server does nothing else meanwhile. */
const DECISIONS_MAX = 64;

/** A decision that waits to be sent: its command, which has its keys and arguments after two words, and how to end it. */
type Waiting = { command: Command; resolve: (said: Reply | HttpAnswer) => void; reject: (thrown: unknown) => void };

/** After the callbacks of the events that have arrived. */
const soon: (run: () => void) => unknown = typeof setImmediate === "function" ? setImmediate : (run) => setTimeout(run, 0);

declare const setImmediate: ((run: () => void) => unknown) | undefined;

/**
 * Sends the decisions that come together as one command: those that begin in the same turn of the event loop, while another is in
 * flight. A lone one is sent at once.
 */
export class Batches extends Requests {
  readonly #script: () => string;
  #waiting: Waiting[] = [];
  #inFlight = 0;
  #hasScript = false;
  #sha1: Promise<string> | undefined;

  constructor(post: Post, script: () => string) {
    super(post);
    this.#script = script;
  }

  override isAlone(signal: AbortSignal | undefined): boolean {
    // A command that can be cancelled is not the others' command.
    return REQUESTS_ARE_APART || signal !== undefined || (this.#inFlight === 0 && this.#waiting.length === 0);
  }

  override join(command: Command): Promise<Reply | HttpAnswer> {
    return new Promise((resolve, reject) => {
      if (this.#waiting.push({ command, resolve, reject }) === 1) soon(() => this.#flush());
    });
  }

  override async say(command: Command, signal?: AbortSignal): Promise<Reply | HttpAnswer> {
    this.#inFlight += 1;
    try {
      return await super.say(command, signal);
    } finally {
      this.#inFlight -= 1;
    }
  }

  #flush(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (let at = 0; at < waiting.length; at += DECISIONS_MAX) {
      const batch = waiting.slice(at, at + DECISIONS_MAX);
      this.#together(batch).then(
        (said) => batch.forEach(({ resolve }, place) => resolve(said[place]!)),
        (thrown) => batch.forEach(({ reject }) => reject(thrown)),
      );
    }
  }

  /** Sends several decisions as one command, and returns what is said to each. */
  async #together(batch: Waiting[]): Promise<(Reply | HttpAnswer)[]> {
    const [keys, args]: [string[], string[]] = [[], []];
    for (const { command } of batch) {
      const count = Number(command[2]);
      keys.push(...command.slice(3, 3 + count));
      args.push(String(count), String(command.length - 3 - count), ...command.slice(3 + count));
    }
    const words = [String(keys.length), ...keys, ...args];
    // Without the script, each decision gets NOSCRIPT and is sent once more.
    const said = await this.say(this.#hasScript ? ["EVALSHA", await this.#sha(), ...words] : ["EVAL", this.#script(), ...words]);
    const result = "result" in said ? said.result : undefined;
    this.#hasScript = Array.isArray(result) && result.length === batch.length;
    // An error, or no answer of the script: each decision gets it.
    if (!this.#hasScript) return batch.map(() => said);
    return (result as unknown[]).map((one) => (typeof one === "string" && one.startsWith("-") ? { error: one.slice(1) } : { result: one }));
  }

  #sha(): Promise<string> {
    return (this.#sha1 ??= sha1(this.#script()));
  }
}

async function sha1(text: string): Promise<string> {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-1", new TextEncoder().encode(text)));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
