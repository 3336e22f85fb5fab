// Gate fixtures: requests with the expected responses. `fixtures/README.md` describes them.

import { TidegateError } from "../error.js";
import { calendarWindows } from "../gate/calendar.js";
import { balances } from "../gate/credits.js";
import { limitsFromData } from "../gate/limits.js";
import { warnAt } from "../gate/warn-at.js";
import { compile } from "../gate/rules/compile.js";
import { rootOf } from "../gate/rules/file_value.js";
import { type Node, readJson } from "../gate/rules/json.js";
import type { Rules } from "../gate/rules/rules.js";
import { type Platform, PLATFORMS } from "../platform.js";
import { JsonValue, Wrong } from "./json_value.js";
import { jsonOf } from "./rules_file.js";

/** Requests to a gate with a rules file, and the expected responses. */
export interface Fixture {
  readonly id: string;
  readonly platform: Platform;
  /** The virtual time of `at_ms` 0, in milliseconds since the epoch. */
  readonly startMs: number;
  /** The text of the rules, in JSON. */
  readonly text: string;
  readonly rules: Rules;
  readonly steps: readonly Step[];
}

/** A burst of identical requests at one instant. */
export interface Step {
  readonly at_ms: number;
  readonly burst: number;
  readonly method: string;
  readonly path: string;
  readonly host: string | undefined;
  readonly headers: readonly (readonly [name: string, value: string])[];
  readonly peer: string | undefined;
  readonly subject: string | undefined;
  readonly tier: string | undefined;
  readonly bot_score: number | undefined;
  readonly ja4: string | undefined;
  readonly keys: Readonly<Record<string, string>>;
  readonly limits: Readonly<Record<string, number>>;
  readonly cost: number | undefined;
  /** `{n}` in it stands for the number of the request in the burst, from 1. */
  readonly token: string | undefined;
  /** The claims of a valid token that the request has. */
  readonly claims: Node | undefined;
  readonly expect: Expected;
}

/** The expected responses to a step. */
export interface Expected {
  readonly passed: number;
  readonly status: number;
  /** The smallest remaining count in any answer, null if no answer has one. Not compared if it is undefined. */
  readonly remaining: number | null | undefined;
  /** The highest part of a limit that any request has reached, in percent, or 0. Not compared if it is undefined. */
  readonly level: number | undefined;
  /** The parts of limits that the requests were warned of together, ascending. Not compared if it is undefined. */
  readonly warned: readonly number[] | undefined;
}

interface Written {
  id: string;
  about: string;
  source: string | undefined;
  platform: Platform;
  start_ms: number;
  rules: Node;
  steps: Step[];
}

const START_MS = 1_800_000_000_000;
const BURST_MAX = 10_000;

const text = (value: JsonValue) => value.text();
const number = (value: JsonValue) => value.whole(64);
/** A value that may be null. */
const or = <T>(read: (value: JsonValue) => T) => (value: JsonValue) => (value.isNull ? undefined : read(value));

/** Reads a fixture, which must have this id. `rules` are those of fixtures that have none. Throws all that is wrong, as a list. */
export function fixtureOf(id: string, source: string, rules: Node | undefined): Fixture {
  const { about = "", start_ms: startMs = START_MS, ...written } = fieldsOf(JsonValue.of(source));
  const { platform, steps } = written as Written;
  const own = written.rules?.bare === "null" ? undefined : written.rules;
  const rulesText = jsonOf(own ?? rules ?? { at: 0, bare: "null" });
  const wrong: Wrong[] = [];
  if (about.trim() === "") wrong.push(new Wrong("about", "is empty; write one sentence that describes the fixture"));
  if (steps.length === 0) wrong.push(new Wrong("steps", "is empty; write at least one step"));
  const compiled = own || rules ? compiledOf(rulesText) : new Wrong("rules", "is missing; write the rules, or name their file with --rules");
  if (compiled instanceof Wrong) wrong.push(compiled);
  wrong.push(...steps.flatMap(wrongIn));
  if (written.id !== id) wrong.push(new Wrong("id", `is ${JSON.stringify(written.id)}, but the file name gives ${JSON.stringify(id)}`));
  if (wrong.length > 0 || compiled instanceof Wrong) throw wrong;
  return { id, platform, startMs, text: rulesText, rules: compiled, steps };
}

function fieldsOf(value: JsonValue): Partial<Written> {
  const readers = { id: text, about: text, source: or(text), platform: (value: JsonValue) => value.choice(PLATFORMS), start_ms: number, rules: ({ node }: JsonValue) => node, steps: (value: JsonValue) => value.each(stepOf) };
  return value.fields<Written>("GateFixture", readers, ["id", "about", "platform", "steps"]);
}

function stepOf(value: JsonValue): Step {
  const readers = {
    ...{ at_ms: number, burst: number, method: text, path: text, host: or(text) },
    headers: (value: JsonValue) => value.each((pair) => pair.pair()),
    ...{ peer: or(text), subject: or(text), tier: or(text) },
    bot_score: or((value: JsonValue) => value.whole(8)),
    ja4: or(text),
    keys: (value: JsonValue) => value.entries(text),
    limits: (value: JsonValue) => value.entries(number),
    ...{ cost: or(number), token: or(text), claims: or(claimsOf), expect: expectedOf },
  };
  const usual = { burst: 1, method: "GET", headers: [], keys: {}, limits: {} };
  return { ...usual, ...value.fields<Step>("GateStep", readers, ["at_ms", "path", "expect"]) } as Step;
}

function claimsOf(value: JsonValue): Node {
  value.entries(() => undefined);
  return value.node;
}

function expectedOf(value: JsonValue): Expected {
  const percent = (value: JsonValue) => value.whole(8);
  const readers = {
    ...{ passed: number, status: (value: JsonValue) => value.whole(16), remaining: (value: JsonValue) => (value.isNull ? null : value.whole(64)) },
    ...{ level: or(percent), warned: or((value) => value.each(percent)) },
  };
  return { status: 429, ...value.fields<Expected>("ExpectGate", readers, ["passed"]) } as Expected;
}

/** The rules, or what is wrong with them. */
function compiledOf(text: string): Rules | Wrong {
  try {
    return compile(rootOf({ name: "rules.json", text }, (text) => readJson(text, true)), limitsFromData(), calendarWindows, warnAt()(), balances);
  } catch (thrown) {
    if (thrown instanceof TidegateError) return new Wrong("rules", thrown.message);
    throw thrown;
  }
}

function wrongIn({ burst, expect }: Step, nth: number): Wrong[] {
  const wrong: Wrong[] = [];
  if (burst === 0 || burst > BURST_MAX) wrong.push(new Wrong(`steps[${nth}].burst`, `${burst} is out of range; write 1 to ${BURST_MAX}`));
  if (expect.passed > burst) wrong.push(new Wrong(`steps[${nth}].expect.passed`, `is more than the burst of ${burst}`));
  return wrong;
}
