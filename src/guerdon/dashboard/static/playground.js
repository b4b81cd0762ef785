// The playground: sliders in, the server's game out; the address keeps the settings.
import { colour, draw, number, read, settled, style, title } from "/static/charts.js";

const $ = (id) => document.getElementById(id);
const frame = document.querySelector(".playground");
const numbers = ["agents", "request", "others", "fixed", "slope", "power"];
const texts = ["rule", "kind", "formula"];
const presets = {
  paper: { agents: 10, request: 8, others: 8, rule: "known", kind: "linear", fixed: 1, slope: 1 },
  shirking: { agents: 10, request: 16, others: 4, rule: "agreement", kind: "linear", fixed: 1, slope: 1 },
  hole: { agents: 10, request: 16, others: 4, rule: "estimated", kind: "linear", fixed: 1, slope: 1 },
};
let game = null;
let points = null;
let asking = null;
let stream = null;
let clock = null;

const short = (id) => String(Number($(id).value));

function cost() {
  if ($("kind").value === "own") return $("formula").value;
  const s = $("kind").value === "power" ? `s**${short("power")}` : "s";
  return `${short("fixed")} + ${short("slope") === "1" ? s : `${short("slope")}*${s}`}`;
}

function settings() {
  const request = Number($("request").value), others = Number($("others").value);
  const largest = Math.min(Number(frame.dataset.largestBatch), Math.max(16, 4 * request, others));
  return { agents: $("agents").value, request, cost: cost(), rule: $("rule").value, others, max_batch: largest };
}

function keepInAddress() {
  const kept = new URLSearchParams();
  for (const id of numbers.concat("rule", "kind")) kept.set(id, $(id).value);
  if ($("kind").value === "own") kept.set("formula", $("formula").value);
  history.replaceState(null, "", `?${kept}`);
}

function takeFrom(values) {
  for (const id of [...numbers, ...texts]) {
    const value = values[id];
    if (value === undefined || value === null) continue;
    if ($(id).tagName === "SELECT" && ![...$(id).options].some((option) => option.value === String(value))) continue;
    $(id).value = value; // a range input keeps itself within its limits
  }
}

function label() {
  for (const id of numbers) $(`${id}-value`).textContent = short(id);
  const kind = $("kind").value;
  $("field-fixed").hidden = $("field-slope").hidden = kind === "own";
  $("field-power").hidden = kind !== "power";
  $("field-formula").hidden = kind !== "own";
  $("cost").textContent = cost();
}

async function update() {
  label();
  keepInAddress();
  points = null;
  asking?.abort();
  asking = new AbortController();
  try {
    game = await read(`/api/game?${new URLSearchParams(settings())}`, asking.signal);
    $("complaint").hidden = true;
    show();
    await settled();
  } catch (error) {
    if (error.name === "AbortError") return;
    game = null;
    $("complaint").textContent = error.message;
    $("complaint").hidden = false;
    for (const id of ["best", "equilibria", "honest", "path"]) $(id).textContent = "–";
    draw("curve", null);
  }
  frame.dataset.shown = location.search;
}

const name = (size) => (size === 0 ? "decline" : String(size));

function show() {
  const rows = game.table.slice(1);
  const sizes = rows.map((row) => row.batch_size);
  const best = game.table[game.best_response];
  $("best").textContent = game.best_response === game.request ? `${game.request}, as asked` : name(game.best_response);
  $("equilibria").textContent = game.symmetric_equilibria.map(name).join(", ") || "none";
  $("honest").textContent = number(game.table[game.request].utility, 3);
  $("path").textContent = game.path.length === 1 ? `stay at ${name(game.path[0])}` : `${game.path.slice(0, 4).map(name).join(" → ")}${game.path.length > 4 ? ` … ${name(game.path.at(-1))}` : ""}`;
  const top = Math.max(...rows.map((row) => Math.max(row.expected_reward, row.utility)));
  const near = rows.slice(Math.max(Math.floor(Math.min(game.others || game.request, game.request) / 3), 1) - 1);
  const bottom = Math.min(...near.map((row) => row.utility), -0.25 * Math.abs(top));
  const margin = 0.08 * (top - bottom) || 1;
  draw("curve", () => ({
    traces: [
      line(sizes, rows.map((row) => row.expected_reward), "expected reward", { color: colour("blue"), width: 2 }),
      line(sizes, rows.map((row) => row.cost), "cost", { color: colour("orange"), width: 2, dash: "dash" }),
      line(sizes, rows.map((row) => row.utility), "utility = reward − cost", { color: colour("green"), width: 3 }),
      { x: [best.batch_size], y: [best.utility], name: `best response: ${name(game.best_response)}`, type: "scatter", mode: "markers", marker: { color: colour("red"), size: 13, symbol: "diamond" }, cliponaxis: false },
      ...simulated(),
    ],
    layout: {
      height: 420, showlegend: true, hovermode: "x unified", xaxis: { title: { text: title("batch size that the agent secretly uses") }, range: [0, game.max_batch], zeroline: false },
      yaxis: { title: { text: "per round, in units of cost" }, range: [bottom - margin, top + margin], zerolinecolor: style("--soft") },
      shapes: [{ type: "line", x0: game.request, x1: game.request, yref: "paper", y0: 0, y1: 1, line: { color: style("--soft"), width: 1, dash: "dot" } }],
      annotations: [{ x: game.request, yref: "paper", y: 0, yanchor: "bottom", xanchor: "left", text: " asked for", showarrow: false, font: { color: style("--soft"), size: 11 } }],
    },
  }), {
    remark: told(),
    summary: `Utility over the batch size; best response ${name(game.best_response)}, utility there ${number(best.utility, 3)}; asked for ${game.request}`,
    table: () => ({ head: ["batch size", "expected reward", "cost", "utility"], rows: game.table.map((row) => [row.batch_size, number(row.expected_reward, 4), number(row.cost, 4), number(row.utility, 4)]) }),
  });
}

