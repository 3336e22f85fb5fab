// A PostgreSQL server of Debian's on a free port, for tests and benchmarks.

import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { chownSync, existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import pg from "pg";
import { freePort } from "./servers.mjs";

const DEBIAN = "/usr/lib/postgresql";

/** A program of PostgreSQL: Debian has them in a folder for each version, and not on the PATH. */
function program(name) {
  const versions = existsSync(DEBIAN) ? readdirSync(DEBIAN).sort((one, other) => other - one) : [];
  return versions.map((version) => path.join(DEBIAN, version, "bin", name)).find(existsSync) ?? name;
}

/** The server refuses to run as root. */
function user() {
  if (process.getuid() !== 0) return {};
  const id = (flag) => Number(execFileSync("id", [flag, "nobody"], { encoding: "utf8" }));
  return { uid: id("-u"), gid: id("-g") };
}

/** Starts a server. `settings` are those of `postgresql.conf`. */
export async function postgresServer(settings = {}) {
  const [folder, port, as] = [mkdtempSync(path.join(tmpdir(), "tidegate-postgres-")), await freePort(), user()];
  if (as.uid !== undefined) chownSync(folder, as.uid, as.gid);
  const data = path.join(folder, "data");
  execFileSync(program("initdb"), ["--pgdata", data, "--username", "tests", "--auth", "trust", "--no-sync", "--encoding", "UTF8"], { ...as, cwd: folder, stdio: ["ignore", "ignore", "inherit"] });
  const chosen = Object.entries({ max_connections: 100, ...settings }).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
  const start = () => spawn(program("postgres"), ["-D", data, "-p", port, "-c", "listen_addresses=127.0.0.1", "-c", `unix_socket_directories=${folder}`, ...chosen], { ...as, cwd: folder, stdio: "ignore" });
  const url = `postgres://tests@127.0.0.1:${port}/postgres`;
  let server = start();
  const ended = async () => server.exitCode ?? server.signalCode ?? (await once(server, "exit"));
  const answers = async () => {
    for (const until = Date.now() + 30_000; ; ) {
      const client = new pg.Client(url);
      client.on("error", () => undefined);
      try {
        await client.connect();
        return await client.end();
      } catch (thrown) {
        if (Date.now() > until || server.exitCode !== null) throw thrown;
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    }
  };
  await answers();
  return {
    url,
    /** Ends the server at once, as a crash does. */
    async kill() {
      server.kill("SIGQUIT");
      await ended();
    },
    /** Starts it again at the same port. */
    async restart() {
      server = start();
      await answers();
    },
    async stop() {
      server.kill("SIGINT");
      await ended();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
