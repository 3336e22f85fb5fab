// A redis-server behind Upstash's REST protocol, for tests and benchmarks.

import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const root = path.join(path.dirname(fileURLToPath(import.meta.url)), "../../..");
const token = "secret-of-the-tests";

/** Starts both. `profile` is a profile of cargo. */
export async function upstash({ profile = "dev" } = {}) {
  execFileSync("cargo", ["build", "--quiet", "--package", "tidegate-host-upstash-rest", "--profile", profile], { cwd: root, stdio: "inherit" });
  const folder = mkdtempSync(path.join(tmpdir(), "tidegate-npm-"));
  const port = await freePort();
  const redis = spawn("redis-server", ["--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", folder], { stdio: "ignore" });
  const program = path.join(root, "target", profile === "dev" ? "debug" : profile, "tidegate-host-upstash-rest");
  const front = spawn(program, ["--redis", `redis://127.0.0.1:${port}`, "--token", token, "--test-mode"], { stdio: ["pipe", "pipe", "inherit"] });
  const lines = createInterface({ input: front.stdout })[Symbol.asyncIterator]();
  const url = (await lines.next()).value;

  const command = async (...words) => {
    const response = await fetch(url, { method: "POST", headers: { authorization: `Bearer ${token}` }, body: JSON.stringify(words) });
    return (await response.json()).result;
  };
  for (let tries = 0; (await command("PING").catch(() => undefined)) !== "PONG"; tries++) {
    if (tries > 200) throw new Error("redis-server does not answer; is it installed?");
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return {
    url,
    token,
    command,
    /** How many commands the server has run so far, also in scripts. Upstash bills them. */
    async billed() {
      const stats = [...(await command("INFO", "commandstats")).matchAll(/^cmdstat_([^:]+):calls=(\d+)/gm)];
      return stats.filter(([, name]) => !/^(info|ping|client|hello|script|command)/.test(name)).reduce((sum, [, , calls]) => sum + Number(calls), 0);
    },
    async stop() {
      front.stdin.end();
      redis.kill();
      await Promise.all([front, redis].map((child) => child.exitCode ?? once(child, "exit")));
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

export async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  return String(port);
}
