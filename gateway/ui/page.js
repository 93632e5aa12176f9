// Draws what /ui/state.json says, every two seconds. Whatever comes from there is set as text.
"use strict";

const POLL_MS = 2000;
const SVG = "http://www.w3.org/2000/svg";
const at = (id) => document.getElementById(id);

function element(tag, content, kind) {
  const made = document.createElement(tag);
  if (kind) made.className = kind;
  if (content instanceof Node) made.append(content);
  else if (content !== undefined && content !== null) made.textContent = String(content);
  return made;
}

function number(value) { return value === null ? "–" : Math.round(value).toLocaleString("en"); }
function rate(value) { return value < 10 ? value.toFixed(1) : number(value); }
function percent(value) { return value === null ? "–" : (100 * value).toFixed(1) + " %"; }
function seconds(value) {
  if (value === null) return "–";
  if (value < 0.9995) return (1000 * value).toPrecision(3) + " ms";
  return value < 100 ? value.toPrecision(3) + " s" : number(value) + " s";
}
function age(value) {
  if (value === null) return "–";
  if (value < 90) return Math.round(value) + " s";
  if (value < 5400) return Math.round(value / 60) + " min";
  return value < 172800 ? Math.round(value / 3600) + " h" : Math.round(value / 86400) + " d";
}

// columns: [title, cell of a row, class]. A cell may be a node; anything else is text.
function table(columns, rows, none) {
  if (!rows.length) return element("p", none, "note");
  const made = element("table"), head = element("tr");
  for (const [title, , kind] of columns) head.append(element("th", title, kind));
  made.append(element("thead", head));
  const body = element("tbody");
  for (const row of rows) {
    const line = element("tr");
    for (const [, cell, kind] of columns) {
      const value = cell(row);
      const own = value && value.kind !== undefined && !(value instanceof Node) ? value : null;
      line.append(element("td", own ? own.text : value, own ? own.kind : kind));
    }
    body.append(line);
  }
  made.append(body);
  return made;
}

function put(id, ...nodes) { at(id).replaceChildren(...nodes); }

function shape(tag, attributes, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// lines: [class, values]. A gap stays one; a lone value is a dot.
function chart(ago, lines, top, format) {
  const width = 320, height = 110, left = 46, low = 92, high = 8;
  const oldest = ago.length ? ago[0] : 0;
  const span = [300, 600, 1800].find((all) => all >= oldest) || 1800;
  const x = (position) => left + (width - left - 4) * (1 - Math.min(ago[position], span) / span);
  const y = (value) => low - (low - high) * Math.min(1, value / top);
  const made = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
  for (const part of [0, 0.5, 1]) {
    made.append(shape("line", { x1: left, x2: width - 4, y1: y(part * top), y2: y(part * top), class: "grid" }));
    made.append(shape("text", { x: left - 4, y: y(part * top) + 3, "text-anchor": "end" }, format(part * top)));
  }
  for (const [part, anchor] of [[1, "start"], [0.5, "middle"], [0, "end"]]) {
    const place = left + (width - left - 4) * (1 - part);
    made.append(shape("text", { x: place, y: height - 4, "text-anchor": anchor }, part ? `-${span * part / 60} min` : "now"));
  }
  for (const [kind, values] of lines) {
    let path = "", before = false;
    values.forEach((value, position) => {
      if (value === null) { before = false; return; }
      path += `${before ? "L" : "M"}${x(position).toFixed(1)} ${y(value).toFixed(1)}`;
      const next = values[position + 1];
      if (!before && (next === null || next === undefined))
        made.append(shape("circle", { cx: x(position), cy: y(value), r: 1.8, class: kind }));
      before = true;
    });
    if (path) made.append(shape("path", { d: path, class: kind }));
  }
  return made;
}

function highest(...columns) {
  const most = Math.max(0, ...columns.flat().filter((value) => value !== null));
  if (!most) return 1;
  const step = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 5, 10].map((times) => times * step).find((value) => value >= most * 0.999);
}

function last(values) {
  for (let position = values.length - 1; position >= 0; position--)
    if (values[position] !== null) return values[position];
  return null;
}

