import { anyRule } from "../../core/algorithms/make_algorithm.js";
import type { ReadyQuota } from "../../core/policy.js";
import { ALGORITHMS, BALANCE, CALENDAR_WINDOW, PENALTIES } from "../rules_policy.js";
import type { FileValue } from "./file_value.js";
import { NEEDS_CALENDAR, NEEDS_CREDITS, NEEDS_NUMBERS, NEEDS_THRESHOLDS } from "./missing_options.js";
import type { ReadPart, Rules } from "./rules.js";
import { suggestion } from "./suggestion.js";

/** The fields of an algorithm, and what each is of a quota. */
type Numbers = Readonly<Record<string, "amount" | "span" | "refill">>;

const WINDOW: Numbers = { limit: "amount", window_ms: "span" };
const BUCKET: Numbers = { capacity: "amount", refill: "refill", per_ms: "span" };

/** Those of each algorithm. */
const NUMBERS: readonly Numbers[] = [
  WINDOW,
  WINDOW,
  WINDOW,
  BUCKET,
  BUCKET,
  { limit: "amount", lifetime_ms: "span", returns_cost: "refill" },
  { base_ms: "span", factor: "refill", cap_ms: "amount" },
  { cap_ms: "amount" },
  { limit: "amount" },
  {},
];

/** That of the other algorithms. */
const NO_PART: ReadPart = Object.assign(counted, { fields: [] });

function counted(item: FileValue, quota: ReadyQuota): ReadyQuota {
  item.placing(() => anyRule(quota, ""), (message) => inFile(item, message));
  return quota;
}

/** What reads the fields of a quota that are not its algorithm's: `limit_from`, `warn_at`, and those of a calendar window and a balance. */
export type QuotaReaders = Pick<Rules, "numbers" | "thresholds"> & { readonly calendar: ReadPart | undefined; readonly credits: ReadPart | undefined };

/** The quotas of a limit. `dimension` reads what one counts by: a name, or an empty text for the sender. */
export function quotasOf(limit: FileValue, dimension: (item: FileValue) => string, readers: QuotaReaders): ReadyQuota[] {
  return limit.required("quotas").each((item) => quota(item, dimension, readers));
}

function quota(item: FileValue, dimension: (item: FileValue) => string, { numbers: fromData, calendar, credits, thresholds }: QuotaReaders): ReadyQuota {
  const named = item.required("algorithm");
  const algorithm = ALGORITHMS.indexOf(named.text);
  if (algorithm < 0) throw named.wrong(named.text, `is not an algorithm; ${suggestion(named.text, ALGORITHMS)}`);
  const [numbers, isBalance] = [NUMBERS[algorithm]!, algorithm === BALANCE];
  const part = isBalance ? credits : algorithm === CALENDAR_WINDOW ? calendar : NO_PART;
  if (!part) throw named.invalid(isBalance ? NEEDS_CREDITS : NEEDS_CALENDAR);
  // A penalty has no limit, and what a balance holds is granted.
  item.only(["algorithm", "name", "by", ...Object.keys(numbers), ...part.fields, ...(PENALTIES.includes(algorithm) || isBalance ? [] : ["limit_from", "warn_at"])]);
  const from = item.field("limit_from");
  if (from && !fromData) throw from.invalid(NEEDS_NUMBERS);
  const name = item.field("name")?.text;
  const by = item.field("by");
  let quota: ReadyQuota = { algorithm, place: "", amount: 0, span: 0, refill: 0, name: undefined, by: (by && dimension(by)) || undefined };
  for (const [name, kind] of Object.entries(numbers)) quota[kind] = name === "returns_cost" ? Number(item.has(name)) : item.required(name).number;
  quota = part(item, quota);
  quota.name = name === undefined ? name : item.checkedName("name", name);
  const warnAt = item.field("warn_at");
  if (warnAt && !thresholds) throw warnAt.invalid(NEEDS_THRESHOLDS);
  thresholds?.read(item);
  return quota;
}

/** A message about a number, with the names of a rules file. */
export function renamed(message: string): string {
  return message.replace(/\b(window|per|lifetime|base|cap)Ms\b/g, "$1_ms");
}

/** A message about a number, with the names of a rules file, and with the number as it is written there. */
export function inFile(item: FileValue, message: string): string {
  return renamed(message).replace(/^(\w+): \d+/, (_, name: string) => `${name}: ${item.required(name).node.bare}`);
}
