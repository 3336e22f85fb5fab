import { TidegateError } from "../error.js";
import { boundsOf } from "../gate/explain.js";
import type { Command, Arguments } from "./arguments.js";
import { Failed } from "./failure.js";
import { pretty } from "./json.js";
import { leaseOf } from "./lease_json.js";
import { counted, errln, outln } from "./output.js";
import { read, type RulesFile } from "./rules_file.js";
import { checkOwnStores, checkStores, storeNames } from "./stores.js";

const HELP = `\
Check a rules file: say what is wrong or probably a mistake, and where. Exit with 1 if the file is
not valid

Usage: tidegate check [OPTIONS] <FILE>

Arguments:
  <FILE>  The rules file, in TOML or JSON

Options:
      --store <NAME>      A store of the gate that reads the file. May be repeated, the gate's first
                          store first. Without it, the names in the table \`stores\` are compared with
                          those of the rules
      --overrides <FILE>  The file of overrides, whose limits of single keys precede those of the
                          rules
      --deny-warnings     Exit with 1 if there are warnings
      --json              Print JSON
  -h, --help              Print help

Examples:
  tidegate check rules.toml                        say what is wrong, and where
  tidegate check --deny-warnings rules.toml        fail on what is probably a mistake, too
  tidegate check --store main --store memory rules.toml
                                                   check all names of stores against those of the
                                                   gate, its first store first
  tidegate check --overrides overrides.toml rules.toml
                                                   check a file of overrides, too
  tidegate check --json rules.toml                 for another program

The dimensions that \`by\` may name are sender (the default), ip, ja4, global, those of tokens.keys,
and those that the file declares in
its list \`dimensions\`.

Exit codes: 0 the file is valid, 1 it is not, 2 it cannot be read.
`;

export const CHECK: Command = {
  name: "check",
  file: "FILE",
  options: [{ name: "store", value: "NAME", isMany: true }, { name: "overrides", value: "FILE", isPath: true }, { name: "deny-warnings" }, { name: "json" }],
  help: HELP,
  run,
};

async function run(args: Arguments): Promise<void> {
  const { file } = args;
  const found = await readOr(file, args.one("overrides"));
  const checked = found instanceof TidegateError ? found : named(file, found, args.all("store"));
  if (args.has("json")) outln(pretty(asJson(file, checked)));
  else say(file, checked);
  const isFine = !(checked instanceof TidegateError) && !(args.has("deny-warnings") && checked.rules.warnings.length > 0);
  if (!isFine) throw new Failed();
}

/** A rules file, or what is wrong in it. */
export async function readOr(file: string, overrides: string | undefined): Promise<RulesFile | TidegateError> {
  try {
    return await read(file, overrides);
  } catch (thrown) {
    if (thrown instanceof TidegateError) return thrown;
    throw thrown;
  }
}

/** Checks the names of stores. */
function named(file: string, found: RulesFile, stores: readonly string[]): RulesFile | TidegateError {
  try {
    if (stores.length > 0) checkStores(found.rules, stores);
    else checkOwnStores(found.rules);
    return found;
  } catch (thrown) {
    const hint = stores.length > 0 ? "" : ", or name the stores of the gate with --store";
    return new TidegateError("invalid", `${file}: ${TidegateError.from(thrown).message}${hint}`);
  }
}

/** Prints what is wrong with a file, or that nothing is. */
export function say(file: string, found: RulesFile | TidegateError): void {
  if (found instanceof TidegateError) {
    errln(`error: ${found.message}`);
    return;
  }
  const { rules, warnings } = found.rules;
  for (const warning of warnings) errln(`warning: ${warning}`);
  outln(`${file}: ${counted(rules.length, "rule")}, ${counted(warnings.length, "warning")}`);
  for (const { name, lease } of found.rules.limits) if (lease) outln(`limit ${name}: decided from loans of ${boundsOf(lease)}`);
  for (const [quota, from] of found.numbers.told) outln(`limit ${quota}: ${from}`);
  if (found.numbers.overridden > 0) outln(`overrides: ${counted(found.numbers.overridden, "key")}`);
}

function asJson(file: string, found: RulesFile | TidegateError): object {
  if (found instanceof TidegateError) return { file, valid: false, error: found.message, warnings: [] };
  const { rules, numbers } = found;
  return {
    file,
    valid: true,
    rules: rules.rules.map(({ name }) => name),
    dimensions: rules.dimensions,
    leases: Object.fromEntries(rules.limits.flatMap(({ name, lease }) => (lease ? [[name, leaseOf(lease)]] : []))),
    limits_from: Object.fromEntries(numbers.told),
    overrides: numbers.overridden,
    stores: storeNames(rules),
    warnings: rules.warnings,
  };
}
