// The charts of a run; drawn again whenever the ledger has changed.
import { colour, complain, digits, draw, number, plain, read, roundAxis, settled, shorten, style, title } from "/static/charts.js";

const box = document.getElementById("run");
const address = `/api/runs/${box.dataset.run}`;
const unit = box.dataset.unit;
const looked = box.dataset.pay !== "paid"; // looks hold the pay: what a round gave is not paid yet
let metric = null;
let until = null; // the last round of the matrix; null follows the newest
let sequence = 0;

const statusColours = () => ({
  paid: style("--paid"), declined: style("--declined"), invalid: colour("red"), alone: colour("orange"), "too-few": colour("purple"), "no-variance": colour("yellow"), waiting: colour("sky"), "held until looks": colour("sky"), released: style("--paid"), "forfeited, all or in part": colour("red"),
});

async function update() {
  const mine = ++sequence;
  const ask = (part) => read(address + part);
  const show = async (drawing, ...asked) => {
    const answers = await Promise.all(asked);
    if (mine === sequence) drawing(...answers);
  };
  try {
    const [rounds, agents] = [ask("/rounds"), ask("/agents")];
    const matrix = ask(until === null ? "/participation" : `/participation?last=${until}`);
    await Promise.all([show(drawRounds, rounds), show(drawPay, agents), show(drawDistances, ask("/distances"), agents), show(drawMatrix, matrix)]);
    await settled();
    if (mine !== sequence) return;
    complain(null);
    audit();
    box.dataset.drawn = String((await rounds).round.at(-1) ?? 0);
  } catch (error) {
    complain(error);
  }
}

// An audit reads all rounds: it comes after everything else, and again while it is behind. A large one must be wanted.
let auditing = false;
let wanted = Number(box.dataset.payments) < 50_000;
async function audit() {
  document.getElementById("audit-now").closest(".tools").hidden = wanted;
  if (!wanted) draw("audit", null);
  if (auditing || !wanted) return;
  auditing = true;
  let data = null;
  try {
    data = await read(`${address}/audit`);
    drawAudit(data);
  } catch (error) {
    complain(error);
  }
  auditing = false;
  if (data && !data.newest) setTimeout(audit, 10_000);
}

const says = { "tells less": "tells less than the others", shorter: "sends shorter reports than the others", longer: "sends longer reports than the others" };

function drawAudit({ agents, alpha, last, can_clear: clears }) {
  const limit = -Math.log10(alpha);
  const differs = agents.filter((agent) => agent.differs_in !== null);
  const cleared = agents.filter((agent) => agent.cleared_to !== null);
  const shown = extremes(agents, (agent) => agent.evidence).filter((agent, i, all) => agents.length <= 24 || i >= all.length - 24);
  const ticks = labels(shown);
  const kind = (agent) => (agent.differs_in !== null ? "differs" : agent.cleared_to !== null ? "cleared" : "like the others so far");
  const looks = { "like the others so far": ["blue", "circle"], cleared: ["green", "square"], differs: ["red", "diamond"] };
  const told = (agent) => (agent.differs_in === null ? (agent.cleared_to === null ? "" : `cleared to round ${agent.cleared_to}`) : `differs since round ${agent.differs_in}: ${says[agent.because]}`);
  draw("audit", agents.length ? () => ({
    traces: groups(shown, kind, looks).map((group) => ({
      ...group.trace, x: group.members.map((a) => Math.min(Math.max(a.evidence, -2), 3 * limit)), y: group.places.map((i) => ticks[i].at),
      text: group.members.map((a) => `${plain(called(a))}: ${told(a) || "nothing stands out"}; odds 10^${number(a.evidence, 1)}`), hoverinfo: "text",
    })),
    layout: {
      height: Math.max(190, 100 + 24 * shown.length), showlegend: true, yaxis: names(ticks),
      xaxis: { title: { text: title("odds that it differs, at their highest") }, zeroline: false, range: [-2.2, 3.2 * limit], tickvals: [0, limit, 3 * limit], ticktext: ["even", `${number(1 / alpha, 0)} to 1`, `${number(alpha ** -3, 0)}`] },
      shapes: [{ type: "line", yref: "paper", x0: limit, x1: limit, y0: 0, y1: 1, line: { color: style("--ink"), width: 1.5, dash: "dot" } }],
    },
  }) : null, {
    remark: agents.length ? `Up to round ${number(last)}: ${differs.length} of ${agents.length} agents differ${differs.length ? ` (${differs.slice(0, 6).map((a) => called(a)).join(", ")}${differs.length > 6 ? " …" : ""})` : ""}, ${clears ? `${cleared.length} are cleared` : "and nobody can be cleared, as no public prediction was used"}. A difference may come from an agent's data. If all draw samples of the same kind, it happens to one honest agent in ${number(1 / alpha, 0)} at most.` : "",
    summary: `Audit of ${agents.length} agents: ${differs.length} differ`,
    table: () => ({ head: ["agent", "verdict", "odds, as a power of ten", "what"], rows: agents.map((a) => [called(a, Infinity), a.verdict, number(a.evidence, 2), told(a)]) }),
  });
}

