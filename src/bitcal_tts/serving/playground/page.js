"use strict";
// The playground: one problem, with us and without, side by side; and what the autopilot knows.
// Model text only ever becomes text nodes.

const $ = (id) => document.getElementById(id);
const make = (name, attributes = {}, ...children) => {
  const node = name.startsWith("svg:") ? document.createElementNS("http://www.w3.org/2000/svg", name.slice(4)) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
};
const percent = (x, digits = 0) => `${(100 * x).toFixed(digits)} %`;
let about = null, running = null, example = -1;

function headers() {
  const key = $("key").value;
  return { "content-type": "application/json", ...(key ? { authorization: `Bearer ${key}` } : {}) };
}

// A line chart: curves are lists of [x, y]; a bar is where something is decided.
function chart(curves, { bar = null, low = 0, high = 1, xlabel = "", format = (y) => y.toFixed(1) }) {
  const width = Math.min(520, document.documentElement.clientWidth - 60), height = 150, left = 44, bottom = 24, top = 8, right = 10;
  const points = curves.flat();
  const last = Math.max(1, ...points.map((p) => p[0]));
  const first = points.length > 1 ? Math.min(last, ...points.map((p) => p[0])) : 0;
  const x = (v) => left + (width - left - right) * (v - first) / (last - first || 1);
  const y = (v) => top + (height - top - bottom) * (1 - (Math.min(high, Math.max(low, v)) - low) / (high - low || 1));
  const svg = make("svg:svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": xlabel });
  for (const v of [low, (low + high) / 2, high]) {
    svg.append(make("svg:line", { x1: left, x2: width - right, y1: y(v), y2: y(v), class: "axis" }));
    svg.append(make("svg:text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" }, format(v)));
  }
  svg.append(make("svg:text", { x: left, y: height - 6 }, String(Math.round(first))));
  svg.append(make("svg:text", { x: width - right, y: height - 6, "text-anchor": "end" }, `${Math.round(last)} ${xlabel}`));
  if (bar !== null) svg.append(make("svg:line", { x1: left, x2: width - right, y1: y(bar), y2: y(bar), class: "bar" }));
  curves.forEach((curve, i) => {
    if (!curve.length) return;
    const kind = i === curves.length - 1 ? "curve" : "curve second";
    svg.append(make("svg:polyline", { points: curve.map((p) => `${x(p[0])},${y(p[1])}`).join(" "), class: kind }));
    if (i === curves.length - 1) for (const p of curve.slice(-80)) svg.append(make("svg:circle", { cx: x(p[0]), cy: y(p[1]), r: 2.5, class: "point" }));
  });
  return svg;
}

function facts(list, entries) {
  list.replaceChildren(...entries.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
}

// One column: a stream of events, shown as it comes.
async function column(id, body, signal) {
  const box = $(id), list = box.querySelector("dl"), text = box.querySelector(".text");
  const decision = box.querySelector(".decision"), place = box.querySelector(".chart");
  list.replaceChildren(); text.replaceChildren(); decision.textContent = ""; decision.className = "decision"; place.replaceChildren();
  const began = performance.now(), looks = [];
  let tokens = 0, account = null, threshold = null, usage = null, waiting = false, passed = false;
  const show = () => {
    waiting = false;
    if (signal.aborted) return; // the column may be another run's by now
    facts(list, [["tokens", String(usage?.completion_tokens ?? (passed ? "…" : tokens))], ["seconds", ((performance.now() - began) / 1000).toFixed(1)], ["answer", account ? account.answer ?? "none" : passed ? "not read" : "…"]]);
    if (looks.length) {
      place.hidden = false;
      place.replaceChildren(chart([looks], { bar: threshold, xlabel: "tokens" }), make("p", { class: "legend" }, "Score at each look; from the dashed line on it stops."));
    }
  };
  const answer = await fetch("v1/chat/completions", { method: "POST", headers: headers(), body: JSON.stringify(body), signal });
  if (!answer.ok) {
    const told = await answer.json().catch(() => null);
    throw new Error(told?.error?.message ?? `HTTP ${answer.status}`);
  }
  const how = answer.headers.get("x-bitcal") ?? "";
  passed = !how.startsWith("controlled");
  if (passed) decision.textContent = how;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    held += value;
    const lines = held.split("\n");
    held = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data: ") || line === "data: [DONE]") continue;
      const event = JSON.parse(line.slice(6));
      if (event.error) throw new Error(event.error.message);
      const delta = event.choices?.[0]?.delta, said = (delta?.reasoning_content ?? "") + (delta?.content ?? "");
      if (passed && said) { text.append(said); text.scrollTop = text.scrollHeight; }
      usage = event.usage ?? usage;
      const told = event.bitcal;
      if (told?.tokens) {
        threshold = told.threshold;
        looks.push(...told.looks);
        for (const [piece, entropy, landing] of told.tokens) {
          tokens += 1;
          const shade = landing ? "landed" : entropy === null ? "" : `s${Math.min(12, Math.round(entropy * 6))}`;
          const node = make("span", { class: shade }, piece);
          if (entropy !== null) node.title = `entropy ${entropy.toFixed(2)} nats`;
          text.append(node);
        }
        text.scrollTop = text.scrollHeight;
      } else if (told) account = told;
    }
    if (!waiting) { waiting = true; requestAnimationFrame(show); }
  }
  const seconds = (performance.now() - began) / 1000;
  show();
  if (account) {
    const score = account.score === null ? "" : `, score ${account.score.toFixed(3)}${threshold === null ? "" : ` at a threshold of ${threshold.toFixed(3)}`}`;
    const pilot = account.autopilot ? `; autopilot ${account.autopilot.phase}, this one ${account.autopilot.role}` : "";
    decision.textContent = `${account.method}: ${account.reason} after ${account.step ?? account.used} of ${account.cap} tokens${score}${pilot}`;
  } else decision.textContent = how;
  return { tokens: usage?.completion_tokens ?? tokens, seconds, answer: account?.answer ?? null, passed, stopped: (account?.step ?? null) !== null };
}

