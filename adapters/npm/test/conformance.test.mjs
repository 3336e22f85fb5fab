// `npx @tidegate/edge conformance`: right stores pass, and each of those that are wrong on purpose fails with a line that says what is wrong.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { after, describe, test } from "node:test";
import { createTable } from "@tidegate/edge/postgres";
import pg from "pg";
import { packedFixtures, versionedFixtures } from "../fixtures.mjs";
import { inMemory } from "../modules/program/store_fixtures.js";
import { postgresServer } from "./postgres-server.mjs";

const npm = path.join(import.meta.dirname, "..");
const PROGRAM = path.join(npm, "dist/program/main.js");
// Inside of the package, so that its imports are found.
const folder = mkdtempSync(path.join(npm, "test/conformance-"));
after(() => rmSync(folder, { recursive: true, force: true }));

/** Runs the program. */
function ran(...words) {
  return new Promise((resolve) => {
    execFile(process.execPath, [PROGRAM, ...words], { cwd: folder, maxBuffer: 2 ** 26 }, (error, stdout, stderr) => resolve({ code: error?.code ?? 0, stdout, stderr }));
  });
}

/** A right store, whose parts the others change. */
const RIGHT = `
const rows = new Map();
let versions = 0;
const now = () => Date.now();
const pause = () => new Promise((resolve) => setImmediate(resolve));
const get = (name) => (rows.get(name)?.until > now() ? rows.get(name) : undefined);
const put = (name, bytes, ttlMs) => {
  rows.set(name, { bytes: bytes.slice(), version: (versions += 1), until: now() + ttlMs });
  return { written: true, version: versions };
};
const store = {
  name: "rows",
  async read(name) {
    await pause();
    return get(name);
  },
  async create(name, bytes, ttlMs) {
    await pause();
    return get(name) ? { written: false, present: get(name) } : put(name, bytes, ttlMs);
  },
  async update(name, bytes, version, ttlMs) {
    await pause();
    return get(name)?.version === version ? put(name, bytes, ttlMs) : { written: false, present: get(name) };
  },
  async delete(name) {
    rows.delete(name);
  },
};
export default store;
`;

