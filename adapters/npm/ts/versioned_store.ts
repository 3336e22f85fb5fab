// The contract of a store with conditional writes, and what of its answers can be used.

import { type ErrorKind, TidegateError } from "./error.js";
import { shown } from "./fields.js";
import { kindOfLoss, said } from "./store.js";

/** A value that was read, and what identifies it among all values that its name has had: a number, an ETag, or the value itself. */
export interface VersionedValue {
  readonly bytes: Uint8Array;
  /** Anything but null, undefined and an empty text. Only the store looks at it. */
  readonly version: unknown;
}

/**
 * Whether a write was made. `true`: it was. `false`: another write came first, and nothing was written.
 *
 * A store may say more, and saves trips. After a write, the version of the new value: with the option `remember`, the next decision
 * needs no read. After a write that came too late, the present value, or null if there is none: the next attempt needs no read.
 */
export type Swap = boolean | { readonly written: boolean; readonly version?: unknown; readonly present?: VersionedValue | null | undefined };

/**
 * A store of your own: values under names, each with a version, and a write that is made only if the version is still the same. Most
 * databases have that: a conditional write, a compare-and-swap, a transaction, `If-Match`.
 *
 * - **Atomic.** `create` and `update` compare and write in one step of the database. To read first and then write is not enough: two
 *   requests would be admitted in place of one.
 * - **Fresh.** `read` returns the last write. If it may return an old value, say so with `staleReads`: the limit still holds, because no
 *   write follows an old value, but a request may be denied for too long.
 * - **Versions.** Each write changes the version, also one that writes the same bytes again after a deletion. A version of a value may be the
 *   value itself: equal values decide alike.
 * - **Names** are 1 to 512 characters of ASCII: letters, digits and `_.:@=+-~|%/`. Letters in upper and lower case differ. **Bytes** are any
 *   bytes, and must come back as they are: some 20 for each quota, and up to 12 KiB for a sliding log.
 * - **Time to live.** After `ttlMs` by the database's clock, and not earlier, a value is as if it were not there: `read` returns nothing, and
 *   `create` succeeds. If the database removes late, compare with the time yourself. If it never removes anything, say so with
 *   `keepsForever`: decisions are right nevertheless, and the number of rows only grows.
 * - **Failures.** Throw, or reject. Nothing is charged if nothing was written. A {@link TidegateError} of the kind `unavailable`, `timeout`,
 *   `contended`, `refused` or `corrupt` is what it says. Anything else is `unavailable`, on which the fail mode decides. So throw
 *   `contended` for what a flood of requests can cause, such as a pool without a free connection: it never opens the gate. What is
 *   thrown is told in errors: no secret may be in it.
 *
 * Each call is behind the limiter's deadline. `npx @tidegate/edge conformance ./store.js` replays fixtures against a store, and says what is wrong.
 */
export interface VersionedStore {
  /** What errors call the store. Default: `store`. */
  readonly name?: string | undefined;
  /** Whether `read` may return an old value. Default: false. */
  readonly staleReads?: boolean | undefined;
  /** Whether values stay after their time to live. Default: false. */
  readonly keepsForever?: boolean | undefined;
  /** The value under a name, and its version. Undefined or null if there is none. */
  read(name: string): PromiseLike<VersionedValue | undefined | null>;
  /** Writes a value if there is none under its name. */
  create(name: string, bytes: Uint8Array, ttlMs: number): PromiseLike<Swap>;
  /** Writes a value over the one with this version. */
  update(name: string, bytes: Uint8Array, version: unknown, ttlMs: number): PromiseLike<Swap>;
  /** Removes the value under a name, if there is one. */
  delete(name: string): PromiseLike<unknown>;
}

/** The functions of a store. */
export const FUNCTIONS = ["read", "create", "update", "delete"] as const;

/** The longest value: more than any policy's. */
const BYTES_MAX = 1_048_576;

/** The kinds of error that a store may state. */
const KINDS: readonly ErrorKind[] = ["unavailable", "timeout", "contended", "refused", "corrupt"];

/** How much of what is thrown is told. */
const SAID_MAX = 500;

/** What a store has read. Throws what cannot be one. */
export function valueOf(store: string, answer: unknown, by = "read"): VersionedValue | undefined {
  if (answer === undefined || answer === null) return undefined;
  const { bytes, version } = Object(answer) as Partial<VersionedValue>;
  if (!(bytes instanceof Uint8Array)) throw wrong("corrupt", store, `${by} gave ${shown(answer)} in place of { bytes, version } with a Uint8Array`);
  if (bytes.length > BYTES_MAX) throw wrong("corrupt", store, `${by} gave ${bytes.length} bytes, which nobody has written`);
  if (version === undefined || version === null || version === "") throw wrong("refused", store, `${by} gave a value without a version, so it cannot be written safely; nothing was charged`);
  return { bytes, version };
}

/** What a store says of a write. Throws what says nothing. */
export function swapOf(store: string, answer: unknown): { isWritten: boolean; version?: unknown; present?: VersionedValue | null | undefined } {
  if (typeof answer === "boolean") return { isWritten: answer };
  const { written, version, present } = Object(answer) as { written?: unknown; version?: unknown; present?: unknown };
  if (written === true) return { isWritten: true, version: version === "" || version === null ? undefined : version };
  if (written === false) return { isWritten: false, present: present === null ? null : valueOf(store, present, "a write") };
  throw wrong("refused", store, `a write gave ${shown(answer)} in place of true or false, so nobody knows whether it was made; the request may have been charged`);
}

/** The error for what a store has thrown. */
export function thrownBy(store: string, thrown: unknown): [kind: ErrorKind, message: string] {
  const { name, kind, message } = Object(thrown) as Partial<TidegateError>;
  // The application may have loaded the class twice.
  if (name === "TidegateError") return wrong(KINDS.includes(kind!) ? kind! : "refused", store, String(message).slice(0, SAID_MAX));
  const why = said(thrown).slice(0, SAID_MAX);
  return wrong(kindOfLoss(why), store, `the store has failed; if it was writing, the request may have been charged (${why})`);
}

function wrong(kind: ErrorKind, store: string, what: string): [kind: ErrorKind, message: string] {
  return [kind, `${store}: ${what}`];
}
