import type { Capabilities } from "../../core/capabilities.js";
import type { Decision } from "../../core/decide.js";
import { ALLOWED, STATUS } from "../../decision_numbers.js";
import type { Layer } from "../../layer.js";
import { CHECK, type Question } from "../../question.js";
import type { RulesPolicy } from "../rules_policy.js";
import { askedBy } from "./other_policy.js";

/** How often a proposal would have decided differently. */
export interface Counts {
  bothAdmit: number;
  bothDeny: number;
  onlyProposalDenies: number;
  onlyCurrentDenies: number;
  /** Checks of the proposal that failed. */
  failed: number;
}

/**
 * Tries a proposed limit on the checks by a policy of the same name, with counts of its own, and counts the differences. Only the
 * current limit decides. It does what core's `Shadow` does, to which `test/core-gate-around.test.mjs` holds it.
 */
export class Shadow implements Layer {
  readonly #layer: Layer;
  readonly #proposal: RulesPolicy;
  readonly #counts: Counts = { bothAdmit: 0, bothDeny: 0, onlyProposalDenies: 0, onlyCurrentDenies: 0, failed: 0 };

  constructor(layer: Layer, proposal: RulesPolicy) {
    this.#layer = layer;
    this.#proposal = proposal.withOwnCounts("~");
  }

  get capabilities(): Capabilities {
    return this.#layer.capabilities;
  }

  /** The differences so far. */
  get counts(): Readonly<Counts> {
    return { ...this.#counts };
  }

  async ask(question: Question): Promise<Decision> {
    if (question.policy.name !== this.#proposal.name) return this.#layer.ask(question);
    if (question.kind === CHECK) {
      const decision = await this.#layer.ask(question);
      this.#counts[await this.#compare(question, decision)] += 1;
      return decision;
    }
    try {
      return await this.#layer.ask(question);
    } finally {
      await this.#propose(question).catch(() => undefined);
    }
  }

  async #propose(question: Question): Promise<Decision> {
    return this.#layer.ask(askedBy(this.#proposal, question));
  }

  async #compare(check: Question, current: Decision): Promise<keyof Counts> {
    try {
      const proposed = await this.#propose(check);
      if (proposed[STATUS] === ALLOWED) return current[STATUS] === ALLOWED ? "bothAdmit" : "onlyCurrentDenies";
      return current[STATUS] === ALLOWED ? "onlyProposalDenies" : "bothDeny";
    } catch {
      return "failed";
    }
  }
}
