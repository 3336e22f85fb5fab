// Installs, type-checks, builds and runs every example app with the packed package.
//
//   node frameworks.mjs [APP]...

import { execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync } from "node:fs";
import path from "node:path";
import { run, start, tail } from "./frameworks/processes.mjs";
import { admitsTwo, ready } from "./frameworks/requests.mjs";
import { freePort, upstash } from "./test/servers.mjs";

const PAGES = ["/api/hello", "/page"];

/**
 * The apps, in `examples/<name>` or `examples/<from>`. `version` is the package whose version the table shows. `env` is set for
 * all steps, and `serve` starts the app.
 */
const APPS = {
  "next-proxy": { framework: "Next.js, proxy.ts", version: "next", runtime: "Node.js", paths: [...PAGES, "/api/render"] },
  "next-middleware": { framework: "Next.js, middleware.ts", version: "next", runtime: "edge", paths: PAGES },
  sveltekit: { framework: "SvelteKit", version: "@sveltejs/kit", runtime: "Node.js", paths: PAGES },
  "react-router-7": { framework: "React Router, middleware", version: "react-router", runtime: "Node.js", paths: PAGES },
  "react-router-8": { framework: "React Router, handler", version: "react-router", runtime: "Node.js", paths: PAGES },
  "hono-node": { framework: "Hono", version: "hono", runtime: "Node.js" },
  "hono-bun": { framework: "Hono", version: "hono", runtime: "Bun" },
  "hono-workers": { framework: "Hono", version: "hono", runtime: "workerd" },
  nuxt: { framework: "Nuxt", version: "nuxt", runtime: "Node.js", paths: PAGES },
  "nuxt-cloudflare": {
    framework: "Nuxt",
    version: "nuxt",
    runtime: "workerd",
    paths: PAGES,
    from: "nuxt",
    env: { NITRO_PRESET: "cloudflare-module" },
    serve: "npm run start:cloudflare",
  },
  astro: { framework: "Astro", version: "astro", runtime: "Node.js", paths: PAGES },
  express: { framework: "Express", version: "express", runtime: "Node.js" },
  fastify: { framework: "Fastify", version: "fastify", runtime: "Node.js" },
  deno: { framework: "Deno.serve", version: "deno", runtime: "Deno" },
  netlify: { framework: "Netlify Edge, @netlify/edge-bundler", version: "@netlify/edge-bundler", runtime: "Deno" },
  vercel: { framework: "Vercel Routing Middleware, vercel build", version: "vercel", runtime: "Node.js" },
  bun: { framework: "Bun.serve", version: "bun", runtime: "Bun" },
};

const STEPS = ["installs", "type-checks", "builds", "runs"];
const SECRETS = /^(UPSTASH_|KV_|VERCEL|NETLIFY|npm_)/;

const HELP = `Usage: cargo make frameworks [APP]...

Installs each example app of adapters/npm/examples with the packed package, type-checks it, builds it without any secret, runs
it on a real redis-server behind Upstash's REST protocol, and sends it requests: with a limit of 2, the third is denied.
Apps with a development server are also run in it. The logs are in target/frameworks/<app>.log.

Apps: ${Object.keys(APPS).join(", ")}`;

const names = process.argv.slice(2);
if (names.includes("--help") || names.includes("-h")) {
  console.log(HELP);
  process.exit();
}
const unknown = names.filter((name) => !APPS[name]);
if (unknown.length) {
  console.error(`frameworks: ${unknown.join(", ")}: no such app; the apps are ${Object.keys(APPS).join(", ")}`);
  process.exit(2);
}

const root = path.join(import.meta.dirname, "../..");
const work = path.join(root, "target/frameworks");
mkdirSync(work, { recursive: true });
const clean = Object.fromEntries(Object.entries(process.env).filter(([name]) => !SECRETS.test(name)));
const quiet = { CI: "1", DO_NOT_TRACK: "1", NEXT_TELEMETRY_DISABLED: "1", ASTRO_TELEMETRY_DISABLED: "1", NUXT_TELEMETRY_DISABLED: "1", WRANGLER_SEND_METRICS: "false" };
const noSecrets = { ...clean, ...quiet };

