"""What the server asks for, how a round's reports compare, and what the round came to."""

# No type covers both an array and a list of layers.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false

from typing import Any, NamedTuple

from guerdon.arrays import Array, is_array, namespace, over_layers
from guerdon.evidence import Evidence
from guerdon.rule import Notice, Payments, Round, as_request
from guerdon.witness import WitnessSample

COPY = "it is a copy of another's report, or was in earlier rounds"
SHORTENED = "shortened to {:.3g} of its length around the prediction"
PART = "the model takes {:.3g} of it"
NOT_TRUSTED = "others are not compared with it"
NOT_USED = "others are not compared with it, and the model goes without it"


class ServerState(NamedTuple):
    """What the server takes from round to round."""

    round: Array  # how many are settled
    rule: Any
    requests: Any
    lens: Any
    broadcast: Any
    enrolled: Array  # how many agents there ever were


class Ask(NamedTuple):
    """What the server asks for: so many samples at the model to broadcast.

    Where the rule varies requests, `notice.own` has the number for each agent. `witness` and `is_last` are the
    caller's to set, by `ask._replace(...)`.
    """

    model: Any  # what to broadcast
    request: Array  # ν, in samples; 0: the training has ended
    origin: Any  # the model that a step is taken from; the same unless there is a dither
    prediction: Any  # of the mean gradient (or of the mean move, where agents send models)
    notice: Notice = Notice()  # what the rule says before the round
    start: Any = None  # the model that agents trained from, where they send models; None: they send gradients
    enrolled: Any = 0  # how many agents there ever were
    witness: WitnessSample | None = None  # what the server's own data say at `model`, for a rule that wants it
    is_last: Any = False  # whether the run ends with this round: what is open, or held, is settled

    @property
    def centre(self) -> Any:
        """The point that reports are compared around: the prediction, of gradients or of models."""
        if self.start is None:
            return self.prediction
        return over_layers(lambda model, move: model + move, self.start, self.prediction)


class PredictionError(NamedTuple):
    """What a round's reports say, without bias, of how far the gradient m is from its prediction p, and of σ²."""

    signal: Array  # of ‖m − p‖², in the squared unit of a gradient
    variance: Array  # of σ², the variance of one sample's gradient
    enough: Array  # whether two reports or more say it


def prediction_error(evidence: Evidence, reference: Array, request: Any) -> PredictionError:
    """Return how far the gradient is from its prediction: the mean of ⟨X_i − p, X_j − p⟩ over pairs i ≠ j.

    σ² is ν times what the mean of ‖X_i − p‖² is above that.

    - `evidence`: gathered around the prediction, its alignment with the agents of `reference`.
    - `reference`: booleans (agents,).
    - `request`: ν, in samples.
    """
    xp = namespace(evidence.squared_length)
    weight = xp.astype(reference & evidence.counted, evidence.squared_length.dtype)
    count = xp.sum(weight)
    enough = count > 1
    signal = xp.sum(weight * (evidence.alignment - evidence.squared_length)) / xp.where(
        enough, count * (count - 1), 1.0
    )
    length = xp.sum(weight * evidence.squared_length) / xp.where(enough, count, 1.0)
    nu = as_request(evidence, request)
    return PredictionError(xp.where(enough, signal, 0.0), xp.where(enough, nu * (length - signal), 0.0), enough)


class Reading(NamedTuple):
    """How the reports of a round compare; one entry per agent."""

    evidence: Evidence  # what the rule pays by
    plain: Evidence  # of the reports as they came, around no prediction
    trusted: Array  # agents that the others are compared with
    used: Array  # agents that the model is made from
    copies: Array  # agents that sent a copy: not counted
    factors: Array  # share of its length that each report was compared at: 1, or less where it was shortened
    parts: Array  # share of its length that the model takes of each report
    offsets: Any  # what was taken off each report because its agent differs; None: nothing
    error: PredictionError  # of the prediction, as the reports that are used show it
    towards: Any  # the point that reports are shortened towards before the model is made


class Settlement(NamedTuple):
    """What a round came to: what each agent is paid and why, and the step to take."""

    payments: Payments
    round: Round  # as its rule was told of it, and as the ledger records it
    mean: Any  # gradient (or move, where agents send models) of the agents that are used, in the model's form
    step: Array  # model − step × mean is the next model; 0 in the first half of a dithered pair, −1 for moves
    reading: Reading
    noise_scale: Array  # that the dither made, as the last pairs had it; infinite without
    offset: Array  # how far from the model the gradients were taken

    @property
    def evidence(self) -> Evidence:
        """What the rule paid by."""
        return self.reading.evidence

    @property
    def error(self) -> PredictionError:
        """How far the mean is from its prediction, and σ²."""
        return self.reading.error

    @property
    def notes(self) -> list[str]:
        """What else was done with each agent's report than with others; mostly nothing."""
        reading = self.reading
        columns = (
            reading.evidence.counted,
            reading.copies,
            reading.factors,
            reading.parts,
            reading.trusted,
            reading.used,
        )
        rows = zip(*columns, strict=True)
        return [_note(*map(float, row)) for row in rows]


def _note(counted: float, copy: float, factor: float, part: float, trusted: float, used: float) -> str:
    if copy:
        return COPY
    doubt = "" if trusted else NOT_TRUSTED if used else NOT_USED
    taken = PART.format(part) if used and part < 1 else ""
    words = [SHORTENED.format(factor) if factor < 1 else "", taken, doubt]
    return "; ".join(filter(None, words)) if counted else ""


def dither_of(ask: Ask) -> Any:
    """Return how far off the model a round's gradients are taken."""
    return over_layers(lambda model, origin: model - origin, ask.model, ask.origin)


def as_step(step: Any, ask: Ask) -> Any:
    """Return a step that leaves the model its type: a number, or an array of the model's own."""
    layer = ask.origin if is_array(ask.origin) else ask.origin[0]
    return namespace(layer).asarray(step, dtype=layer.dtype) if is_array(step) else step
