// The page of a simulation: what was simulated, and a table of the outcomes.

const { setup, assumptions, outcomes, left_out, takeaway } = JSON.parse(document.getElementById("data").textContent);

const columns = ["design", "offered", "admitted", "exact", "over", "under", "worst", "p50", "p99", "round trips", "$/million", "errors"];
const share = (count, of) => (of === 0 ? "" : ` (${((100 * count) / of).toFixed(count > 0 && count < of / 10 ? 2 : 0)} %)`);

function row(outcome) {
  const { design, parameter, about, offered, admitted, exact, over, under, worst, p50_ms, p99_ms, round_trips, usd_per_million, errors } = outcome;
  const failed = Object.entries(errors).map(([kind, count]) => `${number(count)} ${kind}`);
  const cells = [number(offered), number(admitted), number(exact), `${number(over)}${share(over, exact)}`, `${number(under)}${share(under, exact)}`,
    number(worst), `${p50_ms} ms`, `${p99_ms} ms`, String(round_trips), usd_per_million === null ? "" : usd_per_million.toFixed(2), failed.join(", ")];
  return h("tr", {}, h("th", { scope: "row" }, `${design} ${parameter}`, h("br"), h("small", {}, about)), ...cells.map((text, nth) => (text === "" ? null : h("td", { class: "number", "data-label": columns[nth + 1] }, text)) ?? h("td", {})));
}

$("#result").textContent = takeaway;
$("#setup").append(...setup.flatMap(([name, text]) => h("div", {}, h("dt", {}, name), h("dd", {}, text))));
$("#outcomes").append(h("table", {}, h("thead", {}, h("tr", {}, ...columns.map((text) => h("th", { scope: "col" }, text)))), h("tbody", {}, ...outcomes.map(row))));
$("#left-out").append(...left_out.map(([design, why]) => h("li", {}, `${design} is left out: ${why}`)));
$("#assumptions").append(...assumptions.map((text) => h("li", {}, text)));
