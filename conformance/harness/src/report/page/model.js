// The report, and what the page derives from it.

const report = await unpacked("overview");

/** The rows of a table that the page has as columns, without what is null. */
function rowsOf(columns) {
  const lists = Object.entries(columns);
  const length = Math.max(0, ...lists.map(([, list]) => list.length));
  return Array.from({ length }, (_, place) => Object.fromEntries(lists.map(([name, list]) => [name, list[place] ?? null]).filter(([, value]) => value !== null)));
}

let unpacking;
/** What only an open cell shows: the plan of a fixture, and its report on a target. They are unpacked when the first cell is opened. */
async function detailsOf(name, id) {
  const { plans, targets } = await (unpacking ??= unpacked("details"));
  const about = abouts[id];
  const one = cells.get(name).get(id);
  return [{ ...one, ...rowsOf(targets[name])[one.place] }, about === undefined ? undefined : { ...plans[id], about }];
}

const VERDICTS = {
  pass: ["✓", "pass", "the answers are right, and within the target's own bounds."],
  fail: ["✗", "fail", "at least one answer is wrong, or a bound was broken."],
  unsupported: ["–", "unsupported", "the adapter declares that it cannot do this, and answered so."],
  unverified: ["?", "unverified", "the answer was well-formed, but cannot be verified here. The fixture says why."],
  not_applicable: ["–", "not applicable", "the target supports none of the fixtures, and says so."],
  unavailable: ["○", "unavailable", "the emulator is not installed, so nothing ran."],
};
const CAUSES = {
  platform: "The platform cannot do this.",
  adapter: "The adapter does not do this.",
  emulator: "The emulator, or virtual time, cannot show this.",
};

const targets = report.targets.map((target) => ({ ...target, fixtures: rowsOf(target.fixtures).map((one, place) => ({ ...one, id: report.ids[one.id], place })) }));
/** The verdict of each fixture, by target and id. */
const cells = new Map(targets.map((target) => [target.name, new Map(target.fixtures.map((one) => [one.id, one]))]));
/** What each fixture is about. */
const abouts = report.fixtures ?? {};
const ids = [...new Set([...Object.keys(abouts), ...targets.flatMap((target) => target.fixtures.map((one) => one.id))])].sort();
const groups = Map.groupBy(ids, (id) => id.split("/")[0]);

const count = (target, verdict) => target.fixtures.filter((one) => one.verdict === verdict).length;
const total = (list, field) => list.reduce((sum, one) => sum + one[field], 0);
/** The share by which more, or fewer, checks were admitted than by an exact limiter. `null` if nothing was offered. */
const drift = (one) => (one.offered === 0 || one.verdict === "unsupported" ? null : (one.admitted - one.exact) / Math.max(one.exact, 1));
const percent = (share) => `${share > 0 ? "+" : share < 0 ? "−" : ""}${number(Math.round(Math.abs(share) * 1000) / 10)} %`;

function duration(us) {
  if (us < 1_000) return `${us} µs`;
  if (us < 1_000_000) return `${number(Number((us / 1_000).toPrecision(3)))} ms`;
  return `${number(Number((us / 1_000_000).toPrecision(3)))} s`;
}

function instant(ms) {
  const sign = ms < 0 ? "−" : "";
  const size = Math.abs(ms);
  if (size < 10_000) return `${sign}${number(size)} ms`;
  if (size < 600_000) return `${sign}${number(size / 1_000)} s`;
  if (size < 172_800_000) return `${sign}${number(Math.round(size / 600) / 100)} min`;
  return `${sign}${number(Math.round(size / 864_000) / 100)} d`;
}

/** The steps of a fixture with a target's answers, or the reference's if the target's are the same. */
function outcomes(plan, one) {
  return plan.steps.map((step, place) => {
    const [admitted, denied, errors, floor, ceiling] = one.steps?.[place] ?? step.reference;
    return { ...step, admitted, denied, errors, floor, ceiling, exact: step.reference[0], counts: step.op === "check" };
  });
}

/** A verdict or status as a symbol with its name. */
function chip(verdict, text = VERDICTS[verdict][1]) {
  return h("span", { class: `chip ${verdict}` }, h("span", { "aria-hidden": "true" }, VERDICTS[verdict][0]), text);
}