function drawCurves(curves) {
  const ago = curves.ago_s;
  put("chart-hit", chart(ago, [["first", curves.hit_rate]], 1, (v) => (100 * v).toFixed(0) + " %"));
  at("now-hit").textContent = percent(last(curves.hit_rate));
  for (const name of ["ttft", "tpot"]) {
    const half = curves[name + "_p50"], most = curves[name + "_p95"];
    put("chart-" + name, chart(ago, [["second", most], ["first", half]], highest(half, most), seconds));
    at("now-" + name).textContent = `p50 ${seconds(last(half))}, p95 ${seconds(last(most))}`;
  }
  const ended = curves.requests_per_s, failed = curves.failed_per_s;
  put("chart-rate", chart(ago, [["first", ended], ["second", failed]], highest(ended, failed), rate));
  at("now-rate").textContent = ended.length ? `${rate(last(ended))}, failed ${rate(last(failed))}` : "–";
}

function drawWorkers(workers) {
  const count = (name) => [name.replace("_", " "), (row) => number(row[name]), "number"];
  put("workers", table([
    ["worker", (row) => row.name],
    ["model", (row) => row.model],
    ["link", (row) => ({ text: row.link + (row.detail ? ": " + row.detail : ""), kind: row.link === "up" ? "good" : "bad" })],
    ["breaker", (row) => ({ text: row.breaker, kind: row.breaker === "open" ? "bad" : "" })],
    ["process", (row) => element("span", row.incarnation, "id")],
    ["seen for", (row) => age(row.seen_s), "number"],
    ["linked for", (row) => age(row.linked_s), "number"],
    count("running"), count("waiting"),
    ["queued tokens", (row) => number(row.queued_tokens), "number"],
    ["pages used + cached / all", (row) => `${number(row.used_pages)} + ${number(row.cached_pages)} / ${number(row.total_pages)}`, "number"],
    ["hit rate", (row) => percent(row.hit_rate), "number"],
    ["knows", (row) => number(row.boundaries), "number"],
    ["view", (row) => ({ text: row.link === "down" ? "" : row.view_stale ? "stale" : "live", kind: row.view_stale ? "bad" : "" })],
  ], workers, "No worker is linked or looked for."));
}

function drawNodes(nodes, all) {
  const list = element("ul");
  for (const node of nodes) {
    const line = element("div"), bar = element("span", "", "share");
    bar.style.width = (100 * node.requests / all).toFixed(1) + "%";
    line.append(bar, element("span", node.digest, "id"), element("span", shorten(node.roles)));
    line.append(element("span", node.tokens === null ? "in no cache" : number(node.tokens) + " tokens"));
    line.append(element("span", number(node.requests) + " requests"), element("span", node.workers.join(", "), "note"));
    const item = element("li", line);
    if (node.below.length) item.append(drawNodes(node.below, all));
    list.append(item);
  }
  return list;
}

// The middle of a long run is left out.
function shorten(roles) {
  const told = roles.length > 4 ? [...roles.slice(0, 2), `… ${roles.length - 3} more`, roles[roles.length - 1]] : roles;
  return told.join(" + ");
}

function drawPrefixes(trees) {
  const shown = trees.filter((tree) => tree.below.length);
  if (!shown.length) { put("prefixes", element("p", "No two requests shared a beginning so far.", "note")); return; }
  put("prefixes", ...shown.flatMap((tree) => {
    const list = drawNodes(tree.below, tree.requests);
    list.className = "tree";
    return [element("p", `${tree.tenant}, ${tree.model}: ${number(tree.requests)} requests`, "note"), list];
  }));
}

function drawTenants(tenants) {
  const columns = ["running", "waiting", "requests", "refused", "failed", "prompt_tokens", "cached_tokens", "completion_tokens"];
  put("tenants", table([["tenant", (row) => row.id], ...columns.map((name) =>
    [name.replace("_", " "), (row) => number(row[name]), "number"])], tenants.rows, "Nobody asked so far."));
  if (tenants.count > tenants.rows.length)
    at("tenants").append(element("p", `The busiest ${tenants.rows.length} of ${tenants.count}.`, "note"));
}

function drawMisses(misses) {
  put("reasons", table([
    ["reason", (row) => row.reason],
    ["prompts", (row) => number(row.prompts), "number"],
    ["tokens computed", (row) => number(row.uncached_tokens), "number"],
  ], misses.reasons, misses.known ? "No prompt was looked at so far." : "The doctor is off (doctor.enabled)."));
  put("findings", table([
    ["ago", (row) => age(row.ago_s), "number"],
    ["tenant", (row) => row.tenant],
    ["reason", (row) => row.reason],
    ["place", (row) => element("code", row.place)],
    ["times", (row) => number(row.times), "number"],
    ["tokens lost", (row) => number(row.lost_tokens), "number"],
    ["what to do", (row) => row.sentence, "text"],
  ], misses.findings, "None."));
}

