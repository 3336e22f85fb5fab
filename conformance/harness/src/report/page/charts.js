// The charts.

/** All requests offered, the band between floor and ceiling, and a mark at the number admitted. */
function bullet({ offered, admitted, floor, ceiling }) {
  const [width, height] = [56, 9];
  const x = (value) => (Math.min(value, offered) / Math.max(offered, 1)) * width;
  const label = `offered ${number(offered)}, admitted ${number(admitted)}, floor ${number(floor)}, ceiling ${number(ceiling)}`;
  return svg(width, height, label, h("title", {}, label),
    h("rect", { class: "track", y: 2, width, height: 5, rx: 2 }),
    h("rect", { class: "band", x: x(floor), y: 2, width: Math.max(x(ceiling) - x(floor), 1), height: 5 }),
    h("rect", { class: "mark", x: Math.min(Math.max(x(admitted) - 1, 0), width - 2), width: 2, height }));
}

/** A dot for each fixture at its drift, on an axis that grows slower the further it is from zero. */
function strip(drifts) {
  const [width, height, zero] = [180, 30, 50];
  const scale = (share) => zero + (share < 0 ? share * (zero - 14) : Math.min(Math.log10(1 + 9 * share) / 3, 1) * (width - zero - 6));
  const label = `${plural(drifts.length, "fixture")}: from ${percent(Math.min(...drifts))} to ${percent(Math.max(...drifts))}`;
  const tick = (share, text) => [
    h("line", { class: "axis", x1: scale(share), x2: scale(share), y1: 2, y2: 17 }),
    h("text", { class: "soft tiny", x: scale(share), y: 28, "text-anchor": "middle" }, text),
  ];
  return svg(width, height, label, h("title", {}, label), ...tick(-1, "−100"), ...tick(0, "0"), ...tick(1, "+100"), ...tick(10, "+1000 %"),
    ...drifts.map((share) => h("circle", { class: "dot", cx: scale(share), cy: 10, r: 4 })));
}

/** The distribution of latencies on a logarithmic axis from 10 µs to 10 s. */
function histogram(buckets) {
  const [width, height] = [120, 30];
  const x = (us) => Math.min(Math.max(Math.log10(us / 10), 0) / 6, 1) * (width - 3);
  const most = Math.max(...buckets.map((one) => one.count));
  const label = buckets.map((one) => `${number(one.count)} up to ${duration(one.up_to_us)}`).join(", ");
  return svg(width, height, label, h("title", {}, label),
    h("line", { class: "axis", x1: 0, x2: width, y1: 18.5, y2: 18.5 }),
    ...[[10, "10 µs"], [10_000, "10 ms"], [10_000_000, "10 s"]].map(([us, text], nth) =>
      h("text", { class: "soft tiny", x: x(us) + (nth === 2 ? 3 : 0), y: 28, "text-anchor": ["start", "middle", "end"][nth] }, text)),
    ...buckets.map((one) => {
      const tall = Math.max((one.count / most) * 18, 0.5);
      return h("rect", { class: "admitted", x: x(one.up_to_us), y: 18 - tall, width: 3, height: tall });
    }));
}

/** The value that a share of the answers does not exceed. */
function quantile(buckets, share) {
  let left = total(buckets, "count") * share;
  return buckets.find((one) => (left -= one.count) <= 0)?.up_to_us;
}

const [BAR, LEFT] = [18, 64];

/** What stands above a bar. */
const caption = (step) => (step.counts ? `${step.admitted}/${step.burst}` : step.op);

/** Gives each step a place from left to right: steps at the same instant stand together, and a longer wait is a wider gap. */
function layout(steps) {
  const slot = Math.max(...steps.map((step) => caption(step).length)) * 6 + 8;
  const columns = [];
  for (const step of steps) {
    let column = columns.at(-1);
    if (column?.at_ms !== step.at_ms) columns.push((column = { at_ms: step.at_ms, lanes: new Map() }));
    column.lanes.set(step.location, [...(column.lanes.get(step.location) ?? []), step]);
  }
  let x = LEFT + 6;
  for (const [nth, column] of columns.entries()) {
    if (nth > 0) x += 8 + 9 * Math.log10(1 + Math.abs(column.at_ms - columns[nth - 1].at_ms));
    column.x = x;
    for (const lane of column.lanes.values()) lane.forEach((step, nth) => { step.x = x + nth * slot; });
    x += Math.max(Math.max(...[...column.lanes.values()].map((lane) => lane.length)) * slot, 40);
  }
  return [columns, slot, x];
}

