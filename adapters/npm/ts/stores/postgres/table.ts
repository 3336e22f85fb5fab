// The table of `tidegate-postgres`, and its statements. A version is the state itself, as digits: equal states decide alike.

import { bytesOf, hexOf } from "../../core/codec.js";
import { sha256 } from "../../core/sha256.js";
import { invalid, TidegateError } from "../../error.js";
import type { Swap, VersionedStore, VersionedValue } from "../../versioned_store.js";
import { codeOf, failure, isConflict } from "./errors.js";
import { type Write, type Written, Writes, writtenOf } from "./writes.js";

/** A client of PostgreSQL: a `Pool` or a `Client` of `pg`, or what has such a function, as Neon's and Vercel's drivers do. */
export interface PostgresClient {
  query(text: string, values: unknown[]): PromiseLike<unknown>;
}

/** A client as `pg` is: it takes a statement with a name, and prepares it once on each connection. */
interface PreparingClient {
  query(statement: { name: string; text: string; values: unknown[] }): PromiseLike<unknown>;
}

/** A row of an answer. Numbers may come as text. */
type Row = Readonly<Record<string, unknown>>;

/** Checks the name of a table, which is part of statements. */
export function tableName(name = "tidegate"): string {
  if (/^[a-z_][a-z0-9_]{0,62}(\.[a-z_][a-z0-9_]{0,62})?$/.test(name)) return name;
  throw invalid("table", `not a table's name in lower case, with or without its schema; write "limits.tidegate"`);
}

/** The statement that creates a table. A row is rewritten in place: pages have room for that. */
function createText(table: string): string {
  return `CREATE TABLE IF NOT EXISTS ${table} (\n    name text COLLATE "C" PRIMARY KEY,\n    state bytea NOT NULL,\n    expires_at timestamptz NOT NULL\n) WITH (fillfactor = 70)`;
}

/** What two that create a table at once get: one of them has. */
const CREATED = ["23505", "42P07", "42710"];

export async function creation(client: PostgresClient, table: string): Promise<void> {
  try {
    await client.query(createText(table), []);
  } catch (thrown) {
    if (!CREATED.includes((Object(thrown) as { code?: string }).code!)) throw thrown;
  }
}

/** Removes rows that have expired, of those that meet a condition, but none that another statement changes at this moment. */
function removal(table: string, condition: string): string {
  return `DELETE FROM ${table} WHERE ctid = ANY (ARRAY(SELECT ctid FROM ${table} WHERE ${condition} AND expires_at <= now() FOR UPDATE SKIP LOCKED)) RETURNING 1`;
}

export async function expired(client: PostgresClient, table: string): Promise<number> {
  const text = `WITH removed AS (${removal(table, "true")}) SELECT count(*)::int AS removed FROM removed`;
  return Number(rowsOf(await client.query(text, []))[0]?.["removed"]);
}

/**
 * Makes several writes, in the order of their names, so that no two of these statements wait for each other. It finds each row by the primary
 * key, as an insertion does, and no plan can scan the table. A row that should be there and is not becomes one that counts nothing: this cannot
 * insert and not insert. What keeps a row from being written over is put aside in a setting, which the end of the transaction takes back.
 */
function writing(table: string, commit: string): string {
  const [names, states, olds, ttls] = ["$1::text[]", "$2::bytea[]", "$3::bytea[]", "$4::float8[]"];
  const of = (list: string) => `(${list})[array_position(${names}, EXCLUDED.name)]`;
  const until = (ms: string) => `now() + ${ms} * interval '1 millisecond'`;
  const state = "CASE WHEN old IS NULL THEN state ELSE '' END";
  const expiry = `CASE WHEN old IS NULL THEN ${until("ttl")} ELSE '-infinity' END`;
  const asked = `SELECT name, ${state}, ${expiry} FROM unnest(${names}, ${states}, ${olds}, ${ttls}) AS asked (name, state, old, ttl) ORDER BY name COLLATE "C"`;
  const present = "CASE WHEN t.expires_at > '-infinity' THEN encode(t.state, 'hex') ELSE '-' END";
  const lost = `set_config('tidegate.lost', concat(current_setting('tidegate.lost', true), array_position(${names}, t.name), ':', ${present}, ' '), true) IS NULL`;
  const over = `ON CONFLICT (name) DO UPDATE SET state = ${of(states)}, expires_at = ${until(of(ttls))} WHERE CASE WHEN coalesce(t.state = ${of(olds)}, t.expires_at <= now()) THEN true ELSE ${lost} END`;
  const written = `WITH written AS (INSERT INTO ${table} AS t (name, state, expires_at) ${asked} ${over} RETURNING name, expires_at)`;
  return `${written} SELECT (SELECT string_agg(array_position(${names}, name)::text, ' ') FROM written WHERE expires_at > '-infinity') AS written, current_setting('tidegate.lost', true) AS lost${commit}`;
}

