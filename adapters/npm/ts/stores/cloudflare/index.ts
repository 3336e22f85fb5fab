import { type Answer, Calls, type Shortcut } from "../../calls.js";
import { invalid } from "../../error.js";
import { Fields } from "../../fields.js";
import type { Gate } from "../../glue.js";
import { Limiter } from "../../limiter.js";
import { COMMON, common, missing, type Options, type Platform } from "../../options.js";
import { Plain, type PlainOptions } from "../../plain.js";
import { engine } from "./engine.js";

export * from "../../exports.js";
export { TidegateObject } from "./object.js";

/** The part of a `DurableObjectNamespace` that is used. */
export interface Objects {
  getByName(name: string, options?: { locationHint?: never }): object;
}

/** The options of a limiter on Durable Objects. */
export interface ObjectOptions extends Omit<Options, "platform"> {
  /** `env.TIDEGATE`, the binding of the namespace. If it is missing, the first check reports it. */
  namespace: Objects | undefined;
  /** Default: `cloudflare`. */
  platform?: Platform | undefined;
  /** Admits requests from leases, which need no call of the object. See `Leases`. Default: false. */
  leases?: boolean | Leases | undefined;
  /** Counts all keys in this many objects. Default: 0, one object for each key. */
  shards?: number | undefined;
  /** Where to create objects, such as `weur`. The platform reads it at an object's first call. Default: near that call. */
  locationHint?: string | undefined;
  /** Whose clock decides. Default: `object`. */
  clock?: "caller" | "object" | undefined;
  /** Keeps every state for at least this long. Only for tests whose time stands still. */
  minTtlMs?: number | undefined;
}

/**
 * An isolate leases up to `slice` units of a key at a time, for up to `lifetimeMs`, and admits requests from them without a call.
 * No more than the limit is ever admitted. Up to two slices for each isolate may stay unused within a lifetime.
 */
export interface Leases {
  /** Default: 10. */
  slice?: number | undefined;
  /** At most a minute. Default: 2,000. */
  lifetimeMs?: number | undefined;
}

/** An object as a Worker calls it. */
interface Stub {
  answer(question: string): Promise<unknown>;
}

/** What the platform adds to its own errors. */
const PROPERTIES = ["overloaded", "retryable", "remote"] as const;

const encoder = new TextEncoder();

/**
 * A limiter on Cloudflare's Durable Objects. It is exact at any concurrency, and a decision is one call of the key's object.
 *
 *     import { env } from "cloudflare:workers";
 *     import { Tidegate } from "@tidegate/edge/cloudflare";
 *     export { TidegateObject } from "@tidegate/edge/cloudflare";
 *
 *     const policy = { name: "api", quotas: ["10 / 10 s"] };
 *     const tidegate = new Tidegate({ namespace: env.TIDEGATE, failMode: "open", policy });
 */
export class Tidegate extends Limiter {
  constructor(options: ObjectOptions) {
    const fields = new Fields(options, "", [...COMMON, "namespace", "leases", "shards", "locationHint", "clock", "minTtlMs"]);
    const namespace = fields.get("namespace") as Objects | undefined;
    const right = `"durable_objects": { "bindings": [{ "name": "TIDEGATE", "class_name": "TidegateObject" }] }`;
    if (namespace !== undefined && typeof namespace.getByName !== "function") {
      throw invalid("namespace", `not a namespace of Durable Objects; in wrangler.jsonc, write ${right}`);
    }
    const ready = {
      ...common(fields, 2_000, "cloudflare"),
      ...leases(fields.get("leases")),
      apart: true,
      broken: namespace === undefined ? missing("namespace", `bind one: in wrangler.jsonc, write ${right}`) : undefined,
      shards: fields.whole("shards") ?? 0,
      isTimeless: fields.choice("clock", ["caller", "object"]) !== "caller",
      minTtlMs: fields.whole("minTtlMs") ?? 0,
    };
    const locationHint = fields.text("locationHint", `a location such as "weur"`);
    const hint = locationHint === undefined ? undefined : { locationHint };
    super(engine, ready, (gate) => new Calls(gate, (wanted) => ask(namespace!, hint, wanted), { ...ready, shortcut: shortcut(namespace!, hint, gate, ready) }));
  }
}

/** Sends plain checks: the words are the object's name and its question. */
function shortcut(namespace: Objects, hint: object | undefined, gate: Gate, options: PlainOptions): Shortcut {
  const plain = new Plain(engine, gate, options, ([name, question]) => [name!, question!] as const);
  return {
    send(question) {
      const asked = plain.of(question);
      if (!asked) return undefined;
      let object: Stub;
      try {
        object = namespace.getByName(asked[0], hint) as Stub;
      } catch {
        // The long way says what is wrong.
        return undefined;
      }
      return object.answer(asked[1]);
    },
    told: (said) => (typeof said === "string" && plain.takes(said) ? said : answerOf(said)),
    thrown: failureOf,
    read: (question, text) => plain.read(question, text),
  };
}

async function ask(namespace: Objects, hint: object | undefined, wanted: string): Promise<Answer> {
  const [text] = JSON.parse(wanted) as [string];
  const at = text.lastIndexOf("?");
  const object = namespace.getByName(text.slice(0, at), hint) as Stub;
  try {
    return answerOf(await object.answer(text.slice(at + 1)));
  } catch (thrown) {
    return failureOf(thrown);
  }
}

function answerOf(said: unknown): Answer {
  return [200, encoder.encode(typeof said === "string" ? said : `an answer of type ${typeof said}`)];
}

function failureOf(thrown: unknown): Answer {
  const error = Object(thrown) as Record<string, unknown>;
  const properties = PROPERTIES.filter((name) => error[name]).join(" ");
  return [500, encoder.encode(String(error["message"])), properties];
}

function leases(value: unknown) {
  const on = { slice: 10, lifetimeMs: 2_000 };
  if (value === undefined || value === false) return { ...on, slice: 0 };
  if (value === true) return on;
  const fields = new Fields(value, "leases", ["slice", "lifetimeMs"]);
  return { slice: fields.whole("slice") ?? on.slice, lifetimeMs: fields.whole("lifetimeMs") ?? on.lifetimeMs };
}
