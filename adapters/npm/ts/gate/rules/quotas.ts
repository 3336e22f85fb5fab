import { anyRule } from "../../core/algorithms/make_algorithm.js";
import type { ReadyQuota } from "../../core/policy.js";
import { ALGORITHMS, CALENDAR_WINDOW, PENALTIES } from "../rules_policy.js";
import type { FileValue } from "./file_value.js";
import { NEEDS_CALENDAR, NEEDS_NUMBERS, NEEDS_THRESHOLDS } from "./missing_options.js";
import type { ReadCalendar, Rules } from "./rules.js";
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
];

/** What only the Rust crates have. */
const BALANCE = "balance";
const NO_BALANCE = "a balance is not supported by this package yet; count by it in a service in Rust";

/** The further fields of a calendar window. */
const CALENDAR_FIELDS = ["every", "zone", "anchor", "carry_over"];

/** What reads the fields of a quota that are not its algorithm's: `limit_from`, `warn_at`, and those of a calendar window. */
export type QuotaReaders = Pick<Rules, "numbers" | "thresholds"> & { readonly calendar: ReadCalendar | undefined };

/** The quotas of a limit. `dimension` reads what one counts by: a name, or an empty text for the sender. */
export function quotasOf(limit: FileValue, dimension: (item: FileValue) => string, readers: QuotaReaders): ReadyQuota[] {
  return limit.required("quotas").each((item) => quota(item, dimension, readers));
}

function quota(item: FileValue, dimension: (item: FileValue) => string, { numbers: fromData, calendar, thresholds }: QuotaReaders): ReadyQuota {
  const named = item.required("algorithm");
  const algorithm = ALGORITHMS.indexOf(named.text);
  if (named.text === BALANCE) throw named.invalid(NO_BALANCE);
  if (algorithm < 0) throw named.wrong(named.text, `is not an algorithm; ${suggestion(named.text, [...ALGORITHMS, BALANCE])}`);
  const [numbers, isCalendar] = [NUMBERS[algorithm]!, algorithm === CALENDAR_WINDOW];
  // A penalty has no limit.
  item.only(["algorithm", "name", "by", ...Object.keys(numbers), ...(isCalendar ? CALENDAR_FIELDS : []), ...(PENALTIES.includes(algorithm) ? [] : ["limit_from", "warn_at"])]);
  const from = item.field("limit_from");
  if (from && !fromData) throw from.invalid(NEEDS_NUMBERS);
  if (isCalendar && !calendar) throw named.invalid(NEEDS_CALENDAR);
  let quota: ReadyQuota = { algorithm, place: "", amount: 0, span: 0, refill: Number(item.has("returns_cost")), name: undefined, by: undefined };
  for (const [name, kind] of Object.entries(numbers)) if (name !== "returns_cost") quota[kind] = item.required(name).number;
  const name = item.field("name")?.text;
  const by = item.field("by");
  quota.by = (by && dimension(by)) || undefined;
  if (isCalendar) quota = calendar!(item, quota);
  else item.placing(() => anyRule(quota, ""), (message) => inFile(item, message));
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
