import { invalid } from "../../error.js";
import { Fields } from "../../fields.js";
import { COMMON, type Options } from "../../options.js";
import { DEADLINE_MS, VersionedLimiter } from "../../versioned_limiter.js";
import { creation, expired, type PostgresClient, Table, tableName } from "./table.js";

export * from "../../store_exports.js";
export type { PostgresClient } from "./table.js";

/** The options of a limiter on PostgreSQL. */
export interface PostgresOptions extends Options {
  client: PostgresClient;
  /** The table, also with its schema, as `limits.tidegate`. Default: `tidegate`. See {@link createTable}. */
  table?: string | undefined;
  /**
   * Whether a decision waits until the database has it on disk. Default: false, `synchronous_commit = off` for the limiter's own statements:
   * a server that crashes forgets the decisions of its last moments, some 0.6 seconds, and no other data.
   */
  durable?: boolean | undefined;
  /**
   * Whether the statement of writes is prepared once for each connection. Default: whether the client is one of `pg`. If a pooler loses what was
   * prepared, the limiter goes on without.
   */
  prepared?: boolean | undefined;
  /** Whether the last value of up to 4,096 keys is remembered, so that a decision is one statement. Default: true. */
  remember?: boolean | undefined;
  /** Keeps every state for at least this long. Only for tests whose time stands still. */
  minTtlMs?: number | undefined;
}

/**
 * A limiter on PostgreSQL, through the application's own client. It is exact at any concurrency, and an admission is one statement: it
 * swaps the state of a key for the next one, if it is still what the limiter remembers. A denial reads the state.
 *
 *     const client = new Pool({ connectionString, connectionTimeoutMillis: 1_000 });
 *     await createTable(client);
 *     const tidegate = new Tidegate({ client, platform: "direct", failMode: "open", policy: { name: "api", quotas: ["10 / 10 s"] } });
 *
 * Decisions of one process about one key that come at the same time are one statement. Call {@link removeExpired} now and then.
 */
export class Tidegate extends VersionedLimiter {
  constructor(options: PostgresOptions) {
    const fields = new Fields(options, "", [...COMMON, "client", "table", "durable", "prepared", "remember", "minTtlMs"]);
    const client = checked(fields.need("client", fields.get("client"), CLIENTS));
    const table = new Table(client, tableName(fields.text("table", "limits.tidegate")), fields.flag("durable") ?? false, fields.whole("deadlineMs") ?? DEADLINE_MS, fields.flag("prepared"));
    const { client: _, table: __, durable: ___, prepared: ____, remember = true, ...others } = options;
    super({ ...others, remember, store: table });
  }
}

const CLIENTS = "new Pool() of pg, or anything with query(text, values)";

function checked(client: unknown): PostgresClient {
  if (typeof (client as Partial<PostgresClient> | undefined)?.query !== "function") throw invalid("client", `not a client of PostgreSQL; write ${CLIENTS}`);
  return client as PostgresClient;
}

/** Creates the table, unless it is there. A migration may run the statement that the error of a missing table prints. */
export function createTable(client: PostgresClient, options: { table?: string | undefined } = {}): Promise<void> {
  const fields = new Fields(options, "", ["table"]);
  return creation(checked(client), tableName(fields.text("table", "limits.tidegate")));
}

/** Removes the rows that count nothing any more. Returns how many. They take room until then, and no decision needs it. */
export function removeExpired(client: PostgresClient, options: { table?: string | undefined } = {}): Promise<number> {
  const fields = new Fields(options, "", ["table"]);
  return expired(checked(client), tableName(fields.text("table", "limits.tidegate")));
}
