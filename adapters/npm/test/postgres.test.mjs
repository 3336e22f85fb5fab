// The package on a PostgreSQL server, through pg.

import assert from "node:assert/strict";
import { execFile, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, test } from "node:test";
import { promisify } from "node:util";
import { createTable, removeExpired, Tidegate, TidegateError } from "@tidegate/edge/postgres";
import pg from "pg";
import { pgbouncer, postgresServer } from "./postgres-server.mjs";

const server = await postgresServer();
const pool = new pg.Pool({ connectionString: server.url, max: 10 });
after(async () => {
  await pool.end();
  await server.stop();
});
await Promise.all([createTable(pool), createTable(pool), createTable(pool)]);

const DAY = 86_400_000;
const times = (count, make) => Array.from({ length: count }, (_, nth) => make(nth));
let policies = 0;
const policyOf = (limit) => ({ name: `postgres${(policies += 1)}`, quotas: [{ fixedWindow: { limit, windowMs: DAY } }] });
const on = (client, policy, more) => new Tidegate({ client, policy, platform: "direct", failMode: "open", onError: () => undefined, ...more });
const outcomes = (verdicts) => {
  const counts = {};
  for (const { outcome, error } of verdicts) counts[error?.kind ?? outcome] = (counts[error?.kind ?? outcome] ?? 0) + 1;
  return counts;
};

/** A client that notes what the limiter's decisions do. */
function noted() {
  const done = [];
  const query = (...given) => {
    const [text] = given;
    if (!text.startsWith("WITH place")) done.push(/INSERT|UPDATE|DELETE|SELECT/.exec(text)[0]);
    return pool.query(...given);
  };
  return { query, done: () => done.splice(0) };
}

for (const more of [{}, { durable: true }, { remember: false }]) {
  test(`an admission is one statement, a denial reads: ${JSON.stringify(more)}`, async () => {
    const client = noted();
    const tidegate = on(client, policyOf(2), more);
    const reads = more.remember === false ? ["SELECT"] : [];
    for (let nth = 0; nth < 2; nth++) {
      assert.equal((await tidegate.limit("user:1")).outcome, "allowed");
      assert.deepEqual(client.done(), [...reads, "INSERT"]);
    }
    assert.equal((await tidegate.limit("user:1")).outcome, "denied");
    assert.deepEqual(client.done(), ["SELECT"]);
    await tidegate.reset("user:1");
    assert.equal((await tidegate.limit("user:1")).quotas[0].remaining, 1);
  });
}

test("the rows are those of the crate: names, states and times", async () => {
  const tidegate = on(pool, { name: "rows", quotas: ["100 burst, 10 / s"] });
  await tidegate.limit("ip:192.0.2.1", { now: 1_800_000_000_000 });
  const { rows } = await pool.query("SELECT name, encode(state, 'hex') AS state, extract(epoch FROM expires_at - now()) AS ttl FROM tidegate WHERE name LIKE 'tg1:rows%'");
  assert.deepEqual(rows.map(({ name, state }) => [name, state]), [["tg1:rows:tb1000:ip:192.0.2.1", "14e80300000000000000505c18a3010000"]]);
  // A tenth of a second, and the slack of other hosts' clocks.
  assert.ok(rows[0].ttl > 9 && rows[0].ttl <= 10.1, rows[0].ttl);
});

/** A process that waits for a line, and then checks a key so often at once. */
function burst(policy, count, url = server.url) {
  const code = `
    import { Tidegate } from "@tidegate/edge/postgres";
    import pg from "pg";
    const pool = new pg.Pool({ connectionString: ${JSON.stringify(url)}, max: 5 });
    const tidegate = new Tidegate({ client: pool, platform: "direct", failMode: "closed", deadlineMs: 20_000, policy: ${JSON.stringify(policy)} });
    await pool.query("SELECT 1");
    console.log("ready");
    process.stdin.once("data", async () => {
      const verdicts = await Promise.all(Array.from({ length: ${count} }, () => tidegate.limit("user:1")));
      console.log(JSON.stringify(verdicts.map(({ outcome, error }) => error?.message ?? outcome)));
      await pool.end();
      process.stdin.pause();
    });`;
  const child = spawn(process.execPath, ["--input-type=module", "--eval", code], { cwd: path.join(import.meta.dirname, ".."), stdio: ["pipe", "pipe", "inherit"] });
  let said = "";
  child.stdout.setEncoding("utf8").on("data", (text) => (said += text));
  return {
    ready: async () => {
      while (!said.includes("ready")) await once(child.stdout, "data");
    },
    go: async () => {
      child.stdin.write("go\n");
      await once(child, "exit");
      return JSON.parse(said.slice(said.indexOf("[")));
    },
  };
}

