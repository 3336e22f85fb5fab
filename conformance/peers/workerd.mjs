// Runs naive.mjs on workerd, in three isolates:
//
//   node workerd.mjs --store kv|objects
//
// Each isolate is a location. When they answer, it prints their addresses on one line. It ends when standard input closes.
// It uses the workerd of ../hosts/cloudflare.

import { createRequire } from "node:module";
import path from "node:path";
import { parseArgs } from "node:util";
import { kvNamespace } from "../hosts/cloudflare/kv-binding.mjs";

const { values: args } = parseArgs({
  options: { store: { type: "string" }, "test-mode": { type: "boolean", default: false } },
});
const here = import.meta.dirname;
const host = path.join(here, "../hosts/cloudflare");
const { Log, LogLevel, Miniflare } = createRequire(path.join(host, "package.json"))("miniflare");

// Standard output is for the addresses only.
class StderrLog extends Log {
  log(message) {
    console.error(message);
  }
}

const compatibilityDate = "2026-04-01";
const names = ["isolate-0", "isolate-1", "isolate-2"];
const worker = (name) => ({
  name,
  modules: [{ type: "ESModule", path: path.join(here, "naive.mjs") }],
  modulesRoot: here,
  compatibilityDate,
  bindings: { STORE: args.store },
  durableObjects: { COUNTER: { className: "Counter", scriptName: name === names[0] ? undefined : names[0], useSQLite: true } },
  unsafeBindings: [kvNamespace("KV", name)],
  unsafeDirectSockets: [{ host: "127.0.0.1", port: 0 }],
});
const miniflare = new Miniflare({
  host: "127.0.0.1",
  port: 0,
  cf: false,
  log: new StderrLog(LogLevel.WARN),
  workers: [
    ...names.map(worker),
    { name: "kv", modules: [{ type: "ESModule", path: path.join(host, "kv.mjs") }], modulesRoot: host, compatibilityDate },
  ],
});
await miniflare.ready;
const addresses = await Promise.all(names.map((name) => miniflare.unsafeGetDirectURL(name)));
console.log(addresses.map((address) => address.origin).join(" "));
process.stdin.resume();
process.stdin.on("end", async () => {
  await miniflare.dispose();
  process.exit(0);
});
