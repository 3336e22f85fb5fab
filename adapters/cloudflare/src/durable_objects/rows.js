// The rows of an object in its SQLite storage. `rows.ts` of the npm package does the same.

/** The number of rows that a sweep reads before other events have a turn: some 5 ms, or 20 where all have expired. */
const PAGE_ROWS = 1_000;

/**
 * They are in the platform's own key-value table, so that a write is one row, and the first write creates no table:
 * <https://developers.cloudflare.com/durable-objects/api/sqlite-storage-api/#synchronous-kv-api>. All methods throw if the
 * class is not declared with SQLite storage.
 */
export class ObjectRows {
  #storage;
  #kv;

  constructor(storage) {
    this.#storage = storage;
    this.#kv = storage.kv;
  }

  load(key) {
    return this.#kv.get(key);
  }

  /** Writes rows, all or none. Each is a line with its key and a line with its text; neither contains a line break. */
  save(keysAndRows) {
    const lines = keysAndRows.split("\n");
    const put = () => {
      for (let at = 0; at + 1 < lines.length; at += 2) this.#kv.put(lines[at], lines[at + 1]);
    };
    lines.length < 4 ? put() : this.#storage.transactionSync(put);
  }

  remove(key) {
    this.#kv.delete(key);
  }

  /**
   * Removes the expired rows of the page after the key `after`. Returns how many rows remain, when the first of them expires
   * and the page's last key, separated by spaces: nothing for the second if none expires, or for the third if this is the
   * last page.
   */
  sweep(clockMs, after) {
    const expired = [];
    let [rows, kept, next, last] = [0, 0, Infinity, ""];
    for (const [key, row] of this.#kv.list({ startAfter: after, limit: PAGE_ROWS })) {
      rows += 1;
      last = key;
      // `Row::to_text` in rows.rs begins with the expiry. A row that cannot be read never expires.
      const expiresMs = typeof row === "string" ? parseInt(row.slice(0, 12), 16) : NaN;
      if (expiresMs <= clockMs) {
        expired.push(key);
        continue;
      }
      kept += 1;
      if (expiresMs < next) next = expiresMs;
    }
    for (const key of expired) this.#kv.delete(key);
    return `${kept} ${next === Infinity ? "" : next} ${rows < PAGE_ROWS ? "" : last}`;
  }

  /** Sets the alarm without waiting for it. The platform writes it together with the step's rows. */
  setAlarm(atMs) {
    this.#storage.setAlarm(atMs);
  }
}

export function rows(storage) {
  return new ObjectRows(storage);
}
