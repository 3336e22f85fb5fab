import { BALANCES } from "../balances.js";
import type { Part } from "../core/policy.js";
// All of it, so that the entry shares its chunks.
import { TidegateObject as Plain } from "../stores/cloudflare/index.js";

/**
 * The Durable Object that counts, also balances. Export it in place of that of `@tidegate/edge/cloudflare`:
 *
 *     export { TidegateObject } from "@tidegate/edge/credits/cloudflare";
 */
export class TidegateObject extends Plain {
  static {
    // Bundlers rename one of two classes of a name.
    Object.defineProperty(this, "name", { value: "TidegateObject" });
  }

  /** @internal */
  protected override get balances(): Part {
    return BALANCES;
  }
}
