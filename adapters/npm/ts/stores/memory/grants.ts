import { later } from "../../core/arithmetic.js";

/** The most grants that are remembered. None makes room for another, which could be made twice then. */
const GRANTS_MAX = 1_000_000;

/** How many each grant looks at, and how many if there is no room. */
const VISIT = 8;
const VISIT_FULL = 256;

/** What was granted under a token, and until when that is remembered. */
interface Granted {
  readonly until: number;
  readonly units: number;
}

/** The grants by their tokens, of each place that counts. */
const places = new WeakMap<object, Grants>();

class Grants {
  readonly made = new Map<string, Granted>();
  #left: MapIterator<[string, Granted]> | undefined;

  /** Removes some of those that have expired. */
  visit(now: number, count: number): void {
    for (let nth = 0; nth < count; nth++) {
      this.#left ??= this.made.entries();
      const next = this.#left.next();
      if (next.done) {
        this.#left = undefined;
        break;
      }
      if (next.value[1].until <= now) this.made.delete(next.value[0]);
    }
  }
}

/** Makes a grant once for each token: see `BalanceParts`. */
export function once(place: object, token: string, { now, cost, extra }: { readonly now: number; readonly cost: number; readonly extra: number }, make: () => void): boolean {
  const grants = places.get(place) ?? new Grants();
  places.set(place, grants);
  grants.visit(now, grants.made.size < GRANTS_MAX ? VISIT : VISIT_FULL);
  const first = grants.made.get(token);
  if (first && first.until > now) {
    if (first.units !== cost) throw ["token_reused", "this idempotency token belongs to a charge of another cost; use one token for each request"];
    return true;
  }
  if (grants.made.size >= GRANTS_MAX) throw ["refused", "the memory remembers no further grant, and nothing was granted; remember grants for a shorter time"];
  make();
  grants.made.set(token, { until: later(now, extra), units: cost });
  return false;
}
