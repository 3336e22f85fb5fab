import { invalid } from "../error.js";
import type { Meter } from "./events.js";
import type { MakeThresholds } from "./rules/rules.js";
import { FileThresholds, type WarningSink } from "./rules/thresholds.js";

export type { Warning, WarningSink } from "./rules/thresholds.js";

/**
 * The option `warnAt` of a gate whose rules have `warn_at`. Each charge that takes a key from below a part of its limit to it, or beyond, calls
 * every sink once:
 *
 *     const gate = Gate.fromRules(rules, { …, warnAt: warnAt(jsonLines(), ({ quota, warning }) => console.warn(`${warning} % of ${quota}`)) });
 *     const verdict = await gate.check(request);
 *     const model = (verdict.level ?? 0) >= 80 ? "small" : "large";
 *
 * Without a sink, verdicts have their level all the same.
 */
export function warnAt(...sinks: readonly WarningSink[]): MakeThresholds {
  if (!sinks.every((sink) => typeof sink === "function")) throw invalid("warnAt", "not a function; write warnAt((warning) => console.warn(warning))");
  return () => new FileThresholds(sinks);
}

/** Counts warnings with a meter of OpenTelemetry: `tidegate_warnings_total` by `rule`, `quota` and `percent`. No attribute has a key. */
export function warningsMeter(meter: Pick<Meter, "createCounter">): WarningSink {
  const warnings = meter.createCounter("tidegate_warnings_total", { description: "Charges that have taken a key to a part of its limit" });
  return ({ rule, quota, warning }) => warnings.add(1, { rule, quota, percent: String(warning) });
}
