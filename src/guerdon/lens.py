"""Lenses: what turns the reports of a round into evidence, the few numbers by which a rule pays each agent.

    state = lens.init(model, num_agents)                                before the first round
    reading, state = lens.read(state, ask, reports, sent)               when the reports of a round are in
    state = lens.learn(state, ask, reports, reading, mean, shown)       once their mean is known, and what it showed

`Plain` compares reports as they are: for members that are alike. `Witness` compares them with a gradient of the
server's own data. `guerdon.statistical.lenses` has lenses that take off how members differ, and that find copies. No
lens knows by which rule will be paid.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from guerdon.arrays import Array, namespace, zeros_like
from guerdon.asking import Ask, Reading, prediction_error
from guerdon.broadcast import Shown
from guerdon.cuts import cut_pairs, row_of
from guerdon.evidence import gather
from guerdon.gram import shortening
from guerdon.reports import AgentRows, Layers, squared_lengths_around
from guerdon.rule import Need, as_request
from guerdon.states import NoState
from guerdon.witness import evidence_around_witness

LONGEST = 3.0  # times the median length of the others' reports: longer ones are shortened before the model is made


class Lens(Protocol):
    """Turns reports into evidence. `guerdon.states` says which axis of a state is the agents'.

    `gives`: what it can tell a rule beyond how reports differ from each other. A server refuses a rule that needs more.
    """

    gives: ClassVar[frozenset[Need]]

    def init(self, model: Any, num_agents: int) -> Any:
        """Return the state before the first round, for a model in this form and so many agents."""
        ...

    def predict(self, state: Any, model: Any) -> Any:
        """Return the public prediction of the mean report at a model, in its form: zeros, if there is none."""
        ...

    def read(self, state: Any, ask: Ask, reports: Layers, sent: Array) -> tuple[Reading, Any]:
        """Return how the reports of a round compare, and the next state.

        - `state`: what `init` or `learn` returned.
        - `ask`: what the server asked for.
        - `reports`: (agents, dim), a list of layers (agents, …), or `AgentRows`.
        - `sent`: booleans (agents,). The rows of agents that did not send are not looked at.
        """
        ...

    def learns(self, state: Any) -> bool:
        """Return whether it learns from the mean of the reports, which is then made for it."""
        ...

    def learn(self, state: Any, ask: Ask, reports: Layers, reading: Reading, mean: Any, shown: Shown | None) -> Any:
        """Return the state after a round.

        - `reading`: what `read` returned.
        - `mean`: of the reports that the model is made from, in the model's form.
        - `shown`: what the round has shown of the gradient. None: the round was paid without a step.
        """
        ...


class Forgetful(Lens, Protocol):
    """A lens that remembers nothing, and predicts nothing."""

    gives: ClassVar[frozenset[Need]] = frozenset()

    def init(self, model: Any, num_agents: int) -> NoState:
        """Return nothing."""
        del model, num_agents
        return NoState()

    def predict(self, state: NoState, model: Any) -> Any:
        """Return zeros."""
        del state
        return zeros_like(model)

    def learns(self, state: NoState) -> bool:
        """Return that it does not."""
        del state
        return False

    def learn(
        self, state: NoState, ask: Ask, reports: Layers, reading: Reading, mean: Any, shown: Shown | None
    ) -> NoState:
        """Return the state as it is."""
        del ask, reports, reading, mean, shown
        return state


@dataclass(frozen=True)
class Plain(Forgetful):
    """Compares reports as they are, in one pass: for members whose samples are of the same kind.

    With p = 0 its evidence is ‖X_k − m̄‖², the mean of ‖X_k − X_i‖² over the others, ‖X_k‖² and ⟨X_k, Σ X_i⟩. Where the
    rule says how far apart two reports may count (`Notice.reach`), the distances of pairs are cut there, and so is what
    a report can do to the model.

    >>> import numpy as np
    >>> from guerdon import FixedRequest, FlatPay, AffineCost, Server
    >>> server, sent = Server(FlatPay(AffineCost(1, 1)), FixedRequest(8, step=0.1)), np.ones(2, dtype=bool)
    >>> ask, state = server.ask(server.init(np.zeros(2), num_agents=2), np.zeros(2))
    >>> reading, _ = Plain().read(state.lens, ask, np.array([[3.0, 4.0], [0.0, 0.0]]), sent)
    >>> reading.evidence.squared_length, reading.evidence.pair_distance
    (array([25.,  0.]), array([25., 25.]))
    """

    def read(self, state: NoState, ask: Ask, reports: Layers, sent: Array) -> tuple[Reading, NoState]:
        """Return how the reports compare."""
        evidence = gather(reports, sent, ask.start)
        xp, counted = namespace(evidence.squared_length), evidence.counted
        whole, nobody = xp.ones_like(evidence.squared_length), xp.zeros_like(counted)
        error, parts, towards = prediction_error(evidence, counted, ask.request), whole, ask.centre
        plain = evidence
        if ask.notice.reach:
            cut = ask.notice.cut_at(as_request(evidence, ask.request))
            pairs = cut_pairs(reports, evidence, None, cut, ask.notice.reach)
            evidence = evidence._replace(pair_distance=pairs.pair_distance)
            if not is_seatless(reports):
                parts, towards = pairs.parts, row_of(reports, pairs.middle)
        return Reading(evidence, plain, counted, counted, nobody, whole, parts, None, error, towards), state


@dataclass(frozen=True)
class Witness(Forgetful):
    """Compares all reports with a gradient of the server's own data (`Ask.witness`).

    - `samples`: W, how many samples of the server's own that gradient is of.
    - `alike`: whether members' samples are of the same kind. Else a report that is longer than three times the median
      is shortened before the model is made.
    """

    samples: int = 256
    alike: bool = False

    gives = frozenset({Need.WITNESS})

    def read(self, state: NoState, ask: Ask, reports: Layers, sent: Array) -> tuple[Reading, NoState]:
        """Return how the reports compare with the witness."""
        witness = ask.witness
        if witness is None or witness.samples != self.samples:
            raise ValueError(
                f"`witness` must be what {self.samples} samples of the server's own say in this round (see "
                f"`guerdon.witness.witness_sample`), got {witness and witness.samples}"
            )
        evidence = evidence_around_witness(reports, sent, witness, ask.request)
        xp, counted = namespace(evidence.squared_length), evidence.counted
        whole, nobody = xp.ones_like(evidence.squared_length), xp.zeros_like(counted)
        error = prediction_error(gather(reports, sent, ask.centre), counted, ask.request)
        parts = whole if self.alike else shortening(squared_lengths_around(reports, sent, None), counted, LONGEST)
        plain = gather(reports, sent)
        return Reading(evidence, plain, counted, counted, nobody, whole, parts, None, error, ask.centre), state


def is_seatless(reports: Layers) -> bool:
    """Tell whether nobody sent anything, of reports that are kept agent by agent."""
    return isinstance(reports, AgentRows) and not len(reports.seats)
