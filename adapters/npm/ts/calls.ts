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

/** The most calls in flight. Further calls wait for one of them to end, until their deadline. */
const IN_FLIGHT_MAX = 2_048;

/** The most calls that wait so. Further calls end at once. */
const OUTSIDE_MAX = 65_536;

/** With that many calls in flight, those that began this many deadlines ago count no longer: their requests were cancelled. */
const ABANDONED_AFTER = 4;

/** How a limiter's calls are run. */
export interface CallOptions {
  deadlineMs: number;
  /** Whether keys are served apart, so that a late answer for one key is not the store's failure while it answers for others. */
  apart?: boolean;
  /** Makes the calls for one key wait for each other. */
  queue?: Queue;
}

/** Runs a limiter's calls: carries each request to the store and each answer back, until the call ends or is late. */
export class Calls {
  readonly #gate: Gate;
  readonly #ask: Ask;
  readonly #deadlineMs: number;
  readonly #apart: boolean;
  readonly #queue: Queue | undefined;
  readonly #idle: Caller[] = [];
  /** The number of late calls whose request the store has not answered yet. */
  #silent = 0;
  /** The number of answers from the store so far. */
  #answers = 0;
  #begun = 0;
  /** When each call in flight began, in order. A platform may drop a request that was cancelled, and its calls never end. */
  readonly #inFlight = new Map<number, number>();
  /** How to start each call that waits for room, in order. */
  readonly #outside = new Set<() => void>();
  /** The number of the last call that was one of a crowd. */
  #crowded = 0;

  constructor(gate: Gate, ask: Ask, { deadlineMs, apart = false, queue }: CallOptions) {
    this.#gate = gate;
    this.#ask = ask;
    this.#deadlineMs = deadlineMs;
    this.#apart = apart;
    this.#queue = queue;
  }

  /**
   * Runs the call that `begins` starts. The deadline covers the wait for room and for the key's turn, too.
   *
   * A late call ends as `timeout` only if the store is to blame. It ends as `contended` if the store has answered this call
   * before, or has answered others while this one waited for its turn or was one of a crowd.
   *
   * A request that can be cancelled costs more than one that cannot. So requests can be cancelled only while the store
   * owes an answer to a late call. The unanswered requests are then at most those in flight when the first call was late.
   */
  run(key: string, begins: (caller: Caller) => string): Promise<string> {
    return new Promise((resolve, reject) => {
      const [nth, answersBefore] = [++this.#begun, this.#answers];
      let caller: Caller | undefined;
      let cancel: AbortController | undefined;
      let timer: ReturnType<typeof setTimeout> | undefined;
      let [wasAnswered, hasWaited, isOver] = [false, false, false];
      let stepsLeft = STEPS;

      const end = () => {
        isOver = true;
        clearTimeout(timer);
        if (this.#outside.delete(enter)) return;
        this.#inFlight.delete(nth);
        this.#queue?.leave(key, start);
        for (const next of this.#outside) {
          if (!this.#hasRoom(Date.now())) break;
          this.#outside.delete(next);
          next();
        }
      };

      const fail = (thrown: unknown) => {
        reject(thrown);
        // If anything but an error of the caller was thrown, its WebAssembly has trapped and cannot be used again.
        if (caller && Array.isArray(thrown)) this.#idle.push(caller);
        end();
      };

      const succeed = (result: string) => {
        resolve(result);
        this.#idle.push(caller!);
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
        succeed(said);
        return undefined;
      };

      const late = () => {
        const othersCame = this.#apart || hasWaited || this.#crowded >= nth;
        const isContended = wasAnswered || (othersCame && this.#answers > answersBefore);
        const charged = caller ? "the request may have been charged" : "nothing was charged";
        let why: unknown = ["timeout", `no answer within ${this.#deadlineMs} ms; ${charged}`];
        if (caller) {
          this.#silent += 1;
          try {
            const said = caller.late();
            // Some limiters can decide without the store.
            if (!isRequest(said)) return succeed(said);
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

      const wait = () => {
        hasWaited = true;
        if (timer === undefined) tick();
      };

      const enter = () => {
        this.#inFlight.set(nth, Date.now());
        if (this.#inFlight.size > CROWD) this.#crowded = nth;
        if (!this.#queue) {
          start();
        } else if (!this.#queue.enter(key, start)) {
          clearTimeout(timer);
          this.#inFlight.delete(nth);
          reject(crowdedOut("wait for this key"));
        } else if (!caller && !isOver) {
          wait();
        }
      };

      if (this.#hasRoom(Date.now())) {
        enter();
      } else if (this.#outside.size < OUTSIDE_MAX) {
        this.#outside.add(enter);
        wait();
      } else {
        reject(crowdedOut("wait"));
      }
    });
  }

  #hasRoom(now: number): boolean {
    if (this.#inFlight.size < IN_FLIGHT_MAX) return true;
    for (const [nth, began] of this.#inFlight) {
      if (now - began <= ABANDONED_AFTER * this.#deadlineMs) break;
      this.#inFlight.delete(nth);
    }
    return this.#inFlight.size < IN_FLIGHT_MAX;
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
