import { tooLate } from "./late_call.js";
import { type Question, timed } from "./question.js";
import type { Queue } from "./queue.js";
import { type Call, type Store, WAITED } from "./store.js";

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
  /** Makes the calls for one key wait for each other, or go together. */
  queue?: Queue;
}

declare const EdgeRuntime: unknown;

/**
 * On Cloudflare, and in Vercel's edge runtime, a request may not wait for what another one has begun: neither for a command nor
 * for a timer.
 */
export const REQUESTS_ARE_APART = typeof EdgeRuntime === "string" || globalThis.navigator?.userAgent === "Cloudflare-Workers";

/** A call from its begin to its end. */
class Running implements Call {
  began = performance.now();
  cancel: AbortController | undefined = undefined;
  inFlight = 1;
  note = 0;
  noted: unknown = undefined;
  way = "";
  waits = false;
  wasSent = false;
  wasAnswered = false;
  hasWaited = false;
  isOver = false;
  /** The timer's steps before this call. -1 if no timer watches it. */
  steps = -1;
  /** Its own timer, if calls may not share one. */
  timer: Timer | undefined = undefined;
  /** Its place in the queue of its key. */
  start: (() => void) | undefined = undefined;
  /** The line that it stands in, and its neighbours there. */
  line: Line | undefined = undefined;
  before: Running | undefined = undefined;
  behind: Running | undefined = undefined;

  constructor(
    /** The number of calls begun before, and of answers had before. */
    public nth: number,
    public answersBefore: number,
    readonly question: Question,
    readonly done: () => void,
    readonly failed: (thrown: unknown) => void,
  ) {}

  get signal(): AbortSignal | undefined {
    return this.cancel?.signal;
  }
}

/** Calls in the order in which they began. A `Set` would leave more to collect. */
class Line {
  first: Running | undefined;
  #last: Running | undefined;
  size = 0;

  add(call: Running): void {
    call.line = this;
    call.before = this.#last;
    if (this.#last) this.#last.behind = call;
    else this.first = call;
    this.#last = call;
    this.size += 1;
  }

  remove(call: Running): void {
    const { before, behind } = call;
    if (before) before.behind = behind;
    else this.first = behind;
    if (behind) behind.before = before;
    else this.#last = before;
    call.line = call.before = call.behind = undefined;
    this.size -= 1;
  }
}

/** Asks a store. */
export interface Runner {
  /** Leaves the numbers of the answer and returns true, if it is known here. Throws an error as a kind and a message. */
  answer(question: Question): boolean;
  /** Asks elsewhere. When the answer is there, `done` is called and may read its numbers. A store in memory has no need of it. */
  run?(question: Question, done: () => void, failed: (thrown: unknown) => void): void;
}

/** Runs a limiter's calls: carries each request to the store and each answer back, until the call ends or is late. */
export class Calls implements Runner {
  readonly #store: Store;
  readonly #deadlineMs: number;
  readonly #apart: boolean;
  readonly #queue: Queue | undefined;
  /** The number of late calls whose request the store has not answered yet. */
  #silent = 0;
  /** The number of answers from the store so far. */
  #answers = 0;
  #begun = 0;
  /** The calls in flight, in order. A platform may drop a request that was cancelled, and its calls never end. */
  readonly #inFlight = new Line();
  /** The calls that wait for room, in order. */
  readonly #outside = new Line();
  /** The number of the last call that was one of a crowd. */
  #crowded = 0;
  /** The timer of all calls, if they may share one. */
  readonly #timer: Timer | undefined;

  constructor(store: Store, { deadlineMs, apart = false, queue }: CallOptions) {
    this.#store = store;
    this.#deadlineMs = deadlineMs;
    this.#apart = apart;
    this.#queue = queue;
    const late = (call: Running) => this.#late(call);
    if (!REQUESTS_ARE_APART) this.#timer = new Timer(deadlineMs, late, () => [this.#inFlight.first, this.#outside.first]);
  }

