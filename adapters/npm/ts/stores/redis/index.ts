// The scripts are first in a bundle: see `bundle.mjs`.
import { type Command, type ScriptOptions, Scripts } from "./scripts.js";
import { CachingLimiter } from "../../caching_limiter.js";
import { calledStore } from "../../called_store.js";
import { Calls } from "../../calls.js";
import { type Capabilities, EXACT, lends } from "../../core/capabilities.js";
import { invalid } from "../../error.js";
import { choice, Fields } from "../../fields.js";
import { type LeaseOptions, lending } from "../../leases.js";
import { StoreCore } from "../../limiter_core.js";
import { COMMON, common, type Options } from "../../options.js";
import { CALLED_PARTS, calledPartsOf, type CalledPartsOptions, loadedRule, PartsLimiter } from "../../parts_limiter.js";
import { type Call, said } from "../../store.js";
import { lost } from "./errors.js";
import { LOANS } from "./loans.js";

export * from "../../store_exports.js";

/** What the store supports, and how exact it is: `Tidegate.capabilities` without leases, for who uses a `RateLimiter`. */
export const capabilities: Capabilities = EXACT;
export type { LeaseOptions, Leases } from "../../leases.js";

/** A client of Redis: `new Redis()` of ioredis, `await createClient().connect()` of node-redis, or `new RedisClient()` of Bun. */
export type RedisClient =
  | { call(command: string, ...args: string[]): Promise<unknown> }
  | { sendCommand(args: string[]): Promise<unknown> }
  | { send(command: string, args: string[]): Promise<unknown> };

/** The options of a server. */
interface ServerOptions {
  client: RedisClient;
  /** Whose clock decides. Default: `server`, the database's, which is one clock for all hosts. */
  clock?: "caller" | "server" | undefined;
  /** Keeps every state for at least this long. Only for tests whose time stands still. */
  minTtlMs?: number | undefined;
}

/** The options of a limiter on Redis. */
export interface RedisOptions extends Options, LeaseOptions, ServerOptions {}

/** The options of a `RateLimiter` on Redis. */
export interface RateLimiterOptions extends CalledPartsOptions, ServerOptions {}

const SERVER = ["client", "clock", "minTtlMs"];

/** How long a decision may take, unless the options say it. */
const DEADLINE_MS = 250;

type Run = (command: Command) => Promise<unknown>;

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
 *
 * The limiter listens to the client's `error`, without which node-redis ends the process when the server restarts. The error of a check
 * has the reason.
 */
export class Tidegate extends CachingLimiter {
  constructor(options: RedisOptions) {
    const fields = new Fields(options, "", [...COMMON, ...SERVER, "leases", "waitUntil"]);
    const all = { ...common(fields, DEADLINE_MS), ...server(fields) };
    const ready = { ...all, ...lending(fields, all.deadlineMs), loans: LOANS };
    super(ready, lends(EXACT, ready), StoreCore, (core) => new Client(core, ready));
  }
}

/**
 * The same limiter in two thirds of the code, for an application that bundles it: its quotas are functions of `@tidegate/edge/parts`, and a
 * bundler leaves out all others. It decides, and does nothing else: it has no leases. Both count together, if their policies are the same.
 *
 *     const limiter = new RateLimiter({ client, failMode: "open", policy: { name: "api", quotas: [slidingWindow(100, "1 min")] } });
 *     const { allowed } = await limiter.limit("user:42");
 */
export class RateLimiter extends PartsLimiter {
  constructor(options: RateLimiterOptions) {
    const fields = new Fields(options, "", [...CALLED_PARTS, ...SERVER]);
    const ready = { ...calledPartsOf(fields, DEADLINE_MS), ...server(fields) };
    super(ready, () => {
      const core = new StoreCore(ready, undefined, loadedRule);
      return calledStore(ready, core, new Calls(new Client(core, ready), ready));
    });
  }
}

/** Checks the options of a server and fills in the defaults. */
function server(fields: Fields) {
  const right = "a client of ioredis, node-redis or Bun";
  const client = fields.need("client", fields.get("client"), right);
  const run = runner(client);
  if (!run) throw invalid("client", `not a client of Redis; write ${right}`);
  return {
    client,
    run,
    opening: firstConnection(client),
    losses: lossesOf(client),
    isTimeless: fields.read("clock", choice(["caller", "server"])) !== "caller",
    minTtlMs: fields.whole("minTtlMs") ?? 0,
    keyLocking: false,
  };
}

/** A server behind a client. */
class Client extends Scripts {
  readonly name = "redis";
  readonly #run: (command: Command, inFlight: number) => Promise<unknown>;
  readonly #opening: () => Promise<void> | undefined;
  readonly #losses: Losses;

  constructor(core: StoreCore, options: ScriptOptions & ReturnType<typeof server>) {
    super(core, options);
    const { client, losses, opening, run } = options;
    this.#losses = losses;
    this.#run = written(run, Object(client) as Written);
    this.#opening = opening;
  }

  override opening(): Promise<void> | undefined {
    return this.#opening();
  }

