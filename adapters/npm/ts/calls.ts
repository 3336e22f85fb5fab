import type { Caller, Gate } from "#upstash/glue";
import type { Queue } from "./queue.js";

/** A store's answer: a status in HTTP's terms, the bytes, and their version if the store tells it. */
export type Answer = [status: number, bytes: Uint8Array, version?: string | undefined];

/** Sends a request to the store. It throws if there is no answer. */
export type Ask = (wanted: string, signal: AbortSignal | undefined) => Promise<Answer>;

/**
 * The deadline is counted in this many steps, so that a process that was busy reads the answers it already has before it
 * calls them late: however long it was busy, that counts as one step.
 */
const STEPS = 4;

/** With more calls than this under way at once, a late answer may be late because of the other calls. */
const CROWD = 64;

/** More calls than this are not begun: a process with so many under way cannot send another in time. */
const UNDER_WAY_MAX = 2_048;

/** Runs a limiter's calls: carries each request to the store and each answer back, until the call ends or is late. */
export class Calls {
  readonly #gate: Gate;
  readonly #ask: Ask;
  readonly #deadlineMs: number;
  readonly #queue: Queue | undefined;
  readonly #idle: Caller[] = [];
  /** Late calls whose request the store has still not answered. */
  #silent = 0;
  /** Answers from the store so far. */
  #answers = 0;
  #begun = 0;
  #underWay = 0;
  /** The last call that found a crowd. */
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
   * owes an answer to a late call. This bounds what piles up by what was under way when the first call was late.
   */
  run(key: string, begins: (caller: Caller) => string): Promise<string> {
    return new Promise((resolve, reject) => {
      if (this.#underWay >= UNDER_WAY_MAX) return reject(crowdedOut("are under way"));
      const [nth, answersBefore] = [++this.#begun, this.#answers];
      if (++this.#underWay > CROWD) this.#crowded = nth;
      let caller: Caller | undefined;
      let cancel: AbortController | undefined;
      let timer: number | undefined;
      let [wasAnswered, hasWaited, isOver] = [false, false, false];
      let stepsLeft = STEPS;

      const end = () => {
        isOver = true;
        clearTimeout(timer);
        this.#underWay -= 1;
        this.#queue?.leave(key, start);
      };

      const fail = (thrown: unknown) => {
        reject(thrown);
        // A caller that did not throw an error of its own has trapped and cannot be used again.
        if (caller && Array.isArray(thrown)) this.#idle.push(caller);
        end();
      };

      /** Takes the next step. Returns the request that the call makes of the store, or nothing if the call has ended. */
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
        this.#underWay -= 1;
        reject(crowdedOut("wait for this key"));
      } else if (!caller && !isOver) {
        hasWaited = true;
        tick();
      }
    });
  }
}

/** An error in the form of the WebAssembly's. */
function crowdedOut(where: string): [kind: string, message: string] {
  return ["contended", `too many requests ${where}; nothing was charged`];
}

/** Whether a call's text is a request to the store, a JSON array. Anything else is its result. */
function isRequest(text: string): boolean {
  return text.startsWith("[");
}
