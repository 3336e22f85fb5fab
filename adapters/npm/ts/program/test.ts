import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { Command, Arguments } from "./arguments.js";
import { Failed, Usage } from "./failure.js";
import { reason } from "./files.js";
import { type Case, filtered, load } from "./load_fixtures.js";
import { errln, outln } from "./output.js";
import { replayed } from "./replay.js";
import { junitOf, progressOf, type Result, statusOf, tableOf, tallyOf } from "./report.js";
import { forFixtures } from "./rules_file.js";

const HELP = `\
Replay gate fixtures in memory, on virtual time, and show which limits are not kept. Exit with 1 if
one is not, or if no fixture ran

Usage: tidegate test [OPTIONS] <DIR>

Arguments:
  <DIR>  The folder of fixtures, of which those in its subfolder \`gate\` run

Options:
      --rules <FILE>   The rules file, in TOML or JSON, of gate fixtures that have none. Every limit
                       counts in memory, whichever store the rules name. Of the table \`stores\`, only
                       \`near\` applies
      --filter <GLOB>  Select only fixtures whose id matches, for example 'gate/login-*'. May be
                       repeated
      --out <DIR>      The folder for junit.xml
  -h, --help           Print help

Examples:
  tidegate test tests/limits --rules rules.json    test rules of your own
  tidegate test tests/limits --rules rules.json --out reports
                                                   write reports/junit.xml, too

Exit codes: 0 every limit was kept, 1 one was not, or no fixture ran, 2 an input is wrong.
`;

const NOT_OF_A_GATE = "only fixtures in gate/ are replayed here; `tidegate run --target memory`, of the program in Rust, replays all";

export const TEST: Command = {
  name: "test",
  file: "DIR",
  options: [
    { name: "rules", value: "FILE", isPath: true },
    { name: "filter", value: "GLOB", isMany: true },
    { name: "out", value: "DIR", isPath: true },
  ],
  help: HELP,
  run,
};

async function run(args: Arguments): Promise<void> {
  const [rules, out] = [args.one("rules"), args.one("out")];
  const cases = filtered(load(args.file, rules === undefined ? undefined : await forFixtures(rules)), args.all("filter"));
  const began = performance.now();
  const results: Result[] = [];
  for (const one of cases) results.push(await resultOf(one));
  errln(progressOf(results));
  if (out !== undefined) write(out, junitOf(results));
  process.stdout.write(tableOf(results, performance.now() - began, out === undefined ? "which --out DIR writes to junit.xml" : "in junit.xml"));
  if (out !== undefined) errln(`\njunit.xml is in ${out}`);
  const status = statusOf(results);
  if (status === "not applicable") errln("tidegate: no target was tested");
  outln(tallyOf(results));
  if (status !== "pass") throw new Failed();
}

async function resultOf(one: Case): Promise<Result> {
  return "steps" in one ? replayed(one) : { id: one.id, verdict: "unsupported", reasons: [NOT_OF_A_GATE] };
}

function write(folder: string, text: string): void {
  try {
    mkdirSync(folder, { recursive: true });
    writeFileSync(path.join(folder, "junit.xml"), text);
  } catch (thrown) {
    throw new Usage(`--out ${folder}: ${reason(thrown)}`);
  }
}