// What stopping came to: a sentence, and whether it is good news. Two texts of one model may differ though nothing was stopped.
function judge(ours, theirs) {
  const same = ours.answer === theirs.answer, saved = 1 - ours.tokens / Math.max(1, theirs.tokens);
  const answer = same ? "Same answer" : `Another answer (${ours.answer || "none"}, not ${theirs.answer || "none"})`;
  const counts = `${ours.tokens} tokens with BitCal, ${theirs.tokens} without`;
  if (ours.passed) return [`Passed on to the server as it is, and not stopped: ${counts}.`, ""];
  if (!ours.stopped) return [`Nothing was stopped: ${counts}. ${answer}${same ? "" : ": the model wrote two texts"}.`, ""];
  const less = saved >= 0 ? `${percent(saved)} fewer tokens` : `${percent(-saved)} more tokens: the two texts differ before the stop`;
  return [`${answer}, ${less}: ${counts}.`, same ? "good" : "error"];
}

async function run() {
  running?.abort();
  running = new AbortController();
  const { signal } = running;
  const body = {
    model: about.model, stream: true, stream_options: { include_usage: true },
    messages: [{ role: "user", content: about.prompt.replace("{question}", () => $("problem").value) }],
    temperature: $("temperature").value === "" ? about.temperature : Number($("temperature").value), max_tokens: Number($("budget").value) || about.budget,
    seed: Math.floor(Math.random() * 2 ** 31),
  };
  $("verdict").className = ""; $("verdict").textContent = "running…";
  try {
    const both = await Promise.all([
      column("with", { ...body, bitcal: { trace: true } }, signal),
      column("without", { ...body, bitcal: { trace: true, method: "fixed" } }, signal),
    ]);
    const [verdict, kind] = judge(...both);
    $("verdict").className = kind;
    $("verdict").textContent = verdict;
  } catch (error) {
    if (running.signal !== signal) return; // another run has taken its place, and says what becomes of it
    $("verdict").className = "error";
    $("verdict").textContent = signal.aborted ? "ended" : String(error.message ?? error);
    running.abort();
  }
}

