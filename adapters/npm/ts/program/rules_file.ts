import { TidegateError } from "../error.js";
import { calendarWindows } from "../gate/calendar.js";
import { balances } from "../gate/credits.js";
import { Numbers } from "../gate/rules/limits_from_data.js";
import { pricesOf } from "../gate/rules/prices.js";
import { compile } from "../gate/rules/compile.js";
import { type FileValue, rootOf } from "../gate/rules/file_value.js";
import { type Node, readJson } from "../gate/rules/json.js";
import type { Rules } from "../gate/rules/rules.js";
import { warnAt } from "../gate/warn-at.js";
import { Usage } from "./failure.js";
import { textOf } from "./files.js";

/** A rules file. */
export interface RulesFile {
  readonly root: Node;
  readonly rules: Rules;
  readonly numbers: Numbers;
}

/**
 * Reads and checks a rules file, and the file of overrides if there is one. Throws a `TidegateError` about what is wrong in it, and a `Usage` if
 * it cannot be read.
 */
export async function read(file: string, overrides?: string): Promise<RulesFile> {
  const numbers = new Numbers(undefined);
  const item = await itemOf(file);
  // A file that cannot be read is a mistake of the command line.
  if (overrides !== undefined) textOf(overrides);
  const rules = compile(item, numbers, calendarWindows, warnAt()(), balances);
  pricesOf(rules.prices);
  if (overrides !== undefined) numbers.reload(await itemOf(overrides), rules);
  return { root: item.node, rules, numbers };
}

async function itemOf(file: string): Promise<FileValue> {
  return rootOf({ name: file, text: textOf(file) }, await reader(file));
}

/** What reads a file of this name. */
async function reader(file: string): Promise<(text: string) => Node> {
  if (file.endsWith(".json")) return (text) => readJson(text, true);
  if (!file.endsWith(".toml")) throw new TidegateError("invalid", `${file}: end the file's name with .toml or .json`);
  // Its WebAssembly takes a moment to start.
  return (await import("../gate/rules/toml.js")).readToml;
}

/**
 * A rules file for fixtures, in JSON: one store answers every call. Nothing is lent, because a fixture says exactly what a limit admits.
 * Of what is around a store, only the limit that is asked first can change an answer.
 */
export async function forFixtures(file: string): Promise<Node> {
  const { root } = await read(file).catch((thrown: unknown) => {
    throw thrown instanceof TidegateError ? new Usage(thrown.message) : thrown;
  });
  const kept = changed(root, "limits", (name) => name !== "lease");
  return changed(kept, "stores", (name) => name === "near");
}

/** The same with some fields of the tables in a table. */
function changed({ table = [], ...node }: Node, name: string, keeps: (field: string) => boolean): Node {
  const kept = (inner: Node): Node => (inner.table ? { ...inner, table: inner.table.filter(([field]) => keeps(field)) } : inner);
  const each = (tables: Node): Node => (tables.table ? { ...tables, table: tables.table.map(([key, inner]) => [key, kept(inner)]) } : tables);
  return { ...node, table: table.map(([field, value]) => [field, field === name ? each(value) : value]) };
}

/** A value as JSON, with the fields of each table in order. */
export function jsonOf({ bare, text, list, table }: Node): string {
  if (bare !== undefined) return bare;
  if (text !== undefined) return JSON.stringify(text);
  if (list) return `[${list.map(jsonOf).join(",")}]`;
  const fields = [...new Map(table)].sort(([one], [other]) => (one < other ? -1 : 1));
  return `{${fields.map(([name, value]) => `${JSON.stringify(name)}:${jsonOf(value)}`).join(",")}}`;
}
