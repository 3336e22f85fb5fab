// The page: for each group its charts, and a table of all its measurements.

/** Units of which bars on one scale say something. */
const IN_BARS = ["B", "KiB", "ms"];

function head() {
  const { tidegate, machine, made_at_s, quick, failed = [], measurements } = bench;
  const at = new Date(made_at_s * 1_000).toISOString().slice(0, 16).replace("T", " ");
  $("#build").textContent = `Tidegate ${tidegate.version} at ${tidegate.commit.slice(0, 12)}, ${at} UTC, on ${plural(machine.cores, "core")} of ${machine.processor}, ${machine.platform}`;
  const aims = measurements.filter((one) => one.aim);
  const reached = aims.filter((one) => one.aim.reached).length;
  $("#result").append(`${plural(measurements.length, "measurement")}; ${number(reached)} of ${plural(aims.length, "aim")} reached`);
  if (failed.length > 0) $("#result").after(h("p", { class: "fail" }, `✗ These benchmarks failed, so some of their measurements are missing: ${failed.join(", ")}.`));
  if (quick) $("#result").after(h("p", { class: "fail" }, "✗ The durations were shortened to test the benchmarks. The values mean nothing."));
  $("#samples").append(legend({ peer: { name: "the peer" } }));
}

function section(group, measurements) {
  const placed = Map.groupBy(measurements.filter((one) => one.at), (one) => one.name);
  const weighed = Map.groupBy(measurements.filter((one) => !one.at && IN_BARS.includes(one.unit)), (one) => one.unit);
  const charts = [...[...placed.values()].map(lines), ...[...weighed.values()].map(bars)];
  const table = measured(measurements);
  return h("section", {}, h("h2", {}, group), charts.length > 0 ? h("div", { class: "charts" }, ...charts) : null,
    charts.length > 0 ? h("details", {}, h("summary", {}, plural(measurements.length, "measurement")), table) : table);
}

function measured(measurements) {
  const columns = ["measurement", "at", "ours", "peer's", "ratio", "spread", "", "aim"];
  const rows = measurements.map((one) => {
    const { name, at, unit, ours, peer, ratio, aim } = one;
    const spread = ratio ? [ratio.min, ratio.max].map((value) => value.toFixed(2)) : [ours.min, ours.max].map((value) => withUnit(value, unit));
    const cells = [at ? `${number(place(one)[1])} ${place(one)[0].replace("_", " ")}` : "", withUnit(ours.median, unit),
      peer ? withUnit(peer.median, unit) : "", ratio ? ratio.median.toFixed(2) : "", spread[0] === spread[1] ? "" : spread.join(" to ")];
    return h("tr", {}, h("th", { scope: "row" }, name, peer ? h("small", {}, ` beside ${peer.name}`) : null),
      ...cells.map((text) => h("td", { class: "number" }, text)), h("td", {}, ratio ? strip(ratio) : null),
      h("td", { class: "whole" }, aim ? aimed(aim, unit) : null));
  });
  return h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, ...columns.map((text) => h("th", { scope: "col" }, text)))), h("tbody", {}, ...rows)));
}

function aimed({ ratio, value, at_least, reached }, unit) {
  const wanted = value === undefined ? ratio.toFixed(2) : withUnit(value, unit);
  return h("span", { class: reached ? "pass" : "unverified" }, `${reached ? "✓" : "✗"} at ${at_least ? "least" : "most"} ${wanted}`);
}

head();
const pattern = h("pattern", { id: "hatched", width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, h("line", { class: "hatch", y2: 5 }));
document.body.append(h("svg", { width: 0, height: 0, "aria-hidden": "true" }, h("defs", {}, pattern)));
for (const [group, measurements] of Map.groupBy(bench.measurements, (one) => one.group)) $("#groups").append(section(group, measurements));
$("main").hidden = false;
