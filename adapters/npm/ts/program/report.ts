// The report of a replay, as the program in Rust prints the one of its target `memory`: a table for people, and JUnit XML for CI.

/** The result of a fixture. */
export interface Result {
  readonly id: string;
  readonly verdict: "pass" | "fail" | "unsupported";
  /** Why it did not pass. */
  readonly reasons: readonly string[];
  /** The requests sent, and those that passed. */
  readonly offered?: number;
  readonly passed?: number;
}

type Status = "pass" | "FAIL" | "not applicable";

const NAME = "memory";

const COLUMNS = ["target", "class", "status", "pass", "fail", "other", "offered", "admitted", "worst drift", "trips", "$/million", "in flight", "requests/s", "time"];

/** The columns before this one are text. */
const FIRST_NUMBER = 3;

export const countOf = (results: readonly Result[], verdict: Result["verdict"]) => results.filter((one) => one.verdict === verdict).length;

/** The result of all fixtures together. Nothing passes without a fixture that does. */
export function statusOf(results: readonly Result[]): Status {
  if (countOf(results, "fail") > 0) return "FAIL";
  return countOf(results, "pass") > 0 ? "pass" : "not applicable";
}

function reasonOf(results: readonly Result[]): string | undefined {
  const status = statusOf(results);
  if (status === "pass") return undefined;
  return status === "FAIL" ? `${countOf(results, "fail")} of ${results.length} fixtures failed` : "it declares that it supports none of the fixtures";
}

/** The line that is printed when all fixtures have run. */
export function progressOf(results: readonly Result[]): string {
  return `${NAME}: ${countOf(results, "pass")} passed, ${countOf(results, "fail")} failed, of ${results.length}`;
}

/** The last line, in a form that CI systems recognize. */
export function tallyOf(results: readonly Result[]): string {
  return `${countOf(results, "pass")} passed, ${countOf(results, "fail")} failed, ${countOf(results, "unsupported")} skipped`;
}

/** The table, followed by the fixtures that did not pass. `more` says where all reasons are. */
export function tableOf(results: readonly Result[], elapsedMs: number, more: string): string {
  const [status, reason] = [statusOf(results), reasonOf(results)];
  const sum = (field: "offered" | "passed") => results.reduce((sum, one) => sum + (one[field] ?? 0), 0);
  const [pass, fail, other] = (["pass", "fail", "unsupported"] as const).map((verdict) => String(countOf(results, verdict)));
  const seconds = `${Math.floor(elapsedMs / 1_000)}.${Math.floor((elapsedMs % 1_000) / 100)} s`;
  const row = [NAME, "exact", status, pass!, fail!, other!, String(sum("offered")), String(sum("passed")), "0", "-", "-", "0", "-", seconds];
  const failed = results.filter(({ verdict }) => verdict === "fail");
  const lines = [
    ...boxed(row),
    ...(reason === undefined ? [] : ["", `${NAME} ${status}: ${reason}`]),
    ...failed.flatMap(({ id, reasons }) => [`  ${id}`, `    ${reasons[0]!}`, ...(reasons.length > 1 ? [`    and ${reasons.length - 1} more, ${more}`] : [])]),
    ...skipped(results),
  ];
  return `${lines.join("\n")}\n`;
}

/** The fixtures that are left out, by the reason. */
function skipped(results: readonly Result[]): string[] {
  const ids = new Map<string, string[]>();
  for (const { id, verdict, reasons } of results) if (verdict === "unsupported") ids.set(reasons[0]!, [...(ids.get(reasons[0]!) ?? []), id]);
  const inOrder = [...ids].sort(([one], [other]) => (one < other ? -1 : 1));
  return inOrder.flatMap(([reason, ids]) => ["", `${NAME} unsupported: ${reason}`, ...ids.map((id) => `  ${id}`)]);
}

/** A table of one row. */
function boxed(row: readonly string[]): string[] {
  const widths = COLUMNS.map((column, nth) => Math.max(column.length, row[nth]!.length));
  const line = (cells: readonly string[]) => `│ ${cells.map((cell, nth) => (nth < FIRST_NUMBER ? cell.padEnd(widths[nth]!) : cell.padStart(widths[nth]!))).join(" ┆ ")} │`;
  const ruled = (start: string, fill: string, between: string, end: string) => start + widths.map((width) => fill.repeat(width + 2)).join(between) + end;
  return [ruled("┌", "─", "┬", "┐"), line(COLUMNS), ruled("╞", "═", "╪", "╡"), line(row), ruled("└", "─", "┴", "┘")];
}

/** The report as JUnit XML. Fixtures that did not run are skipped. */
export function junitOf(results: readonly Result[]): string {
  const cases = results.map(({ id, verdict, reasons }) => caseOf(id, verdict, reasons));
  const isSkipped = statusOf(results) === "not applicable";
  if (isSkipped) cases.push(caseOf("target", "unsupported", [reasonOf(results)!]));
  const [failed, left] = [countOf(results, "fail"), countOf(results, "unsupported") + Number(isSkipped)];
  return `<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="tidegate" tests="${cases.length}" failures="${failed}" errors="0">
    <testsuite name="${NAME}" tests="${cases.length}" skipped="${left}" errors="0" failures="${failed}">
${cases.join("\n")}
    </testsuite>
</testsuites>
`;
}

function caseOf(id: string, verdict: Result["verdict"], reasons: readonly string[]): string {
  const start = `        <testcase name="${escaped(id)}" classname="tidegate.${NAME}" time="0.000"`;
  const [first = "unsupported"] = reasons;
  if (verdict === "pass") return `${start}/>`;
  if (verdict === "unsupported") return `${start}><skipped message="${escaped(first)}"/></testcase>`;
  return `${start}><failure message="${escaped(first.split("\n")[0]!)}">${escaped(reasons.join("\n"))}</failure></testcase>`;
}

const ESCAPES: Readonly<Record<string, string>> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\n": "&#10;", "\t": "&#9;" };

/** Escapes text for an element or attribute of XML. Characters that XML does not allow are replaced. */
function escaped(text: string): string {
  return text.replace(/[&<>"\0-\x1f\ufffe\uffff]/g, (one) => ESCAPES[one] ?? "\ufffd");
}
