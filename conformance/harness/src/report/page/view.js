// The page. What it shows is in the address's fragment, so that a link leads to the same view.

const form = $("#filter");

function head() {
  const { version, commit } = report.tidegate;
  $("#build").textContent = `Tidegate ${version} at ${commit.slice(0, 12)}`;
  const statuses = Object.keys(VERDICTS).map((status) => [status, targets.filter((target) => target.status === status).length]);
  const parts = statuses.filter(([, many]) => many > 0).map(([status, many]) => chip(status, ` ${many} ${VERDICTS[status][1]}`));
  $("#result").append(`${plural(targets.length, "target")}: `, ...parts.flatMap((part) => [part, " "]));
  document.title = `${targets.some((target) => target.status === "fail") ? "✗" : "✓"} ${document.title}`;
}

function reading() {
  for (const [verdict, [, , about]] of Object.entries(VERDICTS)) $("#verdicts").append(h("dt", {}, chip(verdict)), h("dd", {}, about));
  const mutants = report.mutants ?? [];
  if (mutants.length === 0) {
    $("#mutants").append(h("p", {}, "The suite is tested, too: ", h("code", {}, "cargo make mutants"),
      " replays the fixtures against limiters that are broken on purpose. It has not run for this report."));
    return;
  }
  const caught = mutants.filter((mutant) => mutant.caught_by > 0);
  const rows = mutants.map((mutant) => h("tr", {}, h("th", { scope: "row" }, h("code", {}, mutant.name)), h("td", {}, mutant.about),
    h("td", {}, mutant.caught_by > 0 ? chip("pass", plural(mutant.caught_by, "fixture")) : chip("fail", "survived"))));
  $("#mutants").append(h("details", {}, h("summary", {}, `The suite can fail: it catches ${caught.length} of ${mutants.length} limiters that are broken on purpose.`),
    h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, ...["mutant", "what is broken", "caught by"].map((text) => h("th", {}, text)))),
      h("tbody", {}, ...rows)))));
}

function targetRows() {
  const columns = ["target", "class", "status", "fixtures", "drift", "operations", "latency", "time"];
  const rows = targets.map((target) => {
    const [first, ...bound] = (target.accuracy || target.class).split(": ");
    const verdicts = ["pass", "fail", "unsupported", "unverified"].map((verdict) => [verdict, count(target, verdict)]).filter(([, many]) => many > 0);
    const drifts = target.fixtures.map(drift).filter((share) => share !== null);
    const data = [
      [h("div", {}, first.replace("_", " ")), h("small", {}, bound.join(": "))],
      [chip(target.status), target.reason && target.status !== "pass" ? h("div", {}, h("small", {}, target.reason)) : null],
      verdicts.length === 0 ? ["none ran"] : [
        h("div", { class: "share", "aria-hidden": "true" }, ...verdicts.map(([verdict, many]) => h("i", { class: verdict, style: `flex:${many}` }))),
        h("small", {}, verdicts.map(([verdict, many]) => `${number(many)} ${VERDICTS[verdict][1]}`).join(", "))],
      drifts.length === 0 ? ["–"] : drifts.every((share) => share === 0) ? ["none"] : [strip(drifts)],
      operations(target),
      target.latency?.length > 0 ? [histogram(target.latency),
        h("small", {}, `p50 ${duration(quantile(target.latency, 0.5))}, p99 ${duration(quantile(target.latency, 0.99))}, in bursts of up to ${number(Math.max(...target.fixtures.map((one) => one.in_flight_peak ?? 0)))} requests`)] : ["–"],
      [h("span", { class: "whole" }, `${number(Math.round(target.elapsed_ms / 100) / 10)} s`)],
    ];
    const emulator = target.emulator ? `${target.emulator.name} ${target.emulator.version}` : "";
    return h("tr", {}, h("th", { scope: "row" }, h("a", { href: `#target=${target.name}` }, target.name), h("div", {}, h("small", {}, emulator))),
      ...data.map((children, nth) => h("td", { "data-label": columns[nth + 1] }, ...children)));
  });
  $("#targets table").append(h("thead", {}, h("tr", {}, ...columns.map((text) => h("th", { scope: "col" }, text)))), h("tbody", {}, ...rows));
}

/** What a decision does at the store on average, and what that costs. */
function operations(target) {
  const done = Object.entries(target.operations ?? {}).map(([name, each]) => `${number(each)} ${name.replaceAll("_", " ")}${each === 1 ? "" : "s"}`);
  if (done.length === 0) return [target.fixtures.some((one) => one.round_trips != null) ? "none" : "not counted"];
  const { usd_per_million: usd, free_per_day: free, date, source, provider } = target.cost ?? {};
  const price = usd === undefined ? null : h("small", { title: `${provider}'s prices of ${date}: ${source}` },
    `$${usd.toFixed(2)} per million${free ? `, ${number(free)} a day free` : ""}`);
  return [...done.map((text) => h("div", {}, text)), price];
}

const state = { q: "", verdicts: new Set(), targets: new Set(), open: new Set(), cell: null };

