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
      const timer = setTimeout(kill, 3_000, child.pid, "SIGKILL");
      await ended;
      clearTimeout(timer);
      // Others of the group may have outlived the first.
      kill(child.pid, "SIGKILL");
      groups.delete(child.pid);
    },
  };
}

/** Runs a command to its end, and throws if it fails. */
export async function run(command, options) {
  const child = start(command, options);
  const timer = setTimeout(() => child.stop(), 600_000);
  const code = await child.ended;
  clearTimeout(timer);
  await child.stop();
  if (code !== 0) throw new Error(`\`${command}\` ended with ${code}`);
}

/** Kills all groups. */
export function killAll() {
  for (const group of groups) kill(group, "SIGKILL");
}

/** The last lines of a log. */
export const tail = (log) => readFileSync(log, "utf8").trimEnd().split("\n").slice(-30).join("\n");

function kill(group, signal) {
  try {
    process.kill(-group, signal);
  } catch {
    // It has ended.
  }
}
