// Reads command lines, with the messages of clap, which the program in Rust has.

import { similarity } from "./similarity.js";

/** An option of a command. */
export interface Option {
  /** Without the hyphens. */
  readonly name: string;
  /** The name of its value, if it has one. */
  readonly value?: string;
  readonly isRequired?: boolean;
  /** Whether it may be repeated. */
  readonly isMany?: boolean;
  /** Whether it names a file, which no empty text does. */
  readonly isPath?: boolean;
  /** What is wrong with a value, and what to write instead. */
  readonly wrong?: (text: string) => string | undefined;
}

/** A command. */
export interface Command {
  readonly name: string;
  /** The name of its one positional argument, if it has one. It names a file. */
  readonly file?: string;
  readonly options: readonly Option[];
  readonly help: string;
  run(args: Arguments): Promise<void> | void;
}

/** What a command line gives. */
export class Arguments {
  /** The values of each option, in their order. A flag has an empty one. */
  readonly #values: ReadonlyMap<string, readonly string[]>;
  readonly file: string;

  constructor(values: ReadonlyMap<string, readonly string[]>, file: string) {
    this.#values = values;
    this.file = file;
  }

  has(name: string): boolean {
    return this.#values.has(name);
  }

  all(name: string): readonly string[] {
    return this.#values.get(name) ?? [];
  }

  /** The value of an option that is given at most once. */
  one(name: string): string | undefined {
    return this.all(name)[0];
  }
}

/** Ends the program with a text. */
export class Help extends Error {
  constructor(
    readonly text: string,
    readonly code: number,
  ) {
    super();
  }
}

/** A wrong command line. */
export class WrongArguments extends Error {}

const HELP: Option = { name: "help" };

/** Reads the words after the name of a command. */
export function parsed(command: Command, words: readonly string[]): Arguments {
  return new Parser(command).parse(words);
}

/** The error about an unknown command. `others` are those of the program in Rust. */
export function unknownCommand(name: string, commands: readonly { name: string }[], others: readonly string[]): Error {
  const usage = "Usage: tidegate <COMMAND>";
  if (/^-./.test(name)) {
    const word = name.split("=")[0]!;
    const near = similar(word.slice(2), ["help", "version"]).at(-1);
    const tip = near === undefined ? usage : `  tip: a similar argument exists: '--${near}'\n\nUsage: tidegate --${near} <COMMAND>`;
    return new WrongArguments(`unexpected argument '${word}' found\n\n${tip}`);
  }
  const tip = others.includes(name)
    ? "the program in Rust has it; run `cargo install --path conformance/cli` in a checkout of Tidegate"
    : similarCommands(name, ["help", ...commands.map((command) => command.name)]);
  return new WrongArguments(`unrecognized subcommand '${name}'\n\n${tip ? `  tip: ${tip}\n\n` : ""}${usage}`);
}

function similarCommands(name: string, known: readonly string[]): string | undefined {
  const names = similar(name, known).map((name) => `'${name}'`);
  if (names.length === 0) return undefined;
  return names.length === 1 ? `a similar subcommand exists: ${names[0]!}` : `some similar subcommands exist: ${names.join(", ")}`;
}

/** The known names that are like an unknown one, the nearest last. */
function similar(unknown: string, known: readonly string[]): string[] {
  const near = known.map((name) => [similarity(unknown, name), name] as const).filter(([share]) => share > 0.7);
  return near.sort(([one], [other]) => one - other).map(([, name]) => name);
}

class Parser {
  readonly #command: Command;
  readonly #values = new Map<string, string[]>();
  #file: string | undefined;

  constructor(command: Command) {
    this.#command = command;
  }

