// The platforms' own tools, which get the account's token: each in the version of package.json.

import { readFileSync } from "node:fs";
import path from "node:path";

/** The versions, by the names of the packages. */
export const { dependencies: versions } = JSON.parse(readFileSync(path.join(import.meta.dirname, "package.json"), "utf8"));

/** A function that makes the command line of a program from its arguments. */
export function tool(pkg, program) {
  return (...words) => ["npx", "--yes", "--package", `${pkg}@${versions[pkg]}`, "--", program, ...words];
}
