import type { Caller, Gate } from "./glue.js";
import type { Queue } from "./queue.js";

/** A store's answer: an HTTP status, the bytes, and their version if the store reports it. */
export type Answer = [status: number, bytes: Uint8Array, version?: string | undefined];

/** Sends a request to the store. It throws if there is no answer. */
export type Ask = (wanted: string, signal: AbortSignal | undefined) => Promise<Answer>;

/**
 * The deadline is counted in this many timer steps. A busy process fires a delayed step once, however long it was busy, and
 * so reads the answers that have arrived before it declares a call late.
 */
const STEPS = 4;

/** With more calls in flight than this, the other calls may be the reason that an answer is late. */
const CROWD = 64;

/** The most calls in flight. With more, the process could not send another in time, so it does not start one. */
const IN_FLIGHT_MAX = 2_048;

/** Runs a limiter's calls: carries each request to the store and each answer back, until the call ends or is late. */
export class Calls {
  readonly #gate: Gate;
  readonly #ask: Ask;
  readonly #deadlineMs: number;
  readonly #queue: Queue | undefined;
  readonly #idle: Caller[] = [];
  /** The number of late calls whose request the store has not answered yet. */
  #silent = 0;
  /** The number of answers from the store so far. */
  #answers = 0;
  #begun = 0;
  #inFlight = 0;
  /** The number of the last call that was one of a crowd. */
  #crowded = 0;

  constructor(gate: Gate, ask: Ask, deadlineMs: number, queue: Queue | undefined) {
    this.#gate = gate;
    this.#ask = ask;
    this.#deadlineMs = deadlineMs;
    this.#queue = queue;
  }

  /**
   * Runs the call that `begins` starts. The deadline covers the wait for the key's turn, too.
   *
   * A late call ends as `timeout` only if the store is to blame. It ends as `contended` if the store has answered this call
   * before, or has answered others while this one waited for its turn or was one of a crowd.
   *
   * A request that can be cancelled costs more than one that cannot. So requests can be cancelled only while the store
   * owes an answer to a late call. The unanswered requests are then at most those in flight when the first call was late.
   */
  run(key: string, begins: (caller: Caller) => string): Promise<string> {
    return new Promise((resolve, reject) => {
      if (this.#inFlight >= IN_FLIGHT_MAX) return reject(crowdedOut("are in flight"));
      const [nth, answersBefore] = [++this.#begun, this.#answers];
      if (++this.#inFlight > CROWD) this.#crowded = nth;
      let caller: Caller | undefined;
      let cancel: AbortController | undefined;
      let timer: ReturnType<typeof setTimeout> | undefined;
      let [wasAnswered, hasWaited, isOver] = [false, false, false];
      let stepsLeft = STEPS;

      const end = () => {
        isOver = true;
        clearTimeout(timer);
        this.#inFlight -= 1;
        this.#queue?.leave(key, start);
      };

      const fail = (thrown: unknown) => {
        reject(thrown);
        // If anything but an error of the caller was thrown, its WebAssembly has trapped and cannot be used again.
        if (caller && Array.isArray(thrown)) this.#idle.push(caller);
        end();
      };

      /** Takes the next step. Returns the call's next request to the store, or nothing if the call has ended. */
      const go = (step: () => string): string | undefined => {
        let said: string;
        try {
          said = step();
        } catch (thrown) {
          fail(thrown);
          return undefined;
        }
        if (isRequest(said)) return said;
        resolve(said);
        this.#idle.push(caller!);
        end();
        return undefined;
      };

      const late = () => {
        const othersCame = hasWaited || this.#crowded >= nth;
        const isContended = wasAnswered || (othersCame && this.#answers > answersBefore);
        const charged = caller ? "the request may have been charged" : "nothing was charged";
        let why: unknown = ["timeout", `no answer within ${this.#deadlineMs} ms; ${charged}`];
        if (caller) {
          this.#silent += 1;
          try {
            caller.late();
          } catch (thrown) {
            why = thrown;
          }
        }
        if (isContended && Array.isArray(why)) {
          why = ["contended", `other requests kept this one from being decided within ${this.#deadlineMs} ms; ${charged}`];
        }
        fail(why);
        cancel?.abort();
      };

      const tick = () => {
        timer = setTimeout(() => (--stepsLeft > 0 ? tick() : late()), Math.ceil(this.#deadlineMs / STEPS));
      };

      const carry = async (first: string) => {
        for (let wanted: string | undefined = first; wanted !== undefined; ) {
          let step: () => string;
          try {
            const answer = await this.#ask(wanted, cancel?.signal);
            if (answer[0] < 500) this.#answers += 1;
            wasAnswered = true;
            step = () => caller!.answered(...answer);
          } catch (thrown) {
            const { name, message, cause } = Object(thrown) as Partial<Error>;
            const why = [message, (cause as Error | undefined)?.message].filter(Boolean).join(": ");
            step = () => caller!.failed(String(name), why);
          }
          if (isOver) {
            this.#silent -= 1;
            return;
          }
          wanted = go(step);
        }
      };

      const start = () => {
        const wanted = go(() => begins((caller = this.#idle.pop() ?? this.#gate.caller())));
        if (wanted === undefined) return;
        if (this.#silent > 0) cancel = new AbortController();
        if (timer === undefined) tick();
        carry(wanted);
      };

      if (!this.#queue) {
        start();
      } else if (!this.#queue.enter(key, start)) {
        this.#inFlight -= 1;
        reject(crowdedOut("wait for this key"));
      } else if (!caller && !isOver) {
        hasWaited = true;
        tick();
      }
    });
  }
}

/** An error in the form that the WebAssembly throws. */
function crowdedOut(where: string): [kind: string, message: string] {
  return ["contended", `too many requests ${where}; nothing was charged`];
}

/** Whether a call's text is a request to the store, a JSON array. Anything else is its result. */
function isRequest(text: string): boolean {
  return text.startsWith("[");
}
