import { readFileSync } from "node:fs";
import { type Command, Help, parsed, unknownCommand, WrongArguments } from "./arguments.js";
import { CHECK } from "./check.js";
import { CONFORMANCE } from "./conformance.js";
import { EXPLAIN } from "./explain.js";
import { Failed, Usage } from "./failure.js";
import { HASH_KEY } from "./hash_key.js";
import { errln } from "./output.js";
import { PROCESS, runAsProcess } from "./store_processes.js";
import { TEST } from "./test.js";

const COMMANDS: readonly Command[] = [CHECK, EXPLAIN, TEST, CONFORMANCE, HASH_KEY];

/** The commands that only the program in Rust has. */
const OTHERS = ["replay", "export", "choose", "simulate", "compare", "summary", "exactness", "run", "targets", "fixtures", "soak", "badge"];

const HELP = `\
Checks and explains rate-limiting rules, and tests what they admit, without Rust

Usage: tidegate <COMMAND>

Commands:
  check         Check a rules file
  explain       Show which rule, keys and limits of a rules file apply to a request, and why
  test          Replay gate fixtures in memory, and show which limits are not kept
  conformance   Replay the conformance suite against a store of your own, and show what is wrong with it
  hash-key      Print the hash of an API key on standard input, as rules files list it

Options:
  -h, --help     Print help
  -V, --version  Print version

Examples:
  npx @tidegate/edge check rules.json              say what is wrong with a rules file
  npx @tidegate/edge explain --rules rules.json --request 'POST /login'
                                                   show the limits of a request
  npx @tidegate/edge test tests/limits --rules rules.json
                                                   show that the rules admit what they should
  npx @tidegate/edge conformance ./store.js        show that a store counts right

\`tidegate COMMAND --help\` explains a command, with examples.
Exit codes: 0 success, 1 something failed, 2 the command line or an input is wrong.
`;

/** Runs the command line, and returns the exit code. */
export async function program(words: readonly string[]): Promise<number> {
  try {
    await run(words);
    return 0;
  } catch (thrown) {
    if (thrown instanceof Help) {
      (thrown.code === 0 ? process.stdout : process.stderr).write(thrown.text);
      return thrown.code;
    }
    if (thrown instanceof Failed) return 1;
    if (thrown instanceof WrongArguments) errln(`error: ${thrown.message}\n\nFor more information, try '--help'.`);
    else if (thrown instanceof Usage) errln(`tidegate: ${thrown.message}`);
    else throw thrown;
    return 2;
  }
}

async function run([first, ...rest]: readonly string[]): Promise<void> {
  if (first === undefined) throw new Help(HELP, 2);
  if (first === "--help" || first.startsWith("-h")) throw new Help(HELP, 0);
  if (first === "--version" || first.startsWith("-V")) throw new Help(`tidegate ${version()}\n`, 0);
  if (first === PROCESS && process.send) return runAsProcess(rest[0]!, rest[1] === "remember");
  const name = first === "help" ? rest[0] : first;
  if (name === undefined) throw new Help(HELP, 0);
  const command = COMMANDS.find((command) => command.name === name);
  if (!command) throw unknownCommand(name, COMMANDS, OTHERS);
  if (first === "help") throw new Help(command.help, 0);
  await command.run(parsed(command, rest));
}

function version(): string {
  const manifest = readFileSync(new URL("../../package.json", import.meta.url), "utf8");
  return (JSON.parse(manifest) as { version: string }).version;
}
