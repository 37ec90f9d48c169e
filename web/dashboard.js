// The dashboard of a node: asks the agent's API and draws. No library, nothing from elsewhere. What was
// fetched is put in as text or as attributes of shapes, never as markup. Choices live in the address
// (behind '#'), so that a view can be kept as a bookmark; nothing is stored but a token, for this tab.
"use strict";

const VIEWS = [["now", "Now"], ["history", "History"], ["checkpoints", "Checkpoints"], ["data", "Data sets"]];
const SPANS = [["300", "5 minutes"], ["3600", "hour"], ["21600", "6 hours"], ["86400", "day"]];
const THEMES = ["auto", "light", "dark"];
const SVG = "http://www.w3.org/2000/svg";
const byId = (id) => document.getElementById(id);

// ---- making elements ----

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "on") for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
    else if (value !== undefined && value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity))
    if (child !== null && child !== undefined) element.append(child instanceof Node ? child : String(child));
  return element;
}
const make = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const draw = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
const nothing = (text) => make("p", { class: "nothing" }, text);

// ---- numbers as people read them ----

const percent = (share) => `${(share * 100).toFixed(share < 0.0995 ? 1 : 0)} %`;
function scaled(value, step, units, digits = 3) {
  let unit = 0;
  while (Math.abs(value) >= step && unit < units.length - 1) { value /= step; ++unit; }
  return `${Number(value.toPrecision(digits))}${units[unit]}`;
}
const count = (value) => value < 10000 ? `${Number(value.toPrecision(3))}` : scaled(value, 1000, ["", " k", " M", " G", " T"]);
const whole = (value) => Math.round(value).toLocaleString("en-US");
const bytes = (value) => scaled(value, 1024, [" B", " KiB", " MiB", " GiB", " TiB", " PiB"]);
function time(ns) {
  if (ns < 1e10) return scaled(ns, 1000, [" ns", " µs", " ms", " s"]);
  const s = ns / 1e9;
  if (s < 120) return `${Number(s.toPrecision(3))} s`;
  if (s < 7200) return `${Number((s / 60).toPrecision(2))} min`;
  return s < 172800 ? `${(s / 3600).toFixed(1)} h` : `${(s / 86400).toFixed(1)} days`;
}
function evidence(one) {
  const of = (value) => {
    if (one.unit === "share") return percent(value);
    if (one.unit === "B" || one.unit === "B/s") return bytes(value) + one.unit.slice(1);
    if (one.unit === "s") return time(value * 1e9);
    return count(value) + (one.unit ? ` ${one.unit}` : "");
  };
  return `${one.what}: ${of(one.value)}` + (one.threshold === undefined ? "" : ` (border: ${of(one.threshold)})`);
}
function gain(finding) {
  if (finding.gain === undefined) return "cannot be told from what was measured";
  const most = finding.gain_at_most ? "at most " : "";
  if (finding.gain < 0) return `${Math.round(-finding.gain * 100)} % slower than it looks now`;
  return finding.gain < 1 ? `${most}${Math.round(finding.gain * 100)} % more samples a second`
    : `${most}${(1 + finding.gain).toFixed(1)} times the samples a second`;
}

// ---- choices ----

function choice(name) {
  return new URLSearchParams(location.hash.slice(1)).get(name) || "";
}
function choose(name, value) {
  const all = new URLSearchParams(location.hash.slice(1));
  if (value) all.set(name, value); else all.delete(name);
  history.replaceState(null, "", `#${all}`);
  changed();
}
// What is known is shown at once; what is missing comes with the next answers.
function changed() {
  showChoices();
  if (wanted().every((kind) => known[kind])) show(true);
  refresh();
}
const view = () => (VIEWS.find(([id]) => id === choice("view")) || VIEWS[0])[0];
const span = () => Number((SPANS.find(([s]) => s === choice("span")) || SPANS[view() === "history" ? 1 : 0])[0]);

