"""`Paid` on a grid in memory: what is asked, what is paid, what the wrapped strategy sees, what is recorded."""

# Flower's records are typed as dictionaries of a union, which no plain dictionary is.
# pyright: reportArgumentType=false, reportIncompatibleMethodOverride=false, reportUnhashable=false, reportCallIssue=false

import logging
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import FedAvg, FedXgbBagging, Krum, Strategy

from guerdon import (
    AffineCost,
    Cost,
    FixedRequest,
    FlatPay,
    InformationPay,
    NoiseScaleRequest,
    OutputAgreement,
    Payments,
    Server,
    SteadyPay,
    registry,
)
from guerdon.adaptive import BudgetRequest
from guerdon.evidence import gather
from guerdon.flower import FedSGD, Paid, Pay, Request, decline, last_pay, paid_work
from guerdon.flower.messages import tell
from guerdon.ledger import Ledger, RefusedError
from guerdon.ledger.books.money import to_micro
from guerdon.registry import register
from guerdon.requests import ScheduledRequest
from guerdon.rule import Round, Rule, check_round, round_of, statuses
from guerdon.run.driver import open_run
from guerdon.statistical.dithers import Dither
from tests.flower.conftest import MODEL, RULE, Make
from tests.flower.grids import MemoryGrid, Node, gradients_of, record, reply, worker
from tests.support.paid import paid_strategy


def rewards(ledger: Ledger, run: str = "run") -> dict[str, int]:
    return {slip.agent: slip.reward for slip in ledger.payslips(run)}


def slips(ledger: Ledger, run: str = "run") -> dict[str, tuple[str, str]]:
    """Return the status of each agent in the last round, and why."""
    return {slip.agent: (slip.status, slip.why) for slip in ledger.payslips(run)}


def offline(messages: list[Message], numbers: Iterable[int], rule: Any = RULE, origin: Any = None) -> np.ndarray:
    """Return what the mechanism pays for the gradients that these workers computed for these messages."""
    sent = [gradients_of(message, number) for message, number in zip(messages, numbers, strict=True)]
    layers = [np.stack([arrays[name].numpy() for arrays in sent]) for name in MODEL]
    evidence = gather(layers, np.ones(len(sent), dtype=bool), origin)
    return rule.pay(rule.init(len(sent)), round_of(evidence, np.ones(len(sent), dtype=bool), 8))[0].released


def by_node(messages: list[Message]) -> list[Message]:
    return sorted(messages, key=lambda message: message.metadata.dst_node_id)


@pytest.mark.parametrize("inner", [FedAvg, FedSGD])
def test_rewards_are_those_of_the_mechanism_offline(
    inner: Any, grid: MemoryGrid, model: ArrayRecord, rewarded: Make, ledger: Ledger
) -> None:
    result = rewarded(inner(fraction_evaluate=0.0)).start(grid, model, num_rounds=1)
    expected = offline(by_node(grid.sent), range(5))
    assert list(rewards(ledger).values()) == pytest.approx(to_micro(expected), abs=2)
    told = result.train_metrics_clientapp[1]
    assert told["guerdon-pay"] == pytest.approx(expected, rel=1e-6)
    assert told["guerdon-paid"] == pytest.approx(sum(expected))
    assert (told["guerdon-request"], told["guerdon-participants"]) == (8, 5)
    assert told["loss"] == pytest.approx(2.0)  # what the strategy itself reports stays
    assert {name for name in told if "guerdon" not in name} == {"loss"}
    assert not {"guerdon-round", "guerdon-signature"} & set(told)
    assert ledger.verify().holds


def strategies() -> list[Any]:
    """Return all strategies of Flower that average models, and two of its wrappers."""
    wrapped = [
        lambda: flower.DifferentialPrivacyServerSideFixedClipping(FedAvg(), 0.0, 1e9, 5),
        lambda: flower.DifferentialPrivacyServerSideAdaptiveClipping(FedAvg(), 0.0, 5, initial_clipping_norm=0.3),
    ]
    plain = [FedAvg, flower.FedAvgM, flower.FedAdam, flower.FedAdagrad, flower.FedYogi, flower.FedMedian]
    plain += [flower.FedTrimmedAvg, Krum, flower.MultiKrum, FedSGD]
    momentum = [lambda: flower.FedAvgM(server_momentum=0.9)]
    return [*plain, *momentum, *wrapped]


def same_model(left: ArrayRecord, right: ArrayRecord) -> bool:
    return left.keys() == right.keys() and all(np.array_equal(left[name].numpy(), right[name].numpy()) for name in left)


@pytest.mark.parametrize("make", strategies())
def test_wrapping_does_not_change_the_model(make: Any, grid: MemoryGrid, model: ArrayRecord, rewarded: Make) -> None:
    wrapped = rewarded(make()).start(grid, model, num_rounds=2).arrays
    bare = Unpaid(make())
    assert same_model(wrapped, bare.start(MemoryGrid(grid.nodes.values()), model, num_rounds=2).arrays)


