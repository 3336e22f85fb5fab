import type { Policy } from "./core/policy.js";
import { CHECK, type Question } from "./question.js";

/** The most keys whose words are remembered. */
const KEYS_MAX = 4_096;

/** The longest key that is remembered as it is given: a client may choose a part of it. */
export const KEY_LEN_MAX = 256;

/** What the usual checks ask their store: if the store's clock decides, it is the same each time for a key and a policy. */
export class Words<T> {
  readonly #isTimeless: boolean;
  readonly #made = new Map<string, { readonly policy: Policy; readonly words: T }>();

  constructor(isTimeless: boolean) {
    this.#isTimeless = isTimeless;
  }

  get(question: Question): T | undefined {
    const made = this.#fits(question) ? this.#made.get(question.key) : undefined;
    return made?.policy === question.policy ? made.words : undefined;
  }

  set(question: Question, words: T): void {
    if (!this.#fits(question)) return;
    if (this.#made.size >= KEYS_MAX) this.#made.clear();
    this.#made.set(question.key, { policy: question.policy, words });
  }

  #fits({ kind, key, others, cost, token }: Question): boolean {
    return this.#isTimeless && kind === CHECK && cost === 1 && token === undefined && others.length === 0 && key.length <= KEY_LEN_MAX;
  }
}
