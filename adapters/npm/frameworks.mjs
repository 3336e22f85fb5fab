// Installs, type-checks, builds and runs the example apps with the packed package. See HELP.

import { execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync } from "node:fs";
import path from "node:path";
import { APPS } from "./frameworks/apps.mjs";
import { killAll, run, start, tail } from "./frameworks/processes.mjs";
import { admitsTwo, ready } from "./frameworks/requests.mjs";
import { freePort, upstash } from "./test/servers.mjs";

const HELP = `Usage: cargo make frameworks [APP]...

Installs each example app of adapters/npm/examples with the packed package, type-checks it, builds it without any secret, and runs
it on a real redis-server behind Upstash's REST protocol, or on its own memory. With a limit of 2, the third request must be denied, and
another client must not be affected. An app whose name ends with -routes has a gate and other routes in its place, and gets 20,000
generated request targets (STEPS, SEED): each that runs a route must be charged to the route's rule. An app with a script "dev" also runs in its development server. The logs are target/frameworks/<app>.log.

Apps: ${Object.keys(APPS).join(", ")}`;

const STEPS = ["installs", "type-checks", "builds", "runs"];
/** Variables that an app must not see, or only at run time. */
const HIDDEN = /^(UPSTASH_|KV_|VERCEL|NETLIFY|NITRO_|NODE_ENV|npm_)/;
const QUIET = {
  CI: "1",
  DO_NOT_TRACK: "1",
  ASTRO_TELEMETRY_DISABLED: "1",
  NEXT_TELEMETRY_DISABLED: "1",
  NUXT_TELEMETRY_DISABLED: "1",
  VERCEL_TELEMETRY_DISABLED: "1",
  WRANGLER_SEND_METRICS: "false",
};

const names = process.argv.slice(2);
if (names.includes("--help") || names.includes("-h")) {
  console.log(HELP);
  process.exit();
}
const unknown = names.filter((name) => !Object.hasOwn(APPS, name));
if (unknown.length > 0) {
  console.error(`frameworks: ${unknown.join(", ")}: no such app; the apps are ${Object.keys(APPS).join(", ")}`);
  process.exit(2);
}

const package_ = import.meta.dirname;
const work = path.join(package_, "../../target/frameworks");
const noSecrets = { ...Object.fromEntries(Object.entries(process.env).filter(([name]) => !HIDDEN.test(name))), ...QUIET };
/** The folders of `examples/` that are installed. */
const installed = new Set();

const tarball = pack();
const server = await upstash();
process.once("exit", killAll);
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.once(signal, () => stop(1));
const began = Date.now();
const rows = [];
for (const name of names.length > 0 ? names : Object.keys(APPS)) rows.push(await tried(name, APPS[name]));
print(rows);
// What failed stays for a look at it.
for (const from of installed) if (!rows.some((row) => row.failed && row.from === from)) remove(path.join(work, from));
console.log(`\n${since(began)} in all`);
await stop(rows.some(({ failed }) => failed) ? 1 : 0);

async function stop(code) {
  killAll();
  await server.stop();
  process.exit(code);
}

/** Builds the package and packs it as it is published. */
function pack() {
  mkdirSync(work, { recursive: true });
  console.log("the package: builds");
  const piped = { cwd: package_, encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] };
  execFileSync("./build.sh", piped);
  const filename = execFileSync("npm", ["pack", "--silent", "--pack-destination", work], piped).trim().split("\n").at(-1);
  return path.join(work, filename);
}

/** Takes an app through all steps, and stops at the first that fails. */
async function tried(name, { framework, version, runtime, paths = ["/api/hello"], from = name, routes, env: more, serve = "npm start", requests = admitsTwo }) {
  const [cwd, log] = [path.join(work, from), path.join(work, `${name}.log`)];
  rmSync(log, { force: true });
  if (!installed.has(from)) {
    remove(cwd);
    cpSync(path.join(package_, "examples", from), cwd, { recursive: true });
  }
  if (routes) for (const more of [from, "gate.ts"]) cpSync(path.join(package_, "frameworks/routes", more), more === from ? cwd : path.join(cwd, more), { recursive: true });
  const { scripts } = JSON.parse(readFileSync(path.join(cwd, "package.json"), "utf8"));
  const env = { ...noSecrets, ...more, PATH: `${path.join(cwd, "node_modules/.bin")}:${process.env.PATH}` };
  const options = { cwd, env, log };
  const steps = {
    installs: !installed.has(from) && (() => install(from, options)),
    "type-checks": !routes && scripts.check && (() => run("npm run check", options)),
    builds: scripts.build && (() => run("npm run build", options)),
    runs: async () => {
      await served(serve, options, (port, path) => requests(port, path, { cwd }), paths);
      const inDevelopment = (port, path) => admitsTwo(port, path, { knowsClients: false });
      if (scripts.dev && from === name) await served("npm run dev", options, inDevelopment, paths.slice(0, 1));
    },
  };
  const row = { from, runtime };
  for (const step of STEPS) {
    row[step] = "-";
    if (!steps[step]) continue;
    const began = Date.now();
    try {
      const told = await steps[step]();
      row[step] = [since(began), told].filter(Boolean).join(", ");
      console.log(`${name}: ${step} (${row[step]})`);
    } catch (error) {
      console.log(`${name}: ${step} FAILED: ${error.message}`);
      if (existsSync(log)) console.log(`${tail(log)}\n${name}: the log is ${log}`);
      row[step] = "FAILED";
      row.failed = true;
      break;
    }
  }
  row.framework = `${framework} ${versionOf(cwd, version)}`;
  return row;
}

async function install(from, options) {
  await run(`npm install --no-audit --no-fund --loglevel error "${tarball}"`, options);
  installed.add(from);
  const size = execFileSync("du", ["-sm", path.join(options.cwd, "node_modules")], { encoding: "utf8" });
  return `${parseInt(size)} MB`;
}

/** Serves an app, and sends it the requests. */
async function served(command, { cwd, env, log }, requests, paths) {
  const port = await freePort();
  const secrets = { UPSTASH_REDIS_REST_URL: server.url, UPSTASH_REDIS_REST_TOKEN: server.token };
  const app = start(command, { cwd, env: { ...env, ...secrets, PORT: port, HOST: "127.0.0.1" }, log });
  try {
    await ready(port, app);
    for (const path of paths) {
      await server.command("FLUSHALL");
      await requests(port, path);
    }
  } finally {
    await app.stop();
  }
}

/** `rmSync` takes much longer for as many files. */
function remove(folder) {
  execFileSync("rm", ["-rf", folder]);
}

function versionOf(cwd, name) {
  const file = path.join(cwd, "node_modules", name, "package.json");
  return existsSync(file) ? JSON.parse(readFileSync(file, "utf8")).version : "";
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
