// What the stand-ins for the command lines of platforms have in common: they build as a manifest says, and run one of the suite's hosts,
// which listens on a free port, behind the port that they were told.
import { spawn, spawnSync } from "node:child_process";
import { existsSync, readFileSync, symlinkSync } from "node:fs";
import { connect, createServer } from "node:net";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

/** Ends the program with a message. */
export function fail(message) {
  console.error(message);
  process.exit(2);
}

/** The text of a manifest in the current folder. */
export function manifest(name) {
  if (!existsSync(name)) fail(`${name} does not exist in ${process.cwd()}`);
  return readFileSync(name, "utf8");
}

/** The text of a key in a table, if the manifest has it on one line. */
export function value(text, table, key) {
  const lines = text.split("\n");
  const start = lines.findIndex((line) => table.test(line));
  const length = lines.slice(start + 1).findIndex((line) => line.startsWith("["));
  const found = lines.slice(start + 1, length < 0 ? undefined : start + 1 + length).find((line) => line.startsWith(`${key} = `));
  if (start < 0 || found === undefined) return undefined;
  const quoted = /^"((?:[^"\\]|\\.)*)"$/.exec(found.slice(`${key} = `.length).trim());
  return quoted === null ? fail(`this stand-in reads only one line in double quotes: ${found}`) : JSON.parse(`"${quoted[1]}"`);
}

/** Runs the command that builds the app. The pages share a folder of what is compiled, and a manifest names `target`. */
export function build(command) {
  const shared = process.env.CARGO_TARGET_DIR;
  if (shared !== undefined && !existsSync("target")) symlinkSync(shared, "target");
  const { status } = spawnSync("sh", ["-c", command], { stdio: ["ignore", "inherit", "inherit"] });
  if (status !== 0) fail(`the build failed: ${command}`);
}

/** Runs a host, and passes each connection to `listen` on to it. */
export function serve(host, args, listen) {
  const program = fileURLToPath(new URL(`../../../target/hosts/release/${host}`, import.meta.url));
  if (!existsSync(program)) fail(`${program} does not exist; conformance/setup.sh builds it`);
  const address = /^127\.0\.0\.1:(\d+)$/.exec(listen) ?? fail(`this stand-in listens on 127.0.0.1:PORT only, not on ${listen}`);
  const running = spawn(program, args, { stdio: ["pipe", "pipe", "inherit"] });
  running.on("exit", (code) => process.exit(code ?? 1));
  createInterface(running.stdout).once("line", (line) => {
    const { port } = new URL(line);
    const relay = createServer((client) => {
      const app = connect(Number(port), "127.0.0.1");
      client.on("error", () => app.destroy()).pipe(app);
      app.on("error", () => client.destroy()).pipe(client);
    });
    relay.listen(Number(address[1]), "127.0.0.1", () => console.error(`Serving http://${listen}`));
  });
}
