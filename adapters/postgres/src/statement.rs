//! The statements. `@tidegate/edge/postgres` sends the same ones to the same table.

use tokio_postgres::types::Type;

/// Creates the table, unless it exists.
///
/// There is no index but the primary key's, so an update does not touch an index as long as the page has room (HOT). The rest of a page is for that.
pub const CREATE_TABLE: &str = "\
CREATE TABLE IF NOT EXISTS tidegate (
    name text COLLATE \"C\" PRIMARY KEY,
    state bytea NOT NULL,
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 70)";

/// Removes all rows that have expired, for a job of the database's. A limiter removes them, too, a few at a time.
pub const SWEEP_ALL: &str = "DELETE FROM tidegate WHERE expires_at <= now()";

/// A statement that a limiter sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statement {
    pub(crate) place: usize,
    /// The text.
    pub sql: &'static str,
    /// The types of its parameters.
    pub types: &'static [Type],
}

/// How many statements are worth preparing.
pub(crate) const COUNT: usize = 7;

static NAME: [Type; 1] = [Type::TEXT];
static SWAP: [Type; 4] = [Type::TEXT, Type::BYTEA, Type::BYTEA, Type::INT8];
static CREATE: [Type; 3] = [Type::TEXT, Type::BYTEA, Type::INT8];
static WRITE: [Type; 4] = [Type::TEXT_ARRAY, Type::BYTEA_ARRAY, Type::BYTEA_ARRAY, Type::INT8_ARRAY];
static PAGES: [Type; 2] = [Type::TEXT, Type::TEXT];

/// The statements of a limiter.
#[derive(Debug)]
pub(crate) struct Statements {
    pub(crate) read: Statement,
    pub(crate) swap: Statement,
    pub(crate) create: Statement,
    pub(crate) write: Statement,
    pub(crate) delete: Statement,
    pub(crate) pages: Statement,
    pub(crate) sweep: Statement,
}

/// The statements that write, with what they evaluate beside: what the commit waits for.
macro_rules! writing {
    ($beside:literal) => {
        Statements {
            // Also what has expired: an old state decides as an absent one does. But not what `write` has put in place of a row that was gone.
            read: Statement {
                place: 0,
                types: &NAME,
                sql: "SELECT state FROM tidegate WHERE name = $1 AND expires_at > '-infinity'",
            },
            // The update waits for another one of the same row, and then compares again. `present` has the statement's older view of the
            // table, so it locks the row, which returns the latest version. Each statement locks one row, so none waits in a circle.
            swap: Statement {
                place: 1,
                types: &SWAP,
                sql: concat!(
                    "WITH swapped AS (UPDATE tidegate SET state = $2, expires_at = now() + $4 * interval '1 ms' ",
                    "WHERE name = $1 AND state = $3 RETURNING ",
                    $beside,
                    "), present AS (SELECT state, ",
                    $beside,
                    " FROM tidegate WHERE name = $1 AND expires_at > '-infinity' AND NOT EXISTS (SELECT FROM swapped) FOR NO KEY UPDATE) ",
                    "SELECT EXISTS (SELECT FROM swapped), (SELECT state FROM present)"
                ),
            },
            // A row that another one creates at this moment is in no view of this statement: it returns neither.
            create: Statement {
                place: 2,
                types: &CREATE,
                sql: concat!(
                    "WITH present AS (SELECT state FROM tidegate WHERE name = $1 AND expires_at > now()), ",
                    "created AS (INSERT INTO tidegate AS row (name, state, expires_at) ",
                    "SELECT $1, $2, now() + $3 * interval '1 ms' WHERE NOT EXISTS (SELECT FROM present) ",
                    "ON CONFLICT (name) DO UPDATE SET state = excluded.state, expires_at = excluded.expires_at ",
                    "WHERE row.expires_at <= now() RETURNING ",
                    $beside,
                    ") SELECT EXISTS (SELECT FROM created), (SELECT state FROM present)"
                ),
            },
            // Several of the two above, in the order of their names, so that no two of these wait for each other. It finds each row by the
            // primary key, as an insertion does, and no plan can scan the table. A row that should be there and is not becomes one that counts
            // nothing: this cannot insert and not insert. What keeps a row from being written over is put aside in a setting, which the end of the
            // transaction takes back. The answer has the places of those that were written, and then of those that were not, with their states.
            write: Statement {
                place: 6,
                types: &WRITE,
                sql: concat!(
                    "WITH written AS (INSERT INTO tidegate AS row (name, state, expires_at) ",
                    "SELECT name, CASE WHEN old IS NULL THEN new ELSE '' END, ",
                    "CASE WHEN old IS NULL THEN now() + ttl * interval '1 ms' ELSE '-infinity' END ",
                    "FROM unnest($1, $2, $3, $4) AS asked (name, new, old, ttl) ORDER BY name COLLATE \"C\" ",
                    "ON CONFLICT (name) DO UPDATE SET state = ($2)[array_position($1, excluded.name)], ",
                    "expires_at = now() + ($4)[array_position($1, excluded.name)] * interval '1 ms' ",
                    "WHERE CASE WHEN coalesce(row.state = ($3)[array_position($1, excluded.name)], row.expires_at <= now()) THEN true ",
                    "ELSE set_config('tidegate.lost', concat(current_setting('tidegate.lost', true), array_position($1, row.name), ':', ",
                    "CASE WHEN row.expires_at > '-infinity' THEN encode(row.state, 'hex') ELSE '-' END, ' '), true) IS NULL END ",
                    "RETURNING name, expires_at, ",
                    $beside,
                    ") SELECT (SELECT string_agg(array_position($1, name)::text, ' ') FROM written WHERE expires_at > '-infinity'), ",
                    "current_setting('tidegate.lost', true)"
                ),
            },
            delete: Statement { place: 3, types: &NAME, sql: "DELETE FROM tidegate WHERE name = $1" },
            pages: Statement {
                place: 4,
                types: &[],
                sql: "SELECT pg_relation_size('tidegate') / current_setting('block_size')::bigint",
            },
            // By pages, because there is no index to find the rows by. What another one has locked, it leaves.
            sweep: Statement {
                place: 5,
                types: &PAGES,
                sql: concat!(
                    "DELETE FROM tidegate WHERE ctid = ANY (ARRAY(SELECT ctid FROM tidegate ",
                    "WHERE ctid >= $1::text::tid AND ctid < $2::text::tid AND expires_at <= now() ",
                    "FOR UPDATE SKIP LOCKED)) RETURNING ",
                    $beside
                ),
            },
        }
    };
}

/// Of which a commit does not wait for the disk. The setting holds until the commit, and only if the statement has written.
pub(crate) static QUICK: Statements = writing!("set_config('synchronous_commit', 'off', true)");

/// Of which a commit waits as the database is configured.
pub(crate) static DURABLE: Statements = writing!("true");
