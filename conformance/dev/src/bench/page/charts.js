// The charts of the benchmarks.

const bench = JSON.parse(document.getElementById("data").textContent);

/** Three digits that matter, or all of a larger number. */
const digits = (value) => (value >= 100 ? number(Math.round(value)) : String(Number(value.toPrecision(3))));

const withUnit = (value, unit) => (unit === "count" ? digits(value) : unit === "1/s" ? `${digits(value)}/s` : `${digits(value)} ${unit}`);

/** A number that is short enough for an axis. */
function short(value) {
  if (value >= 1_000_000) return `${digits(value / 1_000_000)} M`;
  return value >= 10_000 ? `${digits(value / 1_000)} k` : digits(value);
}

/** The axis of a measurement, and its place on it. */
const place = ({ at }) => Object.entries(at)[0];

/** Both series of a measurement, as far as there are two. */
const both = (one) => [["ours", one.ours], ["theirs", one.peer]].filter(([, values]) => values);

/** Steps of an axis from 0 that end at or above a value. */
function ticks(most) {
  const power = 10 ** Math.floor(Math.log10(most));
  const step = [0.25, 0.5, 1, 2, 2.5, 5].map((part) => part * power).find((step) => most / step <= 4);
  return Array.from({ length: Math.ceil(most / step) + 1 }, (_, nth) => nth * step);
}

/** Powers of ten that enclose values, for an axis on which a line would otherwise lie on the bottom. */
function powers(least, most) {
  const [from, to] = [Math.floor(Math.log10(least)), Math.ceil(Math.log10(most))];
  return Array.from({ length: to - from + 1 }, (_, nth) => 10 ** (from + nth));
}

/** Lines over the places of an axis, with a band from the least to the greatest value of a round. */
function lines(measurements) {
  const [width, height, left, right, top, bottom] = [340, 210, 46, 14, 12, 36];
  const sorted = measurements.toSorted((a, b) => place(a)[1] - place(b)[1]);
  const unit = sorted[0].unit;
  const values = sorted.flatMap((one) => both(one).map(([, series]) => series));
  const [least, most] = [Math.min(...values.map((one) => one.min)), Math.max(...values.map((one) => one.max), Number.MIN_VALUE)];
  const logarithmic = least > 0 && most / least > 30;
  const marks = logarithmic ? powers(least, most) : ticks(most);
  const scale = logarithmic ? (value) => Math.log10(value / marks[0]) / Math.log10(marks.at(-1) / marks[0]) : (value) => value / marks.at(-1);
  const y = (value) => height - bottom - scale(value) * (height - top - bottom);
  // The places are powers, so equal distances are a logarithmic axis.
  const x = (nth) => left + 12 + (sorted.length === 1 ? 0.5 : nth / (sorted.length - 1)) * (width - left - right - 24);
  const parts = marks.flatMap((mark) => [
    h("line", { class: "axis", x1: left, x2: width - right, y1: y(mark), y2: y(mark) }),
    h("text", { class: "soft", x: left - 5, y: y(mark) + 4, "text-anchor": "end" }, short(mark)),
  ]);
  for (const [nth, one] of sorted.entries()) {
    parts.push(h("text", { class: "soft", x: x(nth), y: height - bottom + 15, "text-anchor": "middle" }, short(place(one)[1])));
  }
  const scaled = `${unit}${logarithmic ? ", logarithmic" : ""}, by ${place(sorted[0])[0].replace("_", " ")}`;
  parts.push(h("text", { class: "soft", x: (left + width - right) / 2, y: height - 5, "text-anchor": "middle" }, scaled));
  // A band never covers a line.
  const drawn = [];
  for (const which of ["theirs", "ours"]) {
    const points = sorted.map((one, nth) => [nth, one, which === "ours" ? one.ours : one.peer]).filter(([, , series]) => series);
    if (points.length === 0) continue;
    const path = (list) => list.map(([nth, value]) => `${x(nth)} ${y(value)}`).join("L");
    const upper = points.map(([nth, , series]) => [nth, series.max]);
    const lower = points.map(([nth, , series]) => [nth, series.min]).reverse();
    parts.push(h("path", { class: `band-${which}`, d: `M${path([...upper, ...lower])}Z` }));
    drawn.push(h("path", { class: which, d: `M${path(points.map(([nth, , series]) => [nth, series.median]))}` }),
      ...points.map(([nth, one, series]) => mark(which, x(nth), y(series.median), `${place(one)[1]}: ${told(series, unit)}`)));
  }
  const about = sorted.map((one) => `${place(one)[1]}: ${both(one).map(([which, series]) => `${which} ${told(series, unit)}`).join(", ")}`).join("; ");
  const grows = bench.growth?.find(({ group, name }) => group === sorted[0].group && name === sorted[0].name);
  const exponent = grows && h("small", {}, ` costs n^${grows.exponent.toFixed(2)}${grows.at_most_n_log_n ? "" : ", which is more than n log n"}`);
  return h("figure", {}, h("figcaption", {}, sorted[0].name, exponent), legend(sorted[0]), svg(width, height, `${sorted[0].name}. ${about}`, ...parts, ...drawn));
}