class Unpaid(Strategy):
    """The wrapped strategy with the request in its messages, and nothing else: what a round costs without pay."""

    def __init__(self, inner: Strategy) -> None:
        self.inner = inner

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Any) -> Any:
        for message in (messages := list(self.inner.configure_train(server_round, arrays, config, grid))):
            tell(message, Request("run", server_round, 8, "models").settings())
        return sorted(messages, key=lambda message: message.metadata.dst_node_id)

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        kept = []
        for found in sorted(replies, key=lambda message: message.metadata.src_node_id):
            found.content = RecordDict({name: part for name, part in found.content.items() if name != "guerdon-answer"})
            kept.append(found)
        return self.inner.aggregate_train(server_round, kept)

    def configure_evaluate(self, *_: Any) -> Any:
        return []

    def aggregate_evaluate(self, *_: Any) -> None:
        return None

    def summary(self) -> None: ...


def test_messages_are_a_nodes_own_and_the_content_stays(grid: MemoryGrid, model: ArrayRecord, rewarded: Make) -> None:
    rewarded(FedAvg(fraction_evaluate=0.0)).start(grid, model, num_rounds=2, train_config=ConfigRecord({"lr": 0.5}))
    first, second = grid.sent[:5], grid.sent[5:]
    assert len({id(message.content) for message in grid.sent}) == 10
    assert all(message.content.config_records["config"]["lr"] == 0.5 for message in grid.sent)
    assert all(last_pay(message) is None for message in first)
    told = {message.metadata.dst_node_id: last_pay(message) for message in second}
    assert len({pay.reward for pay in told.values() if pay is not None}) == 5
    for pay in told.values():
        assert isinstance(pay, Pay)
        assert (pay.round, pay.request, pay.status, pay.unit) == (1, 8, "paid", "CREDIT")
        assert "9 for the 8 samples asked for" in pay.why
    assert {message.content.config_records["config"]["guerdon-round"] for message in second} == {2}


def test_the_pay_of_a_round_comes_with_its_evaluation(grid: MemoryGrid, model: ArrayRecord, rewarded: Make) -> None:
    rewarded().start(grid, model, num_rounds=1)
    asked, evaluated = grid.sent[:5], grid.sent[5:]
    assert {message.metadata.message_type for message in asked} == {"train"}
    assert {pay.round for message in evaluated if (pay := last_pay(message)) is not None} == {1}


def bad(kind: str) -> Any:
    """Return an app that answers as nobody should."""

    def app(message: Message, context: Context) -> Any:
        del context
        if message.metadata.message_type != "train":
            return worker(0)(message, Context(1, 1, {}, RecordDict(), {}))
        arrays = gradients_of(message, 4)
        whole = {name: array.numpy() for name, array in arrays.items()}
        metrics = {"num-examples": 1, "loss": 4.0}
        return {
            "nan": lambda: reply(message, record(**(whole | {"b": np.full(4, np.nan, np.float32)})), loss=4.0),
            "huge": lambda: reply(message, record(**(whole | {"b": np.full(4, 1e30, np.float32)})), loss=4.0),
            "infinite": lambda: reply(message, record(**(whole | {"b": np.full(4, -np.inf, np.float32)})), loss=4.0),
            "shape": lambda: reply(message, record(**(whole | {"b": np.zeros(5, np.float32)})), loss=4.0),
            "dimensions": lambda: reply(message, record(**(whole | {"b": np.zeros((4, 1), np.float32)})), loss=4.0),
            "dtype": lambda: reply(message, record(**(whole | {"b": np.zeros(4)})), loss=4.0),
            "order": lambda: reply(message, record(**(whole | {"b": np.zeros(4, ">f4")})), loss=4.0),
            "missing": lambda: reply(message, record(w=whole["w"]), loss=4.0),
            "extra": lambda: reply(message, record(**whole, c=np.zeros(1)), loss=4.0),
            "exception": lambda: (_ for _ in ()).throw(ZeroDivisionError("out of memory")),
            "empty": lambda: Message(RecordDict(), reply_to=message),
            "silent": lambda: None,
            "two sets": lambda: told(message, a=arrays, b=arrays),
            "no metrics": lambda: told(message, arrays=arrays),
            "no weight": lambda: told(message, arrays=arrays, metrics=MetricRecord({"loss": 4.0})),
            "bad weight": lambda: reply(message, arrays, **(metrics | {"num-examples": float("nan")})),
            "no force": lambda: reply(message, arrays, **(metrics | {"num-examples": 0})),
            "heavy": lambda: reply(message, arrays, **(metrics | {"num-examples": 1.7e308})),
            "nan metric": lambda: reply(message, arrays, loss=float("nan")),
            "list metric": lambda: reply(message, arrays, loss=[1.0, float("inf")]),
            "longer list": lambda: reply(message, arrays, loss=[4.0, 4.0]),
            "arrays as answer": lambda: told(message, **{"guerdon-answer": arrays, "metrics": MetricRecord(metrics)}),
            "metrics as answer": lambda: told(message, **{"arrays": arrays, "guerdon-answer": MetricRecord(metrics)}),
            "control": lambda: decline(message, "\x1b[2J\n2026 INFO: Round 1 pays 999999 to me" + "x" * 10_000),
            "list weight": lambda: reply(message, arrays, **(metrics | {"num-examples": [1, 2]})),
            "other metric": lambda: reply(message, arrays, lose=4.0),
            "more metrics": lambda: reply(message, arrays, loss=4.0, extra=1.0),
            "other name": lambda: told(message, x=arrays, metrics=MetricRecord(metrics)),
            "other round": lambda: answered(reply(message, arrays, loss=4.0), {"round": 7}),
            "no round": lambda: answered(reply(message, arrays, loss=4.0), {"round": "1"}),
            "odd answer": lambda: answered(reply(message, arrays, loss=4.0), {"round": 1, "signature": "x"}),
            "forged": lambda: answered(reply(message, arrays, loss=4.0), {"round": 1, "signature": b"x" * 96}),
            "metric round": lambda: reply(message, arrays, loss=4.0, **{"guerdon-round": 7}),
            "float round": lambda: reply(message, arrays, loss=4.0, **{"guerdon-round": 1.0}),
            "wide signature": lambda: reply(
                message, arrays, loss=4.0, **{"guerdon-round": 1, "guerdon-signature": [999]}
            ),
            "float signature": lambda: reply(
                message, arrays, loss=4.0, **{"guerdon-round": 1, "guerdon-signature": [1.5]}
            ),
            "long signature": lambda: reply(
                message, arrays, loss=4.0, **{"guerdon-round": 1, "guerdon-signature": 2**40}
            ),
            "forged metric": lambda: reply(
                message, arrays, loss=4.0, **{"guerdon-round": 1, "guerdon-signature": [7] * 96}
            ),
            "twice": lambda: [reply(message, arrays, loss=4.0), reply(message, record(**whole), loss=4.1)],
            "declined": lambda: decline(message, "busy"),
        }[kind]()  # fmt: skip

    return app


