// The program of the package prints what the program in Rust does, and ends with the same exit code.

import assert from "node:assert/strict";
import { execFile, execFileSync, fork, spawn } from "node:child_process";
import { once } from "node:events";
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { isDeepStrictEqual, promisify } from "node:util";

const npm = path.join(import.meta.dirname, "..");
const root = path.join(npm, "../..");
const { bin } = JSON.parse(readFileSync(path.join(npm, "package.json"), "utf8"));
const PROGRAM = path.join(npm, bin.tidegate);
const RUST = path.join(process.env.CARGO_TARGET_DIR ?? path.join(root, "target"), "debug/tidegate");

const folder = mkdtempSync(path.join(tmpdir(), "tidegate-program-"));
after(() => rmSync(folder, { recursive: true, force: true }));

function write(name, content) {
  const file = path.join(folder, name);
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, typeof content === "string" || content instanceof Uint8Array ? content : JSON.stringify(content));
}

/** Runs a program. Returns its output and its exit code. */
function ran(file, words, input = "") {
  return new Promise((resolve, reject) => {
    const child = spawn(file, words, { cwd: folder });
    const printed = { stdout: "", stderr: "" };
    for (const name of ["stdout", "stderr"]) child[name].setEncoding("utf8").on("data", (text) => (printed[name] += text));
    child.on("error", reject).on("close", (code) => resolve({ ...printed, code }));
    child.stdin.on("error", () => undefined).end(input);
  });
}

/** Runs the program as a user does. */
const started = (words, input) => ran(process.execPath, [PROGRAM, ...words], input);

let child;
let last = Promise.resolve();
/** Runs the program in one process with others, one after another. */
function own(words) {
  child ??= fork(path.join(import.meta.dirname, "program.mjs"), [folder]);
  last = last.then(() => {
    child.send(words);
    return once(child, "message");
  });
  return last.then(([printed]) => printed);
}
after(() => child?.disconnect());

/** What both programs print, if that is not the same. Adds the exit code to those that occurred. */
async function differences(words, codes) {
  const [expected, found] = await Promise.all([ran(RUST, words), own(words)]);
  codes.add(expected.code);
  return isDeepStrictEqual(found, expected) ? [] : [{ words, expected, found }];
}

const window = (limit, more = {}) => ({ algorithm: "fixed_window", limit, window_ms: 60_000, ...more });
const LOGIN = { limits: { login: { quotas: [window(3, { by: "ip" })] } }, rules: [{ name: "login", path: "/login", methods: ["POST"], limits: ["login"] }] };
const site = (more) => ({ limits: { site: { quotas: [window(9)] } }, rules: [{ limits: ["site"], ...more }] });
const leased = { limits: { api: { quotas: [window(1_000)], lease: true }, other: { quotas: [window(9)], lease: { slice: 5, lifetime_ms: 1_000, grace: 2 } } }, rules: [{ path: "/api/*", limits: ["api"] }, { path: "/other", limits: ["other"] }] };
const QUOTAS = [
  ...[{ algorithm: "sliding_window", limit: 7, window_ms: 1_500, name: "few" }, { algorithm: "token_bucket", capacity: 20, refill: 10, per_ms: 1_000, name: "burst" }],
  ...[{ algorithm: "leaky_bucket", capacity: 5, refill: 1, per_ms: 100, by: "global", name: "smooth" }, { algorithm: "concurrency", limit: 2, lifetime_ms: 30_000, name: "slots" }],
  ...[{ algorithm: "penalty", base_ms: 1_000, factor: 2, cap_ms: 60_000, name: "jail" }, { algorithm: "sliding_log", limit: 3, window_ms: 60_000, by: "ip", name: "log" }],
];

