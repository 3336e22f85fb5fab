// Makes of what works from a checkout what works with the published packages, in all pages and in what `tidegate choose` prints:
// `cargo make released`, once, with the first release.

import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";

const root = path.join(import.meta.dirname, "../..");
const pages = execFileSync("git", ["ls-files", "*.md", "conformance/cli/src/commands/choose"], { cwd: root, encoding: "utf8" }).trim().split("\n");
for (const page of pages) {
  const before = readFileSync(path.join(root, page), "utf8");
  const after = before
    .replace(/<!-- before the release -->[^]*?<!-- \/before the release -->\n{0,2}/g, "")
    .replace(/ --path "\$TIDEGATE\/[^"]*"/g, "")
    .replaceAll('"$TIDEGATE/target/npm/tidegate-edge.tgz"', "@tidegate/edge");
  if (after === before) continue;
  writeFileSync(path.join(root, page), after);
  console.log(page);
}
