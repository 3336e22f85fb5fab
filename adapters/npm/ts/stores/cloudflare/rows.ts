// The rows of an object, as `rows.js` of `tidegate-cloudflare` reads and writes them.

/** The number of rows that a sweep reads before other events have a turn: some 5 ms, or 20 where all have expired. */
const PAGE_ROWS = 1_000;

/** The number of digits of a row's expiry. */
const EXPIRES_LEN = 12;

/** What is stored under one key. */
export interface Row {
  /** Twelve digits for the expiry, what is lent of a state, a dot, and the state or the first answer to a token. */
  readonly text: string;
  /** When the row may be removed, by the object's clock. */
  readonly expires: number;
}

/** Makes a row. `leased` is empty for rows that never lent. */
export function rowOf(expires: number, leased: string, value: string): Row {
  return { text: `${expires.toString(16).padStart(EXPIRES_LEN, "0")}${leased}.${value}`, expires };
}

/** What is lent of the state of a row, in digits. */
export function leasedOf({ text }: Row): string {
  return text.slice(EXPIRES_LEN, text.indexOf(".", EXPIRES_LEN));
}

/** A row's state, or the first answer to a token, in digits. */
export function valueOf({ text }: Row): string {
  return text.slice(text.indexOf(".", EXPIRES_LEN) + 1);
}

/** A row and its name. */
export type Named = readonly [name: string, row: Row];

/** What a sweep found in a page. */
export interface Page {
  /** The number of rows that remain. */
  readonly kept: number;
  /** When the first of them expires. A row that cannot be read never expires. */
  readonly next: number | undefined;
  /** The last name of the page. Undefined if this was the last page. */
  readonly last: string | undefined;
}

/** The part of a Durable Object's storage that is used. */
export interface Storage {
  readonly kv: {
    get(key: string): unknown;
    put(key: string, value: string): void;
    delete(key: string): unknown;
    list(options: { startAfter?: string | undefined; limit: number }): Iterable<[key: string, value: unknown]>;
  };
  transactionSync(run: () => void): void;
  setAlarm(atMs: number): unknown;
}

/**
 * They are in the platform's own key-value table, so that a write is one row, and the first write creates no table:
 * <https://developers.cloudflare.com/durable-objects/api/sqlite-storage-api/#synchronous-kv-api>. All methods throw if the class is not
 * declared with SQLite storage.
 */
export class Rows {
  readonly #storage: Storage;
  readonly #kv: Storage["kv"];

  constructor(storage: Storage) {
    this.#storage = storage;
    this.#kv = storage.kv;
  }

  load(name: string): Row | undefined {
    const text = tried(() => this.#kv.get(name));
    if (text === undefined) return undefined;
    if (typeof text === "string" && /^[\da-f]{12}[\da-f]*\.[\da-f]*$/.test(text)) {
      const row = { text, expires: parseInt(text.slice(0, EXPIRES_LEN), 16) };
      if (leasedOf(row).length % 2 === 0 && valueOf(row).length % 2 === 0) return row;
    }
    throw ["corrupt", `durable object: Tidegate did not write the row of ${name}; remove it`];
  }

  /** Writes rows, all or none. */
  save(rows: readonly Named[]): void {
    const put = () => {
      for (const [name, { text }] of rows) this.#kv.put(name, text);
    };
    tried(() => (rows.length === 1 ? put() : this.#storage.transactionSync(put)));
  }

  remove(name: string): void {
    tried(() => this.#kv.delete(name));
  }

  /** Removes the expired rows of the page after a name. */
  sweep(clock: number, startAfter: string | undefined): Page {
    return tried(() => {
      const expired: string[] = [];
      let [rows, kept, next, last] = [0, 0, Infinity, ""];
      for (const [name, row] of this.#kv.list({ startAfter, limit: PAGE_ROWS })) {
        rows += 1;
        last = name;
        const expires = typeof row === "string" ? parseInt(row.slice(0, EXPIRES_LEN), 16) : NaN;
        if (expires <= clock) {
          expired.push(name);
          continue;
        }
        kept += 1;
        if (expires < next) next = expires;
      }
      for (const name of expired) this.#kv.delete(name);
      return { kept, next: next === Infinity ? undefined : next, last: rows < PAGE_ROWS ? undefined : last };
    });
  }

  /** Sets the alarm without waiting for it. The platform writes it together with the step's rows. */
  setAlarm(at: number): void {
    tried(() => this.#storage.setAlarm(at));
  }
}

/** Nothing was charged if the storage fails: a step writes all of its rows, or none. */
function tried<T>(step: () => T): T {
  try {
    return step();
  } catch (thrown) {
    const { message = "" } = Object(thrown) as Partial<Error>;
    throw ["refused", `durable object: its storage failed: ${message}; nothing was charged`];
  }
}
