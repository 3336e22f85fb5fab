// The package as it is published: its files, and its declarations in the applications of `types/`.

import assert from "node:assert/strict";
import { execFile, execFileSync, spawnSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, describe, test } from "node:test";
import { publint } from "publint";

const root = path.join(import.meta.dirname, "..");
const modules = path.join(root, "node_modules");
const folder = mkdtempSync(path.join(tmpdir(), "tidegate-types-"));
after(() => rmSync(folder, { recursive: true, force: true }));

const installed = path.join(folder, "node_modules/@tidegate/edge");
execFileSync("npm", ["pack", "--silent", "--offline", "--pack-destination", folder], { cwd: root });
const tarball = path.join(folder, readdirSync(folder).find((name) => name.endsWith(".tgz")));
mkdirSync(installed, { recursive: true });
execFileSync("tar", ["--extract", "--file", tarball, "--strip-components", "1", "--directory", installed]);
for (const name of readdirSync(modules)) {
  if (!name.startsWith(".")) symlinkSync(path.join(modules, name), path.join(folder, "node_modules", name));
}
cpSync(path.join(root, "test/types"), folder, { recursive: true });
writeFileSync(path.join(folder, "package.json"), JSON.stringify({ type: "module" }));

/** Runs a program, and returns what it prints. It must succeed. */
const run = (...command) =>
  new Promise((resolve, reject) => {
    execFile(process.execPath, command, { cwd: folder }, (error, out, err) => (error ? reject(new Error(`${command.join(" ")}\n${out}${err}`)) : resolve(out)));
  });

// A package of CommonJS, whose `.ts` files are what `.cts` files are elsewhere.
mkdirSync(path.join(folder, "commonjs"));
writeFileSync(path.join(folder, "commonjs/package.json"), JSON.stringify({ type: "commonjs" }));
cpSync(path.join(folder, "commonjs.cts"), path.join(folder, "commonjs/index.ts"));

const TYPESCRIPTS = ["typescript", "typescript-6", "typescript-7"];
const APPLICATIONS = {
  node: { files: ["application.ts", "commonjs.cts", "node.ts"], types: ["node"] },
  workers: { files: ["application.ts", "application.js", "workers.ts"], types: ["@cloudflare/workers-types"], allowJs: true, checkJs: true },
  browsers: { files: ["application.ts"], lib: ["ES2020", "DOM"] },
};
/** Type-checks projects in one process, which is much faster than one process for each. */
async function check(typescript, projects) {
  const strict = { strict: true, exactOptionalPropertyTypes: true, skipLibCheck: false, noEmit: true };
  const configs = Object.entries(projects).map(([name, { files, ...options }]) => {
    const config = `${name}.${typescript}.json`;
    const compilerOptions = { ...strict, target: "ES2020", lib: ["ES2020"], types: [], ...options };
    writeFileSync(path.join(folder, config), JSON.stringify({ compilerOptions, files }));
    return config;
  });
  await run(path.join(modules, typescript, "bin/tsc"), "--build", "--verbose", "--pretty", "false", ...configs);
}

describe("applications are type-checked", { concurrency: 2 }, () => {
  // These stand for the resolutions `nodenext` and `bundler`.
  const kinds = ["nodenext", "preserve"].flatMap((module) => Object.entries(APPLICATIONS).map(([name, options]) => [`${name}.${module}`, { ...options, module }]));
  for (const typescript of TYPESCRIPTS) test(typescript, () => check(typescript, Object.fromEntries(kinds)));
});

