"""`python -m tools.pictures`: draw README's picture in docs/images again, from the first tutorial's own numbers."""

import os
import re
import tempfile
from pathlib import Path
from typing import Any

from guerdon.figures import BLUE, GREY, ORANGE, legend, panels, save_figure

ROOT = Path(__file__).parent.parent
WORK = {"Turin": "half the work", "Vigo": "zeros"}


def tutorial() -> dict[str, Any]:
    """Return the names that the cells of the first tutorial make."""
    page = (ROOT / "docs/tutorials/first-round.md").read_text()
    names: dict[str, Any] = {}
    for cell in re.findall(r"^```\{code-cell\} python\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE):
        exec(cell, names)  # noqa: S102 - our own page
    return names


def main() -> None:
    """Draw what every hospital is paid a round beside what its work costs."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        names = tutorial()
        os.chdir(ROOT)
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
    save_figure(figure, ROOT / "docs/images/first-round.svg")


if __name__ == "__main__":
    main()