// One trace for each kind that occurs, so that the legend names it.
function groups(shown, kind, looks) {
  return Object.entries(looks).map(([name, [tone, symbol]]) => {
    const places = shown.map((_, i) => i).filter((i) => kind(shown[i]) === name);
    return { places, members: places.map((i) => shown[i]), trace: { name, type: "scatter", mode: "markers", marker: { size: 10, color: colour(tone), symbol }, showlegend: true } };
  }).filter(({ places }) => places.length > 0);
}

function drawRounds(data) {
  const some = data.round.length > 0;
  const size = data.rounds_per_point;
  const remark = size > 1 ? `Each point is the mean of ${size} rounds.` : "";
  const last = data.round.at(-1);
  const x = roundAxis(data.round);
  const trace = (values, name, look) => ({ x: data.round, y: values, name, type: "scatter", mode: data.round.length > 1 ? "lines" : "markers", ...look });
  const rows = (...columns) => data.round.map((round, i) => [round, ...columns.map((values) => number(values[i], 4))]);
  chooseMetric(Object.keys(data.metrics));
  const measured = metric === null ? [] : data.metrics[metric];
  draw("learning", measured.some((value) => value !== null) ? () => ({
    traces: [trace(measured, plain(metric), { line: { color: colour("blue"), width: 2 }, connectgaps: true })],
    layout: { xaxis: x, yaxis: { title: { text: plain(shorten(metric)) } } },
  }) : null, { remark, summary: `${metric} over the rounds: first ${number(measured[0], 4)}, last ${number(measured.at(-1), 4)}`, table: () => ({ head: ["round", metric], rows: rows(measured) }) });
  draw("request", some ? () => ({
    traces: [trace(data.request, "ν", { line: { color: colour("purple"), width: 2, shape: size > 1 ? "linear" : "hv" } })],
    layout: { xaxis: x, yaxis: { title: { text: "samples asked for" }, rangemode: "tozero" } },
  }) : null, { remark, summary: `Requested batch size, ${number(data.request.at(-1))} in round ${last}`, table: () => ({ head: ["round", "samples asked for", "agents that took part"], rows: rows(data.request, data.took_part) }) });
  const money = (paid, work) => () => ({
    traces: [trace(paid, box.dataset.pay, { line: { color: colour("blue"), width: 2 } }), trace(work, "cost of the requested work", { line: { color: colour("orange"), width: 2, dash: "dash" } })],
    layout: { xaxis: x, yaxis: { title: { text: plain(unit) }, rangemode: "tozero" }, showlegend: true, hovermode: "x unified" },
  });
  const head = ["round", `${box.dataset.pay} (${unit})`, `cost of the requested work (${unit})`];
  draw("payout", some ? money(data.paid, data.work) : null, { remark, summary: `${looked ? "Pay per round, held until looks" : "Paid per round"}; ${number(data.paid.at(-1))} ${unit} in round ${last}, where the work costs ${number(data.work.at(-1))}`, table: () => ({ head, rows: rows(data.paid, data.work) }) });
  draw("total", some ? money(data.cumulative_paid, data.cumulative_work) : null, { summary: `${number(data.cumulative_paid.at(-1))} ${unit} ${looked ? "of pay, held until looks," : "paid"} up to round ${last}; the work cost ${number(data.cumulative_work.at(-1))}`, table: () => ({ head, rows: rows(data.cumulative_paid, data.cumulative_work) }) });
}

