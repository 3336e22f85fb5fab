// What `cargo make frameworks` rests on: locked versions, a stand-in for the package, and whose failure it is with the newest versions.

import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { describe, test } from "node:test";
import { APPS } from "../frameworks/apps.mjs";
import { blame, exitCode } from "../frameworks/blame.mjs";
import { differences, installedIn, newestOf } from "../frameworks/versions.mjs";

const root = path.join(import.meta.dirname, "..");
const examples = path.join(root, "examples");
const manifestOf = (app) => JSON.parse(readFileSync(path.join(examples, app, "package.json"), "utf8"));

test("each example is an app, with exact versions", () => {
  const folders = readdirSync(examples);
  assert.deepEqual([...new Set(Object.entries(APPS).map(([name, { from = name }]) => from))].sort(), folders.sort());
  for (const app of folders) {
    const { dependencies = {}, devDependencies = {} } = manifestOf(app);
    for (const [name, version] of Object.entries({ ...dependencies, ...devDependencies })) assert.match(version, /^\d+\.\d+\.\d+$/, `${app}: ${name}`);
  }
});

test("the newest versions are those of the same majors", () => {
  const manifest = { name: "app", dependencies: { nuxt: "4.5.2" }, devDependencies: { vite: "8.3.8" } };
  assert.deepEqual(newestOf(manifest), { name: "app", dependencies: { nuxt: "^4.5.2" }, devDependencies: { vite: "^8.3.8" } });
  assert.deepEqual(newestOf({ name: "app", dependencies: { ws: "8.23.0" } }), { name: "app", dependencies: { ws: "^8.23.0" } });
});

describe("whose failure it is", () => {
  /** The app without the package fails at these steps. `undefined` is none. */
  const blamed = async (newest, locked) => {
    const tried = [];
    const { result, why } = await blame("builds", async (versions) => {
      tried.push(versions.newest ? "newest" : "locked");
      return versions.newest ? newest : locked;
    });
    return { result, why, tried };
  };

  test("what fails without the package too, and not with the locked versions, is another package's", async () => {
    const { result, tried } = await blamed("builds", undefined);
    assert.deepEqual([result, tried], ["unavailable", ["newest", "locked"]]);
  });

  test("what works without the package is ours", async () => {
    const { result, why, tried } = await blamed(undefined, undefined);
    assert.deepEqual([result, tried], ["FAILED", ["newest"]]);
    assert.match(why, /it works/);
  });

  test("what fails elsewhere without the package shows nothing", async () => {
    const { result, why } = await blamed("installs", undefined);
    assert.equal(result, "FAILED");
    assert.match(why, /elsewhere \(installs\)/);
  });

  test("what fails with the locked versions too, as without a network, is the app's or the machine's", async () => {
    const { result, why } = await blamed("builds", "installs");
    assert.equal(result, "FAILED");
    assert.match(why, /locked versions, too \(installs\)/);
  });

  test("unavailable apps are no failure, unless no other passes", () => {
    for (const [results, code] of [
      [["passed", "unavailable"], 0],
      [["passed"], 0],
      [["passed", "FAILED", "unavailable"], 1],
      [["unavailable", "unavailable"], 1],
    ]) assert.equal(exitCode(results), code, results.join());
  });
});

describe("which version last worked", () => {
  const manifest = { dependencies: { nuxt: "4.5.2" }, devDependencies: { vite: "8.3.8" } };

  test("is told of the app's own dependencies, or else of what they need", () => {
    const worked = { nuxt: "4.5.2", vite: "8.3.8", rolldown: "1.2.0", "nuxt/node_modules/vite": "8.3.8", gone: "1.0.0" };
    assert.equal(differences(worked, { ...worked, vite: "8.4.0", rolldown: "1.3.0", gone: undefined }, manifest), "vite 8.3.8 (now 8.4.0)");
    assert.equal(differences(worked, { ...worked, rolldown: "1.3.0" }, manifest), "rolldown 1.2.0 (now 1.3.0)");
    assert.equal(differences(worked, {}, manifest), "nuxt 4.5.2, vite 8.3.8", "nothing is installed now");
  });

  test("is no list without an end", () => {
    const all = (version) => Object.fromEntries(Array.from({ length: 20 }, (_, nth) => [`p${nth}`, version]));
    assert.match(differences(all("1.0.0"), all("1.0.1"), manifest), /^p0 1\.0\.0 \(now 1\.0\.1\), .* and 12 others$/);
  });

  test("is read from what npm installed", () => {
    const installed = installedIn(root);
    assert.equal(installed.typescript, manifestOf("../").devDependencies.typescript);
    assert.deepEqual(installedIn(path.join(root, "test")), {});
  });
});

describe("the stand-in for the package", () => {
  const folder = path.join(root, "frameworks/without");
  const { exports } = JSON.parse(readFileSync(path.join(folder, "package.json"), "utf8"));
  const sources = [examples, path.join(root, "frameworks/routes")].flatMap((under) =>
    readdirSync(under, { recursive: true, withFileTypes: true })
      .filter((file) => file.isFile() && /\.(ts|tsx|js)$/.test(file.name) && !file.parentPath.includes("node_modules"))
      .map((file) => readFileSync(path.join(file.parentPath, file.name), "utf8")));
  const imports = sources.flatMap((source) => [...source.matchAll(/import \{([^}]*)\} from "@tidegate\/edge(.*?)"/g)])
    .map(([, names, entry]) => [`.${entry}`, names.split(",").map((name) => name.trim().split(" as ")[0])]);

  test("has all that the apps import", async () => {
    assert.ok(imports.length > 30, `${imports.length} imports`);
    for (const [entry, names] of imports) {
      assert.ok(exports[entry], entry);
      assert.ok(existsSync(path.join(folder, exports[entry].types)));
      const module = await import(path.join(folder, exports[entry].default));
      for (const name of names) assert.equal(typeof module[name], "function", `${entry}: ${name}`);
    }
  });

  test("lets each request pass", async () => {
    const entries = Object.entries(exports).map(async ([entry, { default: file }]) => [entry, await import(path.join(folder, file))]);
    const modules = Object.fromEntries(await Promise.all(entries));
    const [request, answer] = [new Request("http://localhost"), new Response("hello")];
    const next = async () => answer;
    const limiters = [modules["."].Tidegate.fromEnv({}), new modules["./memory"].Tidegate({}), modules["./gate"].Gate.fromRules({}, {})];
    for (const limiter of limiters) {
      const verdict = await limiter.check(request);
      assert.deepEqual([verdict.allowed, verdict.response, verdict.http, verdict.headers, verdict.onto(answer)], [true, undefined, undefined, {}, answer]);
    }
    assert.equal(await modules["./hono"].limit()({}, next), answer);
    assert.equal(await modules["./netlify"].limit()(request, { next }), answer);
    assert.equal(await modules["./node"].limit()({}, {}, next), answer);
    assert.equal(await modules["./react-router"].limit({}, next)(request), answer);
    assert.equal(await modules["./react-router"].limitRoute()({ request }, next), answer);
    assert.equal(await modules["./sveltekit"].limit()({ event: {}, resolve: next }), answer);
    assert.equal((await modules["./next"].limit()(request)).headers.get("x-middleware-next"), "1");
  });
});