/** Five processes check one key a hundred times each. */
async function admitsExactly(url) {
  const policy = policyOf(137);
  const bursts = times(5, () => burst(policy, 100, url));
  await Promise.all(bursts.map(({ ready }) => ready()));
  const all = (await Promise.all(bursts.map(({ go }) => go()))).flat();
  const counts = {};
  for (const one of all) counts[one] = (counts[one] ?? 0) + 1;
  assert.deepEqual(counts, { allowed: 137, denied: 363 });
}

test("500 requests at once of five processes admit exactly the limit", () => admitsExactly(server.url));

test("they do behind a PgBouncer that gives each transaction another session", async () => {
  const pooler = await pgbouncer(server);
  try {
    await admitsExactly(pooler.url);
  } finally {
    await pooler.stop();
  }
});

test("TLS: a certificate that is not trusted, and a server without TLS, are errors and get nothing in the clear", async () => {
  const folder = mkdtempSync(path.join(tmpdir(), "tidegate-tls-"));
  const made = (...words) => execFileSync("openssl", words, { cwd: folder, stdio: "ignore" });
  for (const name of ["ca", "other"]) made("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", `${name}.key`, "-out", `${name}.crt`, "-subj", `/CN=${name}`);
  made("req", "-newkey", "rsa:2048", "-nodes", "-keyout", "host.key", "-out", "host.csr", "-subj", "/CN=localhost");
  writeFileSync(path.join(folder, "names"), "subjectAltName=DNS:localhost\n");
  made("x509", "-req", "-in", "host.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-out", "host.crt", "-extfile", "names");
  const secure = await postgresServer({}, folder);
  // What is sent to the server, as somebody between hears it.
  const heard = [];
  const between = createServer((near) => {
    const far = connect(new URL(to).port, "127.0.0.1");
    const sent = [];
    heard.push(sent);
    near.on("data", (bytes) => sent.push(bytes)).on("error", () => undefined).pipe(far).on("error", () => undefined).pipe(near);
  });
  let to = secure.url;
  await new Promise((resolve) => between.listen(0, "127.0.0.1", resolve));
  const met = async (database, host, ca) => {
    to = database;
    heard.length = 0;
    const client = new pg.Pool({ host, port: between.address().port, user: "tests", database: "postgres", ssl: { ca: readFileSync(path.join(folder, ca)) }, connectionTimeoutMillis: 20_000 });
    const { outcome, error } = await on(client, policyOf(1), { failMode: "closed", deadlineMs: 20_000 }).limit("user:1");
    await client.end();
    for (const sent of heard) assert.doesNotMatch(Buffer.concat(sent).toString("latin1"), /tests|tidegate/);
    return error ? `${error.kind}: ${error.message}` : outcome;
  };
  try {
    await createTable(new pg.Pool({ connectionString: secure.url, max: 1, idleTimeoutMillis: 1 }));
    assert.equal(await met(secure.url, "localhost", "ca.crt"), "allowed");
    assert.ok(heard.length > 0 && Buffer.concat(heard[0]).length > 500);
    assert.match(await met(secure.url, "localhost", "other.crt"), /^unavailable: .*(unable to verify|self-signed certificate)/);
    assert.match(await met(secure.url, "127.0.0.1", "ca.crt"), /^unavailable: .*(altnames|IP: 127\.0\.0\.1)/);
    assert.match(await met(server.url, "localhost", "ca.crt"), /^refused: .*does not support SSL/);
    assert.ok(heard.every((sent) => Buffer.concat(sent).length === 8));
  } finally {
    between.close();
    await secure.stop();
    rmSync(folder, { recursive: true, force: true });
  }
});