/** What is changed, the test that fails for it, and what its line says. */
const WRONG = {
  "a create that reads and then writes": [
    "store.create = async (name, bytes, ttlMs) => { if (await store.read(name)) return false; await pause(); return put(name, bytes, ttlMs); };",
    "contract/one-of-many-creates", /32 of 32 at once of create of the same name returned true, and at most one may: it must compare and write in one step/,
  ],
  "an update that reads and then writes": [
    "store.update = async (name, bytes, version, ttlMs) => { if ((await store.read(name))?.version !== version) return false; await pause(); return put(name, bytes, ttlMs); };",
    "contract/one-of-many-updates", /32 of 32 at once of update of the same version returned true/,
  ],
  "an update that ignores the version": ["store.update = async (name, bytes, _, ttlMs) => put(name, bytes, ttlMs);", "contract/updates-only-the-same-version", /update returned true for the version of an older value/],
  "an update that writes what was deleted": [
    "const { update } = store; store.update = async (name, bytes, version, ttlMs) => (get(name) ? update(name, bytes, version, ttlMs) : put(name, bytes, ttlMs));",
    "contract/deletes", /update returned true for a value that was deleted/,
  ],
  "a create that overwrites": ["store.create = async (name, bytes, ttlMs) => put(name, bytes, ttlMs);", "contract/creates-only-what-is-absent", /create returned true although there is a value/],
  "a write that is made and denied": [
    "const { create } = store; store.create = async (...given) => (get(given[0]) ? (put(...given), false) : create(...given));",
    "contract/creates-only-what-is-absent", /read returned other bytes after a create that came too late and returned false: byte 0 is 2, and 1 was written/,
  ],
  "a write that is claimed and not made": ["store.create = async () => true;", "contract/reads-what-was-written", /read returns nothing although a write returned true/],
  "a read of an old value": [
    "const old = new Map(); const read = store.read; store.read = async (name) => { const found = await read(name); const before = old.get(name); old.set(name, found); return found && before ? before : found; };",
    "contract/reads-what-was-written", /read returned \d+ bytes after update|read returned other bytes/,
  ],
  "a read that is old at times": [
    "const past = []; const read = store.read; let reads = 0; store.read = async (name) => { const found = await read(name); past.push(found); return ++reads % 37 === 0 ? past.at(-3) : found; };",
    undefined, /read returned an older value|read returned other bytes|read returns|update returned false|read has told an old (version|value)/,
  ],
  "bytes that are cut": ["const { create, update } = store; store.create = (name, bytes, ttlMs) => create(name, bytes.slice(0, 200), ttlMs); store.update = (name, bytes, version, ttlMs) => update(name, bytes.slice(0, 200), version, ttlMs);", "contract/reads-what-was-written", /read returned 200 bytes after create, and 256 were written/],
  "bytes as text": ["const read = store.read; store.read = async (name) => { const found = await read(name); return found && { ...found, bytes: new TextEncoder().encode(new TextDecoder().decode(found.bytes)) }; };", "contract/reads-what-was-written", /read returned \d+ bytes after create, and 256 were written/],
  "bytes as a list": ["const read = store.read; store.read = async (name) => { const found = await read(name); return found && { ...found, bytes: [...found.bytes] }; };", "contract/reads-what-was-written", /in place of \{ bytes, version \} with a Uint8Array/],
  "names in lower case": ["for (const name of ['read', 'create', 'update', 'delete']) { const own = store[name]; store[name] = (first, ...rest) => own(first.toLowerCase(), ...rest); }", "contract/names", /another name counts as the same/],
  "names that are cut": ["for (const name of ['read', 'create', 'update', 'delete']) { const own = store[name]; store[name] = (first, ...rest) => own(first.slice(0, 255), ...rest); }", "contract/names", /another name counts as the same/],
  "no time to live in create": ["const { create } = store; store.create = (name, bytes) => create(name, bytes, Infinity);", "contract/expires", /2200 ms after its time to live: create does not set the time to live/],
  "no time to live in update": ["const { update } = store; store.update = (name, bytes, version) => update(name, bytes, version, Infinity);", "contract/expires", /update does not set the time to live/],
  "the first time to live": ["const put2 = store.update; store.update = async (name, bytes, version) => put2(name, bytes, version, rows.get(name)?.until - now());", "contract/expires", /update (keeps the time to live of the value before|does not set the time to live)/],
  "a time to live in seconds": ["const { create, update } = store; store.create = (name, bytes, ttlMs) => create(name, bytes, ttlMs / 1000); store.update = (name, bytes, version, ttlMs) => update(name, bytes, version, ttlMs / 1000);", "contract/expires", /was gone \d+ ms after it was written for 3000 ms: nothing may be removed before/],
  "a value that expired and is in the way": ["const { create } = store; store.create = async (name, ...rest) => (rows.has(name) ? false : create(name, ...rest));", "contract/expires", /create returned false where a value has expired/],
  "a version that is another one's": ["const { update } = store; store.create = async (name, bytes, ttlMs) => (get(name) ? false : { ...put(name, bytes, ttlMs), version: -1 });", "contract/tells-versions", /update returned false for the version that create has told/],
  "a write that says nothing": ["store.create = async (name, bytes, ttlMs) => void put(name, bytes, ttlMs);", "contract/reads-what-was-written", /a write gave undefined in place of true or false/],
  "a read that throws a string": ["store.read = async () => { throw 'boom'; };", "contract/reads-what-was-written", /read has thrown boom/],
  "a read without an answer": ["store.read = () => new Promise(() => {}); setInterval(() => {}, 1000);", "contract/reads-what-was-written", /read gave no answer within 10 s/],
};