const FILES = {
  "login.json": LOGIN,
  "-- odd.json": LOGIN,
  "mistyped.json": JSON.stringify(LOGIN, null, 2).replace('"window_ms"', '"windowms"'),
  "unknown-limit.json": site({ limits: ["sites"] }),
  "no-json.json": '{ "limits": [ }',
  "empty.json": "",
  "mark.json": "\ufeff{}",
  "bytes.json": Uint8Array.of(0xff, 0x7b, 0x7d),
  "rules.yaml": "limits: {}",
  "no-toml.toml": "limits = [",
  "mistyped.toml": '[limits.site]\nquotas = [{ algorithm = "fixed_window", limit = 3, window_ms = 60_000, by = "ipp" }]\n',
  "warnings.json": { limits: { site: { quotas: [window(9)] }, unused: { quotas: [window(1)] } }, rules: [{ name: "é", limits: ["site"] }, { name: "hidden", limits: ["site"] }] },
  "leased.json": leased,
  "stores.json": { ...site({ store: "main" }), stores: { main: { fallback: "memory", deny_cache: true }, mian: { deny_cache: true } } },
  "first.json": { ...site({}), stores: { main: { fallback: { store: "memory", percent: 20, at_most_ms: 5_000 }, near: { store: "location", limit: "site" } } } },
  "two-first.json": { ...site({}), stores: { main: { deny_cache: true }, other: { deny_cache: true } } },
  "kinds.json": { dimensions: ["room"], limits: { all: { quotas: QUOTAS, charge_denied: false }, rooms: { quotas: [window(3, { by: "room", name: "r" }), window(9, { by: "ip" })], group_by: "room", charge_denied: true }, blocks: { quotas: [window(1), { algorithm: "block", cap_ms: 90_000, name: "by-hand" }] } }, rules: [{ path: "/all", limits: ["all"] }, { path: "/rooms/{id}", limits: ["rooms"], cost: 2, store: "objects" }, { path: "/block", limits: ["blocks"], on_failure: "open", estimate: 4 }, { path: "/no", challenge: "/challenge", bot_score_below: 30 }] },
  "tokens.json": { tokens: { algorithms: ["ES256"], keys: { tenant: "org" }, tier: "plan" }, lists: { allow: ["sub:alice"], deny: ["203.0.113.0/24"] }, limits: { api: { quotas: [window(5)], tiers: { pro: { quotas: [window(50)] }, free: { unlimited: true } } } }, rules: [{ path: "/api/*", limits: ["api"], invalid_token: "refuse" }, { path: "/open", limits: ["api"] }] },
};

const explain = (rules, request, ...more) => ["explain", "--rules", rules, "--request", request, ...more];

