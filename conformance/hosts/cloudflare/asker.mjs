// One Worker in front of both kinds of objects. It sends Tidegate's object the same question as Tidegate's Worker, and
// calls the peer's object. So its two routes differ only in the objects.

import { DurableObject } from "cloudflare:workers";

let question;

/** The start of the answer to an admitted check: any version, neither a loan nor a denial, and the status 0. */
const ADMITTED = /^..0000/;

/** Stands in for Tidegate's object once, and records what it is asked. It fails, because the answer does not matter. */
export class Recorder extends DurableObject {
  answer(asked) {
    question = asked;
    return "500 recorded";
  }
}

export default {
  async fetch(request, env) {
    const client = request.headers.get("cf-connecting-ip") ?? "none";
    if (new URL(request.url).pathname === "/keys") return Response.json(await keys(env, await request.json()));
    if (new URL(request.url).pathname === "/tidegate") {
      return answer(ADMITTED.test(await env.TIDEGATE.getByName(client).answer(question)));
    }
    const { allowed } = await env.BUCKET.getByName(client).check(env.CAPACITY, env.REFILL_PER_MS);
    return answer(allowed);
  },
};

/** Asks one object for `count` of its keys, the first ones or random ones of them. Returns how long the calls took. */
async function keys(env, { from, count, among, inFlight }) {
  const object = env.TIDEGATE.getByName("keys");
  let [next, slowestMs] = [from, 0];
  const ask = async () => {
    while (next < from + count) {
      const key = among ? (next++, Math.floor(Math.random() * among)) : next++;
      const began = performance.now();
      if (!ADMITTED.test(await object.answer(questionFor(key)))) throw new Error(`key ${key} was not admitted`);
      slowestMs = Math.max(slowestMs, performance.now() - began);
    }
  };
  const began = performance.now();
  await Promise.all(Array.from({ length: inFlight }, ask));
  return { ms: performance.now() - began, slowestMs };
}

/** The recorded question about another key, whose row is kept for at least an hour. `src/wire.rs` describes its bytes. */
function questionFor(number) {
  const byte = (place) => parseInt(question.slice(2 * place, 2 * place + 2), 16);
  // Before the name of the row: version, action, flags, and 25 bytes for each quota.
  const at = 4 + 25 * byte(3);
  const length = byte(at) + 256 * byte(at + 1);
  const suffix = `:${number}`;
  const hex = Array.from(suffix, (digit) => digit.charCodeAt(0).toString(16)).join("");
  const lengthHex = (length + suffix.length).toString(16).padStart(4, "0");
  const [before, name] = [question.slice(0, 2 * at), question.slice(2 * at + 4, 2 * (at + 2 + length))];
  // The last field is the minimum time to keep a row: 3,600,000 ms.
  const rest = question.slice(2 * (at + 2 + length), -16) + "80ee360000000000";
  return before + lengthHex.slice(2) + lengthHex.slice(0, 2) + name + hex + rest;
}

function answer(allowed) {
  return allowed ? new Response("allowed\n") : new Response("denied\n", { status: 429 });
}
