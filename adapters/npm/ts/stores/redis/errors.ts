import { kindOfLoss } from "../../store.js";
// What the answers mean that no script gives: see `answered.rs` and `rest/error.rs` of `tidegate-redis`.


/** An error in the form of `TidegateError.from`. */
export type Thrown = [kind: string, message: string];

const NOT_REST = "what listens there does not speak Upstash's REST protocol; is it UPSTASH_REDIS_REST_URL?";

/** How much of a server's text is shown. */
const SHOWN_MAX = 200;

const UNAVAILABLE = ["LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "BUSY", "READONLY", "NOREPLICAS"];

/** The error that a server has answered. Nothing was charged. */
export function refused(answered: string, key: string): Thrown {
  const text = answered.slice(0, SHOWN_MAX);
  const end = text.indexOf(" ");
  const [code, detail] = end < 0 ? [text, ""] : [text.slice(0, end), text.slice(end + 1)];
  const has = (word: string) => detail.split(/[ :]/).includes(word);
  if (detail.startsWith("Error compiling script") || has("shebang")) {
    return ["refused", `keyLocking: the database does not take the script's flag (${text}); write keyLocking: false; nothing was charged`];
  }
  if (code === "REUSED") return ["token_reused", "this idempotency token belongs to a charge of another cost; use one token for each request"];
  if (code === "UNKNOWN") {
    return ["unknown_charge", "no charge is remembered under this policy, key and token; settle within the token's time to live"];
  }
  // Redis 6 wraps errors of the commands that a script calls.
  if (code === "CORRUPT" || code === "WRONGTYPE" || has("WRONGTYPE")) {
    const what = `what is stored under ${key} is not a state of this policy (${code} ${detail})`;
    return ["corrupt", `${what}; delete the key, or find what else writes to it`];
  }
  // A flood that starts more and more processes uses up the server's connections.
  const isCrowded = code === "ERR" && detail.startsWith("max number of clients");
  const kind = isCrowded ? "contended" : UNAVAILABLE.includes(code) ? "unavailable" : "refused";
  return [kind, `redis: the server answered ${code} ${detail}; nothing was charged`];
}

/** The error of an HTTP status. `said` is the body. */
export function status(code: number, said: string): Thrown {
  const [kind, what] = meaning(code);
  return [kind, `upstash: HTTP ${code} ${shown(said)}: ${what}`];
}

function meaning(code: number): Thrown {
  if (code === 401 || code === 403) return ["refused", "the token is refused; write the database's UPSTASH_REDIS_REST_TOKEN"];
  // A client can cause this with enough requests.
  if (code === 429) return ["contended", "the database itself limits its requests; nothing was charged"];
  if (code === 504) return ["timeout", "the database did not answer in time; the request may have been charged"];
  if (code >= 500) return ["unavailable", "the endpoint has failed; the request may have been charged"];
  if (code < 200 || (code >= 300 && code < 400)) return ["refused", "it leads elsewhere; write the database's own UPSTASH_REDIS_REST_URL"];
  return ["corrupt", NOT_REST];
}

/** The answer is not one of the script's. */
export function nonsense(name: string, answer: string): Thrown {
  return ["corrupt", `${name}: ${shown(answer)} is not an answer of Tidegate's script; ${name === "upstash" ? NOT_REST : "does the client change replies?"}`];
}

/** The error of a command that got no answer. What was thrown may contain the token, and does not say whether it was sent. */
export function lost(name: string, said: string): Thrown {
  return [kindOfLoss(said), `${name}: no connection, or lost before the answer; the request may have been charged (${said})`];
}

function shown(text: string): string {
  return JSON.stringify(text.slice(0, SHOWN_MAX));
}