test("the crate counts on the same table, by turns and at once", async () => {
  const root = path.join(import.meta.dirname, "../../..");
  execFileSync("cargo", ["build", "--quiet", "--package", "tidegate-postgres", "--example", "limit"], { cwd: root, stdio: "inherit" });
  const program = path.join(process.env.CARGO_TARGET_DIR ?? path.join(root, "target"), "debug/examples/limit");
  /** What the crate's example prints of a check of an address. */
  const crate = async (address) => (await promisify(execFile)(program, [server.url, address])).stdout.trim();
  // The policy of the example.
  const tidegate = on(pool, { name: "api", quotas: [{ slidingWindow: { limit: 5, windowMs: 60_000 } }] }, { failMode: "closed" });
  const own = async (address) => {
    const { allowed, quotas, error } = await tidegate.limit(`ip:${address}`);
    return error?.message ?? (allowed ? `admitted, ${quotas[0].remaining} left` : "denied");
  };
  const turns = [];
  for (const ask of [own, crate, own, crate, own]) turns.push(await ask("192.0.2.1"));
  assert.deepEqual(turns, [4, 3, 2, 1, 0].map((left) => `admitted, ${left} left`));
  assert.match(await crate("192.0.2.1"), /^denied for /);
  assert.equal(await own("192.0.2.1"), "denied");
  const all = await Promise.all(times(24, (nth) => (nth % 4 === 0 ? crate : own)("192.0.2.2")));
  assert.equal(all.filter((said) => said.startsWith("admitted")).length, 5, all.join("\n"));
  assert.equal(all.filter((said) => said.startsWith("denied")).length, 19, all.join("\n"));
});

for (const isolation of ["repeatable read", "serializable"]) {
  test(`isolation ${isolation}, at which a lost swap is an error`, async () => {
    const own = new pg.Pool({ connectionString: server.url, max: 20, options: `-c default_transaction_isolation=${isolation.replace(" ", "\\ ")}` });
    const policy = policyOf(50);
    const limiters = times(20, () => on(own, policy, { deadlineMs: 20_000 }));
    assert.deepEqual(outcomes(await Promise.all(times(200, (nth) => limiters[nth % 20].limit("user:1")))), { allowed: 50, denied: 150 });
    await own.end();
  });
}

test("an expired row is as if it were not there, and is removed", async (t) => {
  // A table of its own: rows of other tests may have expired by now. No write of this test sweeps it.
  t.mock.method(Math, "random", () => 0.999);
  await createTable(pool, { table: "expired" });
  const policy = { name: "expired", quotas: [{ fixedWindow: { limit: 2, windowMs: 1_000 } }] };
  const tidegate = on(pool, policy, { table: "expired", remember: false });
  const now = 1_800_000_000_000;
  const verdict = () => tidegate.limit("user:1", { now });
  assert.deepEqual(outcomes([await verdict(), await verdict(), await verdict()]), { allowed: 2, denied: 1 });
  await pool.query("UPDATE expired SET expires_at = now() - interval '1 ms'");
  // At this virtual time, the state would deny.
  assert.deepEqual(outcomes([await verdict(), await verdict(), await verdict()]), { allowed: 2, denied: 1 });
  await pool.query("UPDATE expired SET expires_at = now() - interval '1 ms'");
  assert.equal(await removeExpired(pool, { table: "expired" }), 1);
  assert.equal(await removeExpired(pool, { table: "expired" }), 0);
});

test("the rows of keys that are gone are removed without a call", async () => {
  await createTable(pool, { table: "swept" });
  await pool.query("INSERT INTO swept SELECT 'gone:' || n, '\\x00', now() - interval '1 s' FROM generate_series(1, 20000) AS n");
  const tidegate = on(pool, policyOf(1_000_000), { table: "swept" });
  const left = async () => Number((await pool.query("SELECT count(*) FROM swept WHERE name LIKE 'gone:%'")).rows[0].count);
  for (const until = Date.now() + 60_000; (await left()) > 0 && Date.now() < until; ) await Promise.all(times(500, (nth) => tidegate.limit(`user:${nth}`)));
  assert.equal(await left(), 0);
  assert.equal(Number((await pool.query("SELECT count(*) FROM swept")).rows[0].count), 500);
});

test("a missing table says what creates it, and what it says does", async () => {
  const tidegate = on(pool, policyOf(1), { table: "public.limits" });
  const { allowed, error } = await tidegate.limit("user:1");
  assert.deepEqual([allowed, error.kind], [false, "refused"]);
  const [, creates] = /\n\n(CREATE TABLE IF NOT EXISTS public\.limits \(.*?\);)\n/s.exec(error.message);
  await pool.query(creates);
  assert.equal((await tidegate.limit("user:1")).outcome, "allowed");
  await assert.rejects(async () => createTable(pool, { table: "drop table x" }), { kind: "invalid", field: "table" });
});

