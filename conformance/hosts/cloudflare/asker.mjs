// One Worker before both objects, which asks the one what Tidegate's Worker asks it, and calls the other: what is between the
// two routes is the objects'.

import { DurableObject } from "cloudflare:workers";

let question;

/** How the answer to a check begins that was admitted: version 2, and flags of which the first says so. */
const ADMITTED = /^020[13]/;

/** Stands for Tidegate's object once, and notes what it is asked. */
export class Recorder extends DurableObject {
  answer(asked) {
    question = asked;
    // Admitted at the epoch, at the cost of 1.
    return "0201" + "0000000000000000" + "0100000000000000";
  }
}

export default {
  async fetch(request, env) {
    const client = request.headers.get("cf-connecting-ip") ?? "none";
    if (new URL(request.url).pathname === "/tidegate") {
      return answer(ADMITTED.test(await env.TIDEGATE.getByName(client).answer(question)));
    }
    const { allowed } = await env.BUCKET.getByName(client).check(env.CAPACITY, env.REFILL_PER_MS);
    return answer(allowed);
  },
};

function answer(allowed) {
  return allowed ? new Response("allowed\n") : new Response("denied\n", { status: 429 });
}
