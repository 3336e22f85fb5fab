// Commands in process groups of their own, so that nothing they start outlives them.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync, readFileSync } from "node:fs";

const groups = new Set();

/** Starts a command. Its output goes to the end of the log. */
export function start(command, { cwd, env, log }) {
  const output = openSync(log, "a");
  const child = spawn(command, { cwd, env, shell: true, detached: true, stdio: ["ignore", output, output] });
  closeSync(output);
  groups.add(child.pid);
  const ended = once(child, "exit").then(([code, signal]) => code ?? signal);
  return {
    ended,
    get running() {
      return child.exitCode === null && child.signalCode === null;
    },
    async stop() {
      kill(child.pid, "SIGTERM");
      const timer = setTimeout(() => kill(child.pid, "SIGKILL"), 3_000);
      await ended;
      clearTimeout(timer);
      // A process of the group may have ignored the first signal and outlived its parent.
      kill(child.pid, "SIGKILL");
      groups.delete(child.pid);
    },
  };
}

/** Runs a command to its end, and throws if it fails. */
export async function run(command, { minutes = 10, ...options }) {
  const process = start(command, options);
  const timer = setTimeout(() => process.stop(), minutes * 60_000);
  const code = await process.ended;
  clearTimeout(timer);
  await process.stop();
  if (code !== 0) throw new Error(`\`${command}\` ended with ${code}`);
}

/** The last lines of a log. */
export const tail = (log, lines = 30) => readFileSync(log, "utf8").trimEnd().split("\n").slice(-lines).join("\n");

function kill(group, signal) {
  try {
    process.kill(-group, signal);
  } catch {
    // It has ended.
  }
}

for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => process.exit(1));
process.on("exit", () => groups.forEach((group) => kill(group, "SIGKILL")));
