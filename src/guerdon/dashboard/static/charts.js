// Charts in one visual language, each with a text alternative and its numbers behind a disclosure.
const colours = { blue: "#0072B2", orange: "#E69F00", green: "#009E73", red: "#D55E00", sky: "#56B4E9", purple: "#CC79A7", yellow: "#F0E442" };
const drawn = new Map();
const waiting = new Set(); // charts that are not painted yet
let busy = false;
let painting = Promise.resolve();

// Plotly is large: it starts when the page has been painted, while the numbers of the charts are being fetched.
const library = painted().then(() => new Promise((done, fail) => {
  const script = document.createElement("script");
  script.src = document.querySelector("meta[name=plotly]").content;
  script.onload = done;
  script.onerror = () => fail(new Error("the script that draws them did not load; reload the page"));
  document.head.append(script);
}));

function painted() {
  return new Promise((done) => (document.hidden ? done() : requestAnimationFrame(() => setTimeout(done))));
}

export function colour(name) {
  const dark = style("--scheme") === "dark";
  if (dark && name === "blue") return "#56B4E9";
  return colours[name] ?? style(`--${name}`);
}

// Plotly takes a few tags in texts for markup; names must stay names.
export function plain(text) {
  return String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

export function shorten(text, length = 26) {
  const letters = [...String(text)];
  return letters.length > length ? `${letters.slice(0, length - 1).join("")}…` : String(text);
}

export function number(value, digits = 2) {
  if (value === null || value === undefined) return "–";
  return Number(value).toLocaleString("en", { maximumFractionDigits: digits });
}

// Rounds are whole: no tick lies between two of them, and none is shortened to thousands.
export function roundAxis(rounds) {
  const rough = Math.max(1, (rounds.at(-1) - rounds[0]) / (innerWidth < 600 ? 4 : 8));
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((times) => times * power >= rough) * power;
  return { title: { text: "round" }, tickformat: ",d", tick0: 0, dtick: step };
}

export function digits(value, count = 3) {
  return Number(value).toLocaleString("en", { maximumSignificantDigits: count });
}

// A title of an axis, broken where a phone is too narrow for it.
export function title(text) {
  return innerWidth < 600 ? text.replace(/(.{18}\S*) /g, "$1<br>") : text;
}

export function style(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// Says at the top of the page why charts could not be drawn, or takes that back.
export function complain(error) {
  const box = document.getElementById("stale");
  box.hidden = !error;
  box.querySelector("span").textContent = error?.message ?? "";
}

export async function read(address, signal) {
  const answer = await fetch(address, { signal });
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.detail ?? answer.statusText);
  return body;
}

// `figure` is a function, so that a change of theme can draw it again in other colours.
export function draw(id, figure, { summary, table, remark } = {}) {
  drawn.set(id, figure);
  const box = document.getElementById(id);
  const plot = box.querySelector(".plot");
  const some = figure !== null;
  plot.hidden = !some;
  box.querySelector(".empty").hidden = some;
  box.querySelector(".numbers").hidden = !some;
  const note = box.querySelector(".remark");
  note.hidden = !remark;
  note.textContent = remark ?? "";
  if (!some) return;
  if (summary) plot.setAttribute("aria-label", summary);
  request(id);
  if (table) tabulate(box.querySelector(".numbers"), table);
}

// Resolves when every chart that was asked for is painted; rejects where that cannot be.
export const settled = () => painting;

function request(id) {
  waiting.add(id);
  if (busy) return;
  busy = true;
  painting = paintAll().finally(() => (busy = false));
  painting.catch(() => {}); // those that wait for it are told
}

// From the top of the page down, one at a time: each is seen as soon as it is ready.
async function paintAll() {
  await library;
  while (waiting.size > 0) {
    const { id } = [...document.querySelectorAll(".chart")].find((box) => waiting.has(box.id));
    waiting.delete(id);
    const figure = drawn.get(id);
    if (figure) paint(document.querySelector(`#${id} .plot`), figure());
    performance.mark(`chart ${id}`);
    await new Promise((done) => setTimeout(done));
  }
}

function paint(plot, { traces, layout }) {
  const ink = style("--ink"), soft = style("--soft"), line = style("--line");
  const axis = { gridcolor: line, zerolinecolor: line, linecolor: line, tickfont: { color: soft }, automargin: true, fixedrange: true };
  const basic = {
    autosize: true, height: 300, margin: { l: 56, r: 14, t: 8, b: 46 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", size: 12.5, color: ink }, showlegend: false, dragmode: false,
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { color: ink } },
    hoverlabel: { bgcolor: style("--card"), bordercolor: line, font: { color: ink } },
  };
  const full = { ...basic, ...layout, xaxis: { ...axis, ...layout.xaxis }, yaxis: { ...axis, ...layout.yaxis } };
  window.Plotly.react(plot, traces, full, { displayModeBar: false, responsive: true, displaylogo: false });
}

function tabulate(details, make) {
  const fill = () => {
    const { head, rows } = make();
    const table = document.createElement("table");
    table.className = "list";
    table.createCaption().textContent = details.parentElement.querySelector("h2").textContent;
    const top = table.createTHead().insertRow();
    for (const text of head) {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.textContent = text;
      top.append(cell);
    }
    const body = table.createTBody();
    for (const row of rows) {
      const line = body.insertRow();
      for (const value of row) line.insertCell().textContent = value;
    }
    details.querySelector("div").replaceChildren(table);
  };
  details.ontoggle = () => details.open && fill();
  if (details.open) fill();
}

document.addEventListener("guerdon:theme", () => {
  for (const id of drawn.keys()) request(id);
});