function fromAddress() {
  const wanted = new URLSearchParams(location.hash.slice(1));
  state.q = wanted.get("q") ?? "";
  state.verdicts = new Set(wanted.getAll("verdict"));
  state.targets = new Set(wanted.getAll("target").filter((name) => cells.has(name)));
  state.open = new Set(wanted.getAll("open"));
  const [target, id] = [wanted.get("on"), wanted.get("fixture")];
  state.cell = cells.get(target)?.has(id) ? [target, id] : null;
}

function toAddress() {
  const wanted = new URLSearchParams();
  if (state.q) wanted.set("q", state.q);
  for (const [name, values] of [["verdict", state.verdicts], ["target", state.targets], ["open", state.open]]) values.forEach((value) => wanted.append(name, value));
  if (state.cell) [wanted.set("on", state.cell[0]), wanted.set("fixture", state.cell[1])];
  history.replaceState(null, "", `#${wanted}`);
}

function controls() {
  const box = (name, value, ...text) => h("label", {}, h("input", { type: "checkbox", name, value }), " ", ...text);
  $("#by-verdict").append(...["pass", "fail", "unsupported", "unverified"].map((verdict) => box("verdict", verdict, chip(verdict))));
  $("#by-target").append(...targets.map((target) => box("target", target.name, target.name)));
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", () => {
    const chosen = new FormData(form);
    state.q = chosen.get("q");
    state.verdicts = new Set(chosen.getAll("verdict"));
    state.targets = new Set(chosen.getAll("target"));
    show();
  });
  form.addEventListener("reset", () => {
    Object.assign(state, { q: "", verdicts: new Set(), targets: new Set(), open: new Set() });
    setTimeout(show);
  });
  addEventListener("hashchange", () => {
    fromAddress();
    show();
  });
}

/** The targets that are shown, and the fixtures of each group that match. */
function selected() {
  const shown = targets.filter((target) => state.targets.size === 0 || state.targets.has(target.name));
  const words = state.q.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = (id) => {
    const text = `${id} ${abouts[id] ?? ""}`.toLowerCase();
    const of_verdict = state.verdicts.size === 0 || shown.some((target) => state.verdicts.has(cells.get(target.name).get(id)?.verdict));
    return of_verdict && words.every((word) => text.includes(word));
  };
  return [shown, [...groups].map(([group, ids]) => [group, ids.filter(matches)]).filter(([, ids]) => ids.length > 0)];
}

function show() {
  form.elements.q.value = state.q;
  for (const box of form.querySelectorAll("input[type=checkbox]")) box.checked = state[`${box.name}s`].has(box.value);
  const [shown, matching] = selected();
  const many = total(matching.map(([, ids]) => ids), "length");
  $("#shown").textContent = `${plural(many, "fixture")} of ${number(ids.length)}`;
  // Whoever searches wants to see what was found, unless it is nearly everything.
  const searching = (state.q !== "" || state.verdicts.size > 0) && many <= 60;
  const body = matching.flatMap(([group, ids]) => {
    const open = searching || state.open.has(group);
    return [groupRow(group, ids, shown, open), ...(open ? ids.map((id) => fixtureRow(id, shown)) : [])];
  });
  $("#matrix table").replaceChildren(
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "group"), ...shown.map((target) => h("th", { scope: "col", class: "target" }, h("span", {}, target.name))))),
    h("tbody", {}, ...body));
  if (state.cell) detail(...state.cell);
  toAddress();
}

function groupRow(group, ids, shown, open) {
  const toggle = () => {
    state.open.has(group) ? state.open.delete(group) : state.open.add(group);
    show();
    $(`[data-group="${CSS.escape(group)}"]`)?.focus();
  };
  const button = h("button", { type: "button", "aria-expanded": String(open), "data-group": group, onclick: toggle }, `${open ? "▾" : "▸"} ${group} `, h("small", {}, `${ids.length}`));
  return h("tr", { class: "group" }, h("th", { scope: "row" }, button), ...shown.map((target) => {
    const found = ids.map((id) => cells.get(target.name).get(id)).filter(Boolean);
    if (found.length === 0) return h("td", { class: "soft", title: "did not run" }, "○");
    const verdict = ["fail", "pass", "unverified", "unsupported"].find((verdict) => found.some((one) => one.verdict === verdict)) ?? "unavailable";
    const passed = found.filter((one) => one.verdict === "pass");
    const label = passed.length > 0 || verdict === "fail" ? `${passed.length}/${found.length}` : VERDICTS[verdict][1];
    const ran = passed.filter((one) => one.offered > 0);
    const sums = Object.fromEntries(["offered", "admitted", "floor", "ceiling"].map((field) => [field, total(ran, field)]));
    return h("td", { class: verdict, title: `${target.name}, ${group}: ${label}` }, `${VERDICTS[verdict][0]} ${label}`, ran.length > 0 ? bullet(sums) : null);
  }));
}

