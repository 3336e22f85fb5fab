// An app in a folder of its own, and the steps that it takes there.

import { execFileSync } from "node:child_process";
import { cpSync, existsSync, readFileSync, rmSync } from "node:fs";
import path from "node:path";
import { APPS } from "./apps.mjs";
import { freePort } from "../test/servers.mjs";
import { run, start } from "./processes.mjs";
import { admitsTwo, answers, ready } from "./requests.mjs";
import { before, takeNewest } from "./versions.mjs";

export const STEPS = ["installs", "type-checks", "builds", "runs"];
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

const package_ = path.join(import.meta.dirname, "..");
const noSecrets = { ...Object.fromEntries(Object.entries(process.env).filter(([name]) => !HIDDEN.test(name))), ...QUIET };
/** The folders in which an app is installed. Some apps share one. */
const installed = new Set();

/**
 * Copies an app, and returns its steps, its folder and its log. `way` says how it is installed: with the `newest` versions, and `without` the package, or
 * with its `tarball`. `store` is what it counts in.
 */
export function appIn(work, name, { newest, without = false, tarball }, store) {
  const { paths = ["/api/hello"], from = name, routes, env: more, serve = "npm start", requests = admitsTwo } = APPS[name];
  const way = `${without ? ".without" : ""}${without && !newest ? ".locked" : ""}`;
  const [cwd, log] = [path.join(work, from + way), path.join(work, `${name}${way}.log`)];
  rmSync(log, { force: true });
  if (!installed.has(cwd)) {
    remove(cwd);
    cpSync(path.join(package_, "examples", from), cwd, { recursive: true });
    if (newest) takeNewest(cwd);
  }
  if (routes) for (const more of [from, "gate.ts"]) cpSync(path.join(package_, "frameworks/routes", more), more === from ? cwd : path.join(cwd, more), { recursive: true });
  const { scripts } = JSON.parse(readFileSync(path.join(cwd, "package.json"), "utf8"));
  const env = { ...noSecrets, ...more, PATH: `${path.join(cwd, "node_modules/.bin")}:${process.env.PATH}` };
  const options = { cwd, env, log, store };
  const [asked, askedInDevelopment] = without ? [answers, answers] : [requests, (port, path) => admitsTwo(port, path, { knowsClients: false })];
  const steps = {
    installs: !installed.has(cwd) && (() => install(`${before(newest)} "${tarball}"`, options)),
    "type-checks": !routes && scripts.check && (() => run("npm run check", options)),
    builds: scripts.build && (() => run("npm run build", options)),
    runs: async () => {
      await served(serve, options, asked, paths);
      if (scripts.dev && from === name) await served("npm run dev", options, askedInDevelopment, paths.slice(0, 1));
    },
  };
  return { cwd, log, steps };
}

async function install(what, options) {
  await run(`npm install --no-audit --no-fund --loglevel error ${what}`, options);
  installed.add(options.cwd);
  const size = execFileSync("du", ["-sm", path.join(options.cwd, "node_modules")], { encoding: "utf8" });
  return `${parseInt(size)} MB`;
}

/** Serves an app, and sends it the requests. */
async function served(command, { cwd, env, log, store }, requests, paths) {
  const port = await freePort();
  const secrets = { UPSTASH_REDIS_REST_URL: store.url, UPSTASH_REDIS_REST_TOKEN: store.token };
  const app = start(command, { cwd, env: { ...env, ...secrets, PORT: port, HOST: "127.0.0.1" }, log });
  try {
    await ready(port, app);
    for (const path of paths) {
      await store.command("FLUSHALL");
      await requests(port, path, { cwd });
    }
  } finally {
    await app.stop();
  }
}

/** Removes all folders of apps but these. */
export function removeAllBut(kept) {
  for (const folder of installed) if (!kept.includes(folder)) remove(folder);
}

/** `rmSync` takes much longer for as many files. */
function remove(folder) {
  execFileSync("rm", ["-rf", folder]);
}

/** The version of a package that an app has. */
export function versionOf(cwd, name) {
  const file = path.join(cwd, "node_modules", name, "package.json");
  return existsSync(file) ? JSON.parse(readFileSync(file, "utf8")).version : "";
}
