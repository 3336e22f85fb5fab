// What it means that a call of an object has thrown: see `error.rs` of `tidegate-cloudflare`.

/** How much of an error's text is shown. */
const SHOWN_MAX = 200;

/** What the platform says when an object has too much work. */
const OVERLOADED = /overloaded|requests queued|too much load|too many concurrent/i;

/** What it says when an object was reset because of a limit that requests can make it exceed. */
const EXCEEDED = /memory limit|cpu time limit|exceeded timeout/i;

/** What it says when it failed itself, where it does not set `retryable`. */
const FAILED = /network connection lost|code was updated|internal error|transient/i;

/**
 * The error of a call that threw. A limiter may fail open on `timeout`, so what a client can cause with enough requests is `contended`, and
 * an error that is not known to be the platform's own failure is `refused`. The platform sets these properties.
 */
export function lost({ message, overloaded, retryable, remote }: Readonly<Record<string, unknown>>): [kind: string, message: string] {
  const text = String(message);
  const [kind, what] =
    overloaded || OVERLOADED.test(text)
      ? ["contended", "the object is overloaded; nothing was charged"]
      : EXCEEDED.test(text)
        ? ["contended", "the object exceeded a limit and was reset; the request may have been charged"]
        : !remote && (retryable || FAILED.test(text))
          ? ["timeout", "the object was lost before it answered; the request may have been charged"]
          : ["refused", FAILURE];
  return [kind, `durable object: ${what}: ${text.slice(0, SHOWN_MAX)}`];
}

const FAILURE =
  "the object failed; check that the bound class is one of durable_object! in Rust or TidegateObject in JavaScript, " +
  "is declared with SQLite storage in `exports`, and is within the account's limits";
