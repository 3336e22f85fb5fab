// What it means that a call of an object has thrown: see `error.rs` of `tidegate-cloudflare`.

/** How much of an error's text is shown. */
const SHOWN_MAX = 200;

/** What the platform says when an object has too much work. */
const OVERLOADED = /overloaded|requests queued|too much load|too many concurrent/i;

/** What it says when an object was reset because of a limit that requests can make it exceed. */
const EXCEEDED = /memory limit|cpu time limit|exceeded timeout/i;

/** What it says when it failed itself, where it does not set `retryable`. */
const FAILED = /network connection lost|code was updated|internal error|transient/i;

/** What it says of each call if there is no such class, and of some of its own failures. */
const INTERNAL = /internal error/i;

/** What it says to use in place of `new_classes` if a class has no SQLite storage. An object passes that on. */
const SQLITE = "new_sqlite_classes";

/** How a class is declared. It may be in another Worker, in Rust or in JavaScript. */
const DECLARE =
  "the class that wrangler.jsonc binds must be that of durable_object! in Rust or TidegateObject in JavaScript, must be exported by the Worker's " +
  'main module, and must be in "migrations": [{ "tag": "v1", "new_sqlite_classes": ["TidegateObject"] }], with its own name; wrangler before ' +
  '4.164, which npm installs on Node.js 20, ignores "exports"';

/**
 * The error of a call that threw. A limiter may fail open on `timeout`, so what a client can cause with enough requests is `contended`, and
 * an error that is not known to be the platform's own failure is `refused`. The platform sets these properties. `isFirst` tells that no
 * object has answered yet.
 */
export function lost({ message, overloaded, retryable, remote }: Readonly<Record<string, unknown>>, isFirst: boolean): [kind: string, message: string] {
  const text = String(message);
  const mayBeAbsent = isFirst && !retryable && INTERNAL.test(text);
  const [kind, what] =
    overloaded || OVERLOADED.test(text)
      ? ["contended", "the object is overloaded; nothing was charged"]
      : EXCEEDED.test(text)
        ? ["contended", "the object exceeded a limit and was reset; the request may have been charged"]
        : !remote && (retryable || FAILED.test(text))
          ? ["timeout", `the object was lost before it answered; the request may have been charged${mayBeAbsent ? `; no object has answered yet; if none ever does, ${DECLARE}` : ""}`]
          : ["refused", `the object failed; check that it is within the account's limits; ${DECLARE}`];
  return [kind, `durable object: ${what}: ${text.slice(0, SHOWN_MAX)}`];
}

/** The error that an object answered. */
export function answered(kind: string, message: string): [kind: string, message: string] {
  const isDeclared = !message.includes(SQLITE);
  return [kind, isDeclared ? message : `durable object: its class has no SQLite storage; ${DECLARE}; nothing was charged`];
}