test("a right store passes, and the numbers are told", async () => {
  writeFileSync(path.join(folder, "right.mjs"), RIGHT);
  const { code, stdout, stderr } = await ran("conformance", "right.mjs");
  const tests = packedFixtures().length + 10;
  assert.match(stdout, new RegExp(`^rows: ${tests} passed, 0 failed, 0 skipped; 9797 of 44691 requests admitted, \\d+\\.\\d s\n$`));
  assert.deepEqual([code, stderr], [0, `rows: ${tests} tests\n`]);
});

describe("stores that are wrong fail", { concurrency: 6 }, () => {
  for (const [nth, [what, [change, id, says]]] of Object.entries(WRONG).entries()) {
    test(what, async () => {
      writeFileSync(path.join(folder, `wrong${nth}.mjs`), RIGHT + change);
      const { code, stdout } = await ran("conformance", `wrong${nth}.mjs`, "--json");
      const { status, fail, tests } = JSON.parse(stdout);
      assert.deepEqual([code, status], [1, "fail"]);
      const failed = tests.filter(({ verdict }) => verdict === "fail");
      assert.equal(failed.length, fail);
      const [first] = id === undefined ? failed : failed.filter((one) => one.id === id);
      assert.ok(first, `${id} has not failed, but ${JSON.stringify(failed)}`);
      assert.match(first.reasons[0], says);
      assert.equal(first.reasons[0].split("\n").length, 1);
    });
  }
});

/** Stores whose functions are right each by itself. Only what a limiter makes of them is wrong. */
const SUBTLE = {
  // It loses one write of many, which no test of single functions has to meet.
  "a store that loses a write at times": "const { update } = store; let writes = 0; store.update = async (name, bytes, version, ttlMs) => (bytes[0] === 0x11 && bytes.length > 2 && ++writes % 5 === 0 ? { written: true, version } : update(name, bytes, version, ttlMs));",
  // As a column that is too short: the contract tries no value of this size.
  "a store that loses long writes": "const { update } = store; store.update = async (name, bytes, version, ttlMs) => (bytes.length > 300 && bytes.length < 13_000 && bytes[0] === 0x13 ? { written: true, version } : update(name, bytes, version, ttlMs));",
};

for (const [nth, [what, change]] of Object.entries(SUBTLE).entries()) {
  test(`${what} fails in fixtures`, async () => {
    writeFileSync(path.join(folder, `subtle${nth}.mjs`), RIGHT + change);
    const { code, stdout } = await ran("conformance", `subtle${nth}.mjs`);
    assert.equal(code, 1, stdout);
    assert.match(stdout, /^FAIL [\w-]+\/[\w-]+\n {4}steps\[\d+\] \(-?\d+ ms, \w+.*?\): .*(admitted \d+, and \d+ are due: )?expected .*; found /m);
  });
}

test("a filter chooses, and what ran nothing is no success", async () => {
  writeFileSync(path.join(folder, "forever.mjs"), `${RIGHT}store.keepsForever = true;`);
  const race = await ran("conformance", "forever.mjs", "--filter", "race/*", "--filter", "contract/names");
  assert.deepEqual([race.code, /^rows: (\d+) passed/.exec(race.stdout)?.[1]], [0, String(packedFixtures().filter(({ id }) => id.startsWith("race/")).length + 1)], race.stdout);
  const none = await ran("conformance", "forever.mjs", "--filter", "contract/expires");
  assert.deepEqual([none.code, none.stdout.replace(/\d+\.\d s/, "")], [1, "left out contract/expires: the store declares keepsForever\nrows: 0 passed, 0 failed, 1 skipped; 0 of 0 requests admitted, \n"]);
  const mistyped = await ran("conformance", "forever.mjs", "--filter", "rase/*");
  assert.equal(mistyped.code, 2);
  assert.match(mistyped.stderr, /--filter "rase\/\*" matches no fixture/);
});