function fixtureRow(id, shown) {
  const about = abouts[id];
  return h("tr", { class: "fixture" }, h("th", { scope: "row" }, id.split("/").slice(1).join("/"), about ? h("small", { class: "soft" }, about) : null),
    ...shown.map((target) => {
      const one = cells.get(target.name).get(id);
      if (!one) return h("td", { class: "soft", title: "did not run" }, "○");
      const text = one.offered > 0 && ["pass", "fail"].includes(one.verdict) ? `${number(one.admitted)}/${number(one.offered)}` : "";
      const open = () => {
        state.cell = [target.name, id];
        show();
      };
      return h("td", {}, h("button", { type: "button", class: one.verdict, "aria-label": `${id} on ${target.name}: ${VERDICTS[one.verdict][1]} ${text}`, onclick: open },
        `${VERDICTS[one.verdict][0]} ${text}`));
    }));
}

async function detail(name, id) {
  const [one, plan] = await detailsOf(name, id);
  // The reader may have gone on meanwhile.
  if (state.cell?.[0] !== name || state.cell[1] !== id) return;
  const target = targets.find((target) => target.name === name);
  const reasons = one.reasons?.length > 0 ? one.reasons : [one.reason].filter(Boolean);
  const command = (report.command ?? "").replace("{target}", name).replace("{fixture}", id);
  const dialog = $("#cell");
  const close = h("button", { type: "button", class: "close", onclick: () => dialog.close(), "aria-label": "Close" }, "✕");
  const copy = h("button", { type: "button", onclick: () => navigator.clipboard?.writeText(command).then(() => { copy.textContent = "Copied"; }) }, "Copy");
  const steps = plan ? outcomes(plan, one) : [];
  dialog.replaceChildren(...[
    close, h("h2", { id: "cell-title" }, id),
    h("p", {}, chip(one.verdict), ` on ${name} `, h("small", {}, target.accuracy)),
    plan ? h("p", {}, plan.about) : null,
    one.cause ? h("p", {}, CAUSES[one.cause]) : null,
    reasons.length > 0 ? h("ul", {}, ...reasons.map((reason) => h("li", {}, reason))) : null,
    one.smallest ? h("details", { open: true }, h("summary", {}, "The smallest form that still fails"), h("p", {}, one.smallest.reason),
      h("pre", {}, JSON.stringify(one.smallest.fixture, null, 2))) : null,
    one.offered > 0 ? h("p", {}, numbers(one)) : null,
    steps.length > 0 && ["pass", "fail"].includes(one.verdict) ? h("div", {}, h("div", { class: "scroll" }, timeline(steps, plan.locations)), legend()) : null,
    plan && steps.length === 0 ? h("p", { class: "soft" }, "This fixture asks which key a request is counted against, so it has no timeline.") : null,
    steps.length > 0 ? stepTable(steps, plan.locations, ["pass", "fail"].includes(one.verdict)) : null,
    plan?.policy ? h("details", {}, h("summary", {}, "Policy"), h("pre", {}, JSON.stringify(plan.policy, null, 2))) : null,
    plan?.source ? h("p", { class: "soft" }, `Source: ${plan.source}`) : null,
    command ? h("div", {}, h("p", {}, "To reproduce exactly this cell:"), h("div", { class: "command" }, h("pre", {}, command), copy)) : null,
  ].filter(Boolean));
  dialog.onclose = () => {
    state.cell = null;
    toAddress();
  };
  if (!dialog.open) dialog.showModal();
}

function numbers(one) {
  const parts = [`offered ${number(one.offered)}`, `admitted ${number(one.admitted)}`, `the reference admits ${number(one.exact)}`,
    `floor ${number(one.floor)}`, `ceiling ${number(one.ceiling)}${one.ceiling_tested ? "" : ", which these requests cannot break"}`];
  if (one.errors > 0) parts.push(`${plural(one.errors, "error")}, which lower the floor`);
  if (one.round_trips != null) parts.push(`${one.round_trips} round trips per decision`);
  if (one.latency_us) parts.push(`median ${duration(one.latency_us.p50)}, longest ${duration(one.latency_us.max)}`);
  return `${parts.join("; ")}.`;
}

function stepTable(steps, locations, answered) {
  const columns = ["at", "operation", "requests", locations > 1 ? "location" : null, "keys", ...(answered ? ["admitted", "denied", "errors"] : []), "reference"].filter(Boolean);
  const rows = steps.map((step) => [instant(step.at_ms), step.cost === 1 ? step.op : `${step.op}, cost ${step.cost}`, step.burst, locations > 1 ? step.location : null, step.of,
    ...(answered ? [step.admitted, step.denied, step.errors] : []), step.exact].filter((value) => value !== null));
  return h("details", {}, h("summary", {}, plural(steps.length, "step")), h("div", { class: "scroll" }, h("table", {},
    h("thead", {}, h("tr", {}, ...columns.map((text) => h("th", { scope: "col" }, text)))),
    h("tbody", {}, ...rows.map((row) => h("tr", {}, ...row.map((value) => h("td", { class: typeof value === "number" ? "number" : "" }, String(value)))))))));
}

head();
reading();
targetRows();
controls();
fromAddress();
$("#still").remove();
$("main").hidden = false;
show();