console.log("the package: builds");
const piped = { cwd: import.meta.dirname, stdio: ["ignore", "pipe", "inherit"] };
execFileSync("./build.sh", piped);
const [{ filename }] = JSON.parse(execFileSync("npm", ["pack", "--json", "--loglevel", "error", "--pack-destination", work], piped));
const tarball = path.join(work, filename);
const server = await upstash();
/** The folders of `examples/` that are installed in this run. */
const installed = new Set();
const results = [];
for (const name of names.length ? names : Object.keys(APPS)) results.push(await tried(name, APPS[name]));
await server.stop();
print(results);
process.exit(results.some(({ failed }) => failed) ? 1 : 0);

/** Takes an app through all steps, and stops at the first that fails. */
async function tried(name, { framework, version, runtime, paths = ["/api/hello"], from = name, env: more, serve }) {
  const [cwd, log] = [path.join(work, from), path.join(work, `${name}.log`)];
  rmSync(log, { force: true });
  const isInstalled = installed.has(from);
  if (!isInstalled) {
    rmSync(cwd, { recursive: true, force: true });
    cpSync(path.join(import.meta.dirname, "examples", from), cwd, { recursive: true });
  }
  const { scripts } = JSON.parse(readFileSync(path.join(cwd, "package.json"), "utf8"));
  const env = { ...noSecrets, ...more, PATH: `${path.join(cwd, "node_modules/.bin")}:${process.env.PATH}` };
  const steps = {
    installs: !isInstalled && (() => run(`npm install --no-audit --no-fund --loglevel error "${tarball}"`, { cwd, env, log })),
    "type-checks": scripts.check && (() => run("npm run check", { cwd, env, log })),
    builds: scripts.build && (() => run("npm run build", { cwd, env, log })),
    runs: async () => {
      await served(serve ?? "npm start", { cwd, env, log }, paths);
      if (scripts.dev && !serve) await served("npm run dev", { cwd, env, log }, paths.slice(0, 1), { knowsClients: false });
    },
  };
  const row = { name, framework, runtime };
  for (const step of STEPS) {
    if (!steps[step]) {
      row[step] = "-";
      continue;
    }
    const began = Date.now();
    try {
      await steps[step]();
      if (step === "installs") installed.add(from);
      row[step] = `${Math.ceil((Date.now() - began) / 1000)} s`;
      console.log(`${name}: ${step}, ${row[step]}`);
    } catch (error) {
      console.log(`${name}: ${step} FAILED: ${error.message}\n${existsSync(log) ? tail(log) : ""}\n${name}: the log is ${path.relative(process.cwd(), log)}`);
      row[step] = "FAILED";
      row.failed = true;
      break;
    }
  }
  row.framework = `${framework} ${versionOf(cwd, version)}`;
  return row;
}

/** Serves the app, and sends it the requests. */
async function served(command, { cwd, env, log }, paths, options) {
  const port = await freePort();
  const secrets = { UPSTASH_REDIS_REST_URL: server.url, UPSTASH_REDIS_REST_TOKEN: server.token };
  const app = start(command, { cwd, env: { ...env, ...secrets, PORT: port, HOST: "127.0.0.1" }, log });
  try {
    await ready(port, app);
    for (const path of paths) {
      await server.command("FLUSHALL");
      await admitsTwo(port, path, options);
    }
  } finally {
    await app.stop();
  }
}

function versionOf(cwd, name) {
  try {
    return JSON.parse(readFileSync(path.join(cwd, "node_modules", name, "package.json"), "utf8")).version;
  } catch {
    return "";
  }
}

function print(results) {
  const rows = [["framework", "runtime", ...STEPS], ...results.map((row) => [row.framework, row.runtime, ...STEPS.map((step) => row[step] ?? "")])];
  const widths = rows[0].map((_, column) => Math.max(...rows.map((row) => row[column].length)));
  console.log();
  for (const row of rows) console.log(row.map((cell, column) => cell.padEnd(widths[column])).join("  ").trimEnd());
}
