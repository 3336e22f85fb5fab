import { costOf, keysOf, optionsReader, peerOf, positive, uniqueToken } from "../check_options.js";
import { invalid } from "../error.js";
import { choice, flag, text, whole } from "../fields.js";
import type { Keys } from "../core/key.js";
import { type Framework, FRAMEWORKS } from "./frameworks.js";

/** What only the application knows of a request. */
export interface GateCheckOptions {
  /**
   * The request target as the host received it, such as `req.originalUrl ?? req.url`: before mounts, rewriting and URL parsing, which
   * hide from the rules what a router sees. Write several if the application rewrites it; the rules of all apply. A text that is neither
   * a path, nor an absolute URL, nor `*` is refused with a 400. Default: the path of the request's URL.
   */
  target?: string | readonly string[] | undefined;
  /** The method as the host received it. No `Request` has `TRACE` or `CONNECT`. Default: that of the request. */
  method?: string | undefined;
  /** What routes the request. The rules then match also the paths for which it runs the same route. The middlewares say it themselves. */
  framework?: Framework | undefined;
  /** Whether the routes ignore upper and lower case. The rules then do so, too. Default: as `framework` does by default. */
  ignoreCase?: boolean | undefined;
  /** The client's address from the host's own API or socket, for the platforms `direct` and `fastly`. */
  peer?: string | undefined;
  /** The subject of a token that the application has verified. */
  subject?: string | undefined;
  /** An API key that the application has found valid. Only its hash is counted. */
  apiKey?: string | undefined;
  /** Count this key in place of the sender's identities: any well-formed text with a start of its own, such as `account:42`. Lists are compared with those, too. */
  key?: string | undefined;
  /** The tier, such as a plan, of the sender that `key`, `subject` or `apiKey` names, or of the one whom the gate finds. */
  tier?: string | undefined;
  /** How likely a human sent the request, from 0 to 255, for rules with `bot_score_below`. */
  botScore?: number | undefined;
  /** The fingerprint of the client's TLS handshake, JA4, as the platform reports it and no client can write it. Default: that of Cloudflare Workers. */
  ja4?: string | undefined;
  /** The keys of the dimensions that the rules declare, as `{ tenant: "tenant:42" }`. */
  keys?: Keys;
  /** The sender's limits that only the application knows, such as those of a plan, by the names in `limit_from`: `{ rpm: 500 }`. */
  limits?: Readonly<Record<string, number | undefined>> | undefined;
  /** The cost, in place of the rule's. */
  cost?: number | undefined;
  /** The estimated cost of a request whose cost is known only afterwards, in place of `cost`. Settle it with `settle`. */
  estimate?: number | undefined;
  /**
   * Charges all checks with this token once. A client that chooses its own token can repeat a request that was admitted for free.
   * Without it, the gate makes one if the request needs it.
   */
  token?: string | undefined;
  /** The time of the request, in milliseconds since the epoch. Default: `Date.now()` when its keys are known, right before a store is asked. */
  now?: number | undefined;
}

const FRAMEWORK_NAMES = Object.keys(FRAMEWORKS) as Framework[];

/** What is told of a request, as far as it is known: null is not. */
const ifKnown =
  <T>(read: (name: string, value: unknown) => T) =>
  (name: string, value: unknown): T | undefined =>
    value === null ? undefined : read(name, value);

const read = optionsReader({
  key: text,
  keys: keysOf,
  peer: peerOf,
  cost: whole,
  estimate: positive,
  now: whole,
  target: ifKnown(targetsOf),
  method: ifKnown(text),
  framework: ifKnown(choice(FRAMEWORK_NAMES)),
  ignoreCase: ifKnown(flag),
  subject: ifKnown(text),
  apiKey: ifKnown(text),
  tier: ifKnown(text),
  ja4: ifKnown(text),
  // What takes them reads them.
  limits: (_: string, value: unknown) => value as NonNullable<GateCheckOptions["limits"]>,
  botScore: (name: string, value: unknown) => {
    const score = whole(name, value);
    if (score > 255) throw invalid(name, `${score} is out of range; write 0 to 255`);
    return score;
  },
  token: ifKnown(uniqueToken),
});

/** The options of a gate's check, read. */
export type GateCheck = ReturnType<typeof read>;

/** Reads the options of a gate's check. `cost` is also an estimate. */
export function readGateCheck(options: unknown): GateCheck {
  const given = read(options);
  return { ...given, cost: costOf(given) };
}

function targetsOf(name: string, value: unknown): string[] {
  const targets = [value].flat().map((target) => text(name, target));
  if (targets.length > 0) return targets;
  throw invalid(name, "no target; write req.originalUrl ?? req.url");
}
