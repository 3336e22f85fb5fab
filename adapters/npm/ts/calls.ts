import type { Caller, Gate } from "./glue.js";
import { begin, type Question } from "./question.js";
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

declare const EdgeRuntime: unknown;

/**
 * On Cloudflare, and in Vercel's edge runtime, a request may not wait for what another one has begun: neither for a command nor
 * for a timer.
 */
export const REQUESTS_ARE_APART = typeof EdgeRuntime === "string" || globalThis.navigator?.userAgent === "Cloudflare-Workers";

/** A call from its begin to its end. */
class Call {
  readonly began = performance.now();
  caller: Caller | undefined;
  cancel: AbortController | undefined;
  wasAnswered = false;
  hasWaited = false;
  isOver = false;
  /** The timer's steps before this call, and the timer. */
  steps = 0;
  timer: Timer | undefined;
  /** Its place in the queue of its key. */
  start: (() => void) | undefined;

  constructor(
    /** The number of calls begun before, and of answers had before. */
    readonly nth: number,
    readonly answersBefore: number,
    readonly question: Question,
    readonly done: () => void,
    readonly failed: (thrown: unknown) => void,
  ) {}
}

/** Asks a store. */
export interface Runner {
  /** When the answer is there, `done` is called and may read its numbers. */
  run(question: Question, done: () => void, failed: (thrown: unknown) => void): void;
  /** If the store is in memory: leaves the numbers of the answer at once, or throws. */
  answer?(question: Question): void;
}

/** Runs a limiter's calls: carries each request to the store and each answer back, until the call ends or is late. */
export class Calls implements Runner {
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
  /** The calls in flight, in order. A platform may drop a request that was cancelled, and its calls never end. */
  readonly #inFlight = new Set<Call>();
  /** The calls that wait for room, in order. */
  readonly #outside = new Set<Call>();
  /** The number of the last call that was one of a crowd. */
  #crowded = 0;
  /** The timer of all calls, if they may share one. */
  #timer: Timer | undefined;

  constructor(gate: Gate, ask: Ask, { deadlineMs, apart = false, queue }: CallOptions) {
    this.#gate = gate;
    this.#ask = ask;
    this.#deadlineMs = deadlineMs;
    this.#apart = apart;
    this.#queue = queue;
  }

  /**
   * Asks a question. When the answer is there, `done` is called and may read its numbers. The deadline covers the wait for room
   * and for the key's turn, too.
   *
   * A late call ends as `timeout` only if the store is to blame. It ends as `contended` if the store has answered this call
   * before, or has answered others while this one waited for its turn or was one of a crowd.
   *
   * A request that can be cancelled costs more than one that cannot. So requests can be cancelled only while the store
   * owes an answer to a late call. The unanswered requests are then at most those in flight when the first call was late.
   */
  run(question: Question, done: () => void, failed: (thrown: unknown) => void): void {
    const call = new Call(++this.#begun, this.#answers, question, done, failed);
    if (this.#hasRoom(call.began)) {
      this.#enter(call);
    } else if (this.#outside.size < OUTSIDE_MAX) {
      this.#outside.add(call);
      this.#wait(call);
    } else {
      failed(crowdedOut("wait"));
    }
  }

  #enter(call: Call): void {
    this.#inFlight.add(call);
    if (this.#inFlight.size > CROWD) this.#crowded = call.nth;
    if (!this.#queue) return this.#start(call);
    call.start = () => this.#start(call);
    if (!this.#queue.enter(keyOf(call), call.start)) {
      call.isOver = true;
      call.timer?.remove(call);
      this.#inFlight.delete(call);
      call.failed(crowdedOut("wait for this key"));
    } else if (!call.caller && !call.isOver) {
      this.#wait(call);
    }
  }

  #wait(call: Call): void {
    call.hasWaited = true;
    this.#watch(call);
  }

  /** Has the timer watch the call until it ends. */
  #watch(call: Call): void {
    if (call.timer) return;
    const timer = REQUESTS_ARE_APART ? undefined : this.#timer;
    call.timer = timer ?? new Timer(this.#deadlineMs, (late) => this.#late(late));
    if (!REQUESTS_ARE_APART) this.#timer = call.timer;
    call.timer.add(call);
  }

  #start(call: Call): void {
    const caller = (call.caller = this.#idle.pop() ?? this.#gate.caller());
    let isDone: boolean;
    try {
      isDone = begin(caller, call.question);
    } catch (thrown) {
      return this.#fail(call, thrown);
    }
    if (isDone) return this.#succeed(call);
    if (this.#silent > 0) call.cancel = new AbortController();
    this.#watch(call);
    this.#carry(call, caller);
  }

  /** Carries the call's request to the store, and the answer back. */
  #carry(call: Call, caller: Caller): void {
    this.#ask(caller.wanted(), call.cancel?.signal).then(
      (answer) => {
        if (answer[0] < 500) this.#answers += 1;
        call.wasAnswered = true;
        this.#resume(call, () => caller.answered(...answer));
      },
      (thrown) => {
        const { name, message, cause } = Object(thrown) as Partial<Error>;
        const why = [message, (cause as Error | undefined)?.message].filter(Boolean).join(": ");
        this.#resume(call, () => caller.failed(String(name), why));
      },
    );
  }