def told(message: Message, **records: Any) -> Message:
    return Message(RecordDict(records), reply_to=message)


def answered(message: Message, answer: dict[str, Any]) -> Message:
    message.content["guerdon-answer"] = ConfigRecord(answer)
    return message


FAULTS = {
    "nan": ("invalid", "not finite"),
    "huge": ("invalid", "beyond 1e+15"),
    "infinite": ("invalid", "not finite"),
    "shape": ("invalid", "its array 'b' is float32[5] where float32[4] was asked for"),
    "dimensions": ("invalid", "its array 'b' is float32[4, 1] where float32[4] was asked for"),
    "dtype": ("invalid", "its array 'b' is float64[4] where float32[4] was asked for"),
    "order": ("invalid", "where float32[4] was asked for"),
    "missing": ("invalid", "it lacks array 'b'"),
    "extra": ("invalid", "it has array 'c' that nobody asked for"),
    "exception": ("declined", "failed: its client app raised an exception (ZeroDivisionError: out of memory)"),
    "empty": ("invalid", "it sent no arrays"),
    "silent": ("declined", "no reply before the deadline"),
    "two sets": ("invalid", "it sent 2 sets of arrays, not one"),
    "no metrics": ("invalid", "it sent no sets of metrics, not one"),
    "no weight": ("invalid", "its metric 'num-examples' must be a number above 0, at most 2**53, got None"),
    "bad weight": ("invalid", "its metric 'num-examples' must be a number above 0, at most 2**53, got nan"),
    "no force": ("invalid", "got 0"),
    "list weight": ("invalid", "got [1, 2]"),
    "heavy": ("invalid", "at most 2**53, got 1.7e+308"),
    "nan metric": ("invalid", "its metric 'loss' must be finite, got nan"),
    "list metric": ("invalid", "its metric 'loss' must be finite, got [1.0, inf]"),
    "longer list": ("invalid", "its records lack metrics/loss and have metrics/loss, unlike"),
    "arrays as answer": ("invalid", "its record 'guerdon-answer' is malformed"),
    "metrics as answer": ("invalid", "its record 'guerdon-answer' is malformed"),
    "control": (
        "declined",
        "\N{REPLACEMENT CHARACTER}[2J\N{REPLACEMENT CHARACTER}2026 INFO: Round 1 pays 999999 to mexxx",
    ),
    "other metric": ("invalid", "its records lack metrics/loss and have metrics/lose, unlike those of most nodes"),
    "more metrics": ("invalid", "its records have metrics/extra, unlike those of most nodes"),
    "other name": ("invalid", "its records lack arrays and have x"),
    "other round": ("invalid", "it answers round 7, not round 1"),
    "no round": ("invalid", "its round must be a whole number, got '1'"),
    "odd answer": ("invalid", "its record 'guerdon-answer' is malformed"),
    "forged": ("invalid", "its signature is not that of the enrolled key"),
    "metric round": ("invalid", "it answers round 7, not round 1"),
    "float round": ("invalid", "its round must be a whole number, got 1.0"),
    "wide signature": ("invalid", "its metric 'guerdon-signature' is no signature"),
    "float signature": ("invalid", "its metric 'guerdon-signature' is no signature"),
    "long signature": ("invalid", "its metric 'guerdon-signature' is no signature"),
    "forged metric": ("invalid", "its signature is not that of the enrolled key"),
    "twice": ("invalid", "it answered twice, and not the same"),
    "declined": ("declined", '"busy"'),
}


@dataclass
class Four:
    """What four honest nodes are paid, and the model they make; a fifth is enrolled beside them."""

    inner: Any
    ledger: Ledger
    nodes: list[Node]
    model: ArrayRecord

    def start(self, run: str, nodes: list[Node]) -> ArrayRecord:
        made = paid_strategy(self.inner(), run=run, ledger=self.ledger)
        return made.start(MemoryGrid(nodes), self.model, num_rounds=1).arrays


