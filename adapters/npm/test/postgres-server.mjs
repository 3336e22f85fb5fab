// A PostgreSQL server of Debian's on a free port, for tests and benchmarks.

import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, chownSync, copyFileSync, existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
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

/** Starts a server. `settings` are those of `postgresql.conf`. A folder with `host.crt` and `host.key` is for TLS. */
export async function postgresServer(settings = {}, certificates = undefined) {
  const [folder, port, as] = [mkdtempSync(path.join(tmpdir(), "tidegate-postgres-")), await freePort(), user()];
  if (as.uid !== undefined) chownSync(folder, as.uid, as.gid);
  const data = path.join(folder, "data");
  execFileSync(program("initdb"), ["--pgdata", data, "--username", "tests", "--auth", "trust", "--no-sync", "--encoding", "UTF8"], { ...as, cwd: folder, stdio: ["ignore", "ignore", "inherit"] });
  const tls = {};
  if (certificates !== undefined) {
    for (const [name, file] of [["ssl_cert_file", "host.crt"], ["ssl_key_file", "host.key"]]) {
      tls[name] = path.join(folder, file);
      copyFileSync(path.join(certificates, file), tls[name]);
      chmodSync(tls[name], 0o600);
      if (as.uid !== undefined) chownSync(tls[name], as.uid, as.gid);
    }
    tls.ssl = "on";
  }
  const chosen = Object.entries({ max_connections: 100, ...tls, ...settings }).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
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

/** Starts a PgBouncer in front of a server, which gives each transaction another session. `settings` are lines of its configuration. */
export async function pgbouncer({ url }, settings = {}) {
  const [folder, port, as, { hostname, port: to }] = [mkdtempSync(path.join(tmpdir(), "tidegate-pgbouncer-")), await freePort(), user(), new URL(url)];
  const chosen = { listen_addr: "127.0.0.1", listen_port: port, unix_socket_dir: "", auth_type: "any", pool_mode: "transaction", default_pool_size: 5, max_client_conn: 200, ...settings };
  const lines = Object.entries(chosen).map(([name, value]) => `${name} = ${value}`);
  writeFileSync(path.join(folder, "config"), [`[databases]`, `postgres = host=${hostname} port=${to} user=tests`, `[pgbouncer]`, ...lines, ""].join("\n"));
  if (as.uid !== undefined) chownSync(folder, as.uid, as.gid);
  // Debian has it where only root's path leads.
  const program = existsSync("/usr/sbin/pgbouncer") ? "/usr/sbin/pgbouncer" : "pgbouncer";
  const pooler = spawn(program, ["--quiet", "config"], { ...as, cwd: folder, stdio: "ignore" });
  let missing;
  pooler.on("error", (error) => (missing = new Error(`this test needs PgBouncer (${error.message}): apt-get install pgbouncer`)));
  const answers = () => new Promise((resolve) => connect(port, "127.0.0.1", () => resolve(true)).on("error", () => resolve(false)).unref());
  for (const until = Date.now() + 30_000; !(await answers()); ) {
    if (missing || pooler.exitCode !== null || Date.now() > until) throw missing ?? new Error("PgBouncer did not come up");
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  return {
    url: `postgres://tests@127.0.0.1:${port}/postgres`,
    async stop() {
      pooler.kill("SIGKILL");
      await (pooler.exitCode ?? pooler.signalCode ?? once(pooler, "exit"));
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