function chooseMetric(names) {
  const select = document.getElementById("metric");
  if (!names.includes(metric)) metric = names[0] ?? null;
  if (names.join("\n") !== [...select.options].map((option) => option.value).join("\n")) {
    select.replaceChildren(...names.map((name) => new Option(name, name)));
  }
  select.value = metric ?? "";
  select.closest(".tools").hidden = names.length < 2;
}

const words = { fits: "fits the cost", less: "paid less than it costs", more: "paid more than it costs", "too early": "too early to say" };

// Of many agents only the extremes are drawn; the numbers have all.
function extremes(agents, value, most = 24) {
  const known = agents.filter((agent) => value(agent) !== null);
  const ordered = known.toSorted((a, b) => value(a) - value(b));
  return ordered.length <= most ? ordered : [...ordered.slice(0, most / 2), ...ordered.slice(-most / 2)];
}

// A name is never alone: names can look the same, numbers cannot.
const called = (agent, most) => `${shorten(agent.name, most)} #${agent.id ?? agent.agent}`;
const labels = (agents) => agents.map((agent, i) => ({ at: i, text: plain(called(agent, innerWidth < 600 ? 12 : 26)) }));
const names = (ticks) => ({ tickvals: ticks.map((tick) => tick.at), ticktext: ticks.map((tick) => tick.text), zeroline: false, showgrid: false, range: [-0.7, ticks.length - 0.3] });

function drawPay({ agents }) {
  const worked = agents.filter((agent) => agent.rounds > 0);
  const shown = extremes(worked, (agent) => agent.difference);
  const ticks = labels(shown);
  const looks = { [words.fits]: ["blue", "circle"], [words.less]: ["red", "triangle-left"], [words.more]: ["purple", "triangle-right"], [words["too early"]]: ["soft", "circle-open"] };
  const out = worked.filter((agent) => agent.verdict === "less" || agent.verdict === "more").length;
  const hidden = worked.length - shown.length;
  const remark = `${out === 0 ? "No agent's pay differs from the cost" : `The pay of ${out} agent${out > 1 ? "s" : ""} differs from the cost`} at a level of 95 % for all ${worked.length} together (Bonferroni); single intervals miss zero for one honest agent in twenty.${hidden > 0 ? ` Shown are the ${shown.length} agents at either end; the numbers have all.` : ""}`;
  draw("pay", shown.length ? () => ({
    traces: groups(shown, (agent) => words[agent.verdict], looks).map(({ members: some, places, trace }) => ({
      ...trace, x: some.map((agent) => agent.difference), y: places.map((i) => ticks[i].at),
      error_x: { type: "data", symmetric: false, array: some.map((a) => (a.high ?? a.difference) - a.difference), arrayminus: some.map((a) => a.difference - (a.low ?? a.difference)), color: style("--soft"), thickness: 1.6, width: 4 },
      text: some.map((a) => `${plain(called(a))}: ${number(a.difference, 3)} ± ${a.high === null ? "?" : number(a.high - a.difference, 3)}, ${words[a.verdict]}`), hoverinfo: "text",
    })),
    layout: {
      height: Math.max(190, 100 + 24 * shown.length), showlegend: true, xaxis: { title: { text: title(`pay − cost of the requested work, ${plain(unit)} per round`) }, zeroline: true, zerolinecolor: style("--ink"), zerolinewidth: 1.5 },
      yaxis: names(ticks),
    },
  }) : null, {
    remark, summary: `Pay less cost per round of ${worked.length} agents, from ${number(shown[0]?.difference, 3)} to ${number(shown.at(-1)?.difference, 3)} ${unit}; ${out} stand out`,
    table: () => ({
      head: ["agent", "rounds", `mean pay (${unit})`, `mean cost (${unit})`, "difference", "95 % interval", "verdict", "statuses"],
      rows: agents.map((a) => [called(a, Infinity), number(a.rounds), number(a.paid, 4), number(a.work, 4), number(a.difference, 4), a.low === null ? "–" : `${number(a.low, 4)} to ${number(a.high, 4)}`, words[a.verdict], Object.entries(a.statuses).map(([name, count]) => `${count} ${name}`).join(", ")]),
    }),
  });
}

const band = (found, axes) => found === null ? [] : [{ type: "rect", layer: "below", x0: found.low, x1: found.high, fillcolor: style("--band"), line: { color: style("--good"), width: 1 }, ...axes }];

