"""`python -m tools.pictures`: draw the pictures of README and of the audit again, from what their own pages run."""

import doctest
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from guerdon.lab.figures import BLUE, GREY, ORANGE, legend, panels, save_figure

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs" / "images"
WORK = {"Turin": "half the work", "Vigo": "zeros"}


def tutorial() -> dict[str, Any]:
    """Return the names that the cells of the first tutorial make."""
    page = (ROOT / "docs/tutorials/first-round.md").read_text()
    names: dict[str, Any] = {}
    for cell in re.findall(r"^```\{code-cell\} python\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE):
        exec(cell, names)  # noqa: S102 - our own page
    return names


def hospitals() -> None:
    """Draw what every hospital is paid a round beside what its work costs."""
    names = tutorial()
    cost, paid = names["cost"], names["paid"]
    costs = [float(cost({"Turin": 8, "Vigo": 0}.get(name, 16))) for name in paid]
    figure, (axes,) = panels(["What six hospitals are paid for a round, and what their work costs"], height=2.6)
    places = range(len(paid))
    axes.bar([place - 0.2 for place in places], costs, 0.38, color=GREY, label="cost of the work it did")
    colours = [ORANGE if name in WORK else BLUE for name in paid]
    axes.bar([place + 0.2 for place in places], list(paid.values()), 0.38, color=colours, label="paid by SteadyPay")
    axes.set_xticks(list(places), [f"{name}\n{WORK.get(name, 'works')}" for name in paid])
    axes.set_ylabel("a round, mean of 100")
    axes.grid(visible=False, axis="x")
    legend(axes, "upper right")
    save_figure(figure, IMAGES / "first-round.svg")


def audit() -> None:
    """Draw the evidence against each agent of the audit's page."""
    doctest.testfile(str(ROOT / "docs/how-to/audit.md"), module_relative=False, encoding="utf-8")
    program = Path(sys.executable).parent / "guerdon"
    subprocess.run([program, "audit", "heart", "--out", str(IMAGES / "audit.svg")], check=True)


def main() -> None:
    """Draw all, each in a new folder."""
    for draw in (hospitals, audit):
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            draw()
            os.chdir(ROOT)


if __name__ == "__main__":
    main()
