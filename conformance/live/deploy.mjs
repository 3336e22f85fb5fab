// Deploys a guest of the suite to an account of one's own, and removes it when standard input closes:
//
//     node deploy.mjs PLATFORM [--built PATH] [--dry-run]
//
// PLATFORM is the name of a file beside this one, which lists the commands. Without --built, only the account's variables are
// checked. Once the guest answers, this prints one line of JSON:
// its targets' addresses, and the key of its routes for the suite. What was created is removed in the reverse order, also after
// a failure. With --dry-run, commands with a dry run of their own run that, the others are only printed, and the platform's local
// emulator serves the guest. All messages go to standard error.

import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";

const { positionals: [platform], values: args } = parseArgs({
  allowPositionals: true,
  options: { built: { type: "string" }, "dry-run": { type: "boolean", default: false } },
});
const dry = args["dry-run"];

/** How long a new deployment may take until it answers. */
const REACHABLE_WITHIN_MS = 120_000;

const key = randomBytes(24).toString("hex");
const name = `tidegate-suite-${randomBytes(4).toString("hex")}`;
const root = path.resolve(import.meta.dirname, "../..");
// Everything that holds the key is in a folder that only this user can read.
const folder = mkdtempSync(path.join(tmpdir(), "tidegate-live-"));
chmodSync(folder, 0o700);
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));

/** What the commands have printed, by the names that the steps give it. */
const found = {};
const undo = [];
const emulators = [];

const { default: plan } = await import(`./${platform}.mjs`);
const { emulator, needs, steps, targets, url } = plan({ built: path.resolve(args.built ?? "."), folder, found, key, name, root });

try {
  const missing = needs.filter((variable) => !process.env[variable]);
  if (missing.length > 0 && !dry) throw new Error(`set ${missing.join(" and ")} for your account`);
  if (args.built === undefined) process.exit();
  for (const step of steps) await take(step);
  const base = dry ? await emulate(emulator) : await reachable(url ?? found.url);
  const urls = Object.fromEntries(Object.entries(targets).map(([target, route]) => [target, base + route]));
  console.log(JSON.stringify({ key, urls }));
  // The suite closes its end when it is done, or when it ends in any other way.
  for await (const _ of process.stdin);
} catch (error) {
  say(`failed: ${error.message}`);
  process.exitCode = 1;
}
for (const emulator of emulators) emulator.stdin.end();
await remove();

/** Takes one step: files to write, and a command. */
async function take({ files = () => ({}), run, dry: rehearsal, captures = {}, undo: opposite }) {
  for (const [file, text] of Object.entries(files())) {
    const written = path.join(folder, file);
    mkdirSync(path.dirname(written), { recursive: true });
    writeFileSync(written, text, { mode: 0o600 });
  }
  const [command, input] = argumentsOf(dry ? rehearsal : run);
  if (!command) {
    say(`would run: ${argumentsOf(run)[0].join(" ")}`);
    for (const capture of Object.keys(captures)) found[capture] = `<${capture}>`;
    return;
  }
  // What was created before a failure must be removed, too.
  if (opposite && !dry) undo.unshift(opposite);
  const printed = await execute(command, input);
  for (const [capture, pattern] of Object.entries(captures)) {
    found[capture] = pattern.exec(printed)?.[1];
    if (!found[capture] && !dry) throw new Error(`${command.join(" ")} printed no ${capture}`);
    found[capture] ??= `<${capture}>`;
  }
}

/** A command may be a function of what has been found, and may end with an object that has its standard input. */
function argumentsOf(run) {
  const words = typeof run === "function" ? run() : run;
  const input = words?.find((word) => typeof word === "object")?.input;
  return input === undefined ? [words] : [words.slice(0, -1), input];
}

function execute([program, ...words], input = "") {
  say(`${[program, ...words].join(" ")}`);
  return new Promise((resolve, reject) => {
    const child = spawn(program, words, { cwd: folder, stdio: ["pipe", "pipe", "pipe"], env: { ...process.env, CI: "true" } });
    let printed = "";
    const keep = (chunk) => (printed += chunk);
    child.stdout.on("data", keep);
    child.stderr.on("data", keep);
    child.stdin.on("error", () => undefined).end(input);
    child.on("error", (error) => reject(new Error(`${program}: ${error.message}`)));
    child.on("close", (code) => (code === 0 ? resolve(printed) : reject(new Error(`${program} ${words[0]} exited with ${code}\n${printed}`))));
  });
}

/** Serves the guest on the platform's local emulator, under the same key. Each program is given the address of the one before. */
async function emulate(programs) {
  let address;
  for (const emulator of programs) {
    const [program, ...words] = emulator(address);
    say(`dry run: ${[program, ...words].join(" ")}`);
    const child = spawn(program, words, { stdio: ["pipe", "pipe", "inherit"], env: { ...process.env, TIDEGATE_SUITE_KEY: key } });
    emulators.unshift(child);
    address = undefined;
    child.on("error", (error) => say(error.message));
    for await (const line of createInterface({ input: child.stdout })) {
      [address] = line.split(" ");
      break;
    }
    if (!address) throw new Error(`${program} did not start`);
  }
  return address;
}

async function reachable(base) {
  const until = Date.now() + REACHABLE_WITHIN_MS;
  const url = `${base}${Object.values(targets)[0]}/_tidegate/capabilities`;
  for (;;) {
    const response = await fetch(url, { method: "POST", headers: { "x-tidegate-suite-key": key } }).catch((error) => error);
    if (response.status === 200) return base;
    if (Date.now() > until) throw new Error(`${url} does not answer: ${response.status ?? response.message}`);
    await new Promise((resolve) => setTimeout(resolve, 1_000));
  }
}

async function remove() {
  const remains = [];
  for (const opposite of undo) {
    const [command, input] = argumentsOf(opposite);
    await execute(command, input).catch((error) => {
      say(error.message);
      remains.push(command.join(" "));
    });
  }
  if (remains.length > 0) {
    say(`not everything could be removed; run:\n${remains.map((command) => `  ${command}`).join("\n")}`);
    process.exitCode = 1;
  }
}

/** Without the key of the guest and the tokens of the account. */
function say(text) {
  const secrets = [key, ...needs.map((variable) => process.env[variable])].filter(Boolean);
  console.error(secrets.reduce((told, secret) => told.replaceAll(secret, "<secret>"), `live: ${text}`));
}