const CASES = {
  "good rules": [
    ...["login.json", "leased.json", "rich.toml", "tower.toml", "kinds.json", "tokens.json", "warnings.json", "first.json"].flatMap((file) => [["check", file], ["check", "--json", file]]),
    ...[["check", "--deny-warnings", "warnings.json"], ["check", "--deny-warnings", "login.json"], ["check", "login.json", "--json", "--deny-warnings"]],
    ...[["check", "--", "-- odd.json"], ["check", "--store", "main", "--store=memory", "--store", "location", "first.json"], ["explain", "--rules", "warnings.json"]],
  ],
  "bad rules": [
    ...["mistyped.json", "unknown-limit.json", "no-json.json", "empty.json", "mark.json", "bytes.json", "rules.yaml", "no-toml.toml", "mistyped.toml", "missing.json", ".", "login.json/x", "stores.json", "two-first.json"].map((file) => ["check", file]),
    ...[["check", "--json", "mistyped.json"], ["check", "--json", "stores.json"], ["check", "--json", "missing.json"], ["explain", "--rules", "mistyped.json"], ["explain", "--rules", "missing.json", "--request", "GET /"]],
    ...[["check", "--store", "mein", "first.json"], ["check", "--store", "main", "first.json"], ["check", "--store", "x", "stores.json"], ["check", "--store=", "stores.json"]],
  ],
  "mistyped command lines": [
    ...[["chekc"], ["chekc", "login.json"], ["foo", "bar"], ["--json"], ["--versoin"], ["check"], ["check", "login.json", "b"], ["check", "--jsn", "login.json"], ["check", "--foo", "login.json"], ["check", "login.json", "--foo"]],
    ...[["check", "--json", "--foo=1", "login.json"], ["check", "login.json", "--json", "--json"], ["check", "--json=1", "login.json"], ["check", "--store"], ["check", "login.json", "--store", "--json"], ["check", "-x", "login.json"]],
    ...[["check", "--deny-warning", "login.json"], ["check", ""], ["check", "-V"], ["check", "--", "--json"], ["hash-key", "x"], ["hash-key", "--x"], ["explain"], ["explain", "--rules"], ["explain", "--rules="], ["explain", "--rule", "login.json"]],
    ...[["explain", "--peer", "192.0.2.1"], ["explain", "--rules", "login.json", "more"], ["explain", "--rules", "login.json", "--foo"], ["explain", "--hots", "x"]],
    ...[["--request", "login"], ["--request", "GET"], ["--request="], ["--request"], ["--header", "x"], ["--peer", "x"], ["--peer", "1.2.3"], ["--peer", "fe80::1%1"], ["--platform", "cloudfare"], ["--bot-score", "256"], ["--bot-score", "x"], ["--bot-score", ""], ["--bot-score", "-1"], ["--key", "x"], ["--tier", "a", "--tier", "b"], ["--json", "--json"]].map((words) => ["explain", "--rules", "login.json", ...words]),
  ],
  help: [["--version"], ["-V"], ["check", "--help"], ["check", "-h"], ["check", "--json", "-h", "--foo"], ["explain", "--help"], ["help", "explain"], ["hash-key", "-h"]],
  explanations: [
    ...["POST /login", "GET /login", "POST /x/../login", "POST //login"].map((request) => explain("login.json", request, "--peer", "192.0.2.1")),
    ...[explain("login.json", "POST /login"), explain("login.json", "POST /login", "--json"), explain("login.json", "GET /", "--json"), explain("leased.json", "GET /api/x", "--peer", "2001:db8::1", "--json"), explain("leased.json", "GET /api/x")],
    ...[explain("warnings.json", "GET /"), explain("first.json", "GET /"), explain("first.json", "GET /", "--json"), explain("kinds.json", "GET /all", "--peer", "192.0.2.1"), explain("kinds.json", "GET /all", "--json"), explain("kinds.json", "GET /rooms/7"), explain("kinds.json", "GET /rooms/7", "--json")],
    ...[explain("kinds.json", "GET /rooms/7", "--key", "room=room:7", "--key", "room=room:8", "--json"), explain("kinds.json", "GET /rooms/7", "--key", "room=a b"), explain("kinds.json", "GET /block"), explain("kinds.json", "GET /block", "--json"), explain("kinds.json", "GET /no", "--bot-score", "29"), explain("kinds.json", "GET /no", "--bot-score", "+7", "--json"), explain("kinds.json", "GET /no", "--bot-score", "30")],
    ...[explain("tokens.json", "GET /api/x", "--header", "Authorization: Bearer a.b.c"), explain("tokens.json", "GET /api/x", "--header", "Authorization: Bearer a.b.c", "--json"), explain("tokens.json", "GET /open", "--header", "authorization:Bearer é", "--json"), explain("tokens.json", "GET /api/x", "--subject", "alice"), explain("tokens.json", "GET /api/x", "--subject", "alice", "--json"), explain("tokens.json", "GET /api/x", "--subject", "bob", "--tier", "pro")],
    ...[explain("tokens.json", "GET /api/x", "--tier", "free", "--json"), explain("tokens.json", "GET /open", "--peer", "203.0.113.9"), explain("tokens.json", "GET /open", "--peer", "203.0.113.9", "--header", "authorization: Bearer a.b.c", "--json"), explain("tokens.json", "GET /open", "--platform", "cloudflare", "--header", "CF-Connecting-IP: 192.0.2.1"), explain("tokens.json", "GET /open", "--platform=vercel", "--header=x-real-ip:2001:db8:1:2::3", "--json")],
    ...["GET /api/users", "POST /login", "GET /", "GET /admin/x", "DELETE /api/%61dmin"].map((request) => explain("rich.toml", request, "--peer", "198.51.100.7", "--host", "api.example.com")),
  ],
};