function pilotCard(one) {
  const list = make("dl"), shadow = one.shadow, strictest = one.thresholds[0];
  facts(list, [
    ["phase", one.phase], [one.phase === "stopping" ? "promised" : "to be promised", `at most ${percent(one.risk, 1)} changed`],
    ["requests", String(one.requests)], ["learned from", String(one.learned)],
    ...(shadow ? [["lost", `${shadow.lost} of ${shadow.n} [${percent(shadow.lost_low, 1)}, ${percent(shadow.lost_high, 1)}]`], ["a stop saves", percent(shadow.saved)]] : [["next scorer at", String(one.due)], ...(strictest ? [["lost at the strictest threshold", `${strictest.losses} of ${strictest.n}`], ...(strictest.promised ? [["proven so far", "what saves nothing"]] : [])] : [])]),
    one.net < 0 ? ["taken by finding out, of all tokens", percent(-one.net, 1)] : ["net saved, what it asked counted", percent(one.net, 1)],
  ]);
  const bar = -Math.log(one.level), points = one.history.filter((p) => p.epoch === one.epoch);
  // The curve that matters is drawn last: of the threshold that is served, or of the strictest while none is.
  const matters = Math.max(0, one.thresholds.findIndex((t) => t.served));
  const order = [...one.thresholds.keys()].sort((a, b) => (a === matters) - (b === matters));
  const curves = order.map((i) => points.map((p) => [p.requests, p.evidence[i] ?? 0]));
  const saved = one.history.map((p) => [p.requests, p.saved]);
  const top = Math.max(bar * 1.5, ...curves.flat().map((p) => p[1]));
  const bottom = Math.min(0, ...saved.map((p) => p[1]));
  const charts = make("div", { class: "charts" });
  if (points.length > 1) {
    charts.append(make("div", {}, make("h3", {}, "Evidence for each threshold; above the line it is proven, and promised where it saves tokens"), chart(curves, { bar, high: top, xlabel: "requests" })));
    charts.append(make("div", {}, make("h3", {}, "Net savings so far"), chart([saved], { low: bottom, high: Math.max(0.1, ...saved.map((p) => p[1])), xlabel: "requests", format: (y) => percent(y) })));
  }
  const events = make("ul", {}, ...one.events.slice(-6).reverse().map((e) => make("li", {}, `${new Date(1000 * e.time).toLocaleTimeString()} ${e.text}`)));
  const s = one.setting;
  return make("article", { class: "pilot" }, make("h2", {}, `${s.model} at ${s.bits} bits${typeof s.style === "string" ? `, ${s.style}` : ""}, temperature ${s.temperature}, budget ${s.budget}`), make("p", { class: "decision" }, one.why), list, charts, events);
}

async function watchPilot() {
  if ($("pilot").hidden) return;
  try {
    const answer = await fetch("bitcal/autopilot", { headers: headers() });
    const told = await answer.json();
    if (!answer.ok) throw new Error(told.error.message);
    if (told.on) $("pilot-none").textContent = told.pilots.length ? "" : "No request has come yet.";
    else $("pilot-none").replaceChildren("The autopilot is off: start with ", make("code", {}, "bitcal serve --upstream URL --risk 0.02"), ", and it earns a promise from the traffic.");
    $("pilots").replaceChildren(...told.pilots.map(pilotCard));
  } catch (error) {
    $("pilot-none").textContent = String(error.message ?? error);
  }
}

function choose(name) {
  for (const one of ["play", "pilot"]) {
    const chosen = one === name;
    $(one).hidden = !chosen;
    $(`tab-${one}`).setAttribute("aria-selected", String(chosen));
    $(`tab-${one}`).tabIndex = chosen ? 0 : -1;
  }
  watchPilot();
}

function nextExample() {
  example = (example + 1) % about.examples.length;
  $("problem").value = about.examples[example];
}

async function begin() {
  for (const one of ["play", "pilot"]) $(`tab-${one}`).addEventListener("click", () => choose(one));
  document.querySelector("[role=tablist]").addEventListener("keydown", (event) => {
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    const other = $("pilot").hidden ? "pilot" : "play";
    choose(other);
    $(`tab-${other}`).focus();
  });
  $("ask").addEventListener("submit", (event) => { event.preventDefault(); run(); });
  $("problem").addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("ask").requestSubmit(); });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") running?.abort(); });
  $("example").addEventListener("click", nextExample);
  setInterval(watchPilot, 2000);
  try {
    about = await (await fetch("bitcal/about")).json();
  } catch {
    $("about").textContent = "The sidecar does not answer.";
    return;
  }
  $("about").textContent = `${about.model} at ${about.bits} bits, halted by ${about.method}. ${about.promise}`;
  $("temperature").value = about.temperature;
  $("budget").value = about.budget;
  $("key-label").hidden = !about.needs_key;
  if (about.examples.length) { $("example").hidden = false; nextExample(); }
  $("problem").focus();
}

document.addEventListener("DOMContentLoaded", begin);