function drawRequests(rows) {
  put("requests", table([
    ["ago", (row) => age(row.ago_s), "number"],
    ["id", (row) => {
      const made = element("button", row.id, "link id");
      made.type = "button";
      made.addEventListener("click", () => { at("wanted").value = row.id; showLife(); });
      return made;
    }],
    ["tenant", (row) => row.tenant],
    ["model", (row) => row.model],
    ["status", (row) => ({ text: row.status, kind: row.status >= 500 ? "bad" : "" })],
    ["worker", (row) => row.worker],
    ["prompt", (row) => number(row.prompt_tokens), "number"],
    ["cached", (row) => number(row.cached_tokens), "number"],
    ["took", (row) => seconds(row.seconds), "number"],
  ], rows, "None has ended so far."));
}

// A worker's time as a bar under the whole request's; what is not a phase is the link's.
function drawTimes(life) {
  const rows = element("div", undefined, "times");
  const share = (part) => `${100 * Math.min(1, part / (life.seconds || 1))}%`;
  for (const stay of life.workers) {
    const bar = element("div", undefined, "bar");
    for (const [kind, one] of [["stay", stay], ...stay.phases.map((phase) => [phase.name, phase])]) {
      const piece = element("span", undefined, kind);
      piece.style.left = share(one.at_s);
      piece.style.width = share(one.seconds);
      bar.append(piece);
    }
    const told = stay.phases.map((phase) => `${phase.name} ${seconds(phase.seconds)}`);
    const line = element("p", `${stay.worker}: ${told.join(", ") || "told no times"}`, "note");
    rows.append(bar, line);
  }
  return rows;
}

function drawLife(life) {
  const steps = element("ol", undefined, "steps");
  for (const step of life.steps) steps.append(element("li", `${seconds(step.at_s)}  ${step.what}`));
  const facts = [
    ["tenant", life.tenant], ["model", life.model], ["route", life.route],
    ["prompts", life.prompts], ["status", `${life.status}, ${life.outcome}`],
    ["prompt tokens", `${number(life.prompt_tokens)}, ${number(life.cached_tokens)} of them cached`],
    ["output tokens", number(life.completion_tokens)],
    ["why there", life.explanation || "it never went to a worker"],
    ["why cached or not", life.reason || "nobody looked"],
  ];
  put("life", element("h3", life.id, "id"), steps, drawTimes(life),
    table([["", (row) => row[0]], ["", (row) => row[1], "text"]], facts, ""));
}

async function ask(path) {
  const key = sessionStorage.getItem("pando-key");
  const headers = key ? { authorization: "Bearer " + key } : {};
  return fetch(path, { headers, cache: "no-store", credentials: "omit" });
}

async function showLife() {
  const id = at("wanted").value.trim();
  if (!id) { put("life"); return; }
  try {
    const answer = await ask("/ui/request.json?id=" + encodeURIComponent(id));
    const body = await answer.json();
    if (answer.ok) drawLife(body);
    else put("life", element("p", body.error.message, "bad"));
  } catch (error) {
    put("life", element("p", "The gateway does not answer.", "bad"));
  }
}

function draw(state) {
  at("about").textContent = `${state.gateway}, up for ${age(state.up_s)}`;
  drawCurves(state.curves);
  drawWorkers(state.workers);
  drawPrefixes(state.prefixes);
  drawTenants(state.tenants);
  drawMisses(state.misses);
  drawRequests(state.requests);
  at("content").hidden = false;
  at("login").hidden = true;
  at("leave").hidden = !sessionStorage.getItem("pando-key");
}

function askForKey() {
  at("about").textContent = "A key is needed.";
  at("refused").textContent = sessionStorage.getItem("pando-key") ? "This key is not known here." : "";
  at("login").hidden = false;
  at("content").hidden = true;
  at("leave").hidden = true;
  sessionStorage.removeItem("pando-key");
}

let timer = 0;

async function poll() {
  clearTimeout(timer);
  try {
    const answer = await ask("/ui/state.json");
    if (answer.status === 401) { askForKey(); return; }
    if (!answer.ok) throw new Error(String(answer.status));
    draw(await answer.json());
  } catch (error) {
    at("about").textContent = "The gateway does not answer; what is shown is old.";
  }
  timer = setTimeout(poll, POLL_MS);
}

at("login").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("pando-key", at("key").value.trim());
  at("key").value = "";
  poll();
});
at("leave").addEventListener("click", () => { sessionStorage.removeItem("pando-key"); poll(); });
at("find").addEventListener("submit", (event) => { event.preventDefault(); showLife(); });
poll();
