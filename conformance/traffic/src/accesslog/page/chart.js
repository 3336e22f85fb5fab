// The chart of the requests over time.

const report = JSON.parse(document.getElementById("data").textContent);

const instant = (ms) => new Date(ms).toISOString().slice(0, 19).replace("T", " ");

/** A length of time in its largest whole unit. */
function span(ms) {
  const [length, name] = [[86_400_000, "d"], [3_600_000, "h"], [60_000, "min"], [1_000, "s"]].find(([length]) => ms >= length && ms % length === 0) ?? [1, "ms"];
  return `${number(ms / length)} ${name}`;
}

/** Steps of an axis from 0 that end at or above a value. */
function ticks(most) {
  const power = 10 ** Math.floor(Math.log10(most));
  const step = Math.max([0.25, 0.5, 1, 2, 2.5, 5].map((part) => part * power).find((step) => most / step <= 4), 1);
  return Array.from({ length: Math.ceil(most / step) + 1 }, (_, nth) => nth * step);
}

/** A bar for each step: the requests without a limit, above them the admitted ones, and above those the denied ones. */
function chart({ step_ms, buckets }) {
  const [width, height, left, right, top, bottom] = [960, 240, 64, 12, 12, 34];
  const [first, last] = [buckets[0].from_ms, buckets.at(-1).from_ms + step_ms];
  const marks = ticks(Math.max(...buckets.map((one) => one.unlimited + one.admitted + one.denied)));
  const x = (ms) => left + ((ms - first) / (last - first)) * (width - left - right);
  const y = (value) => height - bottom - (value / marks.at(-1)) * (height - top - bottom);
  const wide = Math.max(x(first + step_ms) - left - 0.5, 0.8);
  const parts = [h("defs", {}, h("pattern", { id: "refused", width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    h("line", { class: "hatch", y2: 5 }))),
  ...marks.flatMap((mark) => [h("line", { class: "axis", x1: left, x2: width - right, y1: y(mark), y2: y(mark) }),
    h("text", { class: "soft", x: left - 6, y: y(mark) + 4, "text-anchor": "end" }, number(mark))])];
  for (const [share, anchor] of [[0, "start"], [0.5, "middle"], [1, "end"]]) {
    const ms = first + share * (last - first);
    parts.push(h("text", { class: "soft", x: x(ms), y: height - bottom + 16, "text-anchor": anchor }, instant(ms)));
  }
  for (const { from_ms, unlimited, admitted, denied } of buckets) {
    const title = `${instant(from_ms)}: ${number(unlimited)} without a limit, ${number(admitted)} admitted, ${number(denied)} denied`;
    let below = 0;
    const part = (name, value) => value > 0
      ? h("rect", { class: name, x: x(from_ms), y: y((below += value)), width: wide, height: y(below - value) - y(below) }) : null;
    parts.push(h("g", {}, h("title", {}, title), part("unlimited", unlimited), part("admitted", admitted), part("refused", denied)));
  }
  const about = `${number(report.denied)} of ${number(report.lines.requests)} requests are denied, in ${plural(buckets.length, "step")} of ${span(step_ms)}`;
  const sample = (name, text) => h("span", {}, h("svg", { width: 24, height: 12, "aria-hidden": "true" }, h("rect", { class: name, width: 24, height: 12 })), ` ${text}`);
  return [svg(width, height, `Requests over time. ${about}`, ...parts),
    h("p", { class: "legend" }, sample("unlimited", "without a limit"), sample("admitted", "admitted"), sample("refused", "denied"), h("span", {}, `in steps of ${span(step_ms)}`))];
}
