import type { Question } from "./question.js";

/** What a call is told that has waited for another one's answer, or for the first connection. The store has not answered this one. */
export const WAITED = Symbol();

/** A store that is asked over the host. It throws errors as a kind and a message. */
export interface Store {
  /** What errors call it. */
  readonly name: string;
  /** Decides a question that needs no call, and leaves its numbers. If it returns false, nothing has happened. */
  answer?(question: Question): boolean;
  /**
   * Sends a question, the last of so many in flight. Undefined if it is decided without the store, and its numbers are left. If the
   * question `waits`, what is returned is not of its own call: it resolves when another one has ended, or when there is a connection.
   */
  send(question: Question, signal: AbortSignal | undefined, inFlight: number): Promise<unknown> | undefined;
  /** Reads what the promise has resolved to, or `WAITED`. Undefined if the numbers of the decision are left; otherwise the store is asked again. */
  answered(question: Question, answer: unknown, signal: AbortSignal | undefined): Promise<unknown> | undefined;
  /** Reads what the promise was rejected with. */
  threw(question: Question, thrown: unknown, signal: AbortSignal | undefined): Promise<unknown> | undefined;
  /** The deadline has passed. Whether the question is decided without an answer. */
  late?(question: Question): boolean;
}

/** What an error says, with its cause. */
export function said(thrown: unknown): string {
  const { name, message, cause } = Object(thrown) as Partial<Error>;
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