before(() => {
  // With the options of `cargo test --workspace`, which has compiled it.
  execFileSync("cargo", ["build", "--quiet", "--workspace", "--all-features", "--test", "setup", "--bin", "tidegate"], { cwd: root, stdio: "inherit" });
  for (const [name, content] of Object.entries(FILES)) write(name, content);
  cpSync(path.join(root, "conformance/cli/tests/export/rules.toml"), path.join(folder, "rich.toml"));
  cpSync(path.join(root, "adapters/tower/examples/rules.toml"), path.join(folder, "tower.toml"));
});

describe("it prints what the program in Rust prints", { concurrency: 2 }, () => {
  for (const [about, cases] of Object.entries(CASES)) {
    test(about, async () => {
      const codes = new Set();
      const found = [];
      for (const words of cases) found.push(...(await differences(words, codes)));
      assert.deepEqual(found, []);
      // Each table has what it is about.
      assert.deepEqual([...codes].sort(), { "good rules": [0, 1], "bad rules": [1, 2], "mistyped command lines": [2], help: [0], explanations: [0, 1] }[about]);
    });
  }

  test("hashes of keys", async () => {
    const secrets = ["secret", "secret\n", "secret\r\n", "", "\n", "a\nb\n", Uint8Array.of(0xff, 0), "x".repeat(65_536), "x".repeat(65_537), "é"];
    for (const secret of secrets) assert.deepEqual(await started(["hash-key"], secret), await ran(RUST, ["hash-key"], secret));
    assert.equal((await started(["hash-key"], "secret\n")).stdout, "2bb80d537b1da3e38bd30361aa855686\n");
  });
});