  answer(question: Question): boolean {
    return this.#store.answer?.(question) ?? false;
  }

  /**
   * Asks a question. When the answer is there, `done` is called and may read its numbers. The deadline covers the wait for room
   * and for the key's turn, too. A call that waits for another one's answer, or for
   * the first connection, does so for one deadline at most. Then its own begins.
   *
   * A late call ends as `timeout` only if the store is to blame. It ends as `contended` if the store has answered this call
   * before, or has answered others while this one waited for its turn or was one of a crowd.
   *
   * A request that can be cancelled costs more than one that cannot. So requests can be cancelled only while the store
   * owes an answer to a late call. The unanswered requests are then at most those in flight when the first call was late.
   */
  run(question: Question, done: () => void, failed: (thrown: unknown) => void): void {
    const call = new Running(++this.#begun, this.#answers, question, done, failed);
    if (this.#hasRoom(call.began)) {
      this.#enter(call);
    } else if (this.#outside.size < OUTSIDE_MAX) {
      this.#outside.add(call);
      this.#wait(call);
    } else {
      failed(crowdedOut("wait"));
    }
  }

  #enter(call: Running): void {
    this.#inFlight.add(call);
    if (this.#inFlight.size > CROWD) this.#crowded = call.nth;
    if (!this.#queue) return this.#start(call);
    call.start = () => this.#start(call);
    if (!this.#queue.enter(call.question, call.start)) {
      call.start = undefined;
      this.#fail(call, crowdedOut("wait for this key"));
    } else if (!call.wasSent && !call.isOver) {
      this.#wait(call);
    }
  }

  #wait(call: Running): void {
    call.hasWaited = true;
    this.#watch(call);
  }

  /** Has a timer watch the call until it ends. */
  #watch(call: Running): void {
    if (call.steps >= 0) return;
    if (!this.#timer) call.timer = new Timer(this.#deadlineMs, (late) => this.#late(late), () => [call.isOver ? undefined : call]);
    (this.#timer ?? call.timer!).watch(call);
  }

  #start(call: Running): void {
    // Others may have been asked since.
    if (call.hasWaited) timed(call.question);
    if (this.#silent > 0) call.cancel = new AbortController();
    call.inFlight = this.#inFlight.size;
    this.#step(call, () => this.#store.send(call));
  }

  /** Takes a step that ends the call or asks the store. */
  #step(call: Running, step: () => Promise<unknown> | undefined): void {
    let sent: Promise<unknown> | undefined;
    try {
      sent = step();
    } catch (thrown) {
      return this.#fail(call, thrown);
    }
    if (!sent) return this.#succeed(call);
    this.#watch(call);
    if (call.waits) return void sent.then(() => this.#goOn(call));
    call.wasSent = true;
    sent.then(
      (answer) => {
        this.#answers += 1;
        this.#resume(call, () => this.#store.answered(call, answer));
      },
      (thrown) => this.#resume(call, () => this.#store.threw(call, thrown)),
    );
  }

  /** Begins the own call of one that has waited for another one's answer. It begins last, so calls stay in the order of their deadlines. */
  #goOn(call: Running): void {
    if (!call.waits) return;
    call.waits = false;
    call.line?.remove(call);
    call.timer?.stop();
    [call.began, call.nth, call.answersBefore] = [performance.now(), ++this.#begun, this.#answers];
    [call.hasWaited, call.steps, call.timer] = [false, -1, undefined];
    this.#inFlight.add(call);
    if (this.#inFlight.size > CROWD) this.#crowded = call.nth;
    this.#step(call, () => this.#store.answered(call, WAITED));
  }

  #resume(call: Running, step: () => Promise<unknown> | undefined): void {
    call.wasAnswered = true;
    if (call.isOver) this.#silent -= 1;
    else this.#step(call, step);
  }

  #succeed(call: Running): void {
    call.done();
    this.#end(call);
  }

  #fail(call: Running, thrown: unknown): void {
    call.failed(thrown);
    this.#end(call);
  }

