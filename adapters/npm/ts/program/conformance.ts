import { randomBytes } from "node:crypto";
import type { Arguments, Command } from "./arguments.js";
import { Failed } from "./failure.js";
import { filtered } from "./load_fixtures.js";
import { errln, outln } from "./output.js";
import { countOf, type Result, statusOf, tallyOf } from "./report.js";
import { CONTRACT_IDS, isExpiry, SHARED_IDS, triedContract, triedExpiry, triedShared } from "./store_contract.js";
import { inMemory, limitersOn, packed, replayedOn } from "./store_fixtures.js";
import { openedFrom } from "./store_module.js";
import { Processes } from "./store_processes.js";

const HELP = `\
Replay the conformance suite against a store of your own, and show what is wrong with it

The module exports the store that \`new Tidegate({ store })\` of @tidegate/edge/store takes: an object
with read, create, update and delete, or an async function that opens one. If it also exports
\`close\`, that is called at the end.

First the store's own functions are tried: bytes and versions, 32 writes at once of which one may
be made, names, and values that expire. Then fixtures are replayed through four limiters that share
the store and do not know of each other, with all requests of a burst in flight at once. Each
answer must be that of the store in memory: as many admissions, and the same remaining counts and
times to wait. The fixtures wait for a store whose own functions are right.

With --processes, each limiter is in a process of its own, which loads the module: that is how servers
share a database. A store that counts in its process fails.

The keys begin with a random prefix and are removed afterwards, so a store with other keys in it
can be used. Better use a test database.

Usage: tidegate conformance [OPTIONS] <STORE>

Arguments:
  <STORE>  The module with the store, for example ./store.js

Options:
      --filter <GLOB>  Select only tests whose id matches, for example 'race/*' or 'contract/*'. May
                       be repeated
      --processes <2..64>
                       Replay the fixtures through limiters in so many processes
      --json           Print a report in JSON on standard output, in place of text
  -h, --help           Print help

Examples:
  tidegate conformance ./store.js                  test a store
  tidegate conformance ./store.js --processes 4    test that four processes admit what one does
  tidegate conformance ./store.js --filter 'contract/*'
                                                   try only its own functions
  tidegate conformance ./store.js --json > report.json
                                                   keep a report

A store in this process, to begin with:
  const rows = new Map();
  export default {
    read: async (name) => rows.get(name),
    create: async (name, bytes) => !rows.has(name) && !!rows.set(name, { bytes, version: {} }),
    update: async (name, bytes, version) => rows.get(name)?.version === version && !!rows.set(name, { bytes, version: {} }),
    delete: async (name) => rows.delete(name),
    keepsForever: true,
  };

Exit codes: 0 the store is right, 1 it is not, or no test ran, 2 the command line or the module is wrong.
`;

export const CONFORMANCE: Command = {
  name: "conformance",
  file: "STORE",
  options: [{ name: "filter", value: "GLOB", isMany: true }, { name: "processes", value: "2..64", wrong: wrongCount }, { name: "json" }],
  help: HELP,
  run,
};

function wrongCount(text: string): string | undefined {
  const isRight = /^\d{1,2}$/.test(text) && Number(text) >= 2 && Number(text) <= 64;
  return isRight ? undefined : "write a number of processes from 2 to 64";
}

/** So many fixtures are replayed at once: they use other keys, and most of their time is that of the network. */
const AT_ONCE = 4;

/** Time for what a store's connections still do. */
const EXIT_AFTER_MS = 1_000;

