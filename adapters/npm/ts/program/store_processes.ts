// Other processes with the store, each with a limiter of its own.

import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { said } from "../store.js";
import { swapOf, valueOf, type VersionedStore } from "../versioned_store.js";
import { Usage } from "./failure.js";
import { type Decisions, type Limiters, packed, stepsOn } from "./store_fixtures.js";
import { openedFrom } from "./store_module.js";

/** The command of the program that such a process runs. Only the program itself starts one. */
export const PROCESS = "process-of-conformance";

/** A step of a fixture, done so often at once. */
interface AskedStep {
  readonly fixture: string;
  readonly nth: number;
  readonly times: number;
  readonly prefix: string;
}

/** A call of the store's own function. `update` writes over what this process has read last, and both writes are made eight times at once. */
interface AskedCall {
  readonly call: "read" | "create" | "update";
  readonly name: string;
}

type Asked = (AskedStep | AskedCall) & { readonly asked: number };

const WRITES_AT_ONCE = 8;

/** What it answers. `wrong` is what has been thrown instead. */
type Answer = { readonly asked: number; readonly answers?: string[]; readonly wrong?: string };

/** Time for what a store's connections still do. */
const EXIT_AFTER_MS = 1_000;

const KEPT_MS = 3_600_000;

/** Runs as such a process, until the program that has started it ends. */
export async function runAsProcess(file: string, remember: boolean): Promise<void> {
  // The program may have ended.
  const tell = (answer: Answer) => process.send?.(answer, undefined, undefined, () => undefined);
  try {
    const { store, close } = await openedFrom(file);
    const [fixtures, step] = [new Map(packed().map((fixture) => [fixture.id, fixture])), stepsOn(store, remember)];
    const call = callsOn(store);
    const done = async (asked: Asked): Promise<string[]> => {
      if ("call" in asked) return [JSON.stringify(await call(asked))];
      return Promise.all(Array.from({ length: asked.times }, () => step(fixtures.get(asked.fixture)!, asked.nth, asked.prefix)));
    };
    process.on("message", (asked: Asked) => void done(asked).then((answers) => tell({ asked: asked.asked, answers }), (thrown) => tell({ asked: asked.asked, wrong: said(thrown) })));
    tell({ asked: 0 });
    await once(process, "disconnect");
    await close();
    setTimeout(() => process.exit(), EXIT_AFTER_MS).unref();
  } catch (thrown) {
    tell({ asked: 0, wrong: thrown instanceof Usage ? thrown.message : said(thrown) });
    if (process.connected) process.disconnect();
  }
}

/** Calls the functions of a store. A read gives the bytes, of which there are none if nothing is there, and writes whether each was made. */
function callsOn(store: VersionedStore): (asked: AskedCall) => Promise<number[]> {
  let version: unknown;
  const written = async (write: () => unknown) => Number(swapOf("a write", await write()).isWritten);
  const each = (write: () => unknown) => Promise.all(Array.from({ length: WRITES_AT_ONCE }, () => written(write)));
  return async ({ call, name }) => {
    if (call === "create") return each(() => store.create(name, Uint8Array.of(1), KEPT_MS));
    if (call === "update") return each(() => store.update(name, Uint8Array.of(2), version, KEPT_MS));
    const found = valueOf("read", await store.read(name));
    version = found?.version;
    return Array.from(found?.bytes ?? []);
  };
}

/** So many processes. Every other one remembers what it has written. */
export class Processes implements Limiters {
  readonly #processes: readonly Other[];
  #turn = 0;

  private constructor(processes: readonly Other[]) {
    this.#processes = processes;
  }

  /** Starts them, and waits until each has opened the store. */
  static async started(file: string, count: number): Promise<Processes> {
    const processes = Array.from({ length: count }, (_, nth) => new Other(file, nth));
    try {
      await Promise.all(processes.map(({ opened }) => opened));
    } catch (thrown) {
      for (const one of processes) one.end();
      throw new Usage((thrown as Error).message);
    }
    return new Processes(processes);
  }

  async answers({ id, steps }: Decisions, nth: number, prefix: string): Promise<string[]> {
    const [burst, count, turn] = [steps[nth]!.burst ?? 1, this.#processes.length, this.#turn];
    this.#turn += burst;
    const asked = this.#processes.map((one, place) => {
      // The next one begins where the burst before has ended.
      const times = Math.floor(burst / count) + Number((place + count - (turn % count)) % count < burst % count);
      return times === 0 ? [] : one.ask({ fixture: id, nth, times, prefix }).catch((thrown: unknown) => Array.from({ length: times }, () => `error unavailable: ${(thrown as Error).message}`));
    });
    return (await Promise.all(asked)).flat();
  }

  /** What each process gets that calls the same function of the store at once. */
  async call(call: AskedCall["call"], name: string): Promise<number[][]> {
    const got = await Promise.all(this.#processes.map((one) => one.ask({ call, name })));
    return got.map(([numbers]) => JSON.parse(numbers!) as number[]);
  }

  /** Ends them, and waits until they have. */
  async end(): Promise<void> {
    await Promise.all(this.#processes.map((one) => one.end()));
  }
}

class Other {
  readonly opened: Promise<unknown>;
  readonly #child: ChildProcess;
  readonly #ended: Promise<unknown>;
  readonly #asked = new Map<number, { resolve: (answers: string[]) => void; reject: (thrown: Error) => void }>();
  #last = 0;
  #lost: Error | undefined;

  constructor(file: string, nth: number) {
    // Its output is not this program's report.
    this.#child = fork(process.argv[1]!, [PROCESS, file, nth % 2 === 1 ? "remember" : "read"], { stdio: ["ignore", "ignore", "inherit", "ipc"] });
    this.opened = new Promise((resolve, reject) => this.#asked.set(0, { resolve, reject }));
    this.#ended = once(this.#child, "exit").then(([code, signal]) => {
      this.#lost = new Error(`process ${nth + 1} has ended (${signal ?? `exit code ${code}`})`);
      for (const { reject } of this.#asked.values()) reject(this.#lost);
    });
    this.#child.on("message", ({ asked, answers = [], wrong }: Answer) => {
      const waiting = this.#asked.get(asked);
      this.#asked.delete(asked);
      if (wrong === undefined) waiting?.resolve(answers);
      else waiting?.reject(new Error(wrong));
    });
  }

  ask(what: AskedStep | AskedCall): Promise<string[]> {
    if (this.#lost) return Promise.reject(this.#lost);
    const asked = (this.#last += 1);
    return new Promise((resolve, reject) => {
      this.#asked.set(asked, { resolve, reject });
      this.#child.send({ ...what, asked }, (error) => error && reject(error));
    });
  }

  end(): Promise<unknown> {
    if (this.#child.connected) this.#child.disconnect();
    return this.#ended;
  }
}
