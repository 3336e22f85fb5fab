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
  const object = namespace.getByName(nameAndQuestion.slice(0, at), locationHint === undefined ? undefined : { locationHint });
  const asked = object.answer(nameAndQuestion.slice(at + 1));
  const timer = setTimeout(() => settled(call, undefined, false), deadlineMs);
  asked.then(
    (answer) => {
      clearTimeout(timer);
      settled(call, typeof answer === "string" ? answer : `an answer of type ${typeof answer}`, false);
    },
    (error) => {
      clearTimeout(timer);
      settled(call, error, true);
    },
  );
}

/** Writes a row under the key before the last line break. */
export function save(kv, keyAndRow) {
  const at = keyAndRow.lastIndexOf("\n");
  kv.put(keyAndRow.slice(0, at), keyAndRow.slice(at + 1));
}

/** Writes rows, all of them or none. */
export function saveAll(storage, keysAndRows) {
  storage.transactionSync(() => keysAndRows.forEach((keyAndRow) => save(storage.kv, keyAndRow)));
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