  parse(words: readonly string[]): Arguments {
    let onlyFiles = false;
    for (let at = 0; at < words.length; at++) {
      const word = words[at]!;
      if (onlyFiles || !/^-./.test(word)) this.#addFile(word);
      else if (word === "--") onlyFiles = true;
      else at += this.#addOption(word, words[at + 1]);
    }
    this.#need();
    return new Arguments(this.#values, this.#file ?? "");
  }

  #addFile(word: string): void {
    const { file } = this.#command;
    if (file === undefined || this.#file !== undefined) throw this.#wrong(`unexpected argument '${word}' found`, this.#usage);
    if (word === "") throw new WrongArguments(`a value is required for '<${file}>' but none was supplied`);
    this.#file = word;
  }

  /** Adds an option. Returns how many further words it takes. */
  #addOption(word: string, next: string | undefined): number {
    const [, name = "", inline] = /^--([^=]*)(?:=(.*))?$/s.exec(word) ?? [];
    if (name === "help" || word.startsWith("-h")) throw new Help(this.#command.help, 0);
    const option = this.#command.options.find((option) => option.name === name);
    if (!option) throw this.#unknown(word, name);
    if (option.value === undefined) {
      if (inline !== undefined) {
        throw this.#wrong(`unexpected value '${inline}' for '--${name}' found; no more were expected`, this.#usageWith([...this.#used, option]));
      }
      this.#add(option, "");
      return 0;
    }
    if (inline === undefined) this.#isValue(option, next);
    this.#add(option, inline ?? next!);
    return inline === undefined ? 1 : 0;
  }

  /** Checks that the next word is the value of an option. */
  #isValue(option: Option, next: string | undefined): void {
    if (next !== undefined && !/^-./.test(next)) return;
    const name = /^--([^=]*)/.exec(next ?? "")?.[1];
    const isKnown = next === undefined || name === "" || [...this.#command.options, HELP].some((option) => option.name === name) || next.startsWith("-h");
    throw isKnown ? missing(option) : this.#unknown(next, name ?? "");
  }

  #add(option: Option, value: string): void {
    const { name, isMany, isPath, wrong } = option;
    if (this.#values.has(name) && !isMany) throw this.#wrong(`the argument '${shown(option)}' cannot be used multiple times`, this.#usage);
    if (isPath && value === "") throw missing(option);
    const why = wrong?.(value);
    if (why !== undefined) throw new WrongArguments(`invalid value '${value}' for '${shown(option)}': ${why}`);
    this.#values.set(name, [...(this.#values.get(name) ?? []), value]);
  }

  #unknown(word: string, name: string): Error {
    const { options, file } = this.#command;
    const isLong = word.startsWith("--");
    const shownWord = isLong ? word.split("=")[0]! : word.slice(0, 2);
    const said = `unexpected argument '${shownWord}' found`;
    const near = isLong ? similar(name, [...options, HELP].map(({ name }) => name)).at(-1) : undefined;
    const nearest = [...options, HELP].find(({ name }) => name === near);
    if (nearest) return this.#wrong(`${said}\n\n  tip: a similar argument exists: '--${nearest.name}'`, this.#usageWith([...this.#used, nearest]));
    const isUsed = this.#values.size > 0 || this.#file !== undefined;
    const tip = file === undefined ? "" : `\n\n  tip: to pass '${shownWord}' as a value, use '-- ${shownWord}'`;
    return this.#wrong(said + tip, isLong && isUsed ? this.#usageWith(this.#used) : this.#usage);
  }

  #need(): void {
    const { file, options } = this.#command;
    const lacking = options.filter(({ name, isRequired }) => isRequired && !this.#values.has(name));
    const names = [...lacking.map(shown), ...(file !== undefined && this.#file === undefined ? [`<${file}>`] : [])];
    if (names.length === 0) return;
    throw this.#wrong(`the following required arguments were not provided:\n${names.map((name) => `  ${name}`).join("\n")}`, this.#usageWith(this.#used));
  }

  #wrong(message: string, usage: string): Error {
    return new WrongArguments(`${message}\n\nUsage: ${usage}`);
  }

  /** The options that are given so far, in their order. */
  get #used(): Option[] {
    return [...this.#values.keys()].map((name) => this.#command.options.find((option) => option.name === name)!);
  }

  /** How the command is used. */
  get #usage(): string {
    const { options } = this.#command;
    const required = options.filter(({ isRequired }) => isRequired);
    return this.#usageOf([...(required.length < options.length ? ["[OPTIONS]"] : []), ...required.map(shown)]);
  }

  /** How the command is used with these options, besides those that it needs. */
  #usageWith(used: readonly Option[]): string {
    const required = this.#command.options.filter(({ isRequired }) => isRequired);
    return this.#usageOf([...new Set([...required, ...used])].map(shown));
  }

  #usageOf(options: readonly string[]): string {
    const { name, file } = this.#command;
    return ["tidegate", name, ...options, ...(file === undefined ? [] : [`<${file}>`])].join(" ");
  }
}

/** An option with the name of its value. */
function shown({ name, value }: Option): string {
  return value === undefined ? `--${name}` : `--${name} <${value}>`;
}

function missing(option: Option): Error {
  return new WrongArguments(`a value is required for '${shown(option)}' but none was supplied`);
}
