// What core/docs/rules.md prints is read as it is printed. conformance/dev/tests/rules_page.rs asks the same of the core.

import assert from "node:assert/strict";
import { generateKeyPairSync } from "node:crypto";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Tidegate } from "@tidegate/edge";
import { calendarWindow } from "@tidegate/edge/calendar";
import { balance } from "@tidegate/edge/credits";
import { calendarWindows } from "@tidegate/edge/gate/calendar";
import { balances } from "@tidegate/edge/gate/credits";
import { limitsFromData } from "@tidegate/edge/gate/limits";
import { warnAt } from "@tidegate/edge/gate/warn-at";
import { Gate } from "@tidegate/edge/gate/toml";

const page = readFileSync(new URL("../../../core/docs/rules.md", import.meta.url), "utf8");
const keys = readFileSync(new URL("../../../core/docs/keys.md", import.meta.url), "utf8");

/** The files in a part of a page. */
const filesOf = (text) => Array.from(text.matchAll(/^```toml\n(.*?)^```$/gms), ([, file]) => file);

const [es256, rs256] = [generateKeyPairSync("ec", { namedCurve: "P-256" }), generateKeyPairSync("rsa", { modulusLength: 2048 })];
const jwks = { keys: [es256, rs256].map(({ publicKey }) => publicKey.export({ format: "jwk" })) };

/** Reads a file, for stores that can do all of it and are never asked. Returns the warnings, and the policies of its stores. */
function read(file) {
  const policies = [];
  const store = (limit) => {
    policies.push(limit.policy);
    return new Tidegate({ url: "https://example.upstash.io", token: "none", ...limit });
  };
  try {
    const gate = Gate.fromRules(file, { platform: "direct", stores: { main: store, memory: store, location: store }, keys: jwks, limits: limitsFromData, calendar: calendarWindows, credits: balances, warnAt: warnAt() });
    return { warnings: gate.warnings, policies };
  } catch (error) {
    throw new Error(`${error.message} in\n${file}`);
  }
}

test("every file of the guide is read without a warning", () => {
  const files = filesOf(page);
  assert.ok(files.length > 10, String(files.length));
  for (const file of files) assert.deepEqual(read(file).warnings, [], file);
  assert.ok(filesOf(keys).length > 0);
  filesOf(keys).forEach(read);
});

test("every line of the reference is read where its file has the key", () => {
  let count = 0;
  let files = [];
  for (const part of page.split("<!-- schema: ").slice(1)) {
    if (part.startsWith("limits.*.quotas[]")) continue;
    files = filesOf(part).length ? filesOf(part) : files;
    for (const [, line] of part.split("<!-- end of ")[0].matchAll(/^\| `(.*?)` \|/gm)) {
      if (line.startsWith("[") || line.startsWith("$")) continue;
      const key = line.split(" = ")[0];
      const changed = files.flatMap((file) => {
        const lines = file.split("\n");
        const places = [...lines.keys()].filter((place) => lines[place].split(" = ")[0] === key && !lines[place].endsWith("["));
        return places.map((place) => lines.toSpliced(place, 1, line).join("\n"));
      });
      assert.ok(changed.length > 0, `no file of its section has ${key}`);
      changed.forEach(read);
      count += changed.length;
    }
  }
  assert.ok(count > 40, String(count));
});

test("a quota in a rules file is the one beside it in the options", () => {
  const pairs = Array.from(page.matchAll(/^\| `(\{ algorithm.*?)` \| `(.*?)` \|$/gm), ([, file, options]) => [file, options]);
  assert.equal(pairs.length, 10);
  for (const [file, written] of pairs) {
    const other = file.includes("penalty") ? ', { algorithm = "fixed_window", limit = 5, window_ms = 1_000 }' : "";
    const { policies } = read(`[limits.api]\nquotas = [${file}${other}]\n[[rules]]\nlimits = ["api"]`);
    const options = new Function(`return (${written});`)();
    const [algorithm] = Object.keys(options);
    assert.equal(policies.length, 1);
    // The options of a calendar window and a balance are read by functions.
    const made = { calendarWindow, balance }[algorithm]?.(options[algorithm]);
    if (!made) {
      const found = policies[0].quotas.find((quota) => quota[algorithm]);
      assert.deepEqual(found?.[algorithm], options[algorithm]);
    }
    const quotas = made ? [made] : other ? [options, "5 / s"] : [options];
    assert.ok(new Tidegate({ url: "https://example.upstash.io", token: "none", platform: "direct", failMode: "closed", policy: { name: "api", quotas } }));
  }
});
