// Installs, type-checks, builds and runs the example apps with the packed package. See HELP.

import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { appIn, removeAllBut, STEPS, versionOf } from "./frameworks/app.mjs";
import { APPS } from "./frameworks/apps.mjs";
import { blame, exitCode } from "./frameworks/blame.mjs";
import { killAll, tail } from "./frameworks/processes.mjs";
import { differences, installedIn, LOCKED } from "./frameworks/versions.mjs";
import { upstash } from "./test/servers.mjs";

const HELP = `Usage: cargo make frameworks [--newest] [APP]...

Installs each example app of adapters/npm/examples with the packed package, type-checks it, builds it without any secret, and runs
it on a real redis-server behind Upstash's REST protocol, or on its own memory. With a limit of 2, the third request must be denied, and
another client must not be affected. An app whose name ends with -routes has a gate and other routes in its place, and gets 20,000
generated request targets (STEPS, SEED): each that runs a route must be charged to the route's rule. An app with a script "dev" also runs in its development server. The logs are target/frameworks/<app>.log.

The versions are locked: those of the app's package.json, and of what they need in turn the newest before ${LOCKED}. With --newest, they are
the newest of the same major versions. An app that then fails is tried again without the package. If it fails at the same step, and not with the
locked versions, it is unavailable: a new version of another package broke it, and the end says with which it last worked.

Exit codes: 0 all pass or are unavailable, 1 one fails or none passes, 2 the command line is wrong.

Apps: ${Object.keys(APPS).join(", ")}`;

const options = process.argv.slice(2);
if (options.includes("--help") || options.includes("-h")) {
  console.log(HELP);
  process.exit();
}
const newest = options.includes("--newest");
const names = options.filter((name) => name !== "--newest");
const unknown = names.filter((name) => !Object.hasOwn(APPS, name));
if (unknown.length > 0) {
  console.error(`frameworks: ${unknown.join(", ")}: no such app or option; the option is --newest, and the apps are ${Object.keys(APPS).join(", ")}`);
  process.exit(2);
}

const package_ = import.meta.dirname;
const work = path.join(package_, "../../target/frameworks");
mkdirSync(work, { recursive: true });
console.log("the package: builds");
execFileSync("./build.sh", { cwd: package_, stdio: ["ignore", "pipe", "inherit"] });
const tarball = packed(package_);
/** What stands in the place of the package when an app is tried without it. */
const standIn = packed(path.join(package_, "frameworks/without"));
const store = await upstash();
process.once("exit", killAll);
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.once(signal, () => stop(1));
const began = Date.now();
const rows = [];
for (const name of names.length > 0 ? names : Object.keys(APPS)) rows.push(await tried(name));
print(rows);
for (const { name, note } of rows) if (note) console.log(`\n${name}: ${note}`);
// What failed stays for a look at it.
removeAllBut(rows.filter(({ result }) => result === "FAILED").map(({ cwd }) => cwd));
const count = (result) => rows.filter((row) => row.result === result).length;
console.log(`\n${count("passed")} passed, ${count("FAILED")} failed, ${count("unavailable")} unavailable, with ${newest ? "the newest" : "locked"} versions; ${since(began)} in all`);
await stop(exitCode(rows.map(({ result }) => result)));

async function stop(code) {
  killAll();
  await store.stop();
  process.exit(code);
}

/** Packs a package as it is published. */
function packed(cwd) {
  const printed = execFileSync("npm", ["pack", "--silent", "--pack-destination", work], { cwd, encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] });
  return path.join(work, printed.trim().split("\n").at(-1));
}

/** Takes an app through all steps, and stops at the first that fails. */
async function tried(name) {
  const { framework, version, runtime } = APPS[name];
  const { cwd, log, steps } = appIn(work, name, { newest, tarball }, store);
  const row = { name, cwd, runtime, result: "passed" };
  for (const step of STEPS) {
    row[step] = "-";
    if (!steps[step]) continue;
    const began = Date.now();
    try {
      const told = await steps[step]();
      row[step] = [since(began), told].filter(Boolean).join(", ");
      console.log(`${name}: ${step} (${row[step]})`);
    } catch (error) {
      console.log(`${name}: ${step} fails: ${error.message}`);
      if (existsSync(log)) console.log(`${tail(log)}\n${name}: the log is ${log}`);
      Object.assign(row, newest ? await judged(name, step) : { result: "FAILED" });
      row[step] = row.result;
      break;
    }
  }
  row.framework = `${framework} ${versionOf(cwd, version)}`;
  return row;
}

/** Whose failure it is that a step fails with the newest versions. */
async function judged(name, step) {
  const tries = {};
  const { result, why } = await blame(step, async ({ newest }) => {
    const app = (tries[newest] = appIn(work, name, { newest, without: true, tarball: standIn }, store));
    for (const earlier of STEPS.slice(0, STEPS.indexOf(step) + 1)) {
      try {
        if (app.steps[earlier]) await app.steps[earlier]();
      } catch {
        return earlier;
      }
    }
  });
  if (result === "FAILED") return { result, note: `FAILED at "${step}"; ${why}` };
  const [locked, now] = [tries[false].cwd, tries[true].cwd].map(installedIn);
  const manifest = JSON.parse(readFileSync(path.join(package_, "examples", APPS[name].from ?? name, "package.json"), "utf8"));
  return { result, note: `unavailable at "${step}": ${why}. It last worked with ${differences(locked, now, manifest)}. The log is ${tries[true].log}` };
}

function since(began) {
  return `${Math.ceil((Date.now() - began) / 1000)} s`;
}

function print(rows) {
  const columns = ["framework", "runtime", ...STEPS];
  const cells = [columns, ...rows.map((row) => columns.map((column) => row[column] ?? ""))];
  const widths = columns.map((_, column) => Math.max(...cells.map((row) => row[column].length)));
  console.log();
  for (const row of cells) console.log(row.map((cell, column) => cell.padEnd(widths[column])).join("  ").trimEnd());
}