test("a pool without a free connection, and the statements' own timeouts, are contended and never open", async () => {
  const policy = policyOf(10);
  const small = new pg.Pool({ connectionString: server.url, max: 1, connectionTimeoutMillis: 100 });
  const held = await small.connect();
  const crowded = await on(small, policy).limit("user:1");
  assert.deepEqual([crowded.allowed, crowded.error.kind], [false, "contended"], crowded.error.message);
  held.release();
  assert.equal((await on(small, policy).limit("user:1")).outcome, "allowed");
  await small.end();
  const [holder, impatient] = [await pool.connect(), new pg.Pool({ connectionString: server.url, statement_timeout: 100 })];
  await holder.query("BEGIN");
  await holder.query("SELECT FROM tidegate WHERE name LIKE $1 FOR UPDATE", [`tg1:${policy.name}:%`]);
  const locked = await on(impatient, policy, { remember: false }).limit("user:1");
  assert.deepEqual([locked.allowed, locked.error.kind], [false, "contended"], locked.error.message);
  assert.match(locked.error.message, /57014/);
  await holder.query("ROLLBACK");
  holder.release();
  await impatient.end();
});

test("no password is in an error", async () => {
  const { port } = new URL(server.url);
  await pool.query("CREATE ROLE weak LOGIN PASSWORD 'hunter2'");
  const wrong = [
    new pg.Pool({ connectionString: `postgres://tests:hunter2@127.0.0.1:${port}/missing` }),
    new pg.Pool({ connectionString: `postgres://weak:hunter2@127.0.0.1:${port}/postgres` }),
    new pg.Pool({ connectionString: "postgres://tests:hunter2@127.0.0.1:1/postgres" }),
    { query: async () => { throw new Error("fetch failed: postgres://tests:hunter2@db.example/neon"); } },
    { query: async () => { throw new Error("failed", { cause: new Error("postgres://tests:hunter2@db.example/neon") }); } },
  ];
  const kinds = [];
  for (const client of wrong) {
    const { error } = await on(client, policyOf(1)).limit("user:1");
    assert.doesNotMatch(error.message + error.stack, /hunter2/);
    kinds.push(error.kind);
    await client.end?.();
  }
  assert.deepEqual(kinds, ["refused", "refused", "unavailable", "unavailable", "unavailable"]);
});

test("what answers nonsense is refused or corrupt, and never opens", async () => {
  for (const [answer, kind] of [[undefined, "refused"], [{ rows: "x" }, "refused"], [{ rows: [{ written: 0, state: 7 }] }, "corrupt"], [{ rows: [{ written: 0, state: "xyz" }] }, "corrupt"], [[{ written: 0, state: "00" }], "corrupt"]]) {
    const { allowed, error } = await on({ query: async () => answer }, policyOf(1)).limit("user:1");
    assert.deepEqual([allowed, error?.kind], [false, kind], JSON.stringify(answer));
  }
  assert.throws(() => on({}, policyOf(1)), /^TidegateError: client: not a client of PostgreSQL; write new Pool\(\) of pg, or anything with query\(text, values\)$/);
});

test("drivers that return rows alone work, as Neon's does", async () => {
  const client = { query: async (text, values) => (await pool.query(text, values)).rows };
  const tidegate = on(client, policyOf(1));
  assert.deepEqual(outcomes([await tidegate.limit("user:1"), await tidegate.limit("user:1")]), { allowed: 1, denied: 1 });
});