function drawDistances({ band: found, histogram }, { agents }) {
  const x = { title: { text: title("distance ÷ distance expected of honest work") }, zeroline: false };
  const middle = histogram?.edges.slice(1).map((edge, i) => (edge + histogram.edges[i]) / 2);
  const shapes = band(found, { yref: "paper", y0: 0, y1: 1 });
  const remark = histogram === null ? undefined : found === null ? "There are too few distances yet to draw the band of honest work." :
    `${number(100 * found.inside, 1)} % of all are in the band from ${digits(found.low)} to ${digits(found.high)}; of honest work 95 % would be. The band is that of normal gradients with ${number(found.freedom, 0)} effective dimensions and ${number(found.participants, 0)} participants; the dimensions are estimated from the middle half of these distances.${Math.abs(found.middle - 1) > 0.1 ? ` It was moved to the middle of these distances, ${digits(found.middle)} of what the rule expected: somebody far away raises what is expected of all.` : ""}${histogram.below > 0 ? ` Not drawn, further to the left: ${number(histogram.below)}.` : ""}${histogram.above > 0 ? ` Not drawn, further to the right: ${number(histogram.above)}.` : ""}`;
  draw("distances", histogram === null ? null : () => ({
    traces: [{ x: middle, y: histogram.counts, type: "bar", marker: { color: colour("blue") }, hovertemplate: "%{x:.2f}: %{y}<extra></extra>" }],
    layout: { xaxis: x, yaxis: { title: { text: "payments" } }, bargap: 0.06, shapes },
  }), {
    remark, summary: `Histogram of relative distances${found === null ? "" : `; ${number(100 * found.inside, 1)} % in the band of honest work from ${digits(found.low)} to ${digits(found.high)}`}`,
    table: () => ({ head: ["from", "to", "payments"], rows: histogram.counts.map((count, i) => [number(histogram.edges[i], 3), number(histogram.edges[i + 1], 3), count]) }),
  });
  const shown = extremes(agents, (agent) => agent.median_distance);
  const ticks = labels(shown);
  const ends = shown.flatMap((a) => [a.low_distance, a.high_distance]);
  const wide = Math.min(...ends) > 0 && Math.max(...ends) > 20 * Math.min(...ends);
  draw("spread", shown.length === 0 ? null : () => ({
    traces: [{
      x: shown.map((a) => a.median_distance), y: ticks.map((tick) => tick.at), type: "scatter", mode: "markers", marker: { size: 9, color: colour("blue") },
      error_x: { type: "data", symmetric: false, array: shown.map((a) => a.high_distance - a.median_distance), arrayminus: shown.map((a) => a.median_distance - a.low_distance), color: style("--soft"), thickness: 1.6, width: 4 },
      text: shown.map((a) => `${plain(called(a))}: median ${number(a.median_distance, 2)}`), hoverinfo: "text",
    }],
    layout: { height: Math.max(300, 70 + 24 * shown.length), xaxis: wide ? { ...x, type: "log", dtick: 1, tickformat: ",~g", title: { text: `${x.title.text} (logarithmic)` } } : x, yaxis: names(ticks), shapes },
  }), {
    remark: shown.length === 0 ? undefined : "Unless the variance is known, each agent is measured against the others: if all did less work together, it would not show here.",
    summary: `Median relative distance per agent, from ${number(shown[0]?.median_distance)} to ${number(shown.at(-1)?.median_distance)}`,
    table: () => ({ head: ["agent", "10 %", "median", "90 %"], rows: agents.map((a) => [called(a, Infinity), number(a.low_distance, 3), number(a.median_distance, 3), number(a.high_distance, 3)]) }),
  });
}

// Neighbouring rounds in which an agent had the same status; before it joined there is none.
function stretches({ statuses, rounds }) {
  return statuses.flatMap((line, row) => {
    const found = [];
    line.forEach((code, column) => {
      const last = found.at(-1);
      if (code >= 0 && last?.code === code && last.last === rounds[column] - 1) last.last = rounds[column];
      else found.push({ row, code, first: rounds[column], last: rounds[column] });
    });
    return found;
  });
}