describe("applications in CommonJS are type-checked", { concurrency: 2 }, () => {
  const options = { files: ["commonjs.cts", "commonjs/index.ts"], types: ["node"], target: "ES2022", lib: ["ES2022"] };
  // In `node16` and `node18`, only what is declared as CommonJS can be required.
  const kinds = ["node16", "node18", "node20", "nodenext"].map((module) => [`commonjs.${module}`, { ...options, module }]);
  // The resolution before `exports`, which TypeScript 7 no longer has.
  const classic = { ...options, module: "commonjs", moduleResolution: "node10", ignoreDeprecations: "6.0" };
  const classics = { typescript: { ...classic, ignoreDeprecations: "5.0" }, "typescript-6": classic };
  for (const typescript of TYPESCRIPTS) {
    const all = classics[typescript] ? [...kinds, ["commonjs.node10", classics[typescript]]] : kinds;
    test(typescript, () => check(typescript, Object.fromEntries(all)));
  }
});

/** The snippets of a page, each as a module. */
function snippets(page) {
  const found = readFileSync(path.join(root, page), "utf8").matchAll(/^```(js|ts)\n(.*?)^```$/gms);
  return Array.from(found, ([, language, snippet], nth) => {
    const name = `${page.replace(/\W+/g, "-")}-${nth}.${language}`;
    const imports = snippet.match(/^import .*$/gm) ?? [];
    const body = snippet.replace(/^import .*$/gm, "");
    const whole = /^export /m.test(body) ? body : `export async function snippet() {\n${body}}\n`;
    writeFileSync(path.join(folder, name), `${imports.join("\n")}\n${whole}`);
    return name;
  });
}

test("the snippets of the READMEs and of docs/ are type-checked", async () => {
  const files = ["README.md", "docs/testing.md", "docs/own-store.md", "../../README.md"].flatMap(snippets);
  assert.ok(files.length > 1);
  // A snippet in JavaScript does not say the types of its parameters.
  const options = { types: ["node"], allowJs: true, checkJs: true, noImplicitAny: false, module: "nodenext" };
  await check(TYPESCRIPTS.at(-1), { snippets: { files: ["snippets.d.ts", "bindings.d.ts", ...files], ...options } });
});

test("the code that `tidegate choose` prints is type-checked", async () => {
  const printed = path.join(root, "../../conformance/snippets/javascript");
  const files = readdirSync(printed);
  assert.ok(files.length > 10);
  cpSync(printed, folder, { recursive: true });
  const options = { types: ["node"], allowJs: true, checkJs: true, module: "nodenext" };
  await check(TYPESCRIPTS.at(-1), { choose: { files: ["bindings.d.ts", ...files], ...options } });
});