for (const durable of [false, true]) {
  test(`a server that crashes in a burst ${durable ? "keeps every decision" : "loses at most the last moments"}`, async () => {
    const policy = policyOf(10_000_000);
    const tidegate = on(pool, policy, { durable, failMode: "closed", deadlineMs: 1_000 });
    const verdicts = [];
    let isOver = false;
    const clients = times(8, async () => {
      while (!isOver) {
        verdicts.push(await tidegate.limit("user:1"));
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
    });
    // So that more than the last moments are there to lose.
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    const before = verdicts.filter(({ allowed }) => allowed).length;
    await server.kill();
    await new Promise((resolve) => setTimeout(resolve, 300));
    await server.restart();
    for (const until = Date.now() + 10_000; Date.now() < until && !(await tidegate.limit("user:1")).allowed; );
    isOver = true;
    await Promise.all(clients);
    const allowed = verdicts.filter(({ allowed }) => allowed).length;
    const failed = verdicts.filter(({ error }) => error).length;
    const used = 10_000_000 - (await on(pool, policy).peek(new Request("https://example.com"), { key: "user:1" })).quotas[0].remaining;
    assert.ok(before > 100 && failed > 0, `${before} before, ${failed} failed`);
    assert.ok(verdicts.every(({ error }) => !error || ["unavailable", "timeout", "contended"].includes(error.kind)));
    // At most each failed one, and the one that found the server again, is charged too.
    assert.ok(used <= allowed + failed + 300, `${used} used, ${allowed} allowed`);
    assert.ok(used >= (durable ? allowed : before / 3), `${used} used, ${allowed} allowed, ${before} before`);
  });
}

test("a pooler that is full is contended, and one whose server is down is unavailable", async () => {
  const kinds = [];
  for (const [code, message] of [["08P01", "no more connections allowed (max_client_conn)"], ["08P01", "query_wait_timeout"], ["08004", "rejected"], ["08P01", "server login has been failing, try again later (server_login_retry)"], ["08006", "lost"]]) {
    const { error } = await on({ query: async () => { throw Object.assign(new Error(message), { code }); } }, policyOf(1)).limit("user:1");
    kinds.push(error.kind);
  }
  assert.deepEqual(kinds, ["contended", "contended", "contended", "unavailable", "unavailable"]);
});

test("a TidegateError of a client's own is what it says", async () => {
  const client = { query: async () => { throw new TidegateError("contended", "no room"); } };
  const { error } = await on(client, policyOf(1)).limit("user:1");
  assert.deepEqual([error.kind, error.message], ["contended", "postgres: no room"]);
});

/** Keys, of which 30 are remembered by a limiter, and what other processes have done with some of them. */
async function changedKeys(client, more) {
  const policy = policyOf(9);
  const [tidegate, other] = [on(client, policy, more), on(pool, policy)];
  const keys = times(40, (nth) => `user:${String(nth).padStart(2, "0")} "quoted\\`);
  for (const verdict of await Promise.all(keys.slice(0, 30).map((key) => tidegate.limit(key)))) assert.equal(verdict.quotas[0].remaining, 8);
  for (const key of [...keys.slice(0, 10), ...keys.slice(30, 35)]) await other.limit(key);
  for (const key of keys.slice(10, 20)) await other.reset(key);
  const { rows } = await pool.query("UPDATE tidegate SET state = '' WHERE name LIKE $1 RETURNING name", [`tg1:${policy.name}:%user:2%`]);
  assert.equal(rows.length, 10);
  const left = [...times(10, () => 6), ...times(10, () => 8), ...times(10, () => "corrupt"), ...times(5, () => 7), ...times(5, () => 8)];
  return { policy, tidegate, other, keys, left };
}

for (const prepared of [undefined, false]) {
  test(`one statement decides about many keys, and each learns what was found of its own: prepared ${prepared ?? "by default"}`, async () => {
    const { policy, tidegate, other, keys, left } = await changedKeys(pool, { prepared });
    // From the last to the first: the statement has an order of its own.
    const verdicts = (await Promise.all(keys.toReversed().map((key) => tidegate.limit(key)))).reverse();
    assert.deepEqual(verdicts.map(({ quotas, error }) => error?.kind ?? quotas[0].remaining), left);
    const placed = await pool.query("SELECT count(*)::int AS count FROM tidegate WHERE expires_at = '-infinity' AND name LIKE $1", [`tg1:${policy.name}:%`]);
    assert.equal(placed.rows[0].count, 0);
    for (const [nth, key] of keys.entries()) if (left[nth] !== "corrupt") assert.equal((await other.limit(key)).quotas[0].remaining, left[nth] - 1);
  });
}

test("many decisions at once are few statements, each of one row once", async () => {
  const client = noted();
  const tidegate = on(client, policyOf(5));
  const verdicts = await Promise.all(times(300, (nth) => tidegate.limit(`user:${nth % 100}`)));
  assert.deepEqual(outcomes(verdicts), { allowed: 300 });
  const statements = client.done().length;
  assert.ok(statements < 60, `${statements} statements`);
});

test("limiters that write many keys at once, each in its own order, never wait for each other in a circle", async () => {
  const policy = policyOf(7);
  const admitted = await Promise.all(
    times(4, async (nth) => {
      const own = new pg.Pool({ connectionString: server.url, max: 5 });
      const tidegate = on(own, policy, { deadlineMs: 20_000 });
      const keys = times(100, (key) => `user:${(key * (nth % 2 ? 1 : 99) + nth * 31) % 100}`);
      const counts = {};
      for (let round = 0; round < 4; round++) for (const [at, { allowed, error }] of (await Promise.all(keys.map((key) => tidegate.limit(key)))).entries()) {
        assert.equal(error, undefined, error?.message);
        counts[keys[at]] = (counts[keys[at]] ?? 0) + Number(allowed);
      }
      await own.end();
      return counts;
    }),
  );
  for (let key = 0; key < 100; key++) assert.equal(admitted.reduce((sum, counts) => sum + counts[`user:${key}`], 0), 7);
  assert.equal((await pool.query("SELECT deadlocks::int FROM pg_stat_database WHERE datname = current_database()")).rows[0].deadlocks, 0);
});

test("what is prepared scans no table that has grown, and a pooler that loses it does no harm", async () => {
  await createTable(pool, { table: "grown" });
  await pool.query("ALTER TABLE grown SET (autovacuum_enabled = off)");
  const one = new pg.Pool({ connectionString: server.url, max: 1 });
  const tidegate = on(one, policyOf(1_000_000), { table: "grown" });
  await tidegate.limit("user:1");
  await pool.query("ANALYZE grown");
  for (let nth = 0; nth < 20; nth++) await tidegate.limit("user:1");
  const names = async () => (await one.query("SELECT count(*)::int AS count FROM pg_prepared_statements")).rows[0].count;
  assert.equal(await names(), 1);
  await pool.query("INSERT INTO grown SELECT 'n' || n, 'x', now() + interval '1 h' FROM generate_series(1, 50000) AS n");
  for (let nth = 0; nth < 50; nth++) assert.equal((await tidegate.limit("user:1")).outcome, "allowed");
  // As a pooler does that gives each transaction another session.
  await one.query("DEALLOCATE ALL");
  for (let nth = 0; nth < 3; nth++) assert.equal((await tidegate.limit("user:1")).quotas[0].remaining, 1_000_000 - 72 - nth);
  assert.equal(await names(), 0);
  await one.end();
  let scanned;
  for (let nth = 0; nth < 100 && !(scanned > 0); nth++) {
    await new Promise((resolve) => setTimeout(resolve, 100));
    scanned = Number((await pool.query("SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'grown' AND n_tup_upd > 60")).rows[0]?.seq_tup_read);
  }
  assert.ok(scanned < 50_000, `${scanned} rows were scanned`);
});

test("statements that never end keep no others waiting", async () => {
  let isStuck = true;
  const client = { query: (...given) => (isStuck ? new Promise(() => undefined) : pool.query(...given)) };
  const tidegate = on(client, policyOf(100), { deadlineMs: 100 });
  const stuck = await Promise.all(times(20, (nth) => tidegate.limit(`user:${nth}`)));
  assert.ok(stuck.every(({ error }) => ["timeout", "contended"].includes(error?.kind)), JSON.stringify(outcomes(stuck)));
  isStuck = false;
  for (const until = Date.now() + 10_000; Date.now() < until && (await tidegate.limit("other")).error; );
  assert.equal((await tidegate.limit("other")).outcome, "allowed");
});

test("while the database is silent, no write is kept that nobody waits for, and none of them is made later", async () => {
  const [policy, asked] = [policyOf(10), []];
  let silent = true;
  const client = {
    query: (text, values) => {
      asked.push(values);
      return silent ? new Promise(() => undefined) : pool.query(text, values);
    },
  };
  const tidegate = on(client, policy, { deadlineMs: 50, failMode: "closed" });
  for (let round = 0; round < 20; round++) {
    const verdicts = await Promise.all(times(50, (nth) => tidegate.limit(`user:${round}-${nth}`)));
    assert.ok(verdicts.every(({ allowed, error }) => !allowed && ["timeout", "contended"].includes(error.kind)));
  }
  silent = false;
  asked.length = 0;
  // The turns of the silent statements end after a second.
  await new Promise((resolve) => setTimeout(resolve, 1_200));
  const later = asked.flat().join(" ").match(/user:\d+-\d+/g) ?? [];
  assert.ok(later.length < 400, `${later.length} of some 1,000 writes were made later`);
  assert.equal((await tidegate.limit("user:after")).outcome, "allowed");
  assert.ok(asked.flat().join(" ").includes("user:after"));
});
