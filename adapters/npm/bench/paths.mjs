// What a gate takes to find the rules of a long path as a hostile client writes it: of 8,000 characters, which are dots, slashes and escapes.
//
//   node bench/paths.mjs
//
// It measures the modules that build.sh has compiled, beside one pass that reads each character.

import { Facts } from "../modules/gate/request_facts.js";
import { compile } from "../modules/gate/rules/compile.js";
import { rootOf } from "../modules/gate/rules/file_value.js";
import { appliedTo } from "../modules/gate/rules/find_rules.js";
import { readJson } from "../modules/gate/rules/json.js";
import { inTurn, record, shortened } from "../../../conformance/measured/measured.mjs";

const LENGTH = 8_000;
/** The ordinary paths, which are short, are asked so many times more often. */
const [TIMES, MORE] = [200, 50];

const whole = (piece, start = "/") => start + piece.repeat((LENGTH - start.length) / piece.length);
/** Pieces in any order. */
const mixed = (...pieces) => {
  let path = "";
  while (path.length < LENGTH) path += pieces[Math.floor(Math.random() * pieces.length)];
  return path;
};

const ORDINARY = {
  "the last of 1,000 rules": "/api/v9/things99/7/parts",
  "none": "/nothing/here",
  "a slash at its end": "/api/v9/things99/7/parts/",
  "an escape": "/api/v9/things99/a%20b/parts",
  "escapes and dots": "/x/%2e%2E/api//v9/./things%399/7/parts/",
};
const HOSTILE = {
  "`/..`": whole("/..", ""),
  "`/.`": whole("/.", ""),
  "`/`": whole("/"),
  "`/a/..`": whole("/a/..", ""),
  "`/a//..`": whole("/a//..", ""),
  "`/api/v7/things42/{}/%2e%2e`": whole("/api/v7/things42/{}/%2e%2e", ""),
  "`/%2e`": whole("/%2e", ""),
  "`%2f`": whole("%2f"),
  "`%252e`": whole("%252e"),
  "`%25252e%2f`": whole("%25252e%2f"),
  "`%61` behind a rule's beginning": whole("%61", "/api/v7/things42/"),
  "`%`": whole("%"),
  "`.`": whole("."),
  "`\\..\\%2e//a`": whole("\\..\\%2e//a"),
  "4,000 segments and a slash": `${whole("/a", "")}/`,
  "pieces in any order": mixed("/", "//", "/.", "/..", "/%2e", "/%2e%2E", "\\", "/a", "é", "%2f", "%252e", "/api", '"', "%61"),
};

const rules = Array.from({ length: 1_000 }, (_, nth) => ({ path: `/api/v${nth % 10}/things${Math.floor(nth / 10)}/{id}/parts`, methods: ["GET"] }));
const compiled = compile(rootOf({ name: "rules.json", text: JSON.stringify({ rules }) }, (text) => readJson(text, true)));
const headers = new Headers({ host: "www.example.com" });
const find = (path) => {
  const facts = new Facts({ method: "GET", url: `https://www.example.com${path}`, headers }, {});
  return appliedTo(compiled, facts, facts.paths).length;
};
/** One pass that no reader of a path can do without. */
const read = (path) => {
  let sum = 0;
  for (let at = 0; at < path.length; at++) sum += path.charCodeAt(at);
  return sum;
};

if (find(ORDINARY["the last of 1,000 rules"]) !== 1) throw new Error("no rule was found, so the measurement is void");
// Warms up, so that the first path does not pay for compiling the code.
for (const path of [...Object.values(ORDINARY), ...Object.values(HOSTILE)]) for (let nth = 0; nth < TIMES; nth++) find(path);
for (const [kind, paths, times] of [["a path", ORDINARY, TIMES * MORE], [`a path of ${LENGTH.toLocaleString("en")} characters`, HOSTILE, TIMES]]) {
  for (const [name, path] of Object.entries(paths)) {
    const { ours, theirs } = await inTurn({ ours: () => microseconds(find, path, times), theirs: () => microseconds(read, path, times) });
    record({ group: "npm", name: `finding the rules of ${kind}: ${name}`, unit: "us", ...(paths === HOSTILE && { aim: { value: 20 } }), ours, peer: { name: "reading each character once", values: theirs } });
  }
}

/** The processor's time of one call. */
function microseconds(call, path, times) {
  const count = shortened(times);
  const before = process.cpuUsage();
  let sum = 0;
  for (let nth = 0; nth < count; nth++) sum += call(path);
  const { user, system } = process.cpuUsage(before);
  if (!Number.isFinite(sum)) throw new Error("the measurement is void");
  return (user + system) / count;
}