/** The bursts of a fixture on the virtual clock, a lane for each location, and below them the sums. */
function timeline(steps, locations) {
  const [columns, slot, right] = layout(steps);
  const width = right + 170;
  const [lane, tall, top] = [72, 44, 18];
  const sums = { top: top + locations * lane + 14, height: 120 };
  const height = sums.top + sums.height + 24;
  const most = Math.max(...steps.map((step) => step.burst), 1);
  const parts = [h("defs", {},
    h("pattern", { id: "denied", width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, h("line", { class: "denied", y2: 5, "stroke-width": 3 })),
    h("pattern", { id: "errors", width: 6, height: 6, patternUnits: "userSpaceOnUse" }, h("path", { class: "errors", d: "M0 0L6 6M6 0L0 6", "stroke-width": 1.5 })))];
  for (let location = 0; location < locations; location++) {
    const base = top + location * lane + tall + 6;
    parts.push(h("line", { class: "axis", x1: LEFT, x2: right, y1: base, y2: base }),
      h("text", { class: "soft", y: base - 3 }, locations > 1 ? `location ${location}` : "requests"));
  }
  for (const column of columns) {
    parts.push(h("text", { class: "soft", x: column.x, y: sums.top - 8 }, instant(column.at_ms)));
    for (const step of [...column.lanes.values()].flat()) parts.push(bar(step, slot, top + step.location * lane + tall + 6, tall, most));
  }
  parts.push(...cumulative(steps, slot, right, sums));
  const text = steps.map((step) => `at ${instant(step.at_ms)} ${step.op} ${step.burst}: ${step.admitted} admitted`).join("; ");
  return svg(width, height, `Timeline. ${text}`, ...parts);
}

function bar(step, slot, base, tall, most) {
  const parts = [];
  const middle = step.x + slot / 2;
  let y = base;
  const scale = (value) => (value === 0 ? 0 : Math.max((value / most) * tall, 2));
  for (const [value, fill] of [[step.admitted, null], [step.denied, "url(#denied)"], [step.errors, "url(#errors)"]]) {
    y -= scale(value);
    parts.push(h("rect", { class: fill ? "" : "admitted", fill, x: middle - BAR / 2, y, width: BAR, height: scale(value) }));
  }
  const about = [`${instant(step.at_ms)}: ${step.op} ×${step.burst}`, step.cost === 1 ? null : `cost ${step.cost}`, step.of,
    `${step.admitted} admitted, ${step.denied} denied, ${step.errors} errors`, `the reference admits ${step.exact}`,
    step.disturb && `the store is disturbed: ${step.disturb}`].filter(Boolean).join("\n");
  parts.push(h("text", { x: middle, y: y - 3, "text-anchor": "middle" }, caption(step)),
    step.disturb ? h("text", { class: "soft", x: middle, y: base + 12, "text-anchor": "middle" }, `⚡ ${step.disturb}`) : null);
  return h("g", {}, h("title", {}, about), ...parts.filter(Boolean));
}

/** The checks admitted since the start, with the reference, the floor and the ceiling. */
function cumulative(steps, slot, right, { top, height }) {
  const series = { ceiling: [], reference: [], floor: [], admitted: [] };
  let [admitted, reference] = [0, 0];
  for (const step of steps) {
    if (step.counts) [admitted, reference] = [admitted + step.admitted, reference + step.exact];
    const values = { ceiling: step.ceiling, reference, floor: step.floor, admitted };
    for (const [name, value] of Object.entries(values)) series[name].push([step.x + slot / 2, value]);
  }
  const most = Math.max(...Object.values(series).flatMap((points) => points.map(([, value]) => value)), 1);
  const y = (value) => top + height - (value / most) * (height - 8);
  const parts = [h("line", { class: "axis", x1: LEFT, x2: right, y1: top + height, y2: top + height }),
    h("text", { class: "soft", y: top + height / 2 }, "admitted,"), h("text", { class: "soft", y: top + height / 2 + 13 }, "in sum"),
    h("text", { class: "soft", x: LEFT - 4, y: top + height, "text-anchor": "end" }, "0"),
    h("text", { class: "soft", x: LEFT - 4, y: y(most) + 4, "text-anchor": "end" }, number(most))];
  const ends = new Map();
  for (const [name, points] of Object.entries(series)) {
    const path = points.reduce((path, [x, value]) => `${path}H${x}V${y(value)}`, `M${LEFT} ${y(0)}`) + `H${right}`;
    parts.push(h("path", { class: `line ${name}`, d: path }));
    const end = points.at(-1)[1];
    ends.set(end, [...(ends.get(end) ?? []), name]);
  }
  // Equal values share a label, and labels keep a distance.
  let lowest = Infinity;
  for (const [value, names] of [...ends].sort(([a], [b]) => a - b)) {
    const at = Math.min(y(value) + 4, lowest - 13);
    lowest = at;
    parts.push(h("text", { x: right + 6, y: at }, `${names.join(" = ")} ${number(value)}`));
  }
  return parts;
}

/** The legend of a timeline, in words and patterns. */
function legend() {
  const sample = (text, child) => h("span", {}, h("svg", { width: 24, height: 12, "aria-hidden": "true" }, child), ` ${text}`);
  const line = (name) => sample(name, h("path", { class: `line ${name}`, d: "M0 6H24" }));
  return h("p", { class: "legend" }, sample("admitted", h("rect", { class: "admitted", width: 24, height: 12 })),
    sample("denied", h("rect", { fill: "url(#denied)", width: 24, height: 12 })), sample("errors", h("rect", { fill: "url(#errors)", width: 24, height: 12 })),
    ...["ceiling", "reference", "floor"].map(line));
}
