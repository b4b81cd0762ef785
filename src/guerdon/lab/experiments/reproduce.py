"""Run the experiments, and write what they show: figures, tables, claims and a report."""

import json
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from guerdon.arrays import check_positive_integer
from guerdon.lab.experiments.claims import Experiment, Tell
from guerdon.lab.experiments.report import write_report
from guerdon.lab.figures import save_figure

FIGURES = ("fig2", "fig3", "fig4", "fig5")  # of the paper
EXPERIMENTS = (*FIGURES, "agreement", "planner", "exploits", "federations", "steady", "looks")


def reproduce(
    names: Sequence[str], repetitions: int, out: Path, seed: int = 0, tell: Tell = lambda _words, _share: None
) -> list[Experiment]:
    """Run the named experiments (the paper's figures, if none is named), and write everything into the folder `out`.

    An experiment's figure is drawn while the next one computes. What a later one needs beside its simulations (its
    `ahead`, where it has one) is worked out while the first is traced. `tell` gets what is being done, and which share
    of everything is behind it. Each experiment leaves NAME.svg, NAME.pdf, NAME.png, NAME.parquet and NAME.csv, all
    together claims.json and report.html.
    """
    unknown = [name for name in names if name not in EXPERIMENTS]
    if unknown:
        raise ValueError(f"an experiment must be one of {', '.join(EXPERIMENTS)}, got {unknown[0]!r}")
    check_positive_integer("repetitions", repetitions)
    if repetitions < 2:
        raise ValueError("`repetitions` must be at least 2, so that there is a standard error; got 1")
    out.mkdir(parents=True, exist_ok=True)
    finished: list[Experiment] = []
    chosen = names or FIGURES
    modules = [import_module(f"guerdon.lab.experiments.{name}") for name in chosen]
    with ThreadPoolExecutor(1) as pen:  # one at a time: Matplotlib's settings belong to the whole process
        for module in modules[1:]:
            if hasattr(module, "ahead"):
                pen.submit(module.ahead)  # what it raises, `run` will raise again
        written: list[Future[None]] = []
        for index, (name, module) in enumerate(zip(chosen, modules, strict=True)):

            def tell_all(words: str, share: float, index: int = index, name: str = name) -> None:
                tell(f"{name}: {words}", (index + share) / len(chosen))

            start = time.perf_counter()
            found: Experiment = module.run(repetitions, seed, tell_all)
            finished.append(replace(found, seconds=time.perf_counter() - start))
            written.append(pen.submit(_write, finished[-1], out))
        for one in written:
            one.result()
    claims = [claim.to_dict() for experiment in finished for claim in experiment.claims]
    (out / "claims.json").write_text(json.dumps(claims, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    write_report(finished, repetitions, seed, out / "report.html")
    return finished


def _write(experiment: Experiment, out: Path) -> None:
    """Write the figure and the numbers behind it."""
    (out / f"{experiment.name}.svg").write_text(experiment.svg, encoding="utf-8")
    for suffix in ("pdf", "png"):
        save_figure(experiment.drawing, out / f"{experiment.name}.{suffix}")
    experiment.data.write_parquet(out / f"{experiment.name}.parquet")
    experiment.data.write_csv(out / f"{experiment.name}.csv")