function setOptions(select, options, chosen) {
  const wanted = JSON.stringify(options);
  if (select.dataset.options !== wanted) {
    select.dataset.options = wanted;
    select.replaceChildren(...options.map(([value, text]) => make("option", { value }, text)));
  }
  select.value = chosen;
}
function showChoices() {
  const theme = THEMES.includes(choice("theme")) ? choice("theme") : "auto";
  const dark = theme === "dark" || (theme === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  byId("theme").textContent = `Theme: ${theme}`;
  for (const [id] of VIEWS) {
    const chosen = id === view();
    byId(`tab-${id}`).setAttribute("aria-selected", String(chosen));
    byId(`tab-${id}`).tabIndex = chosen ? 0 : -1;
  }
  byId("view").setAttribute("aria-labelledby", `tab-${view()}`);
  setOptions(byId("span"), SPANS, String(span()));
  const runs = [...new Set(processes().map((p) => p.run))];
  setOptions(byId("run"), runs.map((run) => [run, run || "(no name)"]), currentRun());
  const ranks = ofRun().map((p) => [p.id, `${p.rank} (pid ${p.pid}${p.state === "live" ? "" : `, ${p.state}`})`]);
  setOptions(byId("rank"), [["", "all"], ...ranks], ranks.some(([id]) => id === choice("rank")) ? choice("rank") : "");
}

// ---- what is known ----

const known = { node: null, history: null, findings: null, caches: null, checkpoints: null, datasets: null };
const processes = () => (known.node ? known.node.processes : []);
function currentRun() {
  const all = processes();
  if (all.some((p) => p.run === choice("run"))) return choice("run");
  const first = all.find((p) => p.state === "live") || all[0];
  return first ? first.run : "";
}
const ofRun = () => processes().filter((p) => p.run === currentRun());
const chosenProcesses = () => {
  const one = ofRun().filter((p) => p.id === choice("rank"));
  if (one.length) return one;
  const live = ofRun().filter((p) => p.state !== "ended");
  return live.length ? live : ofRun();
};
function metric(list, name, label) {
  let sum = 0, found = false;
  for (const p of list) for (const m of p.metrics)
    if (m.name === name && (label === undefined || m.label === label)) { sum += m.value; found = true; }
  return found ? sum : null;
}
const sum = (list, of) => list.reduce((all, one) => all + of(one), 0);
const mean = (list, of) => (list.length ? sum(list, of) / list.length : 0);

// ---- asking ----

let paused = false, timer = 0, asking = false, again = false;
let token = sessionStorage.getItem("headrace-token") || "";

async function ask(name, query = "") {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch(`api/v1/${name}${query}`, { headers, cache: "no-store", signal: AbortSignal.timeout(10000) });
  if (answer.status === 401) throw Object.assign(new Error("token"), { wantsToken: true });
  if (!answer.ok) throw new Error(`the agent answered ${answer.status}`);
  return answer.json();
}
function wanted() {
  const names = { now: ["node", "history", "findings", "caches", "checkpoints"], history: ["node", "history"],
    checkpoints: ["node", "checkpoints"], data: ["node", "datasets", "findings"] };
  return names[view()];
}
async function refresh() {
  clearTimeout(timer);
  if (asking) { again = true; return; }
  asking = true;
  let answered = false;
  try {
    const names = wanted();
    const answers = await Promise.all(names.map((n) => ask(n, n === "history" ? `?seconds=${span()}&points=120` : "")));
    names.forEach((n, i) => { known[n] = answers[i]; });
    answered = true;
  } catch (error) {
    if (error.wantsToken) {
      byId("login").hidden = false;
      say(token ? "This token is not the agent's." : "", Boolean(token));
    } else {
      say(`The agent cannot be reached (${error.message}). What is shown may be old.`, true);
    }
  }
  asking = false;
  if (answered) {
    byId("login").hidden = true;
    say("");
    show();
  }
  if (again) { again = false; refresh(); return; }
  const every = Math.max(1, known.node ? known.node.interval_seconds : 2);
  if (!paused) timer = setTimeout(refresh, every * 1000);
}
function say(text, trouble = false) {
  const node = known.node;
  let line = text;
  if (!line && node && node.error) {
    line = node.error;
    trouble = true;
  } else if (!line && node) {
    line = `${node.live} live, ${node.silent} silent, ${node.ended} ended` +
      (node.left_out ? `; ${node.left_out} not followed: more than the agent may` : "") + (paused ? "; paused" : "");
  }
  if (byId("state").textContent !== line) byId("state").textContent = line;
  byId("state").classList.toggle("trouble", trouble);
}

// ---- pictures ----

// Values from 0 to 1, or up to the largest of them, over a span of seconds that ends now.
function lineChart(title, unit, series, seconds) {
  const W = 640, H = 190, L = 60, R = 8, T = 8, B = 24;
  const values = series.flatMap((one) => one.values).filter((v) => v !== null);
  if (!values.length) return make("figure", {}, make("figcaption", {}, title), nothing("No data yet."));
  const share = unit === "share";
  const top = share ? 1 : niceTop(Math.max(...values), unit);
  const text = (v) => (share ? `${Math.round(v * 100)} %` : unit === "bytes/s" ? `${bytes(v)}/s` : count(v));
  const x = (i, n) => L + (W - L - R) * ((i + 0.5) / n);
  const y = (v) => T + (H - T - B) * (1 - Math.min(v, top) / top);
  const parts = [];
  for (const part of [0, 0.5, 1]) {
    const at = y(part * top);
    parts.push(draw("line", { class: "grid", x1: L, x2: W - R, y1: at, y2: at }));
    parts.push(draw("text", { class: "tick", x: L - 5, y: at + 4, "text-anchor": "end" }, text(part * top)));
  }
  parts.push(timeAxis(seconds, L, W - R, H - 7));
  series.forEach((one, number) => {
    const n = one.values.length;
    for (const piece of pieces(one.values)) {
      const points = piece.map(([i, v]) => `${x(i, n).toFixed(1)},${y(v).toFixed(1)}`);
      if (points.length === 1)
        parts.push(draw("circle", { class: `dot f${number}`, cx: points[0].split(",")[0], cy: points[0].split(",")[1], r: 2.5 }));
      else parts.push(draw("polyline", { class: `curve c${number}`, "stroke-dasharray": DASHES[number % DASHES.length], points: points.join(" ") }));
    }
  });
  const latest = (one) => { const seen = one.values.filter((v) => v !== null); return seen.length ? text(seen[seen.length - 1]) : "no data"; };
  const words = `${title}: ` + series.map((one) => `${one.name} ${latest(one)}`).join(", ");
  const legend = series.map((one, number) => make("li", {},
    draw("svg", { viewBox: "0 0 30 12", "aria-hidden": "true" },
      draw("line", { class: `curve c${number}`, "stroke-dasharray": DASHES[number % DASHES.length], x1: 0, x2: 30, y1: 6, y2: 6 })),
    `${one.name} ${latest(one)}`));
  return make("figure", {}, make("figcaption", {}, title),
    draw("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": words }, parts),
    make("ul", { class: "legend" }, legend));
}
const DASHES = ["", "7 3", "2 3", "9 3 2 3", "4 2", "12 4", "1 2", "6 2 1 2 1 2"];