test("without a command it shows all, and a command of the program in Rust is named", async () => {
  const [bare, help, other] = [await started([]), await started(["--help"]), await started(["run"])];
  assert.deepEqual([bare.code, bare.stdout, help.code, help.stderr], [2, "", 0, ""]);
  assert.equal(bare.stderr, help.stdout);
  for (const name of ["check", "explain", "test", "conformance", "hash-key"]) {
    assert.match(help.stdout, new RegExp(`^  ${name} {2,}\\w`, "m"));
    assert.equal((await own([name, "--help"])).code, 0);
  }
  assert.equal(other.code, 2);
  assert.match(other.stderr, /^error: unrecognized subcommand 'run'\n\n {2}tip: the program in Rust has it; run `cargo install/);
});

test("npx runs it by the name of the package", async () => {
  const app = path.join(folder, "app");
  write("app/package.json", "{}");
  write("app/rules.json", LOGIN);
  const options = { cwd: app, env: { ...process.env, npm_config_offline: "true", npm_config_update_notifier: "false" } };
  await promisify(execFile)("npm", ["install", "--no-audit", "--no-fund", npm], options);
  const { stdout } = await promisify(execFile)("npx", ["@tidegate/edge", "check", "rules.json"], options);
  assert.equal(stdout, "rules.json: 1 rule, 0 warnings\n");
});

const ONE = { id: "gate/login", about: "Three attempts in a minute, then 429.", platform: "direct" };
const attempts = (passed, more = {}) => ({ at_ms: 0, burst: 9, method: "POST", path: "/login", peer: "192.0.2.1", expect: { passed, ...more } });
/** A folder with one gate fixture. */
function fixture(name, content) {
  write(`${name}/gate/login.json`, content);
  return name;
}

/** What `test` prints, and what `run` does on its target `memory`, but for what each says of its files. */
async function replays(fixtures, more = []) {
  const [out, outOfRust] = [`${fixtures}-own`, `${fixtures}-rust`];
  const found = await own(["test", fixtures, "--out", out, ...more]);
  const expected = await ran(RUST, ["run", "--target", "memory", "--fixtures", fixtures, "--out", outOfRust, ...more]);
  const plain = ({ stdout, stderr, code }) => ({
    stdout: stdout.replace(/\d+\.\d s/, "0.0 s").replace("report.html", "junit.xml"),
    stderr: stderr.replace(/^building .*\n/gm, "").replace(/^\n?\S.* (?:is|are) in .*\n/gm, "").replace(/ \(`tidegate fixtures` lists all\)/, "").trim(),
    code,
  });
  const xml = (folderName) => (found.code === 2 ? "" : readFileSync(path.join(folder, folderName, "junit.xml"), "utf8"));
  return [{ ...plain(found), xml: xml(out) }, { ...plain(expected), xml: xml(outOfRust) }];
}

describe("it replays gate fixtures with the report of the program in Rust", () => {
  test("those of this repository all pass", async () => {
    const fixtures = path.join(root, "fixtures");
    const { stdout, code } = await own(["test", fixtures, "--filter", "gate/*"]);
    const count = readdirSync(path.join(fixtures, "gate")).length;
    assert.ok(count > 20);
    assert.match(stdout, new RegExp(`^${count} passed, 0 failed, 0 skipped$`, "m"));
    assert.equal(code, 0);
  });

  test("limits that are kept, and limits that are not", async () => {
    const rules = ["--rules", "login.json"];
    for (const [name, steps, code] of [
      ["kept", [attempts(3, { remaining: 0 }), { ...attempts(3), at_ms: 60_000 }, { at_ms: 60_000, path: "/", expect: { passed: 1, remaining: null } }], 0],
      ["broken", [attempts(4, { remaining: 2 })], 1],
      ["late", [attempts(3), { ...attempts(3), at_ms: 59_999 }, attempts(1, { status: 403 })], 1],
      ["numbered", [{ ...attempts(3), token: "{n}", burst: 3 }, { ...attempts(9), token: "1" }], 0],
    ]) {
      const [found, expected] = await replays(fixture(name, { ...ONE, steps }), rules);
      assert.deepEqual(found, expected, name);
      assert.equal(found.code, code, `${name}: ${found.stdout}`);
    }
  });

  test("warnings that are told, and warnings that are not", async () => {
    const limits = { api: { quotas: [window(4, { by: "ip", warn_at: [50, 100] })] } };
    const step = (passed, level, warned) => ({ at_ms: 0, burst: passed, path: "/", peer: "192.0.2.1", expect: { passed, level, warned } });
    for (const [name, steps, code] of [
      ["told", [step(1, 0, []), step(1, 50, [50]), step(2, 100, [100])], 0],
      ["told-together", [step(4, 100, [50, 100]), { ...step(0, 100, []), burst: 1 }], 0],
      ["other-level", [step(2, 100, [50])], 1],
      ["other-warnings", [step(2, 50, []), step(2, 100, [50, 100])], 1],
      ["no-expectation", [step(4, null, null)], 0],
    ]) {
      const [found, expected] = await replays(fixture(name, { ...ONE, rules: { limits, rules: [{ limits: ["api"] }] }, steps }));
      assert.deepEqual(found, expected, name);
      assert.equal(found.code, code, `${name}: ${found.stdout}`);
    }
  });

  test("fixtures of a token's claims, for each algorithm", async () => {
    for (const algorithm of ["HS256", "EdDSA", "ES256", "RS256"]) {
      const tokens = { algorithms: [algorithm], issuer: ["https://id.example", "x"], audience: ["api"], tier: "/app/plan", keys: { tenant: "org" } };
      const limits = { api: { quotas: [window(1, { by: "tenant" })], tiers: { pro: { quotas: [window(5, { by: "tenant" })] } } } };
      const rules = { tokens, limits, rules: [{ limits: ["api"], invalid_token: "refuse" }] };
      const step = (passed, claims) => ({ at_ms: 0, burst: 9, path: "/", peer: "192.0.2.1", claims, expect: { passed } });
      const steps = [step(1, { sub: "a", org: 1 }), step(5, { sub: "b", org: "y", app: { plan: "pro" }, iss: "x", exp: 1 }), step(0, { sub: "c", org: 1 }), step(1, { sub: "c" })];
      const bad = { at_ms: 0, path: "/", headers: [["authorization", "Bearer a.b.c"]], expect: { passed: 0, status: 401 } };
      const [found, expected] = await replays(fixture(`claims-${algorithm}`, { ...ONE, rules, steps: [...steps, bad] }));
      assert.deepEqual(found, expected, algorithm);
      assert.equal(found.code, 0, found.stdout);
    }
  });

  test("fixtures and options that are wrong", async () => {
    const good = { ...ONE, steps: [attempts(3)] };
    const text = JSON.stringify({ ...good, rules: LOGIN }, null, 1);
    const changes = [
      ...[['"burst"', '"brust"'], ['"peer"', '"per"'], ['"direct"', '"driect"'], ['"direct"', "7"], ['"path": "/login",\n   "peer"', '"peer"'], ['"passed": 3', '"passed": true'], ['"passed": 3', '"passed": 3, "status": 65536'], ['"passed": 3', '"passed": 3, "levl": 1'], ['"passed": 3', '"passed": 3, "warned": [256]']],
      ...["-1", "1.5", '"é"', "0, \"at_ms\": 0", "null"].map((value) => ['"at_ms": 0', `"at_ms": ${value}`]),
      ...['"headers": [["a"]]', '"headers": {}', '"keys": { "a": 1 }', '"keys": [1]', '"claims": 7', '"bot_score": 256'].map((field) => ['"at_ms": 0', `"at_ms": 0, ${field}`]),
    ];
    const texts = changes.map(([from, to]) => (assert.ok(text.includes(from), from), text.replace(from, to)));
    const wrong = [{ ...good, id: "gate/x" }, { ...good, about: " " }, { ...good, steps: [] }, { ...good, steps: [attempts(10), { ...attempts(0), burst: 0 }] }, { ...good, steps: {} }, { ...good, rules: { rulez: [] } }];
    for (const [nth, content] of [...texts, ...wrong].entries()) {
      const [found, expected] = await replays(fixture(`wrong-${nth}`, content));
      assert.deepEqual(found, expected, JSON.stringify(content));
      assert.equal(found.code, 2, JSON.stringify(content));
    }
    fixture("good", good);
    mkdirSync(path.join(folder, "none"));
    for (const [fixtures, ...more] of [["good"], ["missing"], ["none"], ["login.json"], ["good", "--rules", "missing.json"], ["good", "--rules", "mistyped.json"], ["good", "--rules", "login.json", "--filter", "x/*"], ["good", "--rules", "rules.yaml"]]) {
      const [found, expected] = await replays(fixtures, more);
      const said = (text) => text.replace(/, for example .*/, "");
      assert.deepEqual([said(found.stderr), found.code], [said(expected.stderr), 2], more.join(" "));
    }
  });

  test("what memory cannot replay is skipped with its reason, and nothing passes by that", async () => {
    write("skips/a/decision.json", { id: "a/decision" });
    write("skips/gate/leased.json", { ...ONE, id: "gate/leased", rules: leased, steps: [{ at_ms: 0, path: "/api/x", expect: { passed: 1 } }] });
    const skipped = await own(["test", "skips", "--out", "skips-own"]);
    assert.equal(skipped.code, 1);
    assert.match(skipped.stderr, /^tidegate: no target was tested$/m);
    assert.match(skipped.stdout, /^memory unsupported: only fixtures in gate\/ are replayed here; .*\n {2}a\/decision$/m);
    assert.match(skipped.stdout, /^memory unsupported: limit "api": it has a lease, .*\n {2}gate\/leased$/m);
    assert.match(readFileSync(path.join(folder, "skips-own/junit.xml"), "utf8"), /tests="3" skipped="3" errors="0" failures="0"/);
    const some = await own(["test", fixture("skips", { ...ONE, steps: [attempts(3)] }), "--rules", "login.json"]);
    assert.match(some.stdout, /^1 passed, 0 failed, 2 skipped$/m);
    assert.equal(some.code, 0);
  });
});
