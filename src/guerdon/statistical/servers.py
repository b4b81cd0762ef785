"""Servers put together: a rule with the lens, trust, prediction and dither that go with it."""

from typing import Any

from guerdon.broadcast import AtModel
from guerdon.costs import Cost
from guerdon.lens import Lens, Plain, Witness
from guerdon.requests import Requests
from guerdon.rule import Need, Rule
from guerdon.server import Sends, Server
from guerdon.statistical.dithers import Dither
from guerdon.statistical.information import InformationPay
from guerdon.statistical.lenses import Offset, Pairwise
from guerdon.statistical.offsets import OwnRecords
from guerdon.statistical.predictions import Prediction, RunningMean, ZeroPrediction
from guerdon.statistical.steady import SteadyPay
from guerdon.witness import witness_samples

RECORDS = OwnRecords()


def server_for(
    rule: Rule,
    requests: Requests,
    prediction: Prediction | None = None,
    dither: Dither | None = None,
    sends: Sends = "gradients",
    alike: bool = False,
    records: OwnRecords | None = RECORDS,
) -> Server:
    """Return a server that pays by a rule, with the lens that goes with it.

    `prediction` is the public one of each mean gradient (default: `RunningMean()` where the rule needs any). `dither`:
    gradients are taken beside the model. `sends`: gradients, or models. `alike`: all members draw fresh samples of the
    same kind, as the paper's do. Unless they do, what is stable in how each differs is taken off before reports are
    compared; `records` remembers that, None compares reports as they are.

    >>> from guerdon import AffineCost, FixedRequest, OutputAgreement
    >>> server = server_for(OutputAgreement(AffineCost(1, 1)), FixedRequest(8, step=0.1))
    >>> type(server.lens).__name__
    'Offset'
    """
    lens = lens_for(rule, prediction, alike=alike, records=records, dithered=dither is not None)
    return Server(rule, requests, lens, AtModel() if dither is None else dither, sends)


def lens_for(
    rule: Rule,
    prediction: Prediction | None = None,
    *,
    alike: bool = False,
    records: OwnRecords | None = RECORDS,
    dithered: bool = False,
) -> Lens:
    """Return the lens that goes with a rule (see `server_for`).

    `dithered`: how each agent answers to a dither is taken off too, unless the rule pays for it.
    """
    if prediction is not None and (isinstance(prediction, type) or not hasattr(prediction, "predict")):
        raise TypeError(f"`prediction` must be a prediction, such as RunningMean(), got {prediction!r:.80}")
    needs: frozenset[Need] = getattr(rule, "needs", frozenset())
    if Need.WITNESS in needs:
        return Witness(witness_samples(rule), alike)
    around = Need.PREDICTION in needs or Need.TRUTH in needs
    given: dict[str, Any] = {
        "alike": alike,
        "records": records if Need.OTHERS in needs else None,
        "prediction": prediction or (RunningMean() if Need.PREDICTION in needs else ZeroPrediction()),
        "answers": dithered and not isinstance(rule, SteadyPay),  # what it pays for is how reports answer
    }
    if isinstance(rule, InformationPay | SteadyPay):
        relies: Any = "doubtful" if isinstance(rule, SteadyPay) else "accused"
        return Pairwise(**given, limit=rule.limit, trust=rule.trust, relies=relies)
    if alike and not around and isinstance(given["prediction"], ZeroPrediction):
        return Plain()
    return Offset(**given, around=around)


def steady_pay(
    cost: Cost,
    requests: Requests,
    period: int = 200,
    *,
    dither: Dither | None = None,
    prediction: Prediction | None = None,
    sends: Sends = "gradients",
    alike: bool = False,
) -> Server:
    """Return a server that pays by `SteadyPay`, which releases what is earned every `period` rounds at the latest."""
    return server_for(SteadyPay(cost, period), requests, prediction, dither, sends, alike)


def information_pay(
    cost: Cost,
    requests: Requests,
    *,
    dither: Dither | None = None,
    prediction: Prediction | None = None,
    sends: Sends = "gradients",
    alike: bool = False,
) -> Server:
    """Return a server that pays by `InformationPay`."""
    return server_for(InformationPay(cost), requests, prediction, dither, sends, alike)
