import type { Engine, Gate } from "./glue.js";
import type { Told } from "./verdict.js";

/** How many numbers a decision has, besides three for each quota. */
const FACTS = 7;
const QUOTAS_MAX = 8;

/** The numbers of the decisions by one policy, in the memory of the WebAssembly. */
export class Numbers implements Told {
  readonly names: readonly string[];
  readonly #engine: Engine;
  readonly #gate: Gate;
  readonly #count: number;
  #view: Float64Array = new Float64Array(0);

  constructor(engine: Engine, gate: Gate) {
    this.#engine = engine;
    this.#gate = gate;
    this.names = gate.quotas().split(",");
    this.#count = FACTS + 3 * this.names.length;
  }

  /** A copy of the last decision's numbers. */
  read(): number[] {
    const n = this.view;
    if (this.#count === 10) return [n[0]!, n[1]!, n[2]!, n[3]!, n[4]!, n[5]!, n[6]!, n[7]!, n[8]!, n[9]!];
    return Array.from(n.subarray(0, this.#count));
  }

  text(numbers: readonly number[]): string {
    this.view.set(numbers);
    return this.#gate.told();
  }

  /** The memory moves when it grows. Then a view of it has no length. */
  get view(): Float64Array {
    if (this.#view.length === 0) {
      const { memory, numbersAt } = this.#engine;
      this.#view = new Float64Array(memory().buffer, numbersAt(), FACTS + 3 * QUOTAS_MAX);
    }
    return this.#view;
  }
}
