import { type Answer, REQUESTS_ARE_APART } from "../../calls.js";
import type { Command, PlainScript } from "../redis/plain.js";

/** Sends a command as JSON. */
type Post = (body: string, signal: AbortSignal | undefined) => Promise<Answer>;

/** What a database says to a command: a result, or the text of an error. */
export type Said = { result?: unknown; error?: unknown };

/** The most decisions in a command. The server does nothing else meanwhile. */
const DECISIONS_MAX = 64;

/** A decision that waits to be sent: its command, which has its keys and arguments after two words, and how to end it. */
type Waiting = { command: Command; resolve: (said: Said | Answer) => void; reject: (thrown: unknown) => void };

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** After the callbacks of the events that have arrived. */
const soon: (run: () => void) => unknown = typeof setImmediate === "function" ? setImmediate : (run) => setTimeout(run, 0);

declare const setImmediate: ((run: () => void) => unknown) | undefined;

/**
 * Sends the decisions that come together as one command: those that begin in the same turn of the event loop, while another is in
 * flight. A lone one is sent at once.
 */
export class Batches {
  readonly #post: Post;
  readonly #plain: PlainScript;
  readonly #script: () => string;
  readonly #statesGrow: boolean;
  #waiting: Waiting[] = [];
  #inFlight = 0;
  #hasPlain = false;
  #hasScript = false;
  #sha1: Promise<string> | undefined;

  /**
   * Without `statesGrow`, all decisions are sent so; otherwise only plain ones. The answers contain the states, so that those of some
   * clients could make an answer too long or too late for all.
   */
  constructor(post: Post, plain: PlainScript, script: () => string, { statesGrow }: { statesGrow: boolean }) {
    this.#post = post;
    this.#plain = plain;
    this.#script = script;
    this.#statesGrow = statesGrow;
  }

  /** Sends the command of a plain check. */
  send(command: Command, signal: AbortSignal | undefined): Promise<Said | Answer> {
    return this.#isAlone(signal) ? this.#sendPlain(command, signal) : this.#wait(command);
  }

  /** Sends any command, as JSON. */
  ask(wanted: string, signal: AbortSignal | undefined): Promise<Answer> {
    if (this.#statesGrow || this.#isAlone(signal) || !wanted.startsWith(`["EVAL`)) return this.#counted(wanted, signal);
    return this.#wait(JSON.parse(wanted) as Command).then((said) => (Array.isArray(said) ? said : [200, encoder.encode(JSON.stringify(said))]));
  }

  #isAlone(signal: AbortSignal | undefined): boolean {
    // A command that can be cancelled is not the others' command.
    return REQUESTS_ARE_APART || signal !== undefined || (this.#inFlight === 0 && this.#waiting.length === 0);
  }

  #wait(command: Command): Promise<Said | Answer> {
    return new Promise((resolve, reject) => {
      if (this.#waiting.push({ command, resolve, reject }) === 1) soon(() => this.#flush());
    });
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

  async #sendPlain(command: Command, signal: AbortSignal | undefined): Promise<Said | Answer> {
    const said = await this.#say(this.#hasPlain ? command : this.#plain.withScript(command), signal);
    this.#hasPlain = !Array.isArray(said) && typeof said.result === "string";
    return said;
  }

  /** Sends several decisions as one command, and returns what is said to each. */
  async #together(batch: Waiting[]): Promise<(Said | Answer)[]> {
    const [keys, args]: [string[], string[]] = [[], []];
    for (const { command } of batch) {
      const count = Number(command[2]);
      keys.push(...command.slice(3, 3 + count));
      args.push(String(count), String(command.length - 3 - count), ...command.slice(3 + count));
    }
    const words = [String(keys.length), ...keys, ...args];
    let said = this.#hasScript ? await this.#say(["EVALSHA", await this.#sha(), ...words]) : undefined;
    if (!said || (!Array.isArray(said) && String(said.error).startsWith("NOSCRIPT"))) said = await this.#say(["EVAL", this.#script(), ...words]);
    if (Array.isArray(said)) return batch.map(() => said as Answer);
    const { result } = said;
    this.#hasScript = Array.isArray(result) && result.length === batch.length;
    // An error, or no answer of the script: each decision gets it.
    if (!this.#hasScript) return batch.map(() => said as Said);
    return (result as unknown[]).map((one) => (typeof one === "string" && one.startsWith("-") ? { error: one.slice(1) } : { result: one }));
  }

  /** Sends a command. Returns what the database says, or the answer if it is the endpoint's own. */
  async #say(command: Command, signal?: AbortSignal): Promise<Said | Answer> {
    const answer = await this.#counted(JSON.stringify(command), signal);
    if (answer[0] !== 200 && answer[0] !== 400) return answer;
    try {
      const said = Object(JSON.parse(decoder.decode(answer[1]))) as Said;
      return "result" in said || typeof said.error === "string" ? said : answer;
    } catch {
      return answer;
    }
  }

  async #counted(body: string, signal: AbortSignal | undefined): Promise<Answer> {
    this.#inFlight += 1;
    try {
      return await this.#post(body, signal);
    } finally {
      this.#inFlight -= 1;
    }
  }

  #sha(): Promise<string> {
    return (this.#sha1 ??= sha1(this.#script()));
  }
}

async function sha1(text: string): Promise<string> {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-1", encoder.encode(text)));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
