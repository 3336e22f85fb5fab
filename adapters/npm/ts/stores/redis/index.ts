import * as glue from "#redis/glue";
import module from "#redis/module";
import { Batches, type Said } from "../../batches.js";
import type { Answer } from "../../calls.js";
import { start } from "../../engine.js";
import { invalid } from "../../error.js";
import { Fields } from "../../fields.js";
import { Limiter } from "../../limiter.js";
import { COMMON, common, type Options } from "../../options.js";

export * from "../../exports.js";

/** A client of Redis: `new Redis()` of ioredis, `await createClient().connect()` of node-redis, or `new RedisClient()` of Bun. */
export type RedisClient =
  | { call(command: string, ...args: string[]): Promise<unknown> }
  | { sendCommand(args: string[]): Promise<unknown> }
  | { send(command: string, args: string[]): Promise<unknown> };

/** The options of a limiter on Redis. */
export interface RedisOptions extends Options {
  client: RedisClient;
  /** Whose clock decides. Default: `server`, the database's, which is one clock for all hosts. */
  clock?: "caller" | "server" | undefined;
  /** Keeps every state for at least this long. Only for tests whose time stands still. */
  minTtlMs?: number | undefined;
}

type Run = (command: string[]) => Promise<unknown>;

const engine = start(module, glue);

/** How Redis begins an error. The errors of a connection begin otherwise. */
const ERROR_REPLY = /^[A-Z][A-Z0-9]+ /;

/**
 * A limiter on Redis or Valkey, through the application's own client. It is exact at any concurrency, and a decision is one script.
 *
 *     const options = { enableOfflineQueue: false, autoResendUnfulfilledCommands: false, maxRetriesPerRequest: 0, socketTimeout: 5_000 };
 *     const client = new Redis(url, options);
 *     const tidegate = new Tidegate({ client, platform: "direct", failMode: "open", policy: { name: "api", quotas: ["10 / 10 s"] } });
 *
 * While there is no connection, a client may keep commands and send them later, or send them again. Then a request for which the
 * limiter has failed is charged nevertheless, or twice. And while a server accepts commands without answering, a client keeps all of
 * them. With the options above, ioredis does neither. Those of node-redis are `disableOfflineQueue: true` and
 * `socket: { socketTimeout: 5_000 }`.
 */
export class Tidegate extends Limiter {
  readonly #batches: Batches;

  constructor(options: RedisOptions) {
    const fields = new Fields(options, "", [...COMMON, "client", "clock", "minTtlMs"]);
    const ready = {
      ...common(fields, 250),
      token: "",
      serverClock: fields.choice("clock", ["caller", "server"]) !== "caller",
      keyLocking: false,
      minTtlMs: fields.whole("minTtlMs") ?? 0,
    };
    const right = "a client of ioredis, node-redis or Bun";
    const client = fields.need("client", fields.get("client"), right);
    const sends = runner(client);
    if (!sends) throw invalid("client", `not a client of Redis; write ${right}`);
    const run = afterFirstConnection(client, sends);
    super(engine, ready);
    const keysAreApart = (options.client as { isCluster?: boolean }).isCluster === true;
    this.#batches = new Batches((command) => ask(run, command), () => this.batchScript(), { ...ready, keysAreApart });
  }

  protected override ask(wanted: string): Promise<Answer> {
    return this.#batches.ask(wanted, undefined);
  }
}

async function ask(run: Run, command: string | string[]): Promise<Said> {
  try {
    return { result: await run(typeof command === "string" ? (JSON.parse(command) as string[]) : command) };
  } catch (thrown) {
    const { message } = Object(thrown) as Partial<Error>;
    if (typeof message !== "string" || !ERROR_REPLY.test(message)) throw thrown;
    return { error: message };
  }
}

/** When the first connection of each client was opened, or lost. */
const firsts = new WeakMap<object, Promise<void>>();

/** The states of a client of ioredis before its connection is ready. */
const OPENING = ["wait", "connecting", "connect"];

/**
 * Lets commands wait while the client opens its first connection, because one that keeps no commands refuses them until then. The
 * limiter's deadline covers the wait. Once there was a connection, a lost one is an error at once.
 */
function afterFirstConnection(client: unknown, run: Run): Run {
  const state = Object(client) as { connect?: () => Promise<unknown>; isOpen?: boolean; isReady?: boolean; once?: unknown; status?: string };
  const isOpening = OPENING.includes(state.status!) || (state.isOpen === true && state.isReady === false);
  const { once } = state;
  if (!isOpening || typeof once !== "function") return run;
  // Limiters that share a client share its listeners.
  const first = firsts.get(state) ?? new Promise<void>((resolve) => {
    // No `error`: a listener of ours would hide the first one from the application.
    for (const event of ["ready", "close", "end", "reconnecting"]) once.call(client, event, resolve);
  });
  firsts.set(state, first);
  let opened: Promise<void> | undefined = first.then(() => (opened = undefined));
  return (command) => {
    if (!opened) return run(command);
    // With `lazyConnect`, ioredis connects when it is first used.
    if (state.status === "wait") state.connect?.().catch(() => undefined);
    return opened.then(() => run(command));
  };
}

/** How to send a command with this client. */
function runner(client: unknown): Run | undefined {
  const { call, send, sendCommand } = Object(client) as Record<string, ((...args: unknown[]) => Promise<unknown>) | undefined>;
  if (typeof call === "function") return (command) => call.apply(client, command);
  if (typeof sendCommand === "function") return (command) => sendCommand.call(client, command);
  if (typeof send === "function") return ([name, ...args]) => send.call(client, name, args);
  return undefined;
}
