import { DurableObject } from "cloudflare:workers";

// What is one call from WebAssembly here would be a dozen there, and those take longer than the decision. So does each text
// that is handed over: where two belong together they come as one.

/** Makes an instance's class one of the platform's objects, which alone have methods that a Worker can call. */
export function derive(instance) {
  const prototype = Object.getPrototypeOf(instance);
  Object.setPrototypeOf(prototype, DurableObject.prototype);
  Object.setPrototypeOf(prototype.constructor, DurableObject);
}

/**
 * Asks an object, of the name before the last question mark, what stands after it. `settled` hears of the call by its number
 * the answer, or nothing where the deadline has passed, or what was thrown, and whether that is it. Throws at once where
 * nothing can be asked. It is the same function for all calls: to make one for each takes longer.
 */
export function ask(namespace, nameAndQuestion, locationHint, deadlineMs, call, settled) {
  const at = nameAndQuestion.lastIndexOf("?");
  const object = namespace.getByName(nameAndQuestion.slice(0, at), locationHint && { locationHint });
  const asked = object.answer(nameAndQuestion.slice(at + 1));
  const timer = setTimeout(() => settled(call, undefined, false), deadlineMs);
  const tell = (value, failed) => {
    clearTimeout(timer);
    settled(call, value, failed);
  };
  asked.then(
    (answer) => tell(typeof answer === "string" ? answer : `an answer of type ${typeof answer}`, false),
    (error) => tell(error, true),
  );
}

/** Writes rows, all of them or none: of each a line with its key, and one with itself. No key has a line break. */
export function save(storage, kv, keysAndRows) {
  const lines = keysAndRows.split("\n");
  const put = () => {
    for (let at = 0; at + 1 < lines.length; at += 2) kv.put(lines[at], lines[at + 1]);
  };
  lines.length < 4 ? put() : storage.transactionSync(put);
}

/** Removes the rows that have expired. When the first of the others does: never, if none says; nothing, if none is left. */
export function sweep(kv, clockMs) {
  const expired = [];
  let next;
  for (const [key, row] of kv.list()) {
    // As `Row::to_text` in rows.rs begins.
    const expiresMs = typeof row === "string" ? parseInt(row.slice(0, 12), 16) : NaN;
    if (expiresMs <= clockMs) expired.push(key);
    else next = Math.min(next ?? Infinity, Number.isNaN(expiresMs) ? Infinity : expiresMs);
  }
  for (const key of expired) kv.delete(key);
  return next;
}
