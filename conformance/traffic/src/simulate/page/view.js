// The page of a simulation: what was simulated, and a table of the outcomes.

const { setup, assumptions, outcomes, left_out, takeaway, isolates, not_modelled } = JSON.parse(document.getElementById("data").textContent);

const columns = ["design", "offered", "admitted", "exact", "over", "under", "worst", "p50", "p99", "round trips", "$/million", "errors"];
const share = (count, of) => (of === 0 ? "" : ` (${((100 * count) / of).toFixed(count > 0 && count < of / 10 ? 2 : 0)} %)`);

const columnsOfDetails = ["design", "p99.9", "new", "new p50", "new p99", "trips", "requests", "commands", "rows read", "rows written"];

function line(names, { design, parameter }, about, cells) {
  const shown = cells.map((text, nth) => (text === "" ? h("td", {}) : h("td", { class: "number", "data-label": names[nth + 1] }, text)));
  return h("tr", {}, h("th", { scope: "row" }, `${design} ${parameter}`, ...about), ...shown);
}

function table(names, rows) {
  return h("table", {}, h("thead", {}, h("tr", {}, ...names.map((text) => h("th", { scope: "col" }, text)))), h("tbody", {}, ...rows));
}

function details(outcome) {
  const { p999_ms, first, trips, billed } = outcome;
  const { requests, commands, rows_read, rows_written } = billed;
  const counts = [trips, requests, commands, rows_read, rows_written].map(String);
  return line(columnsOfDetails, outcome, [], [`${p999_ms} ms`, `${first.percent.toFixed(2)} %`, `${first.p50_ms} ms`, `${first.p99_ms} ms`, ...counts]);
}

function row(outcome) {
  const { about, offered, admitted, exact, over, under, worst, p50_ms, p99_ms, round_trips, usd_per_million, errors } = outcome;
  const failed = Object.entries(errors).map(([kind, count]) => `${number(count)} ${kind}`);
  const cells = [number(offered), number(admitted), number(exact), `${number(over)}${share(over, exact)}`, `${number(under)}${share(under, exact)}`,
    number(worst), `${p50_ms} ms`, `${p99_ms} ms`, String(round_trips), usd_per_million === null ? "" : usd_per_million.toFixed(2), failed.join(", ")];
  return line(columns, outcome, [h("br"), h("small", {}, about)], cells);
}

$("#result").textContent = takeaway;
$("#setup").append(...setup.flatMap(([name, text]) => h("div", {}, h("dt", {}, name), h("dd", {}, text))));
$("#outcomes").append(table(columns, outcomes.map(row)));
$("#details").append(table(columnsOfDetails, outcomes.map(details)));
$("#left-out").append(...left_out.map(([design, why]) => h("li", {}, `${design} is left out: ${why}`)));
for (const [place, texts] of [["#isolates", isolates], ["#assumptions", assumptions], ["#not-modelled", not_modelled]]) {
  $(place).append(...texts.map((text) => h("li", {}, text)));
}