  #end(call: Running): void {
    call.isOver = true;
    const wasOutside = call.line === this.#outside;
    call.line?.remove(call);
    if (call.timer) call.timer.stop();
    else if (this.#inFlight.size + this.#outside.size === 0) this.#timer?.pause();
    if (wasOutside) return;
    // Stores that have a queue count by one key.
    if (call.start) this.#queue?.leave(call.question.key, call.start);
    for (let next = this.#outside.first; next && this.#hasRoom(performance.now()); next = this.#outside.first) {
      this.#outside.remove(next);
      this.#enter(next);
    }
  }

  #late(call: Running): void {
    // The other one has not ended in time, which says nothing of this one.
    if (call.waits) return this.#goOn(call);
    const othersCame = this.#apart || call.hasWaited || this.#crowded >= call.nth;
    const isContended = call.wasAnswered || (othersCame && this.#answers > call.answersBefore);
    if (call.wasSent) {
      this.#silent += 1;
      if (this.#store.late?.(call)) return this.#succeed(call);
    }
    this.#fail(call, tooLate(isContended, this.#store.name, this.#deadlineMs, call.wasSent));
    call.cancel?.abort();
  }

  #hasRoom(now: number): boolean {
    if (this.#inFlight.size < IN_FLIGHT_MAX) return true;
    for (let { first } = this.#inFlight; first && now - first.began > ABANDONED_AFTER * this.#deadlineMs; { first } = this.#inFlight) {
      this.#inFlight.remove(first);
    }
    return this.#inFlight.size < IN_FLIGHT_MAX;
  }
}

/** A timer for calls with the same deadline. */
class Timer {
  readonly #deadlineMs: number;
  readonly #late: (call: Running) => void;
  /** The first of the calls in each line. */
  readonly #firsts: () => (Running | undefined)[];
  #steps = 0;
  #pending: ReturnType<typeof setTimeout> | undefined;
  #isPaused = false;

  constructor(deadlineMs: number, late: (call: Running) => void, firsts: () => (Running | undefined)[]) {
    this.#deadlineMs = deadlineMs;
    this.#late = late;
    this.#firsts = firsts;
  }

  watch(call: Running): void {
    call.steps = this.#steps;
    if (this.#pending === undefined) this.#wait(call);
    else if (this.#isPaused) handle(this.#pending).ref?.();
    this.#isPaused = false;
  }

  /** Nothing is watched. The pending step stays: a timer for each of many calls, one after another, would cost more. */
  pause(): void {
    const { unref } = handle(this.#pending);
    if (!unref) return this.stop();
    if (!this.#isPaused) unref.call(this.#pending);
    this.#isPaused = true;
  }

  stop(): void {
    clearTimeout(this.#pending);
    this.#pending = undefined;
  }

  #wait({ began }: Running): void {
    const left = began + this.#deadlineMs - performance.now();
    this.#pending = setTimeout(() => this.#step(), Math.min(Math.max(Math.ceil(left), 1), Math.ceil(this.#deadlineMs / STEPS)));
  }

  #step(): void {
    this.#pending = undefined;
    this.#steps += 1;
    const now = performance.now();
    const isLate = (call: Running) => call.steps >= 0 && this.#steps - call.steps >= STEPS && now - call.began >= this.#deadlineMs;
    for (let late = this.#firsts().find((call) => call && isLate(call)); late; late = this.#firsts().find((call) => call && isLate(call))) {
      this.#late(late);
    }
    const next = this.#firsts().find((call) => call !== undefined);
    if (next && this.#pending === undefined) this.#wait(next);
  }
}

/** On Node.js a timer is an object, elsewhere a number. */
export function handle(timer: unknown): { ref?: () => void; unref?: () => void } {
  return Object(timer) as { ref?: () => void; unref?: () => void };
}

/** The error of a call without a place, as a kind and a message. */
function crowdedOut(where: string): [kind: string, message: string] {
  return ["contended", `too many requests ${where}; nothing was charged`];
}