/** The same for one write, which takes the server half the time: whether it was made, and otherwise what is there. */
function writingOne(table: string, commit: string): string {
  const [state, old, until] = ["$2::bytea", "$3::bytea", "now() + $4::float8 * interval '1 millisecond'"];
  const row = `$1, CASE WHEN ${old} IS NULL THEN ${state} ELSE '' END, CASE WHEN ${old} IS NULL THEN ${until} ELSE '-infinity' END`;
  const lost = `set_config('tidegate.lost', CASE WHEN t.expires_at > '-infinity' THEN encode(t.state, 'hex') ELSE '-' END, true) IS NULL`;
  const over = `ON CONFLICT (name) DO UPDATE SET state = ${state}, expires_at = ${until} WHERE CASE WHEN coalesce(t.state = ${old}, t.expires_at <= now()) THEN true ELSE ${lost} END`;
  const written = `WITH written AS (INSERT INTO ${table} AS t (name, state, expires_at) VALUES (${row}) ${over} RETURNING expires_at)`;
  return `${written} SELECT (SELECT (expires_at > '-infinity')::int FROM written) AS written, current_setting('tidegate.lost', true) AS lost${commit}`;
}

/** Whether a client is one of `pg`, or is made of it, as Neon's `Pool` and Vercel's are. Others send what they are given over HTTP. */
function prepares(client: PostgresClient): boolean {
  const { connect, on } = client as { connect?: unknown; on?: unknown };
  return typeof connect === "function" && typeof on === "function";
}

/** A statement, and what it is called where it is prepared: after its text, because a pooler may run it in a session that another client prepares in, too. */
interface Statement {
  readonly text: string;
  readonly name: string;
}

function statement(text: string): Statement {
  return { text, name: `tidegate-${sha256(new TextEncoder().encode(text)).slice(0, 40)}` };
}

/** One write of so many removes what has expired in so many pages of the table, which has no index of times: each write would have to keep it. */
const WRITES_OF_A_SWEEP = 512;
const PAGES_OF_A_SWEEP = 64;

/** The clients whose errors are listened to. */
const heard = new WeakSet<object>();

/** The states of a policy's keys in a table. */
export class Table implements VersionedStore {
  readonly name = "postgres";
  readonly #client: PostgresClient;
  readonly #table: string;
  readonly #read: string;
  readonly #write: Statement;
  readonly #writeAll: Statement;
  readonly #delete: string;
  readonly #sweep: string;
  readonly #writes: Writes;
  /** Whether the statements of writes are prepared. */
  #prepares: boolean;
  /** Where in the table the next sweep begins: at its begin, 0, to its end, 1. */
  #swept = Math.random();

  /** After `deadlineMs`, a limiter gives a call up, and after as long again one that has waited for another's answer. */
  constructor(client: PostgresClient, table: string, durable: boolean, deadlineMs: number, prepared = prepares(client)) {
    this.#client = client;
    this.#table = table;
    const commit = durable ? "" : ", set_config('synchronous_commit', 'off', true)";
    this.#read = `SELECT encode(state, 'hex') AS state FROM ${table} WHERE name = $1 AND expires_at > now()`;
    this.#write = statement(writingOne(table, commit));
    this.#writeAll = statement(writing(table, commit));
    this.#prepares = prepared;
    this.#writes = new Writes((write) => this.#one(write), (writes) => this.#all(writes), (thrown) => /^(22|23)/.test(codeOf(thrown)), 2 * deadlineMs);
    this.#delete = `DELETE FROM ${table} WHERE name = $1`;
    const pages = `SELECT greatest(pg_relation_size('${table}'::regclass) / current_setting('block_size')::bigint, 1) AS pages`;
    const at = (more: number) => `(SELECT format('(%s,0)', floor($1::float8 * pages)::bigint + ${more})::tid FROM place)`;
    const removed = removal(table, `ctid >= ${at(0)} AND ctid < ${at(PAGES_OF_A_SWEEP)}`);
    this.#sweep = `WITH place AS (${pages}), removed AS (${removed}) SELECT pages::float8 AS pages, (SELECT count(*) FROM removed)::int AS removed${commit} FROM place`;
    listen(client);
  }

  async read(name: string): Promise<VersionedValue | undefined> {
    const [row] = await this.#rows(this.#read, [name]);
    return row && valueOf(row);
  }

  create(name: string, bytes: Uint8Array, ttlMs: number): Promise<Swap> {
    return this.#swap({ name, state: hexOf(bytes), old: undefined, ttlMs });
  }

  update(name: string, bytes: Uint8Array, version: unknown, ttlMs: number): Promise<Swap> {
    return this.#swap({ name, state: hexOf(bytes), old: version as string, ttlMs });
  }

