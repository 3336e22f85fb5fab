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
export function ask(namespace, nameAndQuestion, jurisdiction, locationHint, deadlineMs, call, settled) {
  const at = nameAndQuestion.lastIndexOf("?");
  const object = (jurisdiction ? within(namespace, jurisdiction) : namespace).getByName(nameAndQuestion.slice(0, at), locationHint && { locationHint });
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

/** The parts of namespaces whose objects are in a jurisdiction, by the name of it. */
const parts = new WeakMap();

/** The part of a namespace whose objects are in a jurisdiction. workerd by itself, as `wrangler dev` runs it, has none. */
function within(namespace, jurisdiction) {
  const found = parts.get(namespace) ?? new Map();
  parts.set(namespace, found);
  if (found.has(jurisdiction)) return found.get(jurisdiction);
  let part = namespace;
  try {
    part = namespace.jurisdiction(jurisdiction);
  } catch (error) {
    if (error.message !== "Jurisdiction restrictions are not implemented in workerd.") throw error;
    console.warn(`tidegate: workerd has no jurisdictions, so objects are not in "${jurisdiction}" here`);
  }
  found.set(jurisdiction, part);
  return part;
}

/** A promise that is resolved after other events have had a turn. */
export function turn() {
  return new Promise((resolve) => setTimeout(resolve, 0));
}
