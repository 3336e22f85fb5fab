// Sets the address of the repository, from which crates.io, npm and the packed README take it: `cargo make repository URL`.
// Cargo.toml has it once, for all published crates. Another address replaces the one before.

import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";

const root = path.join(import.meta.dirname, "../..");
const [url, ...more] = process.argv.slice(2);
if (!/^https:\/\/[a-z0-9.-]+(\/[A-Za-z0-9_.-]+){2,}$/.test(url ?? "") || url.endsWith(".git") || more.length > 0) {
  console.error(`repository: ${url === undefined ? "no address" : JSON.stringify([url, ...more].join(" "))}; write the page of the repository, without .git or a slash at its end: cargo make repository https://HOST/OWNER/NAME`);
  process.exit(2);
}

/** Changes a file of the repository, if there is something to change. */
function change(file, changed) {
  const before = readFileSync(path.join(root, file), "utf8");
  const after = changed(before);
  if (after === before) return;
  writeFileSync(path.join(root, file), after);
  console.log(file);
}

change("Cargo.toml", (text) => text.replace(/^repository = .*\n/m, "").replace(/^(license = .*\n)/m, `$1repository = "${url}"\n`));
const manifests = execFileSync("git", ["ls-files", "*Cargo.toml"], { cwd: root, encoding: "utf8" }).trim().split("\n");
for (const file of manifests) {
  // What is not published needs no address.
  const published = (text) => !/^publish = false$/m.test(text) && !/^repository\.workspace/m.test(text);
  change(file, (text) => (published(text) ? text.replace(/^license\.workspace = true\n/m, "$&repository.workspace = true\n") : text));
}
change("adapters/npm/package.json", (text) => {
  const { name, version, description, keywords, homepage, bugs, repository, ...rest } = JSON.parse(text);
  const own = { homepage: `${url}/tree/main/adapters/npm#readme`, bugs: `${url}/issues`, repository: { type: "git", url: `git+${url}.git`, directory: "adapters/npm" } };
  return `${JSON.stringify({ name, version, description, keywords, ...own, ...rest }, null, 2)}\n`;
});