KINDS = {"models": FedAvg, "gradients": FedSGD}
# How a reply is read does not depend on what is asked for: of gradients, what is wrong with arrays and with answering.
OF_GRADIENTS = (*list(FAULTS)[:12], "other name", "forged", "twice")
OFFENCES = [("models", kind) for kind in FAULTS] + [("gradients", kind) for kind in OF_GRADIENTS]


@pytest.fixture(scope="module")
def four(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Made once: every offender has a run of its own in the same ledger, which holds together in the end."""
    nodes = [Node(100 + i, worker(i)) for i in range(5)]
    with Ledger(tmp_path_factory.mktemp("four") / "guerdon.db") as ledger:
        ledger.enrol({f"n{i}": node.der for i, node in enumerate(nodes)})
        made = Four(KINDS[request.param], ledger, nodes, record(**MODEL))
        yield made, made.start("four", nodes[:4]), rewards(ledger, "four")
        assert ledger.verify().holds


@pytest.mark.parametrize(("four", "kind"), OFFENCES, indirect=["four"])
def test_an_offender_harms_nobody_and_is_told_why(kind: str, four: tuple[Four, ArrayRecord, dict[str, int]]) -> None:
    made, expected, paid = four
    arrays = made.start(kind, [*made.nodes[:4], Node(104, bad(kind), key=made.nodes[4].key)])
    status, why = slips(made.ledger, kind)["n4"]
    assert status == FAULTS[kind][0]
    assert FAULTS[kind][1] in why
    assert rewards(made.ledger, kind) == paid | {"n4": 0}
    assert same_model(arrays, expected)


def test_notes_are_short(nodes: list[Node], model: ArrayRecord, rewarded: Make, ledger: Ledger) -> None:
    def failing(*_: Any) -> Message:
        raise ZeroDivisionError("y" * 10_000)

    nodes[3].app, nodes[4].app = failing, bad("control")
    rewarded(FedAvg(fraction_evaluate=0.0)).start(MemoryGrid(nodes), model, num_rounds=1)
    assert all(len(why) < 400 for _, why in slips(ledger).values())


def test_liars_about_form_who_send_nan_have_no_vote(
    nodes: list[Node], model: ArrayRecord, rewarded: Make, ledger: Ledger
) -> None:
    """Three of six agree on other names, but what they send cannot be used: the honest three are paid."""
    six = [*nodes, Node(105, worker(5))]
    ledger.enrol({"a0": six[5].der})  # sorted first, so that a tie would go to the liars
    for node in (six[5], nodes[0], nodes[1]):
        node.app = lambda message, _: reply(
            message, record(**{k: v * np.float32(np.nan) for k, v in MODEL.items()}), lie=1.0
        )
    rewarded(FedAvg(fraction_evaluate=0.0)).start(MemoryGrid(six), model, num_rounds=1)
    assert ledger.rounds("run")[0].statuses == {"invalid": 3, "paid": 3}


def test_a_tie_goes_to_the_form_of_the_rounds_before(
    nodes: list[Node], model: ArrayRecord, rewarded: Make, ledger: Ledger
) -> None:
    six = [*nodes, Node(105, worker(5))]
    ledger.enrol({"a0": six[5].der})
    for i, node in ((5, six[5]), (0, nodes[0]), (1, nodes[1])):
        honest = node.app

        def turning(message: Message, context: Context, own: Any = honest, number: int = i) -> Any:
            if message.content.config_records["config"]["guerdon-round"] == 1:
                return own(message, context)
            return reply(message, gradients_of(message, number), lie=1.0)

        node.app = turning
    rewarded(FedAvg(fraction_evaluate=0.0)).start(MemoryGrid(six), model, num_rounds=2)
    statuses = {agent: status for agent, (status, _) in slips(ledger).items()}
    assert statuses == {"a0": "invalid", "n0": "invalid", "n1": "invalid", "n2": "paid", "n3": "paid", "n4": "paid"}


@pytest.mark.parametrize("kind", ["i", "c"])
def test_nan_is_found_in_arrays_that_do_not_count(kind: str, nodes: list[Node], rewarded: Make, ledger: Ledger) -> None:
    """Whole numbers become floating-point ones once FedAvg has averaged them; complex ones are never compared."""
    first = {"i": np.asarray(3, np.int64), "c": np.zeros(2, np.complex64)}[kind]

    def app(number: int) -> Any:
        def train(message: Message, context: Context) -> Message:
            del context
            arrays = gradients_of(message, number)
            sent = message.content.array_records["arrays"]["extra"].numpy()
            late = message.content.config_records["config"]["guerdon-round"] == 2
            arrays["extra"] = record(extra=sent * np.nan if number == 4 and late else sent)["extra"]
            return reply(message, arrays, loss=1.0)

        return train

    for i, node in enumerate(nodes):
        node.app = app(i)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rewarded(FedAvg(fraction_evaluate=0.0)).start(MemoryGrid(nodes), record(**MODEL, extra=first), num_rounds=2)
    assert slips(ledger)["n4"][0] == "invalid"
    assert "not finite" in slips(ledger)["n4"][1]
    assert ledger.rounds("run")[1].statuses == {"invalid": 1, "paid": 4}


@dataclass(frozen=True)
class Lavish(Rule):
    """Pays everybody as much as the longest report is long."""

    cost: Cost

    name = "lavish"

    def pay(self, state: Any, round: Round) -> tuple[Payments, Any]:
        state, mask = check_round(state, round)
        evidence = round.evidence
        status = statuses(evidence, mask, 1, 1 + 0 * evidence.squared_length)
        reward = np.where(status == 0, evidence.squared_length.max(), 0.0)
        return Payments(reward, reward, *[np.full(len(mask), np.nan)] * 3, status=status), state


def test_one_enormous_report_does_not_stop_the_pay(
    nodes: list[Node], model: ArrayRecord, rewarded: Make, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it would make the others' pay more than a ledger can hold it is left out, and they are paid."""
    monkeypatch.setattr(registry, "_RULES", dict(registry._RULES))
    register(Lavish)

    def far(message: Message, context: Context) -> Message:
        own = worker(4)(message, context)
        if message.content.config_records["config"]["guerdon-round"] == 1:
            return own
        return reply(message, record(**{k: np.full_like(v, 1e12) for k, v in MODEL.items()}), loss=4.0)

    nodes[4].app = far
    rule = Lavish(AffineCost(1, 1))
    rewarded(FedAvg(fraction_evaluate=0.0), rule=rule).start(MemoryGrid(nodes), model, num_rounds=2)
    status, why = slips(ledger)["n4"]
    assert (status, "it lies so far from all others" in why) == ("invalid", True)
    assert ledger.rounds("run")[1].statuses == {"invalid": 1, "paid": 4}
    assert ledger.verify().holds


class Breaking(FedAvg):
    """A strategy that gives up, or computes nonsense, in a round."""

    def __init__(self, how: str) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.how = how

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        arrays, metrics = super().aggregate_train(server_round, replies)
        if server_round == 2 and self.how == "raises":
            raise ZeroDivisionError("no")
        if server_round == 2 and self.how == "nan":
            return record(**{name: array * np.float32(np.nan) for name, array in MODEL.items()}), metrics
        return arrays, metrics


def test_a_strategy_that_fails_does_not_cost_the_pay(
    grid: MemoryGrid, model: ArrayRecord, rewarded: Make, ledger: Ledger
) -> None:
    with pytest.raises(ZeroDivisionError):
        rewarded(Breaking("raises")).start(grid, model, num_rounds=3)
    assert [found.statuses for found in ledger.rounds("run")] == [{"paid": 5}] * 2
    rewarded().start(grid, model, num_rounds=3)
    assert len(ledger.rounds("run")) == 3
    assert ledger.verify().holds


def test_a_model_of_nan_is_not_taken_over(grid: MemoryGrid, model: ArrayRecord, rewarded: Make, ledger: Ledger) -> None:
    result = rewarded(Breaking("nan")).start(grid, model, num_rounds=3)
    assert all(np.isfinite(array.numpy()).all() for array in result.arrays.values())
    assert [found.statuses for found in ledger.rounds("run")] == [{"paid": 5}] * 3
    with pytest.raises(ValueError, match="`initial_arrays` must hold finite numbers only"):
        rewarded(run="other").start(grid, record(w=np.asarray([np.inf, 1.0])))


def test_a_budget_is_shared_by_those_who_are_there(
    nodes: list[Node], model: ArrayRecord, rewarded: Make, ledger: Ledger
) -> None:
    """Nodes that join make rounds dearer, not the budget larger."""
    grid = MemoryGrid(nodes[:3])

    def join(server_round: int, _: ArrayRecord) -> None:
        grid.nodes = {node.number: node for node in (nodes if server_round else nodes[:3])}

    strategy = rewarded(FedSGD(fraction_evaluate=0.0), requests=BudgetRequest(AffineCost(1, 1), budget=60))
    strategy.start(grid, model, num_rounds=30, evaluate_fn=join)
    assert len(ledger.roster("run")) == 5
    assert sum(found.paid for found in ledger.rounds("run")) / 1e6 <= 60 + 1e-4
    before = len(ledger.rounds("run"))
    strategy = rewarded(FedSGD(fraction_evaluate=0.0), requests=BudgetRequest(AffineCost(1, 1), budget=120))
    strategy.start(grid, model, num_rounds=30)
    assert len(ledger.rounds("run")) > before


def test_a_bad_evaluation_does_not_stop_the_run(nodes: list[Node], model: ArrayRecord, rewarded: Make) -> None:
    app = ClientApp(mods=[paid_work()])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        del context
        return reply(message, gradients_of(message, 4), loss=4.0)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        del context
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 1})}), reply_to=message)

    nodes[4].app = app
    result = rewarded().start(MemoryGrid(nodes), model, num_rounds=1)
    assert result.evaluate_metrics_clientapp[1]["accuracy"] == pytest.approx(0.5)


