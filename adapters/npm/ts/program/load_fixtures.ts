import { readdirSync } from "node:fs";
import type { Node } from "../gate/rules/json.js";
import { Usage } from "./failure.js";
import { reason, textOf } from "./files.js";
import { type Fixture, fixtureOf } from "./fixture.js";
import { Wrong } from "./json_value.js";
import { counted } from "./output.js";

/** A fixture, or the id of one that is not of a gate. */
export type Case = Fixture | { readonly id: string };

const NONE = "contains no fixtures; they are JSON files in subfolders, for example gate/login.json";

/** Loads all fixtures below a folder, ordered by id. `rules` are those of gate fixtures that have none. */
export function load(folder: string, rules: Node | undefined): Case[] {
  const [cases, problems]: [Case[], string[]] = [[], []];
  for (const file of filesIn(folder, problems)) {
    const id = file.slice(0, -".json".length);
    try {
      cases.push(id.startsWith("gate/") ? fixtureOf(id, textOf(inside(folder, file)), rules) : { id });
    } catch (thrown) {
      problems.push(...wrongIn(inside(folder, file), thrown));
    }
  }
  if (problems.length === 0 && cases.length === 0) problems.push(`${folder}: ${NONE}`);
  if (problems.length > 0) throw new Usage(`${counted(problems.length, "problem")} in the fixtures\n${problems.join("\n")}`);
  return cases;
}

/** The JSON files in the subfolders of a folder, by their paths in it, in order. Those in the folder itself, such as a schema, are no fixtures. */
function filesIn(folder: string, problems: string[]): string[] {
  const find = (below: string): string[] => {
    const entries = readdirSync(below === "" ? folder : inside(folder, below), { withFileTypes: true });
    return entries.flatMap((entry) => {
      const path = below === "" ? entry.name : `${below}/${entry.name}`;
      if (entry.isDirectory()) return find(path);
      return path.endsWith(".json") && below !== "" ? [path] : [];
    });
  };
  try {
    return find("").sort((one, other) => (inOrder(one) < inOrder(other) ? -1 : 1));
  } catch (thrown) {
    problems.push(`${folder}: ${reason(thrown)}`);
    return [];
  }
}

/** A text that is in order with others as the parts of its path are. */
function inOrder(path: string): string {
  return path.replaceAll("/", "\0");
}

function inside(folder: string, path: string): string {
  return folder.endsWith("/") ? folder + path : `${folder}/${path}`;
}

/** What was thrown about a file, as lines. */
function wrongIn(file: string, thrown: unknown): string[] {
  if (thrown instanceof Usage) return [thrown.message];
  if (thrown instanceof Wrong) return [`${file}: ${thrown.message}`];
  if (Array.isArray(thrown)) return thrown.map((wrong: Wrong) => `${file}: ${wrong.message}`);
  throw thrown;
}

/** The cases whose id matches one of these patterns, in which `*` matches any text and `?` a character. All without a pattern. */
export function filtered<T extends { readonly id: string }>(cases: readonly T[], patterns: readonly string[]): readonly T[] {
  if (patterns.length === 0) return cases;
  const wanted = new Set<T>();
  for (const pattern of patterns) {
    const expression = new RegExp(`^${pattern.replace(/[.*+?^${}()|[\]\\]/g, (one) => (one === "*" ? ".*" : one === "?" ? "." : `\\${one}`))}$`, "su");
    const matching = cases.filter(({ id }) => expression.test(id));
    if (matching.length === 0) {
      const groups = new Set(cases.map(({ id }) => id.split("/")[0]!));
      throw new Usage(`--filter ${JSON.stringify(pattern)} matches no fixture; write '<group>/<name>', where * matches any text; the groups are ${[...groups].join(", ")}`);
    }
    for (const one of matching) wanted.add(one);
  }
  return cases.filter((one) => wanted.has(one));
}