function drawMatrix(data) {
  const some = data.rounds.length > 0;
  const seen = [...new Set(data.statuses.flat())].filter((code) => code >= 0).toSorted((a, b) => a - b);
  const remarks = new Map(data.notes.map(({ agent, round, note }) => [`${agent} ${round}`, note]));
  const at = (row, column) => remarks.get(`${data.agents[row].id} ${data.rounds[column]}`);
  const quiet = new Set(["paid", "released", "held until looks"]); // counted only: most rounds have one of these
  const label = (code) => (code < 0 ? "not a member yet" : data.labels[code]);
  const counts = seen.map((code) => `${number(data.statuses.flat().filter((other) => other === code).length)} ${data.labels[code]}`).join(", ");
  document.getElementById("earlier").disabled = !some || data.first <= 1 || data.rounds.length < 120;
  document.getElementById("later").disabled = data.last >= data.newest;
  const hidden = data.hidden > 0 ? ` Shown are the ${data.agents.length} agents that missed most rounds; ${data.hidden} more missed fewer or as many.` : "";
  draw("matrix", some ? () => {
    const palette = statusColours();
    const bars = seen.map((code) => {
      const mine = stretches(data).filter((stretch) => stretch.code === code);
      return {
        name: data.labels[code], type: "bar", orientation: "h", y: mine.map(({ row }) => row), base: mine.map(({ first }) => first - 0.5), x: mine.map(({ first, last }) => last - first + 1),
        marker: { color: palette[data.labels[code]], line: { width: data.rounds.length > 60 ? 0 : 0.5, color: style("--card") } }, showlegend: true, hoverinfo: "text", textposition: "none",
        text: mine.map(({ row, first, last }) => `${plain(called(data.agents[row]))}, ${first === last ? "round" : `rounds ${number(first)} to`} ${number(last)}: ${data.labels[code]}`),
      };
    });
    const noted = data.statuses.flatMap((line, row) => line.map((_, column) => ({ row, column })).filter(({ column }) => at(row, column)));
    const dots = {
      type: "scatter", mode: "markers", x: noted.map(({ column }) => data.rounds[column]), y: noted.map(({ row }) => row), marker: { size: 5, color: style("--ink") }, showlegend: false, hoverinfo: "text",
      text: noted.map(({ row, column }) => `${plain(called(data.agents[row]))}, round ${number(data.rounds[column])}: ${label(data.statuses[row][column])}; ${plain(shorten(at(row, column), 80))}`),
    };
    const ends = [data.rounds[0] - 0.5, data.rounds.at(-1) + 0.5];
    return {
      traces: [...bars, dots],
      layout: { height: Math.max(170, 96 + 22 * data.agents.length), showlegend: true, barmode: "overlay", bargap: 0.12, hovermode: "closest", xaxis: { ...roundAxis(data.rounds), range: ends, showgrid: false, zeroline: false }, yaxis: { ...names(labels(data.agents)), autorange: false, range: [data.agents.length - 0.5, -0.5] } },
    };
  } : null, {
    remark: some ? `Rounds ${number(data.first)} to ${number(data.last)} of ${number(data.newest)}: ${counts}.${hidden}` : "",
    summary: `Participation in rounds ${data.first} to ${data.last}: ${counts}`,
    table: () => ({
      head: ["agent", ...data.labels, "other rounds and remarks"],
      rows: data.statuses.map((line, row) => [called(data.agents[row], Infinity), ...data.labels.map((_, code) => line.filter((other) => other === code).length),
        line.map((code, column) => (quiet.has(label(code)) && !at(row, column) ? null : `${data.rounds[column]}: ${label(code)}${at(row, column) ? ` (${at(row, column)})` : ""}`)).filter(Boolean).join("; ")]),
    }),
  });
  box.dataset.first = data.first;
  box.dataset.last = data.last;
  box.dataset.newest = data.newest;
}

document.getElementById("metric").addEventListener("change", (event) => {
  metric = event.target.value;
  update();
});
document.getElementById("audit-now").addEventListener("click", () => {
  wanted = true;
  audit();
});
document.getElementById("earlier").addEventListener("click", () => {
  until = Number(box.dataset.first) - 1;
  update();
});
document.getElementById("later").addEventListener("click", () => {
  const next = Number(box.dataset.last) + 120;
  until = next >= Number(box.dataset.newest) ? null : next;
  update();
});
document.addEventListener("guerdon:changed", update);
update();