async function run(args: Arguments): Promise<void> {
  const fixtures = packed();
  const count = Number(args.one("processes") ?? 0);
  const own = count > 0 ? [...CONTRACT_IDS, ...SHARED_IDS] : CONTRACT_IDS;
  const tests = filtered([...own.map((id) => ({ id })), ...fixtures], args.all("filter"));
  const ids = new Set(tests.map(({ id }) => id));
  const { store, close } = await openedFrom(args.file);
  const processes = count > 0 ? await Processes.started(args.file, count) : undefined;
  const name = typeof store.name === "string" ? store.name : "store";
  const [began, prefix, progress] = [performance.now(), `tidegate-${randomBytes(4).toString("hex")}.`, new Progress(name, ids.size)];
  const limiters = processes ?? limitersOn(store);
  const results: Result[] = [];
  const done = (result: Result) => progress.add(results, result);
  const expiry = isExpiry((id) => ids.has(id)) ? triedExpiry(store, prefix) : undefined;
  await triedContract(store, prefix, (id) => ids.has(id), done);
  if (processes) await triedShared(store, prefix, processes, (id) => ids.has(id), done);
  const isBroken = countOf(results, "fail") > 0;
  const wanted = fixtures.filter(({ id }) => ids.has(id));
  if (isBroken) results.push(...wanted.map(({ id }) => ({ id, verdict: "unsupported" as const, reasons: [WAITS] })));
  else await replayAll(wanted, async (fixture, nth, expected) => done(await replayedOn(limiters, store, fixture, prefixOf(prefix, nth), expected)), prefix);
  if (expiry) {
    progress.tell("waiting for values to expire");
    done(await expiry);
  }
  progress.end();
  await processes?.end();
  await close();
  const status = statusOf(results);
  if (args.has("json")) outln(JSON.stringify(reportOf(name, results, performance.now() - began), undefined, 2));
  else process.stdout.write(textOf(name, results, performance.now() - began));
  // A connection that the module does not close would keep the program from ending.
  setTimeout(() => process.exit(), EXIT_AFTER_MS).unref();
  if (status !== "pass") throw new Failed();
}

const WAITS = "not replayed: the store's own functions are wrong";

async function replayAll(fixtures: ReturnType<typeof packed>, replay: (fixture: ReturnType<typeof packed>[0], nth: number, expected: string[][]) => Promise<void>, prefix: string): Promise<void> {
  const expected: string[][][] = [];
  for (const [nth, fixture] of fixtures.entries()) expected.push(await inMemory(fixture, prefixOf(prefix, nth)));
  const waiting = fixtures.entries();
  const worker = async () => {
    for (const [nth, fixture] of waiting) await replay(fixture, nth, expected[nth]!);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
}

function prefixOf(prefix: string, nth: number): string {
  return `${prefix}${nth}.`;
}

/** Tells on a terminal how far it is. */
class Progress {
  readonly #name: string;
  readonly #total: number;

  constructor(name: string, total: number) {
    [this.#name, this.#total] = [name, total];
    if (!process.stderr.isTTY) errln(`${name}: ${total} tests`);
  }

  add(results: Result[], result: Result): void {
    results.push(result);
    this.tell(`${results.length} of ${this.#total}, ${countOf(results, "fail")} failed`);
  }

  tell(what: string): void {
    if (process.stderr.isTTY) process.stderr.write(`\r\x1b[K${this.#name}: ${what}`);
  }

  end(): void {
    if (process.stderr.isTTY) process.stderr.write("\r\x1b[K");
  }
}

/** The report for programs. Its names are stable. */
function reportOf(store: string, results: readonly Result[], elapsedMs: number): object {
  const tests = results.map(({ id, verdict, reasons, offered, passed }) => ({ id, verdict, reasons, ...(offered !== undefined && { offered, admitted: passed }) }));
  const [pass, fail, unsupported] = (["pass", "fail", "unsupported"] as const).map((verdict) => countOf(results, verdict));
  return { schema: 1, store, status: statusOf(results) === "pass" ? "pass" : "fail", pass, fail, unsupported, elapsed_ms: Math.round(elapsedMs), tests };
}

/** The report for people: what is wrong, and the numbers. */
function textOf(store: string, results: readonly Result[], elapsedMs: number): string {
  const failed = results.filter(({ verdict }) => verdict === "fail");
  const left = results.filter(({ verdict, reasons }) => verdict === "unsupported" && reasons[0] !== WAITS);
  const waiting = results.filter(({ reasons }) => reasons[0] === WAITS).length;
  const sum = (field: "offered" | "passed") => results.reduce((sum, one) => sum + (one[field] ?? 0), 0);
  const more = ({ length }: readonly string[]) => (length > 1 ? [`    and ${length - 1} more, which --json prints`] : []);
  return [
    ...failed.flatMap(({ id, reasons }) => [`FAIL ${id}`, `    ${reasons[0]!}`, ...more(reasons)]),
    ...left.map(({ id, reasons }) => `left out ${id}: ${reasons[0]!}`),
    ...(waiting > 0 ? [`left out ${waiting} fixtures, ${WAITS}`] : []),
    ...(results.length === 0 ? ["no test ran"] : []),
    `${store}: ${tallyOf(results)}; ${sum("passed")} of ${sum("offered")} requests admitted, ${(elapsedMs / 1_000).toFixed(1)} s`,
    "",
  ].join("\n");
}
