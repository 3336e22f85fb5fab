// The table of `tidegate-postgres`, and its statements. A version is the state itself, as digits: equal states decide alike.

import { bytesOf, hexOf } from "../../core/codec.js";
import { invalid, TidegateError } from "../../error.js";
import type { Swap, VersionedStore, VersionedValue } from "../../versioned_store.js";
import { failure, isConflict } from "./errors.js";

/** A client of PostgreSQL: a `Pool` or a `Client` of `pg`, or what has such a function, as Neon's and Vercel's drivers do. */
export interface PostgresClient {
  query(text: string, values: unknown[]): PromiseLike<unknown>;
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

/** One write of so many removes what has expired in so many pages of the table, which has no index of times: each write would have to keep it. */
const [WRITES_OF_A_SWEEP, PAGES_OF_A_SWEEP] = [512, 64];

/** The clients whose errors are listened to. */
const heard = new WeakSet<object>();

/** The states of a policy's keys in a table. */
export class Table implements VersionedStore {
  readonly name = "postgres";
  readonly #client: PostgresClient;
  readonly #table: string;
  readonly #read: string;
  readonly #create: string;
  readonly #update: string;
  readonly #delete: string;
  readonly #sweep: string;
  /** Where in the table the next sweep begins: at its begin, 0, to its end, 1. */
  #swept = Math.random();

  constructor(client: PostgresClient, table: string, durable: boolean) {
    this.#client = client;
    this.#table = table;
    // The lock has a statement that came too late see what it has waited for, and not its snapshot from before.
    const present = `SELECT encode(state, 'hex') FROM ${table} WHERE name = $1 AND NOT EXISTS (SELECT FROM swapped) FOR NO KEY UPDATE`;
    const commit = durable ? "" : ", set_config('synchronous_commit', 'off', true)";
    const swap = (text: string) => `WITH swapped AS (${text} RETURNING 1) SELECT (SELECT count(*) FROM swapped)::int AS written, (${present}) AS state${commit}`;
    const until = (place: number) => `now() + $${place}::float8 * interval '1 millisecond'`;
    const over = "ON CONFLICT (name) DO UPDATE SET state = EXCLUDED.state, expires_at = EXCLUDED.expires_at WHERE t.expires_at <= now()";
    this.#read = `SELECT encode(state, 'hex') AS state FROM ${table} WHERE name = $1 AND expires_at > now()`;
    this.#create = swap(`INSERT INTO ${table} AS t (name, state, expires_at) VALUES ($1, $2::bytea, ${until(3)}) ${over}`);
    this.#update = swap(`UPDATE ${table} SET state = $3::bytea, expires_at = ${until(4)} WHERE name = $1 AND state = $2::bytea`);
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
    const state = hexOf(bytes);
    return this.#swap(this.#create, [name, `\\x${state}`, ttlMs], state);
  }

  update(name: string, bytes: Uint8Array, version: unknown, ttlMs: number): Promise<Swap> {
    const state = hexOf(bytes);
    return this.#swap(this.#update, [name, `\\x${version as string}`, `\\x${state}`, ttlMs], state);
  }

  async delete(name: string): Promise<void> {
    await this.#rows(this.#delete, [name]);
  }

  async #swap(text: string, values: unknown[], version: string): Promise<Swap> {
    try {
      const [row = {}] = await this.#query(text, values);
      if (Math.random() * WRITES_OF_A_SWEEP < 1) this.#remove().catch(() => undefined);
      if (Number(row["written"]) === 1) return { written: true, version };
      // A row that another one creates at this moment is in no view of the statement. One that is updated has gone.
      return { written: false, present: row["state"] === null ? (text === this.#update ? null : undefined) : valueOf(row) };
    } catch (thrown) {
      // Others have changed the row, under an isolation level at which that is an error.
      if (isConflict(thrown)) return false;
      throw failure(thrown, createText(this.#table));
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
    // Not prepared: a plan that was made while the table was small would scan all of it, until the server's next ANALYZE.
    return rowsOf(await this.#client.query(text, values));
  }
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
