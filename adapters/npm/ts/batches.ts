import type { Answer } from "./calls.js";

/** What a database says to a command: a result, or the text of an error. */
export interface Said {
  result?: unknown;
  error?: unknown;
}

/** Sends a command, as JSON or as its words, and returns what the database says, or a response with that as JSON. */
export type Send = (command: string | string[], signal?: AbortSignal) => Promise<Answer | Said>;

/** The most decisions in a command. The server does nothing else meanwhile. */
const DECISIONS_MAX = 64;

/** A decision that waits to be sent: its command, and how to end it. */
type Waiting = { words: string[]; resolve: (answer: Answer) => void; reject: (thrown: unknown) => void };

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** After the callbacks of the events that have arrived. */
const soon: (run: () => void) => unknown = typeof setImmediate === "function" ? setImmediate : (run) => setTimeout(run, 0);

declare const setImmediate: ((run: () => void) => unknown) | undefined;
declare const EdgeRuntime: unknown;

/** On Cloudflare, and in Vercel's edge runtime, a request may not wait for what another one has sent. */
const REQUESTS_ARE_APART = typeof EdgeRuntime === "string" || globalThis.navigator?.userAgent === "Cloudflare-Workers";

/**
 * Sends the decisions that come together as one command: those that begin in the same turn of the event loop, while another is in
 * flight. A lone one is sent at once.
 */
export class Batches {
  readonly #send: Send;
  readonly #script: () => string;
  readonly #enabled: boolean;
  #waiting: Waiting[] = [];
  #inFlight = 0;
  #hasScript = false;
  #sha1: Promise<string> | undefined;

  /**
   * `script` is that for several decisions. Each is sent alone if `keysAreApart`, as in a cluster, and if `statesGrow`: the answers
   * contain the states, so that those of some clients could make an answer too long or too late for all.
   */
  constructor(send: Send, script: () => string, { keysAreApart = false, statesGrow }: { keysAreApart?: boolean; statesGrow: boolean }) {
    this.#send = send;
    this.#script = script;
    this.#enabled = !keysAreApart && !statesGrow && !REQUESTS_ARE_APART;
  }

  ask(wanted: string, signal: AbortSignal | undefined): Promise<Answer> {
    // A command that can be cancelled is not the others' command.
    const alone = !this.#enabled || signal !== undefined || !wanted.startsWith(`["EVAL`);
    if (alone || (this.#inFlight === 0 && this.#waiting.length === 0)) return this.#counted(this.#send(wanted, signal)).then(answerOf);
    return new Promise((resolve, reject) => {
      if (this.#waiting.push({ words: JSON.parse(wanted) as string[], resolve, reject }) === 1) soon(() => this.#flush());
    });
  }

  #flush(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (let at = 0; at < waiting.length; at += DECISIONS_MAX) {
      const batch = waiting.slice(at, at + DECISIONS_MAX);
      this.#counted(this.#ask(batch)).then(
        (answers) => batch.forEach(({ resolve }, place) => resolve(answers[place]!)),
        (thrown) => batch.forEach(({ reject }) => reject(thrown)),
      );
    }
  }

  /** Sends several decisions as one command, and returns the answer of each. */
  async #ask(batch: Waiting[]): Promise<Answer[]> {
    const [first] = batch;
    if (batch.length === 1) return [answerOf(await this.#send(first!.words))];
    const [keys, args]: [string[], string[]] = [[], []];
    for (const { words } of batch) {
      const count = Number(words[2]);
      keys.push(...words.slice(3, 3 + count));
      args.push(String(count), String(words.length - 3 - count), ...words.slice(3 + count));
    }
    const rest = [String(keys.length), ...keys, ...args];
    const run = (name: string, script: string) => this.#send([name, script, ...rest]);
    let answer = this.#hasScript ? await run("EVALSHA", await this.#sha()) : await run("EVAL", this.#script());
    if (String(saidBy(answer).error).startsWith("NOSCRIPT")) answer = await run("EVAL", this.#script());
    const results = saidBy(answer).result;
    // An error, or no answer of the script: each decision gets it.
    if (!Array.isArray(results) || results.length !== batch.length) return batch.map(() => answerOf(answer));
    this.#hasScript = true;
    return results.map((result: unknown) => written(result));
  }

  #sha(): Promise<string> {
    return (this.#sha1 ??= hex("SHA-1", this.#script()));
  }

  async #counted<T>(sent: Promise<T>): Promise<T> {
    this.#inFlight += 1;
    try {
      return await sent;
    } finally {
      this.#inFlight -= 1;
    }
  }
}

function saidBy(answer: Answer | Said): Said {
  if (!Array.isArray(answer)) return answer;
  try {
    return Object(JSON.parse(decoder.decode(answer[1]))) as Said;
  } catch {
    return {};
  }
}

function answerOf(said: Answer | Said): Answer {
  return Array.isArray(said) ? said : [200, encoder.encode(JSON.stringify(said))];
}

/** The answer to one of several decisions. An error begins with `-`. */
function written(result: unknown): Answer {
  const failed = typeof result === "string" && result.startsWith("-");
  return answerOf(failed ? { error: result.slice(1) } : { result });
}

async function hex(algorithm: string, text: string): Promise<string> {
  const digest = new Uint8Array(await crypto.subtle.digest(algorithm, encoder.encode(text)));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