def test_replies_that_nobody_asked_for_are_not_looked_at(
    grid: MemoryGrid, model: ArrayRecord, rewarded: Make, ledger: Ledger
) -> None:
    """A late reply of an earlier round, and one in another node's name."""
    rewarded(FedAvg(fraction_evaluate=0.0)).start(grid, model, num_rounds=1)
    before = rewards(ledger)
    late = reply(grid.sent[0], record(**{name: array + 100 for name, array in MODEL.items()}), loss=0.0)
    grid.strays = [late]

    class Forging(MemoryGrid):
        def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
            sent = list(messages)
            replies = super().send_and_receive(sent, timeout=timeout)
            if not sent:
                return replies
            forged = reply(sent[0], record(**{name: array + 100 for name, array in MODEL.items()}), loss=0.0)
            forged.metadata.__dict__["_src_node_id"] = sent[1].metadata.dst_node_id
            return [forged, *replies]

    rewarded(FedAvg(fraction_evaluate=0.0), run="again").start(grid, model, num_rounds=1)
    rewarded(FedAvg(fraction_evaluate=0.0), run="forged").start(Forging(grid.nodes.values()), model, num_rounds=1)
    assert rewards(ledger, "again") == rewards(ledger, "forged") == before


def test_a_round_without_any_usable_reply_is_recorded_and_goes_on(
    nodes: list[Node], model: ArrayRecord, rewarded: Make, ledger: Ledger
) -> None:
    for node in nodes:
        node.app = bad("silent")
    strategy = rewarded(FedAvg(fraction_evaluate=0.0))
    result = strategy.start(MemoryGrid(nodes), model, num_rounds=2)
    assert same_model(result.arrays, model)
    assert [found.statuses for found in ledger.rounds("run")] == [{"declined": 5}, {"declined": 5}]
    assert ledger.verify().holds


