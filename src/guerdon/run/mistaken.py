"""Models that were sent where gradients are expected: an ordinary app trains, and returns its weights.

A report X is a model where ‖X − θ‖ < ‖X‖/10, for the model θ that was broadcast: training moves a model by less than a
tenth of its length, and no more than a tenth of a gradient's length is its distance to the model by chance. A gradient
would need an angle to θ with a cosine above 0.995, and θ's length. Of 32 numbers in a random direction that has a
probability below 0.1³¹; of a loss it asks for ½‖θ‖² up to a tenth: curvature one in all directions, and the minimum at
zero. A penalty of up to half of that (a weight decay of 0.5) is not enough.
"""

from collections.abc import Sequence

import numpy as np

from guerdon.run.reports import Arrays, Report

NEAR = (
    0.1  # at 0.2 a loss of ½‖θ‖² with noise could be taken for a model; at 0.05, models after a long local training not
)
FEWEST = 32  # numbers: of ten, chance alone would do it once in 10⁹ reports


def is_model(report: Arrays, sent: Arrays) -> bool:
    """Tell whether a report is a model that was trained from the one that was `sent`, rather than a gradient.

    - `report`, `sent`: arrays by the same names; those of other than floating-point numbers do not count.

    >>> sent = {"w": np.linspace(-1, 1, 64)}
    >>> is_model({"w": sent["w"] + 0.01}, sent), is_model({"w": sent["w"][::-1]}, sent)
    (True, False)
    """
    names = [name for name, array in sent.items() if array.dtype.kind == "f"]
    if sum(sent[name].size for name in names) < FEWEST:
        return False
    apart = length = 0.0
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is no model, and refused elsewhere
        for name in names:
            given = report[name].astype(np.float64)
            length += float(np.sum(given * given))
            given -= sent[name]
            apart += float(np.sum(given * given))
    return apart < NEAR**2 * length


def check_gradients(reports: Sequence[Report], sent: Arrays, remedy: str) -> None:
    """Raise where most reports of a round that can be used are models; a few of them stop no round."""
    usable = [report for report in reports if report.usable]
    models = [report.account for report in usable if is_model(report.arrays, sent)]
    if models and 2 * len(models) > len(usable):
        shown = ", ".join(models[:3]) + (" …" if len(models) > 3 else "")
        raise ValueError(
            f"reports must be gradients, got models from {shown}: they lie ten times nearer to the model that was sent "
            f"than to zero; {remedy}"
        )
