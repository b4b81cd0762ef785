// One agent's pay against the cost of its work, added up; and printing.
import { colour, complain, draw, number, plain, read, roundAxis, settled, style } from "/static/charts.js";

const box = document.getElementById("agent");
document.getElementById("print").addEventListener("click", () => print());

async function update() {
  const unit = box.dataset.unit;
  try {
    const data = await read(`/api/agents/${box.dataset.agent}/runs/${document.getElementById("run").value}`);
    show(data, unit);
    await settled();
    complain(null);
    box.dataset.drawn = String(data.round.at(-1) ?? 0);
  } catch (error) {
    complain(error);
  }
}

function show(data, unit) {
  const pay = document.getElementById("run").selectedOptions[0].dataset.pay; // what looks hold is not paid yet
  const some = data.round.length > 0;
  const known = some && data.low.every((value) => value !== null);
  draw("course", some ? () => ({
    traces: [
      ...(known ? [
        { x: data.round, y: data.high, type: "scatter", mode: "lines", line: { width: 0 }, hoverinfo: "skip", showlegend: false },
        { x: data.round, y: data.low, type: "scatter", mode: "lines", line: { width: 0 }, fill: "tonexty", fillcolor: style("--band"), name: "band of honest work", hoverinfo: "skip" },
      ] : []),
      { x: data.round, y: data.work, type: "scatter", mode: "lines", name: "cost of the requested work", line: { color: colour("orange"), width: 2, dash: "dash" } },
      { x: data.round, y: data.paid, type: "scatter", mode: data.round.length > 1 ? "lines" : "markers", name: pay, line: { color: colour("blue"), width: 2 } },
    ],
    layout: { xaxis: roundAxis(data.round), yaxis: { title: { text: plain(unit) } }, showlegend: true, hovermode: "x unified" },
  }) : null, {
    remark: known ? `The band is cost ± 1.96 · s · √rounds, s the spread of a round's pay over all agents of the run, from its quartiles.${data.rounds_per_point > 1 ? ` Drawn is every ${data.rounds_per_point}th round.` : ""}` : "",
    summary: `${number(data.paid.at(-1))} ${unit} ${pay === "paid" ? pay : "of pay, held until looks,"} up to round ${data.round.at(-1)}, for work that costs ${number(data.work.at(-1))}`,
    table: () => ({ head: ["round", `${pay} (${unit})`, `cost (${unit})`, "band from", "to"], rows: data.round.map((round, i) => [round, number(data.paid[i], 4), number(data.work[i], 4), number(data.low[i], 2), number(data.high[i], 2)]) }),
  });
}

if (box) {
  document.getElementById("run").addEventListener("change", update);
  document.addEventListener("guerdon:changed", update);
  update();
}
