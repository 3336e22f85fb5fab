/**
 * What went wrong. Only `unavailable` and `timeout` are failures of the store, on which a limiter may fail open.
 *
 * `token_reused`: the token of a check belongs to a charge of another cost. `unknown_charge`: no charge with this token is
 * remembered, because there was none or its time to live has passed. Neither charges or returns anything. `misconfigured`: a
 * middleware finds no address of the connection, so all clients would share one count.
 */
export type ErrorKind =
  | "invalid"
  | "unavailable"
  | "timeout"
  | "contended"
  | "corrupt"
  | "refused"
  | "unsupported"
  | "token_reused"
  | "unknown_charge"
  | "misconfigured";

/**
 * An error whose message says what to write instead. It never contains a token or an API key.
 *
 *     new Tidegate({ …, policy: { name: "api", quotas: [{ fixedWindow: { limit: 10, windwMs: 1000 } }] } })
 *     // TidegateError: policy.quotas[0].fixedWindow.windwMs: unknown field "windwMs"; did you mean "windowMs"?
 */
export class TidegateError extends Error {
  // Of the prototype, so that it begins the stack of an error, too. Bundlers and minifiers rename the class itself.
  override get name(): "TidegateError" {
    return "TidegateError";
  }

  /** The kind of error. `invalid` means a wrong option, or a wrong value of a request. */
  declare readonly kind: ErrorKind;
  /** The place of the wrong value, such as `policy.quotas[0].fixedWindow.limit`. */
  declare readonly field?: string | undefined;

  constructor(kind: ErrorKind, message: string, field?: string, options?: { cause?: unknown }) {
    super(message, options);
    this.kind = kind;
    this.field = field;
  }

  /** Converts what was thrown: an error as a kind and a message, or anything else, which is a bug in this package. */
  static from(thrown: unknown): TidegateError {
    if (thrown instanceof this) return thrown;
    if (!Array.isArray(thrown)) return new this("corrupt", "the limiter itself failed", undefined, { cause: thrown });
    const [kind, message] = thrown as [ErrorKind, string];
    let field: string | undefined;
    // The place of a wrong value, in JavaScript's names.
    const renamed = message.replace(/^[\w.[\]]+(?=: )/, (place) => (field = place.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase())));
    return new this(kind, renamed, kind === "invalid" ? field : undefined);
  }
}

/** The kind of what a limiter rejects with. */
export function kindOf(thrown: unknown): ErrorKind {
  return (thrown as TidegateError).kind;
}

/** Whether a store does not answer, so that a fail mode or another store decides. A client can cause all other errors. */
export function isStoreFailure(thrown: unknown): boolean {
  return ["unavailable", "timeout"].includes(kindOf(thrown));
}

/** An error about one of the caller's values. */
export function invalid(field: string, message: string, options?: { cause?: unknown }): TidegateError {
  return new TidegateError("invalid", `${field}: ${message}`, field, options);
}

/** The error of a platform without the address of the connection: all clients would share one count. */
export function needsPeer(platform: string): TidegateError {
  const message = `${platform} needs the address of the connection; write limit(tidegate, { peer }) or { check: () => ({ peer }) }`;
  return new TidegateError("misconfigured", `peer: ${message}`, "peer");
}
