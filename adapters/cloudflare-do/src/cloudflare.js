import { DurableObject } from "cloudflare:workers";

// A call between WebAssembly and JavaScript, and each text that it passes, takes longer than most of the work here. So each
// function does all that it can in one call, and texts that belong together are passed as one.

/** Makes the class of an instance a Durable Object class. Only the methods of such a class can be called by a Worker. */
export function derive(instance) {
  const prototype = Object.getPrototypeOf(instance);
  Object.setPrototypeOf(prototype, DurableObject.prototype);
  Object.setPrototypeOf(prototype.constructor, DurableObject);
}

/**
 * Calls an object. Its name is the text before the last question mark, and the question is the text after it. `settled`
 * is called with the call's number and the answer, with nothing once the deadline has passed (an answer may still follow),
 * or with what was thrown and `true`. It is one function for all calls, because making one takes longer. Throws if the
 * call cannot be sent.
 */
export function ask(namespace, nameAndQuestion, locationHint, deadlineMs, call, settled) {
  const at = nameAndQuestion.lastIndexOf("?");
  const object = namespace.getByName(nameAndQuestion.slice(0, at), locationHint && { locationHint });
  const asked = object.answer(nameAndQuestion.slice(at + 1));
  const timer = setTimeout(() => settled(call, undefined, false), deadlineMs);
  const tell = (value, threw) => {
    clearTimeout(timer);
    settled(call, value, threw);
  };
  asked.then(
    (answer) => tell(typeof answer === "string" ? answer : `an answer of type ${typeof answer}`, false),
    (error) => tell(error, true),
  );
}

/** Writes rows, all or none. Each is a line with its key and a line with its text; neither contains a line break. */
export function save(storage, kv, keysAndRows) {
  const lines = keysAndRows.split("\n");
  const put = () => {
    for (let at = 0; at + 1 < lines.length; at += 2) kv.put(lines[at], lines[at + 1]);
  };
  lines.length < 4 ? put() : storage.transactionSync(put);
}

/** The number of rows that a sweep reads before other events have a turn: some 5 ms, or 20 where all have expired. */
const PAGE_ROWS = 1_000;

/**
 * Removes the expired rows of the page after the key `after`. Returns how many rows remain, when the first of them expires
 * and the page's last key, separated by spaces: nothing for the second if none expires, or for the third if this is the
 * last page.
 */
export function sweep(kv, clockMs, after) {
  const expired = [];
  let [rows, kept, next, last] = [0, 0, Infinity, ""];
  for (const [key, row] of kv.list({ startAfter: after, limit: PAGE_ROWS })) {
    rows += 1;
    last = key;
    // `Row::to_text` in rows.rs begins with the expiry. A row that cannot be read never expires.
    const expiresMs = typeof row === "string" ? parseInt(row.slice(0, 12), 16) : NaN;
    if (expiresMs <= clockMs) {
      expired.push(key);
      continue;
    }
    kept += 1;
    if (expiresMs < next) next = expiresMs;
  }
  for (const key of expired) kv.delete(key);
  return `${kept} ${next === Infinity ? "" : next} ${rows < PAGE_ROWS ? "" : last}`;
}

/** A promise that is resolved after other events have had a turn. */
export function turn() {
  return new Promise((resolve) => setTimeout(resolve, 0));
}