  protected override carry(command: Command, call: Call): Promise<unknown> {
    const opening = this.#opening();
    return opening ? opening.then(() => this.#sent(command, call)) : this.#sent(command, call);
  }

  #sent(command: Command, call: Call): Promise<unknown> {
    return this.#run(this.alone(command, call), call.inFlight);
  }

  override read(call: Call, result: unknown): Promise<unknown> | undefined {
    return this.took(call, result);
  }

  override failed(call: Call, thrown: unknown): Promise<unknown> | undefined {
    if (isReply(thrown)) return this.refused(call, thrown.message);
    const { last } = this.#losses;
    throw lost(this.name, last === undefined ? said(thrown) : `${said(thrown)}; the connection failed with ${last}`);
  }
}

/** Whether this is an error that the server has answered. */
function isReply(thrown: unknown): thrown is Error {
  const { message } = Object(thrown) as Partial<Error>;
  return typeof message === "string" && ERROR_REPLY.test(message);
}

/** Why a client has no connection, if it has none. */
interface Losses {
  last: string | undefined;
}

/** Those of each client. Limiters that share a client share its listeners. */
const losses = new WeakMap<object, Losses>();

/**
 * Listens to a client's errors. An emitter without such a listener throws them, which ends the process, or prints each. What the client
 * throws for a command does not say why there is no connection.
 */
function lossesOf(client: unknown): Losses {
  const emitter = Object(client) as { on?: (event: string, listener: (error?: unknown) => void) => unknown };
  const known = losses.get(emitter);
  if (known) return known;
  const found: Losses = { last: undefined };
  losses.set(emitter, found);
  if (typeof emitter.on === "function") {
    emitter.on("error", (error) => (found.last = said(error)));
    emitter.on("ready", () => (found.last = undefined));
  }
  return found;
}

/** When the first connection of each client was opened, or lost. */
const firsts = new WeakMap<object, Promise<void>>();

/** The states of a client of ioredis before its connection is ready. */
const OPENING = ["wait", "connecting", "connect"];

/**
 * What to wait for while the client opens its first connection, because one that keeps no commands refuses them until then. Once there
 * was a connection, a lost one is an error at once.
 */
function firstConnection(client: unknown): () => Promise<void> | undefined {
  const state = Object(client) as { connect?: () => Promise<unknown>; isOpen?: boolean; isReady?: boolean; once?: unknown; status?: string };
  const isOpening = OPENING.includes(state.status!) || (state.isOpen === true && state.isReady === false);
  const { once } = state;
  if (!isOpening || typeof once !== "function") return () => undefined;
  // Limiters that share a client share its listeners.
  const first = firsts.get(state) ?? new Promise<void>((resolve) => {
    for (const event of ["ready", "close", "end", "reconnecting"]) once.call(client, event, resolve);
  });
  firsts.set(state, first);
  let opened: Promise<void> | undefined = first.then(() => (opened = undefined));
  return () => {
    // With `lazyConnect`, ioredis connects when it is first used.
    if (opened && state.status === "wait") state.connect?.().catch(() => undefined);
    return opened;
  };
}

/** How to send a command with this client. */
function runner(client: unknown): Run | undefined {
  const { call, eval: full, evalsha, send, sendCommand } = Object(client) as Record<string, ((...args: unknown[]) => Promise<unknown>) | undefined>;
  // Each function has a `call`, also the class in place of a client.
  if (typeof client === "function") return undefined;
  if (typeof call === "function") {
    if (typeof evalsha !== "function" || typeof full !== "function") return (command) => call.apply(client, command as string[]);
    // ioredis takes less time for its own methods. Other clients have methods of these names, too, with arguments of other forms.
    return (command) => (command[0] === "evalsha" ? evalsha : full).apply(client, command.slice(1));
  }
  if (typeof sendCommand === "function") return (command) => sendCommand.call(client, command);
  if (typeof send === "function") return ([name, ...args]) => send.call(client, name, args);
  return undefined;
}

/** The most commands that are written at once. */
const TOGETHER_MAX = 32;

/** The server works on what is written while the client works on the rest. So no more than this part of what is in flight is held. */
const PART = 3;

/** The part of ioredis that writes. */
interface Written {
  stream?: { cork?: () => void; uncork?: () => void } | undefined;
}

declare const process: { nextTick?: (run: () => void) => void } | undefined;

/**
 * Has ioredis write several of the commands that are sent in one turn of the event loop at once, as other clients do by themselves. A
 * write is a system call, which takes more than all else that the client does for a command.
 */
function written(run: Run, client: Written): (command: Command, inFlight: number) => Promise<unknown> {
  const soon = typeof process === "object" ? process.nextTick : undefined;
  let corked: Written["stream"];
  let count = 0;
  const write = () => {
    corked?.uncork!();
    corked = undefined;
  };
  return (command, inFlight) => {
    const most = Math.min(inFlight / PART, TOGETHER_MAX);
    const { stream } = client;
    if (!corked && most >= 2 && soon && stream?.cork && stream.uncork) {
      [corked, count] = [stream, 0];
      stream.cork();
      soon(write);
    }
    const answer = run(command);
    count += 1;
    if (corked && count >= most) write();
    return answer;
  };
}
