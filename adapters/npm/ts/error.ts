/** What went wrong, so that you can choose what to do about it. */
export type ErrorKind = "invalid" | "unavailable" | "timeout" | "contended" | "corrupt" | "refused" | "unsupported";

/**
 * An error that says what would be right. It never holds a token or a key's secret.
 *
 *     new Tidegate({ …, policy: { name: "api", quotas: [{ algorithm: "fixed_window", limit: 10, windw_ms: 1000 }] } })
 *     // TidegateError: policy.quotas[0].windw_ms: unknown field; did you mean "window_ms"?
 */
export class TidegateError extends Error {
  override readonly name = "TidegateError";

  constructor(
    /** What kind of error it is; `invalid` for a value of yours. */
    readonly kind: ErrorKind,
    message: string,
    /** Where the value is that is wrong, as you wrote it: `policy.quotas[0].window_ms`. */
    readonly field?: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }

  /** An error of the WebAssembly's, or what else was thrown. */
  static from(thrown: unknown): TidegateError {
    if (thrown instanceof TidegateError) return thrown;
    if (!Array.isArray(thrown)) return new TidegateError("unavailable", "the limiter itself has failed", undefined, { cause: thrown });
    const [kind, message] = thrown as [ErrorKind, string];
    const renamed = message.replace(/^deadline: /, "deadlineMs: ").replace(/^ipv6_prefix: /, "ipv6Prefix: ");
    return new TidegateError(kind, renamed, kind === "invalid" ? /^([\w.[\]]+): /.exec(renamed)?.[1] : undefined);
  }
}

/** An error about a value of the caller's. */
export function invalid(field: string, message: string, options?: ErrorOptions): TidegateError {
  return new TidegateError("invalid", `${field}: ${message}`, field, options);
}