test("the tarball has what is needed, and once the repository's address is set, links that work without it", () => {
  const files = readdirSync(installed, { recursive: true });
  assert.deepEqual(readdirSync(installed), ["CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT", "README.md", "dist", "package.json", "rules.schema.json"]);
  assert.deepEqual(files.filter((name) => /\.(rs|ts|map)$/.test(name) && !name.endsWith(".d.ts")), []);
  // A package that has the files of which packing needs something, and an address.
  const copy = path.join(folder, "checkout/adapters/npm");
  cpSync(installed, copy, { recursive: true });
  cpSync(path.join(root, "tarball.mjs"), path.join(copy, "tarball.mjs"));
  const manifest = path.join(copy, "package.json");
  const homepage = "https://git.example/acme/limits/tree/main/adapters/npm#readme";
  writeFileSync(manifest, JSON.stringify({ ...JSON.parse(readFileSync(manifest, "utf8")), homepage }));
  execFileSync(process.execPath, [path.join(copy, "tarball.mjs")]);
  const packed = path.join(folder, "checkout/target/npm/tidegate-edge.tgz");
  const readme = execFileSync("tar", ["--extract", "--to-stdout", "--file", packed, "package/README.md"], { encoding: "utf8" });
  const links = [...readme.matchAll(/\]\(([^)\s]*)\)/g)].map(([, link]) => link);
  assert.deepEqual(links.filter((link) => !/^(https:\/\/|#)/.test(link)), []);
  assert.ok(links.includes("https://git.example/acme/limits/blob/main/adapters/npm/examples/next-proxy"));
  assert.ok(links.includes("https://git.example/acme/limits/blob/main/core/docs/changes.md"));
});

test("npm pack needs nothing but the package: a tarball of what is installed is the same", () => {
  const again = path.join(folder, "again");
  mkdirSync(again);
  execFileSync("npm", ["pack", "--silent", "--offline", "--pack-destination", again], { cwd: installed });
  assert.ok(readFileSync(path.join(again, path.basename(tarball))).equals(readFileSync(tarball)));
  // Without what a build makes, there is nothing to pack.
  const unbuilt = path.join(folder, "unbuilt");
  cpSync(installed, unbuilt, { recursive: true, filter: (from) => path.basename(from) !== "dist" });
  const { status, stderr } = spawnSync("npm", ["pack", "--offline"], { cwd: unbuilt, encoding: "utf8" });
  assert.notEqual(status, 0);
  assert.match(stderr, /dist is missing; run \.\/build\.sh in a checkout first/);
});

test("the tarball works where nothing else is, and has the schema of rules files", () => {
  const elsewhere = path.join(folder, "elsewhere");
  mkdirSync(path.join(elsewhere, "node_modules/@tidegate"), { recursive: true });
  cpSync(installed, path.join(elsewhere, "node_modules/@tidegate/edge"), { recursive: true });
  const schema = "./node_modules/@tidegate/edge/rules.schema.json";
  writeFileSync(path.join(elsewhere, "rules.toml"), `"$schema" = "${schema}"\n[limits.api]\nquotas = [{ algorithm = "fixed_window", limit = 1, window_ms = 60000 }]\n[[rules]]\nlimits = ["api"]\n`);
  const app = `
    import { readFileSync } from "node:fs";
    import { createRequire } from "node:module";
    import { Gate as JsonGate } from "@tidegate/edge/gate";
    import { Gate } from "@tidegate/edge/gate/toml";
    import { Tidegate } from "@tidegate/edge/memory";
    const options = { platform: "direct", stores: { default: (limit) => new Tidegate(limit) } };
    const gate = Gate.fromRules(readFileSync("rules.toml", "utf8"), options);
    const passes = async () => (await gate.check(new Request("http://localhost/"), { peer: "192.0.2.1" })).allowed;
    const schema = createRequire(import.meta.url)("@tidegate/edge/rules.schema.json");
    const warnings = JsonGate.fromRules({ $schema: "${schema}", rules: [] }, options).warnings;
    console.log(JSON.stringify([await passes(), await passes(), gate.warnings, warnings, import.meta.resolve("@tidegate/edge/rules.schema.json"), schema]));`;
  writeFileSync(path.join(elsewhere, "app.mjs"), app);
  const [first, second, warnings, ofObject, resolved, found] = JSON.parse(execFileSync(process.execPath, ["app.mjs"], { cwd: elsewhere, encoding: "utf8" }));
  assert.deepEqual([first, second, warnings, ofObject], [true, false, [], []]);
  assert.ok(resolved.endsWith(schema.slice(1)), resolved);
  assert.deepEqual(found, JSON.parse(readFileSync(path.join(root, "../../core/rules.schema.json"), "utf8")));
});

test("every entry can be imported and required", { skip: !process.features.require_module }, async () => {
  const { exports } = JSON.parse(readFileSync(path.join(installed, "package.json"), "utf8"));
  // Those for Cloudflare import a module of its runtime.
  const names = Object.keys(exports).filter((entry) => !/\.json$|cloudflare/.test(entry)).map((entry) => `@tidegate/edge${entry.slice(1)}`);
  const same = `for (const name of ${JSON.stringify(names)}) if (require(name) !== (await import(name))) throw name`;
  await run("--input-type=commonjs", "--eval", `(async () => { ${same} })()`);
});

test("publint finds nothing", async () => {
  const { messages } = await publint({ pack: { tarball: Uint8Array.from(readFileSync(tarball)).buffer }, strict: true });
  assert.deepEqual(messages, []);
});

test("attw finds nothing", () => run(path.join(modules, "@arethetypeswrong/cli/dist/index.js"), tarball));
