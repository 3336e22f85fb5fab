import type { Question } from "./question.js";

/** What a call is told that has waited for another one's answer, or for the first connection. The store has not answered this one. */
export const WAITED = Symbol();

/** A call of a store: a question, and what the store notes of its way. */
export interface Call {
  readonly question: Question;
  /** Undefined if it cannot be cancelled. */
  readonly signal: AbortSignal | undefined;
  /** How many are in flight, with this one. */
  inFlight: number;
  note: number;
  noted: unknown;
  /** How the store has sent it. */
  way: string;
  /** Whether others are told with it, so that one trip takes all. */
  readonly isTogether?: boolean;
  /** Whether it waits for the answer to another question, or for the first connection. */
  waits: boolean;
  /** Whether it has ended, so that nobody reads its answer. */
  readonly isOver: boolean;
}

/** A call that begins. `inFlight` are told together. */
export function called(question: Question, signal?: AbortSignal, inFlight = 1): Call {
  return { question, signal, inFlight, note: 0, noted: undefined, way: "", isTogether: inFlight > 1, waits: false, isOver: false };
}

/** A store that is asked over the host. It throws errors as a kind and a message. */
export interface Store {
  /** What errors call it. */
  readonly name: string;
  /** Decides a question that needs no call, and leaves its numbers. If it returns false, nothing has happened. */
  answer?(question: Question): boolean;
  /**
   * Sends a question. Undefined if it is decided without the store, and its numbers are left. If the call `waits`, what is returned is not
   * of its own: it resolves when another one has ended, or when there is a connection.
   */
  send(call: Call): Promise<unknown> | undefined;
  /** Reads what the promise has resolved to, or `WAITED`. Undefined if the numbers of the decision are left; otherwise the store is asked again. */
  answered(call: Call, answer: unknown): Promise<unknown> | undefined;
  /** Reads what the promise was rejected with. */
  threw(call: Call, thrown: unknown): Promise<unknown> | undefined;
  /** The deadline has passed. Whether the question is decided without an answer. */
  late?(call: Call): boolean;
}

/** What an error says, with its cause. */
export function said(thrown: unknown): string {
  if (typeof thrown !== "object" || thrown === null) return String(thrown);
  const { name, message, cause } = thrown as Partial<Error>;
  const why = [message, (cause as Error | undefined)?.message].filter(Boolean).join(": ");
  return `${String(name)}: ${why}`;
}

/**
 * The kind of a failure without an answer. A client can use up the files of a process with enough connections, so that it cannot
 * connect to the store. A flood that starts more and more processes can use up the connections of the store.
 */
export function kindOfLoss(said: string): "contended" | "unavailable" {
  return /EMFILE|ENFILE|too many open files|max number of clients/i.test(said) ? "contended" : "unavailable";
}
