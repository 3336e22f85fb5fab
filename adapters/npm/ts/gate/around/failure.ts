import type { ErrorKind, TidegateError } from "../../error.js";

/** The kind of what a limiter rejects with. */
export function kindOf(thrown: unknown): ErrorKind {
  return (thrown as TidegateError).kind;
}

/** Whether a store does not answer, so that another one may decide. */
export function isStoreFailure(thrown: unknown): boolean {
  return ["unavailable", "timeout"].includes(kindOf(thrown));
}