/** The median with its spread, in words. */
const told = ({ median, min, max }, unit) => `${withUnit(median, unit)}${min === max ? "" : ` (${digits(min)} to ${digits(max)})`}`;

/** A round mark for ours, a square one for the peer's. */
function mark(which, x, y, text) {
  const title = h("title", {}, text);
  return which === "ours" ? h("circle", { class: "dot-ours", cx: x, cy: y, r: 4.5 }, title)
    : h("rect", { class: "dot-theirs", x: x - 4, y: y - 4, width: 8, height: 8 }, title);
}

function legend(one) {
  const sample = (which, text) => h("span", {}, h("svg", { width: 30, height: 12, "aria-hidden": "true" },
    h("path", { class: which, d: "M0 6H30" }), mark(which, 15, 6, text)), ` ${text}`);
  return h("p", { class: "legend" }, sample("ours", "Tidegate"), one.peer ? sample("theirs", one.peer.name) : null);
}

/** Bars of one unit on one scale. A whisker reaches from the least to the greatest value of a round. */
function bars(measurements) {
  const { unit } = measurements[0];
  const most = Math.max(...measurements.flatMap((one) => both(one).map(([, series]) => series.max)), Number.MIN_VALUE);
  const percent = (value) => `${(value / most) * 100}%`;
  const bar = (which, series) => h("div", { class: "bar" },
    h("svg", { height: 16, "aria-hidden": "true" },
      h("rect", { class: `bar-${which}`, y: 2, width: percent(series.median), height: 12 }),
      h("line", { class: "whisker", x1: percent(series.min), x2: percent(series.max), y1: 8, y2: 8 })),
    h("span", { title: told(series, unit) }, withUnit(series.median, unit)));
  return h("figure", {}, h("div", { class: "bars" }, ...measurements.flatMap((one) => [
    h("p", {}, one.name, one.peer ? h("small", {}, ` beside ${one.peer.name} (hatched)`) : null),
    ...both(one).map(([which, series]) => bar(which, series)),
  ])));
}

/** The ratio with its spread on an axis from a tenth to ten. The line in the middle is 1. */
function strip({ median, min, max }) {
  const [width, height] = [132, 16];
  const x = (ratio) => Math.min(Math.max((Math.log10(Math.max(ratio, 0.1)) + 1) / 2, 0), 1) * (width - 10) + 5;
  const label = `${median.toFixed(2)}, from ${min.toFixed(2)} to ${max.toFixed(2)}`;
  return svg(width, height, label, h("title", {}, label),
    h("line", { class: "axis", x1: 5, x2: width - 5, y1: 8, y2: 8 }), h("line", { class: "axis", x1: x(1), x2: x(1), y1: 0, y2: height }),
    h("line", { class: "whisker", x1: x(min), x2: x(max), y1: 8, y2: 8 }), h("circle", { class: "ratio", cx: x(median), cy: 8, r: 4 }));
}