// A rule without a closed form: what was simulated, and no curve.
function showPoints() {
  $("complaint").hidden = true;
  $("honest").textContent = number(points.honest.utility, 3);
  const rows = [...points.points, points.honest].sort((a, b) => a.batch_size - b.batch_size);
  draw("curve", () => ({
    traces: simulated(),
    layout: { height: 420, showlegend: true, xaxis: { title: { text: title("batch size that the agent secretly uses") }, rangemode: "tozero" }, yaxis: { title: { text: "per round, in units of cost" }, zerolinecolor: style("--soft") } },
  }), {
    remark: told(),
    summary: `Simulated utility over the batch size; as asked ${number(points.honest.utility, 3)}`,
    table: () => ({ head: ["batch size", "utility", "low", "high"], rows: rows.map((row) => [row.batch_size, number(row.utility, 4), number(row.low, 4), number(row.high, 4)]) }),
  });
}

const line = (x, y, label, look) => ({ x, y, name: label, type: "scatter", mode: "lines", line: look });

function simulated() {
  if (!points) return [];
  const all = [...points.points, points.honest];
  return [{
    x: all.map((point) => point.batch_size), y: all.map((point) => point.utility), name: "simulated utility", type: "scatter", mode: "markers", marker: { color: style("--ink"), size: 8, symbol: "x" },
    error_y: { type: "data", symmetric: false, array: all.map((point) => point.high - point.utility), arrayminus: all.map((point) => point.utility - point.low), color: style("--ink"), thickness: 1.5, width: 4 },
  }];
}

function told() {
  const limits = { known: "", agreement: "The curve holds where earlier rounds have given the right scale." };
  const limit = game ? limits[game.rule] ?? "The curve holds where gradients have many dimensions." : "";
  if (!points) return limit;
  const deterred = points.points.filter((point) => point.verdict === "deters").length;
  return `Simulated with normal gradients in ${points.dimension} dimensions, ${points.repetitions} repetitions of ${points.rounds} rounds: ${deterred} of ${points.points.length} other batch sizes are deterred. The bars hold for all of them together at ${100 * points.confidence} %. ${limit}`;
}

function simulate() {
  stop();
  const progress = $("progress"), bar = progress.querySelector("progress"), words = progress.querySelector("span");
  progress.hidden = $("cancel").hidden = false;
  $("simulate").disabled = true;
  bar.value = 0;
  words.textContent = "starting";
  stream = new EventSource(`/api/game/simulation?${new URLSearchParams(settings())}`);
  stream.addEventListener("queued", (message) => (words.textContent = JSON.parse(message.data).detail));
  stream.addEventListener("progress", (message) => {
    const { done, what } = JSON.parse(message.data);
    bar.value = done;
    words.textContent = what;
  });
  stream.addEventListener("result", (message) => {
    points = JSON.parse(message.data);
    finish("");
    if (game) show();
    else showPoints();
    frame.dataset.simulated = "yes";
  });
  stream.addEventListener("failed", (message) => finish(JSON.parse(message.data).detail));
  stream.onerror = () => finish("the simulation was interrupted");
}

function stop() {
  stream?.close();
  stream = null;
}

function finish(complaint) {
  stop();
  if (!$("progress")) return;
  $("progress").hidden = $("cancel").hidden = true;
  $("simulate").disabled = false;
  if (complaint) {
    $("complaint").textContent = complaint;
    $("complaint").hidden = false;
  }
}

function changed() {
  delete frame.dataset.shown;
  finish("");
  label();
  clearTimeout(clock);
  clock = setTimeout(update, 40);
}

takeFrom(Object.fromEntries(new URLSearchParams(location.search)));
$("controls").addEventListener("input", changed);
$("controls").addEventListener("submit", (event) => event.preventDefault());
for (const button of document.querySelectorAll("[data-preset]")) {
  button.addEventListener("click", () => {
    takeFrom(presets[button.dataset.preset]);
    changed();
  });
}
$("simulate").addEventListener("click", simulate);
$("cancel").addEventListener("click", () => finish(""));
$("share").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(location.href);
    $("share").textContent = "Copied";
  } catch {
    $("share").textContent = "Copy it from the address bar";
  }
  setTimeout(() => ($("share").textContent = "Copy link"), 2000);
});
update();
