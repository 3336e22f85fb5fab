// The start pages on Node.js are followed as they are printed, with the package as it is packed. `cargo make pages` follows the others.

import { execFile, execFileSync } from "node:child_process";
import path from "node:path";
import { before, test } from "node:test";
import { promisify } from "node:util";

const root = path.join(import.meta.dirname, "../../..");

/** As in a shell of its own: npm's options are those of this package, and `node --test` skips files if another one runs it. */
const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^(npm_|NODE_TEST_CONTEXT$)/.test(name)));

before(() => {
  execFileSync(process.execPath, [path.join(import.meta.dirname, "../tarball.mjs")]);
  // With the options of `cargo test --workspace`, which has compiled it.
  execFileSync("cargo", ["build", "--quiet", "--workspace", "--all-features", "--test", "setup", "--bin", "tidegate-dev"], { cwd: root, stdio: "inherit" });
});

for (const page of ["express", "fastify", "hono"]) {
  test(`the page of ${page} works`, async () => {
    const followed = promisify(execFile)(path.join(root, "target/debug/tidegate-dev"), ["pages", page], { cwd: root, env });
    // It says which command of the page failed, or printed something else.
    await followed.catch(({ stdout, stderr }) => {
      throw new Error(`${stderr}\n${stdout}`);
    });
  });
}