  #resume(call: Call, step: () => boolean): void {
    if (call.isOver) {
      this.#silent -= 1;
      return;
    }
    let isDone: boolean;
    try {
      isDone = step();
    } catch (thrown) {
      return this.#fail(call, thrown);
    }
    if (isDone) this.#succeed(call);
    else this.#carry(call, call.caller!);
  }

  #succeed(call: Call): void {
    call.done();
    this.#idle.push(call.caller!);
    this.#end(call);
  }

  #fail(call: Call, thrown: unknown): void {
    call.failed(thrown);
    // If anything but an error of the caller was thrown, its WebAssembly has trapped and cannot be used again.
    if (call.caller && Array.isArray(thrown)) this.#idle.push(call.caller);
    this.#end(call);
  }

  #end(call: Call): void {
    call.isOver = true;
    call.timer?.remove(call);
    if (this.#outside.delete(call)) return;
    this.#inFlight.delete(call);
    if (call.start) this.#queue?.leave(keyOf(call), call.start);
    for (const next of this.#outside) {
      if (!this.#hasRoom(performance.now())) break;
      this.#outside.delete(next);
      this.#enter(next);
    }
  }

  #late(call: Call): void {
    const { caller } = call;
    const othersCame = this.#apart || call.hasWaited || this.#crowded >= call.nth;
    const isContended = call.wasAnswered || (othersCame && this.#answers > call.answersBefore);
    const charged = caller ? "the request may have been charged" : "nothing was charged";
    let why: unknown = ["timeout", `no answer within ${this.#deadlineMs} ms; ${charged}`];
    if (caller) {
      this.#silent += 1;
      try {
        // Some limiters can decide without the store.
        if (caller.late()) return this.#succeed(call);
      } catch (thrown) {
        why = thrown;
      }
    }
    if (isContended && Array.isArray(why)) {
      why = ["contended", `other requests kept this one from being decided within ${this.#deadlineMs} ms; ${charged}`];
    }
    this.#fail(call, why);
    call.cancel?.abort();
  }

  #hasRoom(now: number): boolean {
    if (this.#inFlight.size < IN_FLIGHT_MAX) return true;
    for (const call of this.#inFlight) {
      if (now - call.began <= ABANDONED_AFTER * this.#deadlineMs) break;
      this.#inFlight.delete(call);
    }
    return this.#inFlight.size < IN_FLIGHT_MAX;
  }
}

/** Stores that have a queue count by one key. */
function keyOf({ question }: Call): string {
  return question.key;
}

/** One timer for calls with the same deadline. */
class Timer {
  readonly #deadlineMs: number;
  readonly #late: (call: Call) => void;
  /** In the order of their deadlines. */
  readonly #calls = new Set<Call>();
  #steps = 0;
  #pending: ReturnType<typeof setTimeout> | undefined;

  constructor(deadlineMs: number, late: (call: Call) => void) {
    this.#deadlineMs = deadlineMs;
    this.#late = late;
  }

  add(call: Call): void {
    call.steps = this.#steps;
    this.#calls.add(call);
    if (this.#pending === undefined) this.#wait(call);
    else if (this.#calls.size === 1) handle(this.#pending).ref?.();
  }

  /** The pending step stays: to set a timer for each of many calls that come one after another would cost more. */
  remove(call: Call): void {
    this.#calls.delete(call);
    if (this.#calls.size > 0) return;
    const { unref } = handle(this.#pending);
    if (unref && !REQUESTS_ARE_APART) return void unref.call(this.#pending);
    clearTimeout(this.#pending);
    this.#pending = undefined;
  }

  #wait({ began }: Call): void {
    const left = began + this.#deadlineMs - performance.now();
    this.#pending = setTimeout(() => this.#step(), Math.min(Math.max(Math.ceil(left), 1), Math.ceil(this.#deadlineMs / STEPS)));
  }

  #step(): void {
    this.#pending = undefined;
    this.#steps += 1;
    const now = performance.now();
    for (const call of this.#calls) {
      if (this.#steps - call.steps < STEPS || now - call.began < this.#deadlineMs) break;
      this.#calls.delete(call);
      this.#late(call);
    }
    const [next] = this.#calls;
    if (next && this.#pending === undefined) this.#wait(next);
  }
}

/** On Node.js a timer is an object, elsewhere a number. */
function handle(timer: unknown): { ref?: () => void; unref?: () => void } {
  return Object(timer) as { ref?: () => void; unref?: () => void };
}

/** An error in the form that the WebAssembly throws. */
function crowdedOut(where: string): [kind: string, message: string] {
  return ["contended", `too many requests ${where}; nothing was charged`];
}