// Runs of values without a gap: a gap is time of which nothing is known.
function pieces(values) {
  const found = [];
  let open = null;
  values.forEach((v, i) => {
    if (v === null) { open = null; return; }
    if (!open) found.push(open = []);
    open.push([i, v]);
  });
  return found;
}
function niceTop(most, of) {
  if (!(most > 0)) return 1;
  if (of === "bytes/s") return 2 ** Math.ceil(Math.log2(most));
  const unit = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 4, 5, 8, 10].map((m) => m * unit).find((v) => v >= most * 0.999);
}
function timeAxis(seconds, left, right, y) {
  return [1, 0.5, 0].map((part) => draw("text",
    { class: "tick", x: right - (right - left) * part, y, "text-anchor": part === 1 ? "start" : part ? "middle" : "end" },
    part ? `−${time(seconds * part * 1e9)}` : "now"));
}

// A row for each rank, a column for each stretch of time; darker is more, and from 60 % on there is a mark.
function heatMap(title, rows, seconds) {
  const W = 640, L = 74, R = 52, H = 22;
  const height = rows.length * H + 28;
  const parts = [];
  rows.forEach((row, number) => {
    const y = number * H, n = row.values.length, w = (W - L - R) / n;
    parts.push(draw("text", { class: "row-name", x: L - 6, y: y + 15, "text-anchor": "end" }, row.name));
    row.values.forEach((v, i) => {
      if (v === null) return;
      const step = Math.min(4, Math.floor(v * 5));
      const x = L + i * w;
      parts.push(draw("rect", { class: `h${step}`, x: x.toFixed(1), y: y + 2, width: (w + 0.3).toFixed(1), height: H - 4 },
        draw("title", {}, `${row.name}: ${percent(v)}`)));
      if (step >= 3) parts.push(draw("rect", { class: "mark", x: (x + w / 2 - 1).toFixed(1), y: y + H / 2 - 1, width: 2, height: 2 }));
    });
    parts.push(draw("rect", { class: "edge", x: L, y: y + 2, width: W - L - R, height: H - 4 }));
    const seen = row.values.filter((v) => v !== null);
    parts.push(draw("text", { class: "row-name", x: W - R + 6, y: y + 15 }, seen.length ? percent(mean(seen, (v) => v)) : "–"));
  });
  parts.push(timeAxis(seconds, L, W - R, height - 7));
  const words = `${title}: ` + rows.map((r) => { const s = r.values.filter((v) => v !== null); return `${r.name} ${s.length ? percent(mean(s, (v) => v)) : "no data"}`; }).join(", ");
  const legend = [0, 1, 2, 3, 4].map((step) => make("li", {},
    draw("svg", { viewBox: "0 0 30 12", "aria-hidden": "true" }, draw("rect", { class: `h${step}`, width: 30, height: 12 }),
      step >= 3 ? draw("rect", { class: "mark", x: 14, y: 5, width: 2, height: 2 }) : null),
    step === 4 ? "80 % and more" : `from ${step * 20} %`));
  return make("figure", {}, make("figcaption", {}, title),
    draw("svg", { viewBox: `0 0 ${W} ${height}`, role: "img", "aria-label": words }, parts),
    make("ul", { class: "legend" }, legend));
}
function bar(parts) {
  let x = 0;
  return draw("svg", { class: "bar", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
    draw("rect", { class: "ground", width: 100, height: 8 }),
    parts.map((share, i) => {
      const width = Math.max(0, Math.min(100 - x, share * 100));
      const shape = draw("rect", { class: `part${i}`, x, width, height: 8 });
      x += width;
      return shape;
    }));
}
const tile = (name, value) => make("li", {}, name, make("b", {}, value));
function table(head, rows, chosen) {
  return make("div", { class: "wide", tabindex: 0, role: "group", "aria-label": head.join(", ") }, make("table", {},
    make("thead", {}, make("tr", {}, head.map((h) => make("th", { scope: "col" }, h)))),
    make("tbody", {}, rows.map((row, i) => make("tr", { class: i === chosen ? "chosen" : null }, row.map((cell) => make("td", {}, cell)))))));
}

// ---- views ----

function column(name, list) {
  const at = known.history.columns.indexOf(name);
  return (process) => process.points.map((p) => (p === null ? null : p[at]));
}
const historyOf = (list) => (known.history ? known.history.processes.filter((h) => list.some((p) => p.id === h.id)) : []);
// One series over several processes: their sum or their mean, where any of them is known.
function together(list, name, adds) {
  const all = list.map(column(name));
  if (!all.length) return [];
  return all[0].map((_, i) => {
    const seen = all.map((values) => values[i]).filter((v) => v !== null);
    return seen.length ? (adds ? sum(seen, (v) => v) : mean(seen, (v) => v)) : null;
  });
}

// The stages of several processes as one: times and counts added.
function stagesOf(list) {
  const all = new Map();
  const life = new Map();
  for (const p of list) {
    for (const pool of p.pools) life.set(pool.name, (life.get(pool.name) || 0) + pool.thread_ns);
    for (const s of p.stages) {
      const key = `${s.pool}/${s.name}`;
      const one = all.get(key) || { pool: s.pool, name: s.name, busy: 0, wait: 0, count: 0, bytes: 0, p50: 0, p99: 0 };
      one.busy += s.busy_ns; one.wait += s.wait_ns; one.count += s.count; one.bytes += s.bytes;
      one.p50 = Math.max(one.p50, s.p50_ns); one.p99 = Math.max(one.p99, s.p99_ns);
      all.set(key, one);
    }
  }
  for (const one of all.values()) one.life = life.get(one.pool) || 0;
  return all;
}
const FLOW = [["store/meta", "look up"], ["store/fetch", "fetch"], ["loader/plan", "plan"], ["loader/meta", "look up files"], ["loader/fetch", "fetch"],
  ["loader/cache", "cache"], ["loader/read", "read"], ["loader/checksum", "checksum"], ["loader/decode", "decode"],
  ["loader/transform", "transform"], ["loader/collate", "collate"], ["python/transform", "Python transform"]];

function limiting(list) {
  const votes = new Map();
  for (const p of list) if (p.recent.limiting) votes.set(p.recent.limiting, (votes.get(p.recent.limiting) || 0) + 1);
  return [...votes].sort((a, b) => b[1] - a[1]).map(([name]) => name)[0] || "";
}
function flow(list) {
  const stages = stagesOf(list);
  const seconds = Math.max(...list.map((p) => p.recent.seconds), 1e-9);
  const lit = limiting(list);
  const box = (name, isLit, shares, lines) => make("li", { class: isLit ? "lit" : null },
    make("b", {}, name), isLit ? make("span", { class: "lamp" }, "▲ sets the pace") : null, bar(shares),
    lines.map((line) => make("div", {}, line)));
  const boxes = [];
  for (const [key, name] of FLOW) {
    const s = stages.get(key);
    if (!s || !(s.busy || s.count)) continue;
    const share = s.life ? s.busy / s.life : null;
    const isLit = s.pool === "loader" && s.name === lit;
    boxes.push(box(name, isLit, [share === null ? 0 : share], [
      share === null ? `${count(s.busy / 1e9 / seconds)} at once` : `${percent(share)} busy`,
      `${count(s.count / seconds)}/s`, s.bytes ? `${bytes(s.bytes / seconds)}/s` : "", s.p50 ? `median ${time(s.p50)}` : ""]));
  }
  const stall = mean(list, (p) => p.recent.input_stall), save = mean(list, (p) => p.recent.save_stall), au = mean(list, (p) => p.recent.au);
  boxes.push(box("wait for a batch", false, [0, stall], [`${percent(stall)} of the loop`, "input stall"]));
  boxes.push(box("step", lit === "step", [au, save], [`${percent(au)} computing`,
    `${percent(save)} saving`, `${count(sum(list, (p) => p.recent.batches_per_second))} steps/s`]));
  return make("ol", { class: "flow", "aria-label": "The way of a sample" }, boxes);
}
function tiles(list) {
  const loops = list.filter((p) => p.recent.loop_seconds > 0);
  const mfu = loops.map((p) => p.recent.mfu).filter((v) => v !== null);
  const of = (name) => (loops.length ? percent(mean(loops, (p) => p.recent[name])) : "no data yet");
  return make("ul", { class: "tiles" },
    tile("samples a second", count(sum(list, (p) => p.recent.samples_per_second))),
    tile("input stall", of("input_stall")), tile("save stall", of("save_stall")), tile("AU", of("au")),
    tile("MFU", mfu.length ? percent(mean(mfu, (v) => v)) : "not told"),
    tile("processors busy", count(sum(list, (p) => p.recent.cpus))),
    tile("sets the pace", limiting(list) || "no data yet"));
}
function findings() {
  const run = known.findings && known.findings.runs.find((r) => r.run === currentRun());
  if (!run || !run.has_samples) return nothing("No data yet: the doctor needs some seconds of a loop that gets batches.");
  if (!run.findings.length) return make("p", {}, "✓ Nothing was found that holds this run back.");
  return run.findings.map((f) => make("article", { class: f.severity },
    make("h3", {}, `${f.severity === "problem" ? "■ Problem" : "△ Warning"}: ${f.symptom}`),
    make("p", {}, f.cause), make("ul", {}, f.evidence.map((one) => make("li", {}, evidence(one)))),
    make("p", {}, make("b", {}, "Cure: "), f.cure, f.command ? ". " : ".", f.command ? make("code", {}, f.command) : null),
    make("p", { class: "soft" }, `Predicted gain: ${gain(f)}. Confidence ${Math.round(f.confidence * 100)} %. What would disprove it: ${f.disproof}.`)));
}
function cacheTiers(list) {
  const parts = [];
  const memory = metric(list, "headrace_cache_hits_total", "memory"), disk = metric(list, "headrace_cache_hits_total", "disk");
  const misses = metric(list, "headrace_cache_misses_total");
  const all = (memory || 0) + (disk || 0) + (misses || 0);
  if (all > 0)
    parts.push(table(["blocks asked for", "since the start", "share"], [["memory", memory], ["disk", disk], ["origin (missed)", misses]]
      .map(([name, n]) => [name, whole(n || 0), percent((n || 0) / all)])));
  else parts.push(nothing("No data yet: this run reads nothing through a cache. HEADRACE_CACHE_DIR gives it one."));
  const caches = known.caches;
  if (caches && caches.error) parts.push(nothing(`The node's cache cannot be looked at: ${caches.error}`));
  for (const one of (caches && caches.directories) || [])
    parts.push(make("div", { class: "gauge" }, make("div", {}, make("b", {}, one.directory), one.works ? "" : " (its disk does not work now)"),
      bar([one.limit_bytes ? one.used_bytes / one.limit_bytes : 0]),
      make("div", { class: "soft" }, `${bytes(one.used_bytes)} of ${bytes(one.limit_bytes)} in use` +
        (one.disk_free_bytes === undefined ? "" : `, ${bytes(one.disk_free_bytes)} free on its disk`))));
  return parts;
}
const nowUnixNs = () => (known.node ? known.node.unix_ns : 0);
const ago = (unixNs) => `${time(Math.max(0, nowUnixNs() - unixNs))} ago`;
function checkpointTiers(list) {
  const saves = metric(list, "headrace_checkpoint_saves_total") || 0;
  const failures = metric(list, "headrace_checkpoint_failures_total") || 0;
  const parts = [];
  // Saves that a helper process publishes are not counted by the job's own.
  if (saves || failures)
    parts.push(make("p", {}, `${whole(saves)} saves published, ${whole(failures)} failed, ` +
      `${bytes(metric(list, "headrace_checkpoint_written_bytes_total") || 0)} written`));
  const stores = (known.checkpoints && known.checkpoints.stores) || [];
  const rows = stores.flatMap((store) => store.tiers.map((tier) => {
    const here = store.checkpoints.find((c) => c.places.some((p) => p.level === tier.level));
    const place = here && here.places.find((p) => p.level === tier.level);
    return [tier.level, here ? `step ${here.step}` : tier.error ? "cannot be read" : "none", place ? ago(place.published_unix_ns) : "–"];
  }));
  if (rows.length) parts.push(table(["tier", "newest", "safe since"], rows));
  for (const store of stores) if (store.error) parts.push(nothing(`${store.store}: ${store.error}`));
  if (!parts.length) parts.push(nothing("No data yet: this run has saved nothing, and the agent was given no checkpoint store."));
  return parts;
}
function stallRows(list) {
  return historyOf(list).map((h) => ({ name: `rank ${h.rank}`, values: column("input_stall")(h), rank: h.rank }))
    .sort((a, b) => a.rank - b.rank);
}
function showNow() {
  const list = chosenProcesses();
  if (!list.length) return [nothing("No job runs here yet. One appears by itself when its loader gives its first batch: jobs of the same user, on this node.")];
  const past = historyOf(list);
  return [
    tiles(list),
    make("h2", {}, "The way of a sample"), flow(list),
    make("div", { class: "columns" },
      make("section", {}, make("h2", {}, "Stall and use over time"), past.length ? lineChart("Where the loop's time goes", "share",
        [{ name: "AU (computing)", values: together(past, "au") }, { name: "input stall", values: together(past, "input_stall") },
          { name: "save stall", values: together(past, "save_stall") }], span()) : nothing("No data yet.")),
      make("section", {}, make("h2", {}, "Ranks"), past.length ? heatMap("Input stall of each rank", stallRows(ofRun()), span()) : nothing("No data yet."))),
    make("h2", {}, "What the doctor says"), findings(),
    make("div", { class: "columns" },
      make("section", {}, make("h2", {}, "Cache"), cacheTiers(list)),
      make("section", {}, make("h2", {}, "Checkpoints"), checkpointTiers(list))),
    make("h2", {}, "Processes"),
    table(["rank", "pid", "state", "samples/s", "input stall", "save stall", "AU", "processors", "sets the pace"],
      ofRun().map((p) => [`${p.rank} of ${p.world_size}`, p.pid, p.state === "live" ? "live" : `${p.state} ${time(p.seen_seconds_ago * 1e9)}`,
        count(p.recent.samples_per_second), percent(p.recent.input_stall), percent(p.recent.save_stall), percent(p.recent.au),
        count(p.recent.cpus), p.recent.limiting || "–"]), ofRun().findIndex((p) => p.id === choice("rank"))),
  ];
}
function showHistory() {
  const list = chosenProcesses(), past = historyOf(list);
  if (!past.length) return [nothing("No data yet: the agent remembers what it saw since it began.")];
  const stages = known.history.stages.map((name, at) => ({ name, values: past[0].points.map((_, i) => {
    const seen = past.map((h) => h.points[i]).filter((p) => p !== null);
    return seen.length ? mean(seen, (p) => p[p.length - 1][at]) : null;
  }) })).filter((one) => one.values.some((v) => v > 0));
  return [make("div", { class: "columns" },
    lineChart("Samples a second", "count", [{ name: list.length > 1 ? "all ranks" : "this rank", values: together(past, "samples_per_second", true) }], span()),
    lineChart("Where the loop's time went", "share", [{ name: "AU", values: together(past, "au") },
      { name: "input stall", values: together(past, "input_stall") }, { name: "save stall", values: together(past, "save_stall") }], span()),
    stages.length ? lineChart("Where the workers' time went", "share", stages, span()) : nothing("No worker was busy in this time."),
    lineChart("Bytes a second", "bytes/s", [{ name: "from the origin", values: together(past, "origin_bytes_per_second", true) },
      { name: "from the cache", values: together(past, "cache_bytes_per_second", true) },
      { name: "checkpoints written", values: together(past, "saved_bytes_per_second", true) }], span()),
    lineChart("Processors busy", "count", [{ name: "of this run's processes", values: together(past, "cpus", true) }], span()),
    heatMap("Input stall of each rank", stallRows(ofRun()), span()))];
}

// What happened to a checkpoint, in order: name, begin and end in ns since 1970.
function lifeOf(c) {
  const places = [...c.places].sort((a, b) => a.published_unix_ns - b.published_unix_ns);
  const first = places[0].published_unix_ns, begin = first - c.save_ns;
  const steps = [];
  if (c.stall_ns) steps.push(["the loop is held up", begin, begin + c.stall_ns]);
  if (c.save_ns) steps.push(["written in the background", begin + c.stall_ns, first]);
  let from = begin;
  places.forEach((place, i) => {
    steps.push([i ? `drained to ${place.level}` : `safe: ${place.level}`, i ? from : first, place.published_unix_ns]);
    from = place.published_unix_ns;
  });
  return { begin, steps };
}
function lifeChart(life) {
  const W = 640, L = 170, R = 84, H = 26;
  const end = Math.max(...life.steps.map((s) => s[2]), life.begin + 1);
  const x = (ns) => L + (W - L - R) * ((ns - life.begin) / (end - life.begin));
  const parts = life.steps.flatMap(([name, from, to], i) => {
    const y = i * H, x0 = x(from), x1 = x(to);
    const shape = x1 - x0 < 3 ? draw("circle", { class: `f${i % 8}`, cx: x1, cy: y + H / 2, r: 6 })
      : draw("rect", { class: `f${i % 8}`, x: x0, y: y + 6, width: x1 - x0, height: H - 12 });
    return [draw("text", { class: "row-name", x: L - 8, y: y + 17, "text-anchor": "end" }, name), shape,
      draw("text", { class: "tick", x: x1 + 9, y: y + 17 }, to > from ? time(to - from) : `after ${time(to - life.begin)}`)];
  });
  return draw("svg", { viewBox: `0 0 ${W} ${life.steps.length * H}`, role: "img",
    "aria-label": life.steps.map(([name, from, to]) => `${name} ${time(to - from)}`).join(", ") }, parts);
}
function showCheckpoints() {
  const stores = (known.checkpoints && known.checkpoints.stores) || [];
  if (!stores.length) return [nothing("No data yet: give the agent the folders or URLs of checkpoint stores, as in: headrace agent /nvme/ckpt")];
  return stores.flatMap((store, number) => {
    const name = (c) => `${number}.${c.step}.${c.epoch}.${c.attempt}`;
    const parts = [make("h2", {}, store.store)];
    if (store.error) parts.push(nothing(store.error));
    for (const tier of store.tiers) if (tier.error) parts.push(nothing(`${tier.level}, ${tier.place}: ${tier.error}`));
    const list = store.checkpoints;
    if (!list.length) return [...parts, nothing("No checkpoint was published here yet.")];
    // Without a choice it is the newest one of the first store that has any.
    const first = stores.findIndex((s) => s.checkpoints.length) === number;
    const found = list.findIndex((c) => name(c) === choice("checkpoint"));
    const chosen = found < 0 && first && !choice("checkpoint") ? 0 : found;
    const one = list[chosen];
    if (one) {
      parts.push(make("h3", {}, `The life of step ${one.step}` + (one.epoch > 1 || one.attempt > 1 ? `, epoch ${one.epoch}, attempt ${one.attempt}` : "")));
      parts.push(make("figure", { class: "life" }, lifeChart(lifeOf(one))));
      parts.push(make("p", {}, `${bytes(one.bytes)} of data, ${bytes(one.new_bytes)} of it written anew; ${one.kind}.` +
        (one.restore_ns ? ` The run began with a restore of ${time(one.restore_ns)}.` : "") +
        (one.stall_ns || one.save_ns ? "" : " No data yet: how long it took was not told.")));
    }
    parts.push(table(["step", "size", "loop held up", "saved in", "where it is safe", "since"], list.map((c) => [
      make("button", { type: "button", id: `checkpoint-${name(c)}`, "aria-label": `Show the life of step ${c.step}`,
        on: { click: () => choose("checkpoint", name(c)) } }, c.step),
      bytes(c.bytes), c.stall_ns ? time(c.stall_ns) : "–", c.save_ns ? time(c.save_ns) : "–",
      c.places.map((p) => p.level).join(", "), ago(Math.max(...c.places.map((p) => p.published_unix_ns)))]), chosen));
    if (store.count > list.length) parts.push(make("p", { class: "soft" }, `Older ones that are not shown: ${store.count - list.length}.`));
    return parts;
  });
}
function showData() {
  const all = (known.datasets && known.datasets.datasets) || [];
  if (!all.length) return [nothing("No data yet: no process has a data set open.")];
  return all.flatMap((d) => {
    const parts = [make("h2", {}, d.name), make("p", { class: "soft" }, `read by ${d.runs.map((r) => r || "(no name)").join(", ")}; ${d.live} of ${d.processes} processes live`)];
    const share = d.samples ? d.bad_samples / d.samples : 0;
    const facts = d.facts || {};
    parts.push(make("ul", { class: "tiles" },
      tile("samples", d.facts ? whole(facts.samples) : "no data yet"), tile("shards", d.facts ? whole(facts.shards) : "no data yet"),
      tile("size", d.facts ? bytes(facts.bytes) : "no data yet"), tile("kind", d.facts ? facts.kind : "no data yet"),
      tile("samples delivered", whole(d.samples)), tile("bad samples", `${whole(d.bad_samples)}${d.bad_samples ? ` (${percent(share)})` : ""}`)));
    if (!d.facts) parts.push(nothing("No data yet about its shards: there is no manifest that the agent can read. `headrace pack` or `headrace index` makes one."));
    if (d.facts && facts.present_files > facts.shards)
      parts.push(make("p", {}, `△ ${whole(facts.present_files)} files of the kind lie there, ${whole(facts.shards)} are part of the data set.`));
    parts.push(make("p", {}, d.bad_samples ? `△ ${whole(d.bad_samples)} samples could not be used since the processes began: their loaders' quarantine lists name them.`
      : "✓ Every sample that was read passed its checks."));
    const images = sum(d.decodes, (one) => one.images);
    parts.push(make("h3", {}, "How images were decoded"), images
      ? table(["path", "images", "share"], d.decodes.map((one) => [one.path === "seek_points" ? "from seek points" : `whole: ${one.path.replaceAll("_", " ")}`, whole(one.images), percent(one.images / images)]))
      : nothing("No data yet: no image was decoded."));
    parts.push(make("h3", {}, "In the node's cache"), d.epoch_bytes === undefined ? nothing("No data yet: it is not read through a cache here.")
      : [bar([d.epoch_bytes ? 1 - d.epoch_missing_bytes / d.epoch_bytes : 0]),
        make("p", {}, `${bytes(d.epoch_bytes - d.epoch_missing_bytes)} of ${bytes(d.epoch_bytes)} were there when the present epoch began.`)]);
    return parts;
  });
}

const SHOWS = { now: showNow, history: showHistory, checkpoints: showCheckpoints, data: showData };
// Draws anew, and leaves the reader where he is: focus stays, and a selection is not taken away.
function show(always = false) {
  const main = byId("view");
  const selection = getSelection();
  if (!always && !selection.isCollapsed && main.contains(selection.anchorNode)) return;
  if (known.node) {
    byId("host").textContent = known.node.host;
    byId("program").textContent = `Headrace ${known.node.program}`;
    document.title = `${known.node.host}: Headrace`;
  }
  showChoices();
  const focused = document.activeElement && main.contains(document.activeElement) ? document.activeElement.id : "";
  const scrolled = [...main.querySelectorAll(".wide")].map((one) => one.scrollLeft);
  main.replaceChildren(...fill(document.createDocumentFragment(), {}, SHOWS[view()]()).childNodes);
  [...main.querySelectorAll(".wide")].forEach((one, i) => { one.scrollLeft = scrolled[i] || 0; });
  if (focused && byId(focused)) byId(focused).focus({ preventScroll: true });
  main.dataset.shown = view();
}

// ---- keys and controls ----

function stepView(by, focus) {
  const at = VIEWS.findIndex(([id]) => id === view());
  const next = VIEWS[(at + by + VIEWS.length) % VIEWS.length][0];
  choose("view", next);
  if (focus) byId(`tab-${next}`).focus();
}
function stepRank(by) {
  const ids = ["", ...ofRun().map((p) => p.id)];
  const at = Math.max(0, ids.indexOf(choice("rank")));
  choose("rank", ids[(at + by + ids.length) % ids.length]);
}
function setPaused(now) {
  paused = now;
  byId("pause").setAttribute("aria-pressed", String(paused));
  byId("pause").textContent = paused ? "Go on" : "Pause";
  say("");
  if (paused) clearTimeout(timer); else refresh();
}
function stepTheme() {
  const at = THEMES.indexOf(choice("theme"));
  const next = THEMES[(Math.max(0, at) + 1) % THEMES.length];
  choose("theme", next === "auto" ? "" : next);
}
function onKey(event) {
  if (event.ctrlKey || event.altKey || event.metaKey || event.target.closest("select, input")) return;
  // A table that is wider than the screen is moved by the arrows itself.
  const arrow = event.target.closest(".wide") ? "" : event.key;
  const onTab = event.target.closest("[role=tab]");
  const number = VIEWS.findIndex((_, i) => event.key === String(i + 1));
  if (number >= 0) choose("view", VIEWS[number][0]);
  else if (arrow === "ArrowLeft") stepView(-1, onTab);
  else if (arrow === "ArrowRight") stepView(1, onTab);
  else if (event.key === "k") stepRank(-1);
  else if (event.key === "j") stepRank(1);
  else if (event.key === "p") setPaused(!paused);
  else if (event.key === "t") stepTheme();
  else return;
  event.preventDefault();
}
function begin() {
  byId("tabs").replaceChildren(...VIEWS.map(([id, name], i) => make("button",
    { type: "button", role: "tab", id: `tab-${id}`, "aria-controls": "view", on: { click: () => choose("view", id) } },
    make("kbd", { "aria-hidden": "true" }, i + 1), ` ${name}`)));
  byId("run").addEventListener("change", (e) => { choose("rank", ""); choose("run", e.target.value); });
  byId("rank").addEventListener("change", (e) => choose("rank", e.target.value));
  byId("span").addEventListener("change", (e) => choose("span", e.target.value));
  byId("pause").addEventListener("click", () => setPaused(!paused));
  byId("theme").addEventListener("click", stepTheme);
  byId("login").addEventListener("submit", (e) => {
    e.preventDefault();
    token = byId("token").value;
    byId("token").value = "";
    sessionStorage.setItem("headrace-token", token);
    refresh();
  });
  addEventListener("keydown", onKey);
  addEventListener("hashchange", changed);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showChoices);
  document.addEventListener("visibilitychange", () => { if (!document.hidden && !paused) refresh(); });
  showChoices();
  refresh();
}
begin();
