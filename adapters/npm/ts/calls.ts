import type { Caller, Gate } from "#upstash/glue";

/** What a store answered: a status as of HTTP, the bytes that came with it, and which version they are if it tells. */
export type Answer = [status: number, bytes: Uint8Array, version?: string | undefined];

/** Does what a call wants of its store. What it throws is why there is no answer. */
export type Ask = (wanted: string, signal: AbortSignal | undefined) => Promise<Answer>;

/** Runs a limiter's calls: brings what each wants to the store, and the answer back, until the call is over or late. */
export class Calls {
  readonly #gate: Gate;
  readonly #ask: Ask;
  readonly #deadlineMs: number;
  readonly #idle: Caller[] = [];
  /** How many calls were late, and the store has still not answered them. */
  #silent = 0;

  constructor(gate: Gate, ask: Ask, deadlineMs: number) {
    this.#gate = gate;
    this.#ask = ask;
    this.#deadlineMs = deadlineMs;
  }

  /**
   * What comes of a call, as which it `begins`.
   *
   * A request that can be cancelled costs more than one that cannot. So they can be only while the store owes an answer to
   * a call that was late: what then piles up is no more than what was under way when the first of them was. (A host that
   * drops a request with all that it waits for never tells: there all can be from then on.)
   */
  run(begins: (caller: Caller) => string): Promise<string> {
    return new Promise((resolve, reject) => {
      const caller = this.#idle.pop() ?? this.#gate.caller();
      let cancel: AbortController | undefined;
      let timer: number | undefined;
      let isLate = false;

      /** Takes the next step, and gives what is wanted then; nothing, where the call is over. */
      const go = (step: () => string): string | undefined => {
        try {
          const said = step();
          if (isWanted(said)) return said;
          resolve(said);
          this.#idle.push(caller);
        } catch (thrown) {
          reject(thrown);
          // One that has failed itself is of no more use.
          if (Array.isArray(thrown)) this.#idle.push(caller);
        }
        clearTimeout(timer);
        return undefined;
      };

      const late = () => {
        isLate = true;
        this.#silent += 1;
        go(() => caller.late());
        cancel?.abort();
      };

      const carry = async (first: string) => {
        for (let wanted: string | undefined = first; wanted !== undefined; ) {
          let step: () => string;
          try {
            const answer = await this.#ask(wanted, cancel?.signal);
            step = () => caller.answered(...answer);
          } catch (thrown) {
            const { name, message, cause } = Object(thrown) as Partial<Error>;
            const why = [message, (cause as Error | undefined)?.message].filter(Boolean).join(": ");
            step = () => caller.failed(String(name), why);
          }
          if (isLate) {
            this.#silent -= 1;
            return;
          }
          wanted = go(step);
        }
      };

      const wanted = go(() => begins(caller));
      if (wanted === undefined) return;
      if (this.#silent > 0) cancel = new AbortController();
      timer = setTimeout(late, this.#deadlineMs);
      carry(wanted);
    });
  }
}

/** Whether a call wants something, which is an array as JSON. */
function isWanted(text: string): boolean {
  return text.startsWith("[");
}
