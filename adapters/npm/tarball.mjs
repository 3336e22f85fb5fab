// Packs the package as it is published, into target/npm/tidegate-edge.tgz. build.sh builds it first. With the repository's address in package.json
// (`cargo make repository URL`), relative links of the README lead there: npm shows it where the repository's other files are not.

import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";

const package_ = import.meta.dirname;
const target = path.join(package_, "../../target/npm");
mkdirSync(target, { recursive: true });
const folder = mkdtempSync(path.join(target, "pack-"));
try {
  const pack = (cwd) => {
    execFileSync("npm", ["pack", "--silent", "--offline", "--pack-destination", folder], { cwd });
    return path.join(folder, readdirSync(folder).find((name) => name.endsWith(".tgz")));
  };
  execFileSync("tar", ["--extract", "--file", pack(package_), "--directory", folder]);
  const unpacked = path.join(folder, "package");
  const { homepage } = JSON.parse(readFileSync(path.join(unpacked, "package.json"), "utf8"));
  if (homepage !== undefined) {
    const readme = path.join(unpacked, "README.md");
    const base = homepage.replace("/tree/", "/blob/").replace("#readme", "/README.md");
    const whole = (link) => (/^(https?:|mailto:|#)/.test(link) ? link : new URL(link, base).href);
    const text = readFileSync(readme, "utf8");
    writeFileSync(readme, text.replace(/\]\(([^)\s]+)\)/g, (_, link) => `](${whole(link)})`));
  }
  renameSync(pack(unpacked), path.join(target, "tidegate-edge.tgz"));
} finally {
  rmSync(folder, { recursive: true, force: true });
}