  async delete(name: string): Promise<void> {
    await this.#rows(this.#delete, [name]);
  }

  async #swap(write: Write): Promise<Swap> {
    try {
      const written = await this.#writes.make(write);
      if (Math.random() * WRITES_OF_A_SWEEP < 1) this.#remove().catch(() => undefined);
      if (written.written) return { written: true, version: write.state };
      const { state } = written;
      return { written: false, present: state === null || state === undefined ? (state as null | undefined) : valueOf({ state }) };
    } catch (thrown) {
      // Others have changed the row, under an isolation level at which that is an error.
      if (isConflict(thrown)) return false;
      throw failure(thrown, createText(this.#table));
    }
  }

  /** Makes one write. */
  async #one(write: Write): Promise<Written> {
    const { name, state, old, ttlMs } = write;
    const [row = {}] = await this.#prepared(this.#write, [name, `\\x${state}`, old === undefined ? null : `\\x${old}`, ttlMs]);
    const { written = null, lost } = row;
    if (written !== null) return Number(written) === 1 ? { written: true } : { written: false, state: null };
    if (typeof lost === "string" && /^(-|(?:[0-9a-f]{2})*)$/.test(lost)) return { written: false, state: lost === "-" ? null : lost };
    throw nonsense();
  }

  /** Makes several writes. */
  async #all(writes: readonly Write[]): Promise<readonly Written[]> {
    const bytes = (state: string | undefined) => (state === undefined ? "NULL" : `"\\\\x${state}"`);
    const list = (of: (write: Write) => string | number) => `{${writes.map(of).join(",")}}`;
    const name = (write: Write) => `"${write.name.replace(/["\\]/g, "\\$&")}"`;
    const values = [list(name), list(({ state }) => bytes(state)), list(({ old }) => bytes(old)), list(({ ttlMs }) => ttlMs)];
    const [row = {}] = await this.#prepared(this.#writeAll, values);
    const written = writtenOf(writes, row["written"] ?? null, row["lost"] ?? null);
    if (written) return written;
    throw nonsense();
  }

  /** Runs a statement of writes, prepared if it may be. */
  async #prepared({ text, name }: Statement, values: unknown[]): Promise<readonly Row[]> {
    if (!this.#prepares) return this.#query(text, values);
    try {
      return rowsOf(await (this.#client as unknown as PreparingClient).query({ name, text, values }));
    } catch (thrown) {
      // A pooler has lost what was prepared, or the table is another one than then. Nothing was done.
      if (!["26000", "42P05", "0A000"].includes(codeOf(thrown))) throw thrown;
      this.#prepares = false;
      return this.#query(text, values);
    }
  }

  /** Removes some rows that have expired. No decision waits for it. */
  async #remove(): Promise<void> {
    const begin = this.#swept;
    const [row = {}] = await this.#query(this.#sweep, [begin]);
    const next = begin + PAGES_OF_A_SWEEP / Number(row["pages"]);
    this.#swept = next < 1 ? next : 0;
  }

  async #rows(text: string, values: unknown[]): Promise<readonly Row[]> {
    try {
      return await this.#query(text, values);
    } catch (thrown) {
      throw failure(thrown, createText(this.#table));
    }
  }

  async #query(text: string, values: unknown[]): Promise<readonly Row[]> {
    // Not prepared: a plan that was made while the table was small would scan all of it, until the server's next ANALYZE. No plan of a write can.
    return rowsOf(await this.#client.query(text, values));
  }
}

function nonsense(): TidegateError {
  return new TidegateError("corrupt", "the answer is not one to the statement; does the client change results?");
}

/** The rows of an answer. Some drivers return them alone. */
function rowsOf(answer: unknown): readonly Row[] {
  const rows: unknown = Array.isArray(answer) ? answer : (Object(answer) as { rows?: unknown }).rows;
  if (Array.isArray(rows)) return rows as Row[];
  throw new TidegateError("refused", "query(text, values) gave neither { rows } nor rows; the request may have been charged");
}

function valueOf({ state }: Row): VersionedValue {
  if (typeof state !== "string" || !/^(?:[0-9a-f]{2})*$/.test(state)) throw new TidegateError("corrupt", "the state of a row is no text of digits; does the client change results?");
  // No state is empty.
  return { bytes: bytesOf(state), version: state === "" ? "00" : state };
}

/** Listens to a client's errors: a `Pool` without a listener ends the process if the server closes an idle connection. */
function listen(client: PostgresClient): void {
  const emitter = client as { on?: (event: string, listener: () => void) => unknown };
  if (heard.has(client) || typeof emitter.on !== "function") return;
  heard.add(client);
  emitter.on("error", () => undefined);
}