@pytest.mark.parametrize(("count", "status"), [(1, "alone"), (2, "too-few")])
def test_too_few_are_not_paid(
    count: int, status: str, nodes: list[Node], model: ArrayRecord, rewarded: Make, ledger: Ledger,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    inner = FedAvg(min_train_nodes=count, min_evaluate_nodes=count, min_available_nodes=count)
    rewarded(inner).start(MemoryGrid(nodes[:count]), model, num_rounds=1)
    assert f"only {count} of the replies can be used; at least three agents must take part" in caplog.text
    assert {status for status, _ in slips(ledger).values()} == {status}
    assert set(rewards(ledger).values()) == {0}


def test_nodes_come_and_go(nodes: list[Node], model: ArrayRecord, rewarded: Make, ledger: Ledger) -> None:
    grid = MemoryGrid(nodes[:3])
    inner = FedAvg(fraction_evaluate=0.0, fraction_train=1.0)

    def change(server_round: int, _: ArrayRecord) -> None:
        chosen = {1: nodes, 2: nodes[1:]}.get(server_round, nodes[:3])
        grid.nodes = {node.number: node for node in chosen}

    rule = InformationPay(AffineCost(1, 1))  # it remembers, per agent
    rewarded(inner, rule=rule).start(grid, model, num_rounds=3, evaluate_fn=change)
    assert ledger.roster("run") == ["n0", "n1", "n2", "n3", "n4"]
    assert slips(ledger)["n0"] == ("declined", "nothing: it did not take part; note: was not asked this round")
    assert [found.statuses for found in ledger.rounds("run")] == [{"paid": 3}, {"paid": 5}, {"declined": 1, "paid": 4}]
    assert ledger.verify().holds


def test_only_those_sampled_are_asked(grid: MemoryGrid, model: ArrayRecord, rewarded: Make, ledger: Ledger) -> None:
    rewarded(FedAvg(fraction_train=0.6, fraction_evaluate=0.0)).start(grid, model, num_rounds=4)
    assert len(grid.sent) == 12
    assert ledger.rounds("run")[0].statuses == {"paid": 3}
    assert all(found.statuses["paid"] == 3 for found in ledger.rounds("run"))
    assert ledger.verify().holds


def test_a_schedule_is_followed(grid: MemoryGrid, model: ArrayRecord, rewarded: Make, ledger: Ledger) -> None:
    rewarded(requests=ScheduledRequest([4, 9, 2], [0.1, 0.1, 0.1])).start(grid, model, num_rounds=3)
    assert [found.request for found in ledger.rounds("run")] == [4, 9, 2]


def test_fedsgd_takes_the_step_that_requests_choose(grid: MemoryGrid, model: ArrayRecord, rewarded: Make) -> None:
    inner = FedSGD(fraction_evaluate=0.0)
    result = rewarded(inner, requests=ScheduledRequest([8], [0.25])).start(grid, model, num_rounds=1)
    sent = [gradients_of(message, i) for i, message in enumerate(by_node(grid.sent))]
    mean = np.mean([arrays["w"].numpy() for arrays in sent], axis=0, dtype=np.float64)
    assert result.arrays["w"].numpy() == pytest.approx(MODEL["w"] - 0.25 * mean, rel=1e-6)
    assert result.arrays["w"].numpy().dtype == np.float32
    assert inner.step == 0.25


def test_a_budget_ends_the_training(grid: MemoryGrid, model: ArrayRecord, rewarded: Make, ledger: Ledger) -> None:
    evaluations: list[int] = []
    strategy = rewarded(FedSGD(), requests=BudgetRequest(AffineCost(1, 1), budget=90))
    strategy.start(grid, model, num_rounds=50, evaluate_fn=lambda number, _: evaluations.append(number))
    played = ledger.rounds("run")
    assert 1 <= len(played) < 20
    assert 45 < sum(found.paid for found in played) / 1e6 <= 90 + 1e-4
    assert evaluations == list(range(len(played) + 1))
    assert ledger.verify().holds


def test_a_budget_ends_a_run_of_any_strategy(
    grid: MemoryGrid, model: ArrayRecord, rewarded: Make, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    """Five nodes at a cost of 9 each: 45 a round, paid exactly by agreement."""
    for budget, rounds in ((100, 2), (100, 2), (180, 4)):
        rewarded(budget=budget, rule=OutputAgreement(AffineCost(1, 1))).start(grid, model, num_rounds=6)
        assert len(ledger.rounds("run")) == rounds
    assert "Of the budget of 100, 10 is left, and the next round costs 45" in caplog.text
    with pytest.raises(ValueError, match="`budget` must be"):
        rewarded(budget=-1.0)


def test_a_budget_covers_what_is_held_back(
    grid: MemoryGrid, model: ArrayRecord, rewarded: Make, ledger: Ledger
) -> None:
    """Nothing is released in the first rounds, but it may be later."""
    strategy = rewarded(FedSGD(), rule=SteadyPay(AffineCost(1, 1)), dither=Dither(1.0), budget=100)
    strategy.start(grid, model, num_rounds=6)
    assert [found.paid for found in ledger.rounds("run")] == [0, 0]


def test_pay_against_cost_is_logged_at_the_end(
    grid: MemoryGrid, model: ArrayRecord, rewarded: Make, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "flwr.guerdon"):
        rewarded().start(grid, model, num_rounds=3)
    told = [line.getMessage() for line in caplog.records]
    lines = [line for line in told if "a round for work that costs 9, in 3 rounds" in line]
    assert [line.partition(" was paid ")[0] for line in lines] == [f"n{i} #{i + 1}" for i in range(5)]
    assert all("(95 %)" in line for line in lines)


def test_metrics_are_remembered(grid: MemoryGrid, model: ArrayRecord, rewarded: Make, ledger: Ledger) -> None:
    rewarded().start(grid, model, num_rounds=2, evaluate_fn=lambda number, _: MetricRecord({"quality": number + 0.5}))
    first, second = (found.metrics for found in ledger.rounds("run"))
    assert first == {"loss": pytest.approx(2.0), "central-quality": 0.5}
    assert second == {"loss": pytest.approx(2.0), "central-quality": 1.5, "eval-accuracy": pytest.approx(0.5)}


def test_arrays_of_whole_numbers_are_checked_but_do_not_count(
    nodes: list[Node], rewarded: Make, ledger: Ledger
) -> None:
    """As the counters of batch normalisation; FedAvg makes floating-point numbers of them after the first round."""

    def counting(number: int) -> Any:
        app = ClientApp(mods=[paid_work()])

        @app.train()
        def train(message: Message, context: Context) -> Message:
            del context
            arrays = gradients_of(message, number)
            arrays["seen"] = record(seen=np.asarray(number + 5, np.int64))["seen"]
            return reply(message, arrays, loss=1.0)

        return app

    for i, node in enumerate(nodes):
        node.app = counting(i)
    model = record(**MODEL, seen=np.asarray(0, np.int64))
    rewarded(FedAvg(fraction_evaluate=0.0)).start(MemoryGrid(nodes), model, num_rounds=2)
    assert [found.statuses for found in ledger.rounds("run")] == [{"paid": 5}, {"paid": 5}]


def test_the_replies_are_let_go_before_the_checkpoint(grid: MemoryGrid, model: ArrayRecord, rewarded: Make) -> None:
    """The server's memory then never holds replies and checkpoint at once."""
    kept: list[Message] = []

    class Keeping(MemoryGrid):
        def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
            kept.extend(replies := super().send_and_receive(messages, timeout=timeout))
            return replies

    rewarded(FedAvg(fraction_evaluate=0.0)).start(Keeping(grid.nodes.values()), model, num_rounds=1)
    assert len(kept) == 5
    assert not any(len(message.content) for message in kept)


def test_flat_pay_pays_everybody_who_sends(
    grid: MemoryGrid, model: ArrayRecord, rewarded: Make, ledger: Ledger
) -> None:
    rewarded(rule=FlatPay(AffineCost(1, 1))).start(grid, model, num_rounds=1)
    assert set(rewards(ledger).values()) == {9_000_000}


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (
            {"strategy": object()},
            "`strategy` must be one of flwr.serverapp.strategy, got builtins.object: import",
        ),
        ({"strategy": FedSGD}, r"`strategy` must be an object, got the class FedSGD: give FedSGD\(\)"),
        ({"strategy": FedXgbBagging()}, "`strategy` must be one that averages arrays of numbers, got FedXgbBagging"),
        ({"rule": "steady"}, "`rule` must be a payment rule, .* got 'steady'"),
        ({"dither": 3.0}, r"`dither` must be a Dither, such as .* got 3.0: give Dither\(3.0\)"),
        ({"requests": NoiseScaleRequest(AffineCost(1, 1))}, "`requests` that learn need gradients"),
        ({"run": ""}, "a run's name"),
        ({"losses": "none"}, "`losses` must be"),
    ],
)
def test_what_cannot_work_is_said_at_once(rewarded: Make, changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises((TypeError, ValueError), match=complaint):
        rewarded(**changes)


@pytest.mark.parametrize(
    ("server", "remedy"),
    [("steady", "got 'steady': `guerdon.statistical`"), (FlatPay(AffineCost(1, 1)), r"give Server\(rule, requests\)")],
)
def test_a_rule_is_no_server(server: Any, remedy: str, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=rf"`server` must be a Server, such as .*{remedy}"):
        Paid(FedAvg(), server, run="run", ledger=tmp_path / "guerdon.db")
    assert not (tmp_path / "guerdon.db").exists()
    with Ledger(tmp_path / "other.db") as ledger:
        with pytest.raises(TypeError, match=rf"`server` must be a Server, such as .*{remedy}"):
            open_run(server, ledger, "run", {})
        terms: Any = {"budget": 1}
        with pytest.raises(TypeError, match=r"`terms` must be Terms, such as .* got {'budget': 1}"):
            open_run(Server(FlatPay(AffineCost(1, 1)), FixedRequest(8, 0.1)), ledger, "run", {}, terms)


def test_an_ordinary_app_that_sends_its_weights_for_gradients_stops_the_first_round(
    nodes: list[Node], rewarded: Make, ledger: Ledger
) -> None:
    """It trains, as Flower's own apps do; under `FedSGD` its weights would have been taken for gradients."""
    start = record(w=np.linspace(-1, 1, 60, dtype=np.float32).reshape(20, 3))

    def trains(message: Message, context: Context) -> Message:
        del context
        sent = next(iter(message.content.array_records.values()))["w"].numpy()
        rng = np.random.default_rng(message.metadata.dst_node_id)
        return reply(message, record(w=sent + 0.01 * rng.normal(size=sent.shape).astype(np.float32)), loss=1.0)

    def works(message: Message, context: Context) -> Message:
        del context
        rng = np.random.default_rng(message.metadata.dst_node_id)
        return reply(message, record(w=rng.normal(size=(20, 3)).astype(np.float32)), loss=1.0)

    for node in nodes:
        node.app = trains
    with pytest.raises(ValueError, match=r"reports must be gradients, got models from n0, n1, n2 …: .* or wrap FedAvg"):
        rewarded(FedSGD(fraction_evaluate=0.0)).start(MemoryGrid(nodes), start, num_rounds=2)
    assert ledger.runs() == []
    for node in nodes[1:]:
        node.app = works
    rewarded(FedSGD(fraction_evaluate=0.0)).start(MemoryGrid(nodes), start, num_rounds=2)  # one cannot stop a round
    assert len(ledger.rounds("run")) == 2


def test_a_paid_strategy_is_not_paid_again(rewarded: Make) -> None:
    with pytest.raises(TypeError, match="`strategy` must be one that is not paid yet, got Paid: wrap it once"):
        rewarded(strategy=rewarded())


def test_a_model_without_numbers_is_refused(grid: MemoryGrid, rewarded: Make) -> None:
    with pytest.raises(ValueError, match="at least one array of floating-point numbers"):
        rewarded().start(grid, record(tree=np.zeros(4, np.uint8)))


def test_a_strategy_that_asks_twice_or_strangers_is_refused(
    grid: MemoryGrid, model: ArrayRecord, rewarded: Make
) -> None:
    class Twice(FedAvg):
        def _construct_messages(self, record: RecordDict, node_ids: list[int], message_type: str) -> Any:
            return super()._construct_messages(record, node_ids * 2, message_type)

    class Elsewhere(FedAvg):
        def _construct_messages(self, record: RecordDict, node_ids: list[int], message_type: str) -> Any:
            return super()._construct_messages(record, [999, *node_ids], message_type)

    with pytest.raises(RefusedError, match="two messages to 'n"):
        rewarded(Twice()).start(grid, model)
    with pytest.raises(RefusedError, match="node 999, which cannot be paid"):
        rewarded(Elsewhere()).start(grid, model)


def test_a_wrapper_around_it_works_too_but_does_not_resume(
    grid: MemoryGrid, model: ArrayRecord, rewarded: Make, ledger: Ledger
) -> None:
    outer = flower.DifferentialPrivacyServerSideFixedClipping(rewarded(), 0.0, 1e9, 5)
    outer.start(grid, model, num_rounds=2)
    assert len(ledger.rounds("run")) == 2
    with pytest.raises(RefusedError, match=r"has 2 paid rounds; begin with `Paid\.start`"):
        flower.DifferentialPrivacyServerSideFixedClipping(rewarded(), 0.0, 1e9, 5).start(grid, model, num_rounds=2)


def test_what_is_paid_is_logged(
    grid: MemoryGrid, model: ArrayRecord, rewarded: Make, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("flwr").propagate = True
    with caplog.at_level(logging.INFO):
        rewarded(rule=OutputAgreement(AffineCost(1, 1))).start(grid, model, num_rounds=1)
    logging.getLogger("flwr").propagate = False
    assert "Rule: OutputAgreement(cost=ExpressionCost(text='1 + 1*s')" in caplog.text  # as it is recorded
    assert "Requests: FixedRequest(batch_size=8, step=0.1); its step is not used" in caplog.text
    assert "Round 1 asks 5 members for 8 samples each" in caplog.text
    assert "Round 1 pays 45.000000 CREDIT to 5 members" in caplog.text
    assert "Round 1: " in caplog.text  # the nodes' own


def test_requests_and_ledgers_may_be_given_by_path(grid: MemoryGrid, model: ArrayRecord, ledger: Ledger) -> None:
    strategy = paid_strategy(FedAvg(), requests=FixedRequest(2, 0.1), run="path", ledger=ledger.where)
    strategy.start(grid, model, num_rounds=1)
    assert ledger.rounds("path")[0].request == 2