test("a store that reads old values, and says so, is held to the limit", async () => {
  // A cache of reads in front of it.
  const cache = "const cache = new Map(); const read = store.read; store.read = async (name) => { const found = cache.get(name)?.at > now() - 20 ? cache.get(name).found : await read(name); cache.set(name, { found, at: cache.get(name)?.at > now() - 20 ? cache.get(name).at : now() }); return found; }; store.staleReads = true; store.keepsForever = true;";
  writeFileSync(path.join(folder, "stale.mjs"), RIGHT + cache);
  const { code, stdout } = await ran("conformance", "stale.mjs", "--filter", "race/*");
  assert.equal(code, 0, stdout);
});

test("a store in the process is told to be there, if several have to share it", async () => {
  writeFileSync(path.join(folder, "inside.mjs"), RIGHT);
  const { code, stdout } = await ran("conformance", "inside.mjs", "--processes", "2", "--filter", "contract/is-*", "--filter", "race/*");
  assert.equal(code, 1);
  assert.match(stdout, /^FAIL contract\/is-shared-by-processes\n {4}process 1 reads nothing where another one has written: each has a store of its own/m);
  for (const count of ["1", "65", "two", ""]) {
    const wrong = await ran("conformance", "inside.mjs", `--processes=${count}`);
    assert.deepEqual([wrong.code, wrong.stderr.split("\n")[0]], [2, `error: invalid value '${count}' for '--processes <2..64>': write a number of processes from 2 to 64`]);
  }
  writeFileSync(path.join(folder, "once.mjs"), `${RIGHT}if (process.send) throw new Error("no room for one more");`);
  const second = await ran("conformance", "once.mjs", "--processes", "2");
  assert.deepEqual([second.code, second.stderr], [2, "tidegate: once.mjs: it cannot be loaded: Error: no room for one more\n"]);
  writeFileSync(path.join(folder, "ends.mjs"), `${RIGHT}const { read } = store; store.read = async (name) => (process.send ? process.exit(7) : read(name));`);
  const ended = await ran("conformance", "ends.mjs", "--processes", "2", "--filter", "race/first-request-fixed-window");
  assert.equal(ended.code, 1);
  assert.match(ended.stdout, /error unavailable: process \d has ended \(exit code 7\)/);
});

test("what is no store is an error that says what to write", async () => {
  for (const [text, says] of [
    ["", /the store has no function read, create, update, delete; write export default \{ read, create, update, delete \}, or an async function that returns it/],
    ["export default { read() {}, create() {}, delete() {} };", /the store has no function update;/],
    ["export default async () => { throw new Error('no database'); };", /the function that opens the store has thrown Error: no database/],
    ["export default {", /it cannot be loaded: SyntaxError/],
  ]) {
    writeFileSync(path.join(folder, "none.mjs"), text);
    const { code, stderr } = await ran("conformance", "none.mjs");
    assert.equal(code, 2);
    assert.match(stderr, says);
  }
  assert.match((await ran("conformance", "missing.mjs")).stderr, /^tidegate: missing\.mjs: No such file or directory; name the module with your store\n$/);
  assert.equal((await ran("conformance")).code, 2);
});

test("the store that the help prints is right, and the help has the exit codes", async () => {
  const { code, stdout } = await ran("conformance", "--help");
  assert.equal(code, 0);
  const [, printed] = /^A store in this process, to begin with:\n(.*?)\n\n/ms.exec(stdout);
  writeFileSync(path.join(folder, "help.mjs"), printed);
  const tried = await ran("conformance", "help.mjs");
  assert.deepEqual([tried.code, /, 0 failed, 1 skipped/.test(tried.stdout)], [0, true], tried.stdout);
  assert.match(stdout, /^Exit codes: 0 .*, 1 .*, 2 /m);
  assert.ok(stdout.split("\n").every((line) => line.length <= 140));
});

