// A redis-server behind Upstash's REST protocol, for tests and benchmarks.

import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { Redis } from "ioredis";

const root = path.join(path.dirname(fileURLToPath(import.meta.url)), "../../..");
const token = "secret-of-the-tests";

/** Starts a redis-server. */
export async function redisServer() {
  const folder = mkdtempSync(path.join(tmpdir(), "tidegate-npm-"));
  const port = await freePort();
  const start = () => {
    const server = spawn("redis-server", ["--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", folder], { stdio: "ignore" });
    return server.on("error", (error) => console.error(`redis-server does not start (${error.message}); is it installed?`));
  };
  let server = start();
  const client = new Redis(port, "127.0.0.1", { retryStrategy: () => 20, maxRetriesPerRequest: null });
  client.on("error", () => undefined);
  const command = (...words) => client.call(...words);
  await command("PING");
  return {
    url: `redis://127.0.0.1:${port}`,
    command,
    /** Halts the server: it accepts connections and answers nothing. */
    halt: () => server.kill("SIGSTOP"),
    resume: () => server.kill("SIGCONT"),
    /** Ends the server at once, with its data. */
    async kill() {
      server.kill("SIGKILL");
      await (server.exitCode ?? server.signalCode ?? once(server, "exit"));
    },
    /** Starts it again at the same port. */
    async restart() {
      server = start();
      await command("PING");
    },
    async stop() {
      client.disconnect();
      server.kill();
      await (server.exitCode ?? server.signalCode ?? once(server, "exit"));
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** Starts a redis-server and a REST endpoint for it. `profile` is a profile of cargo. */
export async function upstash({ profile = "dev" } = {}) {
  execFileSync("cargo", ["build", "--quiet", "--package", "tidegate-host-upstash-rest", "--profile", profile], { cwd: root, stdio: "inherit" });
  const { url: redis, command, stop } = await redisServer();
  const program = path.join(root, "target", profile === "dev" ? "debug" : profile, "tidegate-host-upstash-rest");
  const front = spawn(program, ["--redis", redis, "--token", token, "--test-mode"], { stdio: ["pipe", "pipe", "inherit"] });
  const all = async () => {
    const stats = (await command("INFO", "commandstats")).matchAll(/^cmdstat_([^:]+):calls=(\d+)/gm);
    return new Map([...stats].map(([, name, calls]) => [name, Number(calls)]));
  };
  const lines = createInterface({ input: front.stdout })[Symbol.asyncIterator]();
  return {
    url: (await lines.next()).value,
    token,
    /** The URL of the redis-server behind the endpoint. */
    redis,
    command,
    /** How many commands the server has run so far, also in scripts. Upstash bills them. */
    async billed() {
      const calls = await all();
      return [...calls].filter(([name]) => !/^(info|ping|client|hello|script|command)/.test(name)).reduce((sum, [, calls]) => sum + calls, 0);
    },
    /** How often it has run this command. */
    calls: async (name) => (await all()).get(name) ?? 0,
    async stop() {
      front.stdin.end();
      await Promise.all([stop(), front.exitCode ?? once(front, "exit")]);
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
