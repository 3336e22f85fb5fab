import { type ErrorKind, invalid } from "../../error.js";
import { Fields, whole } from "../../fields.js";
import { PolicyLayer } from "../../layer.js";
import type { LimitOptions } from "../../limiter.js";
import { LocalLimiter } from "../../local_limiter.js";
import { COMMON, common, type Options } from "../../options.js";
import { logOf, PolicyStore } from "../../store_health.js";
import type { Keys } from "../../core/key.js";
import type { Verdict } from "../../verdict.js";
import { Memory } from "../memory/memory.js";
import { Staged, type Staging } from "./staged.js";

export * from "../../store_exports.js";

/** The options of a limiter for tests. */
export interface TestOptions extends Omit<Options, "platform" | "failMode"> {
  /** Default: `direct`. */
  platform?: Options["platform"];
  /** Default: `closed`. */
  failMode?: Options["failMode"];
  /** The time at the beginning, in milliseconds since the epoch. Default: the real time. */
  now?: number | undefined;
}

const KINDS: readonly ErrorKind[] = ["unavailable", "timeout", "contended", "refused", "corrupt"];

/**
 * A limiter for the tests of an application: in memory, with counts of its own, and a clock that moves only when it is told to. It
 * denies and fails on demand.
 *
 *     const tidegate = new Tidegate({ policy: { name: "api", quotas: ["10 / 10 s"] } });
 *     tidegate.deny("user:42");
 *     tidegate.fail("unavailable");
 *     tidegate.advance(10_000);
 *     tidegate.restart();
 */
export class Tidegate extends LocalLimiter {
  readonly #staging: Staging;

  constructor(options: TestOptions) {
    const fields = new Fields(options, "", [...COMMON, "now"]);
    const ready = common(new Fields({ failMode: "closed", ...without(options, "now") }, "", COMMON), 1_000, "direct");
    const staging: Staging = { now: fields.whole("now") ?? Date.now(), run: 0, denied: new Map(), failure: undefined };
    super(ready, (core) => {
      const store = new PolicyStore(new PolicyLayer(core, new Staged(core, new Memory(core), staging)));
      return { layer: store, log: logOf(ready, store) };
    });
    this.#staging = staging;
    this.restart();
  }

  /** The time of all decisions, in milliseconds since the epoch. `now` of a check has no effect. */
  get now(): number {
    return this.#staging.now;
  }

  /** Lets time pass. */
  advance(ms: number): void {
    this.#staging.now += whole("ms", ms);
  }

  /** Denies all checks of a key until `retryAfterMs` has passed, whatever it has used. By default all keys. Nothing is charged. */
  deny(key = "", { retryAfterMs = 1_000 }: { retryAfterMs?: number | undefined } = {}): void {
    this.#staging.denied.set(key, this.#staging.now + whole("retryAfterMs", retryAfterMs));
  }

  /** Has all calls fail until `recover`, as if the store did. The fail mode decides on `unavailable` and `timeout` only. */
  fail(kind: ErrorKind = "unavailable"): void {
    if (!KINDS.includes(kind)) throw invalid("kind", `${JSON.stringify(kind)} is no failure of a store; write ${KINDS.join(" or ")}`);
    this.#staging.failure = kind;
  }

  /** Ends `fail` and `deny`. */
  recover(): void {
    this.#staging.failure = undefined;
    this.#staging.denied.clear();
  }

  /** Forgets all counts, failures and denials. The time stays. */
  restart(): void {
    this.#staging.run = Staged.next();
    this.recover();
  }

  /** Like that of any limiter, but the time passes at once. */
  override async blockUntilReady(key: string | Keys, timeoutMs: number, options?: LimitOptions): Promise<Verdict> {
    for (let left = whole("timeoutMs", timeoutMs); ; ) {
      const verdict = await this.limit(key, options);
      const wait = verdict.retryAfterMs;
      if (!verdict.limited || wait === null || wait > left) return verdict;
      this.advance(wait);
      left -= wait;
    }
  }
}

function without<T extends object>(options: T, name: keyof T): Partial<T> {
  const { [name]: _, ...others } = options;
  return others as Partial<T>;
}