test("the answers in memory are those that the fixtures expect", async () => {
  const all = versionedFixtures();
  assert.equal(all.length, JSON.parse(readFileSync(path.join(npm, "dist/program/fixtures.json"), "utf8")).length);
  assert.ok(all.length > 250);
  for (const fixture of all) {
    const answers = await inMemory(fixture, "");
    for (const [nth, { expect = {} }] of fixture.steps.entries()) {
      const place = `${fixture.id} steps[${nth}]`;
      const allowed = answers[nth].filter((answer) => answer.startsWith("allowed"));
      if (expect.admitted !== undefined) assert.equal(allowed.length, expect.admitted, place);
      if (expect.never_admissible !== undefined) assert.equal(answers[nth].filter((answer) => answer.startsWith("never")).length, expect.never_admissible, place);
      for (const denied of answers[nth].filter((answer) => answer.startsWith("denied"))) {
        if (expect.retry_after_ms !== undefined) assert.match(denied, new RegExp(`; retry after ${expect.retry_after_ms} ms\\b`), place);
      }
    }
  }
});

describe("PostgreSQL", { concurrency: 3 }, async () => {
  const server = await postgresServer({ fsync: "off" });
  const pool = new pg.Pool({ connectionString: server.url });
  await createTable(pool);
  after(async () => {
    await pool.end();
    await server.stop();
  });
  // The store that `@tidegate/edge/postgres` is made of.
  for (const durable of [false, true]) {
    test(`the table passes, ${durable ? "" : "not "}durable`, async () => {
      const text = `
        import pg from "pg";
        import { Table } from "../../modules/stores/postgres/table.js";
        const pool = new pg.Pool({ connectionString: ${JSON.stringify(server.url)} });
        export default new Table(pool, "tidegate", ${durable}, 10_000);
        export const close = () => pool.end();`;
      const file = path.join(folder, `postgres-${durable}.mjs`);
      writeFileSync(file, text);
      const { code, stdout } = await ran("conformance", file);
      assert.equal(code, 0, stdout);
      assert.match(stdout, /, 0 failed, 0 skipped; 9797 of 44691 requests admitted/);
      const shared = await ran("conformance", file, "--processes", "3", "--filter", "race/*", "--filter", "contract/*");
      assert.equal(shared.code, 0, shared.stdout);
      assert.match(shared.stdout, /, 0 failed, 0 skipped/);
    });
  }

  /** A store in a database that compares in its process, behind a lock of that process. */
  const LOCKED = `
    import pg from "pg";
    const pool = new pg.Pool({ connectionString: URL });
    await pool.query("CREATE TABLE IF NOT EXISTS locked (name text PRIMARY KEY, bytes bytea NOT NULL, version text NOT NULL)").catch(() => undefined);
    let last = Promise.resolve();
    const locked = (work) => (last = last.then(work, work));
    const read = async (name) => (await pool.query("SELECT bytes, version FROM locked WHERE name = $1", [name])).rows.map(({ bytes, version }) => ({ bytes: new Uint8Array(bytes), version }))[0];
    const write = async (name, bytes) => {
      await pool.query("INSERT INTO locked VALUES ($1, $2, $3) ON CONFLICT (name) DO UPDATE SET bytes = excluded.bytes, version = excluded.version", [name, Buffer.from(bytes), crypto.randomUUID()]);
      return true;
    };
    export default {
      keepsForever: true,
      read,
      create: (name, bytes) => locked(async () => ((await read(name)) ? false : write(name, bytes))),
      update: (name, bytes, version) => locked(async () => ((await read(name))?.version === version ? write(name, bytes) : false)),
      delete: (name) => pool.query("DELETE FROM locked WHERE name = $1", [name]),
    };
    export const close = () => pool.end();`;

  test("a store that is right in one process only fails with several", async () => {
    const file = path.join(folder, "locked.mjs");
    writeFileSync(file, LOCKED.replace("URL", JSON.stringify(server.url)));
    const alone = await ran("conformance", file, "--filter", "race/first-request-*", "--filter", "contract/*");
    assert.equal(alone.code, 0, alone.stdout);
    const { code, stdout } = await ran("conformance", file, "--processes", "4", "--filter", "contract/*");
    assert.equal(code, 1, stdout);
    assert.match(stdout, /^FAIL contract\/one-of-many-processes\n {4}[2-4] of 32 at once of (create|update) in several processes returned true, .* no lock of a process is enough$/m);
  });
});
