// The page: what was denied, the chart, and the tables.

const share = (part, of) => {
  const percent = of === 0 ? 0 : (part * 100) / of;
  return percent > 0 && percent < 0.05 ? "<0.1 %" : `${percent.toFixed(1)} %`;
};
const withShare = (part, of) => `${number(part)} (${share(part, of)})`;

function head() {
  const { tidegate, logs, rules, lines, clients, clients_denied, denied, from_ms, to_ms } = report;
  $("#build").textContent = `${logs.join(", ")} by ${rules}; ${instant(from_ms)} to ${instant(to_ms)} UTC; Tidegate ${tidegate.version} at ${tidegate.commit.slice(0, 12)}`;
  const free = report.unlimited > 0 ? `; ${number(report.unlimited)} (${share(report.unlimited, lines.requests)}) without a limit` : "";
  $("#result").textContent = `${number(denied)} of ${plural(lines.requests, "request")} (${share(denied, lines.requests)}) denied, of ${number(clients_denied)} of ${plural(clients, "client")} (${share(clients_denied, clients)})${free}`;
  $("#remarks ul").append(...report.remarks.map((text) => h("li", {}, text)));
}

const isNumber = (value) => typeof value === "number" || /^~?[\d,]+( \(.*\))?$/.test(value);

/** A section with a table. Cells are texts, or numbers, which are aligned. */
function table(title, columns, rows, about) {
  if (rows.length === 0) return;
  const kind = (value) => (isNumber(value) ? "number" : /^\d{4}-\d\d-\d\d /.test(value) ? "whole" : "text");
  const cell = (value, nth) => nth === 0 ? h("th", { scope: "row" }, value)
    : h("td", { class: kind(value), "data-label": columns[nth] }, typeof value === "number" ? number(value) : value);
  const heading = (text, nth) => h("th", { scope: "col", class: nth > 0 && isNumber(rows[0][nth]) ? "number" : null }, text);
  $("#tables").append(h("section", {}, h("h2", {}, title), about ? h("p", {}, about) : null, h("div", { class: "scroll cards" }, h("table", {},
    h("thead", {}, h("tr", {}, ...columns.map(heading))), h("tbody", {}, ...rows.map((row) => h("tr", {}, ...row.map(cell))))))));
}

const named = ({ client, shared }) => (shared ? `${client} (shared?)` : client);

function denials() {
  table("What denies", ["rule", "limit", "requests", "clients", "first", "last"],
    report.causes.map((one) => [one.rule, one.limit, one.requests, one.clients, instant(one.first_ms), instant(one.last_ms)]));
  table("Clients that are denied most", ["client", "denied", "requests", "user agents", "first", "last", "by"],
    report.denied_most.map((one) => [named(one), one.denied, one.requests, `~${number(one.agents)}`, instant(one.first_denied_ms), instant(one.last_denied_ms),
      (one.by ?? []).map(({ rule, limit, requests }) => `${rule} ${limit}: ${number(requests)}`).join(", ")]));
  table("Clients with the most requests", ["client", "requests", "denied", "user agents"],
    report.top.map((one) => [named(one), withShare(one.requests, report.lines.requests), one.denied, `~${number(one.agents)}`]));
  table("Addresses that many people probably share", ["address", "user agents", "requests", "denied"],
    report.shared.map((one) => [one.client, `~${number(one.agents)}`, one.requests, one.denied]), `${number(report.shared_count)} in all, by an estimate.`);
}

function tune() {
  if (!report.tune) return;
  const { percent, numbers, together } = report.tune;
  table("Smaller or larger limits", ["limit", "algorithm", "clients", "now", "denies clients", "requests", "smallest", "denies clients", "requests"],
    numbers.map((one) => [one.limit === one.quota ? one.limit : `${one.limit}: ${one.quota}`, one.algorithm, one.clients,
      ...[one.old, one.new].flatMap((tried) => (tried ? [tried.number, withShare(tried.clients, one.clients), tried.requests] : [one.clients === 0 ? "counts no request" : `none up to ${number(one.most)}`, "", ""]))]),
    `The smallest numbers that deny at most ${percent} % of the clients that they count, each alone. All of them together deny ${plural(together.requests, "request")} of ${plural(together.clients, "client")}.`);
}

function shadow() {
  if (!report.shadow) return;
  const one = report.shadow;
  table(`Where ${one.rules} differs`, ["denied by", "only the old rules", "only the new rules", "both"], [
    ["requests", one.requests_only_old, one.requests_only_new, one.requests_both],
    ["clients", one.clients_only_old, one.clients_only_new, one.clients_both]]);
  for (const [which, list] of [["new", one.denied_by_new], ["old", one.denied_by_old]]) {
    table(`Denied only by the ${which} rules`, ["client", "by old", "by new", "first at", "line", "request", "rule", "limit"],
      list.map(({ client, old, new: by, example }) => [client, old, by, ...(example
        ? [instant(example.at_ms), `${example.log}:${example.line}`, `${example.method} ${example.path}`, example.rule, example.limit] : ["", "", "", "", ""])]));
  }
}

head();
if (report.series.buckets.length > 0) $("#series").append(h("div", { class: "scroll" }, ...chart(report.series)));
denials();
tune();
shadow();
$("main").hidden = false;
