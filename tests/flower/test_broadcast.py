"""Dithered broadcasts on Flower: θ + u and θ − u are sent, θ is kept, and a pair that was broken off goes on."""

# Flower's records are typed as dictionaries of a union, which no plain dictionary is.
# pyright: reportArgumentType=false

import logging
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.serverapp.strategy import FedAdam, FedAvg

from guerdon import AffineCost, FixedRequest, InformationPay, NoiseScaleRequest, OutputAgreement
from guerdon.flower import FedSGD
from guerdon.ledger import Ledger
from guerdon.ledger.books.errors import RefusedError
from guerdon.states import flatten_state, restore_state
from guerdon.statistical.dithers import Dither
from guerdon.statistical.predictions import Extrapolation, RunningMean, ZeroPrediction
from tests.flower.conftest import MODEL, Make
from tests.flower.grids import MemoryGrid, Node, record
from tests.flower.learners import DIM, Learner, arrays, enrolled, garbage, vector
from tests.flower.test_recovery import CrashError, Crashing, paid
from tests.flower.test_strategy import same_model

COST = AffineCost(1, 1)
RULE = InformationPay(COST)


def sent_models(grid: MemoryGrid) -> list[np.ndarray]:
    """Return the model of each round of training, as it was sent."""
    rounds: dict[int, Message] = {}
    for message in grid.sent:
        if message.metadata.message_type == "train":
            rounds.setdefault(int(str(message.content.config_records["config"]["guerdon-round"])), message)
    found = [next(iter(message.content.array_records.values())) for message in rounds.values()]
    return [np.concatenate([part.numpy().reshape(-1) for part in record.values()]) for record in found]


def flat(record: ArrayRecord) -> np.ndarray:
    return np.concatenate([part.numpy().reshape(-1) for part in record.values()])


def test_models_beside_the_model_are_sent_and_only_the_model_is_kept(
    grid: MemoryGrid, model: ArrayRecord, rewarded: Make, ledger: Ledger
) -> None:
    seen: dict[int, np.ndarray] = {}

    def evaluate(number: int, found: ArrayRecord) -> MetricRecord:
        seen[number] = flat(found)
        return MetricRecord({"loss": 0.0})

    strategy = rewarded(FedSGD(), rule=RULE, dither=Dither(2.0))
    result = strategy.start(grid, model, num_rounds=4, evaluate_fn=evaluate)
    plus, minus, *more = sent_models(grid)
    assert np.linalg.norm(plus - flat(model)) == pytest.approx(2.0, rel=1e-5)
    assert (plus + minus) / 2 == pytest.approx(flat(model), abs=1e-6)
    assert np.linalg.norm(more[0] - plus) > 0.1  # another u for each pair
    assert np.array_equal(seen[1], flat(model))  # no step after half a pair
    assert not np.array_equal(seen[2], flat(model))
    assert np.array_equal(seen[2], seen[3])
    assert sum(more) / 2 == pytest.approx(seen[2], abs=1e-6)
    evaluated = [message for message in grid.sent if message.metadata.message_type == "evaluate"]
    assert np.array_equal(flat(evaluated[0].content.array_records["arrays"]), flat(model))
    assert np.array_equal(flat(result.arrays), seen[4])
    kept = ledger.resume("run")
    assert kept is not None
    assert all(np.array_equal(kept.arrays["model"][name], result.arrays[name].numpy()) for name in model)


@pytest.mark.parametrize("rule", [RULE, OutputAgreement(COST)])
def test_a_step_is_along_the_mean_of_both_halves(rule: Any, rewarded: Make, ledger: Ledger) -> None:
    people = [Learner(i) for i in range(5)]
    options = {"rule": rule, "requests": FixedRequest(8, 0.25), "dither": Dither(0.5)}
    result = rewarded(FedSGD(), **options).start(
        MemoryGrid(enrolled(ledger, people)), arrays(np.zeros(DIM)), num_rounds=2
    )
    both = np.mean([np.mean(person.sent, axis=0) for person in people], axis=0)
    assert vector(result.arrays) == pytest.approx(-0.25 * both, abs=1e-6)
    assert ledger.verify().holds


def test_no_two_runs_have_the_same_offset(nodes: list[Node], model: ArrayRecord, rewarded: Make) -> None:
    """Not even two of the same name, seed and model."""
    offsets: list[np.ndarray] = []
    for run in ("one", "two"):
        grid = MemoryGrid(nodes)
        rewarded(FedSGD(), rule=RULE, dither=Dither(1.0), run=run).start(grid, model, num_rounds=1)
        offsets.append(sent_models(grid)[0] - flat(model))
    assert abs(offsets[0] @ offsets[1]) < 0.999


def test_the_offset_is_told_to_nobody(
    grid: MemoryGrid, model: ArrayRecord, rewarded: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """Messages hold the model and the request, and the log no number of u."""
    with caplog.at_level(logging.DEBUG):
        result = rewarded(FedSGD(), rule=RULE, dither=Dither(1.0)).start(grid, model, num_rounds=2)
    for message in grid.sent[:5]:
        assert len(message.content.array_records) == 1
        (told,) = message.content.config_records.values()
        names = {"run", "round", "request", "sends", "usual", "ledger", "samples"}
        assert set(told) == {"server-round", *(f"guerdon-{name}" for name in names)}
    offset = sent_models(grid)[0] - flat(model)
    assert not any(f"{abs(number):.6f}" in caplog.text for number in offset)
    metrics = result.train_metrics_clientapp[2]
    assert metrics["guerdon-offset"] == pytest.approx(1.0)
    assert {name for name in metrics if "guerdon" in name} == {
        "guerdon-request", "guerdon-participants", "guerdon-paid", "guerdon-pay", "guerdon-noise-scale",
        "guerdon-offset",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("inner", "options", "message"),
    [
        (FedSGD, {"requests": NoiseScaleRequest(COST)}, "`requests` must be fixed or scheduled under a dither"),
    ],
)
def test_a_dither_that_cannot_work_is_refused(inner: Any, options: Any, message: str, rewarded: Make) -> None:
    with pytest.raises(ValueError, match=message):
        rewarded(inner(), dither=Dither(1.0), **options)


class Watching(FedAdam):
    """Keeps what it is given."""

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        given = list(replies)
        self.given = [vector(next(iter(reply.content.array_records.values()))) for reply in given]
        return super().aggregate_train(server_round, given)


def test_a_strategy_of_models_never_meets_the_dither(rewarded: Make, ledger: Ledger) -> None:
    """It is given what nodes would have sent from the model itself, if they moved as they did from beside it."""
    people = [Learner(i) for i in range(5)]
    grid, inner, options = MemoryGrid(enrolled(ledger, people)), Watching(), {"rule": RULE, "dither": Dither(2.0)}
    before = rewarded(inner, **options).start(grid, arrays(np.zeros(DIM)), num_rounds=1).arrays
    offset = people[0].models[0]
    assert np.linalg.norm(offset) == pytest.approx(2.0, rel=1e-5)
    assert np.array(inner.given) == pytest.approx(np.array([person.sent[0] - offset for person in people]), abs=1e-6)
    assert inner.current_arrays is not None
    assert not any(part.any() for part in inner.current_arrays.values())
    rewarded(Watching(), **options).start(grid, arrays(np.zeros(DIM)), num_rounds=2)
    assert people[0].models[1] == pytest.approx(vector(before) - offset, abs=1e-6)  # then from its other side
    assert {message.metadata.message_type for message in grid.sent} == {"train"}  # nobody is sent the model itself
    assert ledger.verify().holds


class Secretive(FedAvg):
    """Sends something else than the model."""

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: Any, grid: Any) -> Any:
        return super().configure_train(server_round, ArrayRecord({"other": arrays["w"]}), config, grid)


def test_a_strategy_that_does_not_send_the_model_cannot_be_dithered(rewarded: Make, ledger: Ledger) -> None:
    strategy = rewarded(Secretive(), rule=RULE, dither=Dither(1.0))
    grid = MemoryGrid(enrolled(ledger, [Learner(i) for i in range(3)]))
    with pytest.raises(RefusedError, match="does not send the model as it is, so a dither cannot be added to it"):
        strategy.start(grid, arrays(np.zeros(DIM)), num_rounds=1)


def same_each_time(layers: Iterable[np.ndarray]) -> list[np.ndarray]:
    """Return normals that the model determines, so that a run can be played twice."""
    parts = list(layers)
    seed = [int(abs(part.sum()) * 2**40) % 2**32 for part in parts]
    return [np.random.default_rng([*seed, i]).normal(size=part.shape) for i, part in enumerate(parts)]


@pytest.mark.parametrize(("prediction", "times"), [(RunningMean(), (2, 5, 22)), (Extrapolation(), (10, 17))])
def test_a_pair_that_was_broken_off_goes_on_as_if_it_had_not_been(
    prediction: Any,
    times: tuple[int, ...],
    nodes: list[Node],
    model: ArrayRecord,
    rewarded: Make,
    ledger: Ledger,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In either half: the model, the pay and all that is remembered, to the last bit."""
    monkeypatch.setattr("guerdon.statistical.dithers.secret_normals", same_each_time)
    options = {"rule": RULE, "prediction": prediction, "dither": Dither(0.5, COST)}

    def start(run: str, grid: MemoryGrid) -> ArrayRecord:
        return rewarded(FedSGD(fraction_evaluate=0.0), run=run, **options).start(grid, model, num_rounds=6).arrays

    whole = start("whole", whole_grid := MemoryGrid(nodes))
    kept = ledger.resume("whole")
    assert kept is not None
    assert set(kept.arrays) >= {"model", "lens", "broadcast"}
    for after in times:
        run, grid = f"after {after}", MemoryGrid(nodes)
        with pytest.raises(CrashError):
            start(run, Crashing(nodes, after))
        assert [found.rounds for found in ledger.runs() if found.name == run] == [after // 5] * (after >= 5)
        assert same_model(start(run, grid), whole)
        assert paid(ledger, run) == paid(ledger, "whole")
        again = ledger.resume(run)
        assert again is not None
        for group, members in kept.arrays.items():
            assert all(np.array_equal(again.arrays[group][name], part) for name, part in members.items()), group
        tail = sent_models(grid)
        assert all(np.array_equal(a, b) for a, b in zip(tail, sent_models(whole_grid)[-len(tail) :], strict=True))
    assert ledger.verify().holds


def test_the_offset_of_a_pair_survives_without_any_seed(nodes: list[Node], model: ArrayRecord, rewarded: Make) -> None:
    """The first half is answered, the server stops, and another one asks at θ − u and steps along both."""
    options = {"rule": RULE, "dither": Dither(1.0)}
    grids, results = [MemoryGrid(nodes), MemoryGrid(nodes)], list[ArrayRecord]()
    for rounds, grid in enumerate(grids, start=1):
        found = rewarded(FedSGD(fraction_evaluate=0.0), **options).start(grid, model, num_rounds=rounds)
        results.append(found.arrays)
    (plus,), (minus,) = map(sent_models, grids)
    assert (plus + minus) / 2 == pytest.approx(flat(model), abs=1e-6)
    assert same_model(results[0], model)
    assert flat(results[1]) == pytest.approx(0.9 * flat(model), abs=0.3)  # a step of 0.1 along θ and noise
    assert not same_model(results[1], model)


@pytest.mark.parametrize("empty", [{1}, {2}, {1, 2}, {2, 3}])
def test_a_half_that_nobody_answers_is_asked_for_again(empty: set[int], rewarded: Make, ledger: Ledger) -> None:
    """No step is along one half alone."""
    people = [Learner(i) for i in range(4)]
    for person in people:
        person.absent = empty
    grid = MemoryGrid(enrolled(ledger, people))
    options = {"rule": RULE, "dither": Dither(2.0), "requests": FixedRequest(8, 0.25)}
    rounds = 2 + len(empty)
    start = arrays(np.zeros(DIM))
    before = rewarded(FedSGD(fraction_evaluate=0.0), **options).start(grid, start, num_rounds=rounds - 1)
    assert same_model(before.arrays, start)
    result = rewarded(FedSGD(fraction_evaluate=0.0), **options).start(grid, start, num_rounds=rounds)
    both = np.mean([np.mean(person.sent, axis=0) for person in people], axis=0)
    assert vector(result.arrays) == pytest.approx(-0.25 * both, abs=1e-6)
    models = sent_models(grid)
    used = [models[i] for i in range(rounds) if i + 1 not in empty]
    assert sum(used) == pytest.approx(np.zeros(DIM), abs=1e-5)
    assert ledger.verify().holds


@pytest.mark.parametrize(
    ("dither", "line"),
    [
        (Dither(6.0), "is met: public knowledge alone earns nothing"),
        (Dither(0.01), "is not met: a report made from public knowledge may earn"),
        (Dither(0.01, COST, largest=0.011), "is not met: a report made from public knowledge may earn"),
    ],
)
def test_the_log_says_whether_the_dither_is_long_enough(
    dither: Dither, line: str, rewarded: Make, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    people = [Learner(i) for i in range(6)]
    caplog.set_level(logging.INFO, logger="flwr.guerdon")
    options = {"rule": RULE, "dither": dither, "requests": FixedRequest(8, 0.0)}
    grid = MemoryGrid(enrolled(ledger, people))
    result = rewarded(FedSGD(fraction_evaluate=0.0), **options).start(grid, arrays(np.zeros(DIM)), num_rounds=6)
    told = [found for found in caplog.messages if "noise scale" in found]
    assert len(told) == 1  # once, not in every round
    assert line in told[0]
    assert "its bound 64 is" in told[0]
    last: Any = result.train_metrics_clientapp[6]
    assert (last["guerdon-noise-scale"] < 64) == ("is met" in line)


@pytest.mark.parametrize("alike", [False, True])
def test_the_dither_grows_until_it_is_long_enough(alike: bool, rewarded: Make, ledger: Ledger) -> None:
    people = [Learner(i) for i in range(6)] + [Learner(6, garbage(1e6))]
    options = {"rule": RULE, "dither": Dither(0.2, COST), "requests": FixedRequest(8, 0.0), "alike": alike}
    grid = MemoryGrid(enrolled(ledger, people))
    result = rewarded(FedSGD(fraction_evaluate=0.0), **options).start(grid, arrays(np.zeros(DIM)), num_rounds=24)
    lengths: list[Any] = [found["guerdon-offset"] for found in result.train_metrics_clientapp.values()]
    assert lengths[0] == lengths[1] == pytest.approx(0.2)  # the same in both halves
    assert lengths[-1] > 1.0  # σ²/‖u‖² = 180/‖u‖², and 8 is aimed at
    assert ledger.verify().holds


@pytest.mark.parametrize("prediction", [ZeroPrediction(), RunningMean(), Extrapolation()])
def test_states_that_hold_lists_of_layers_are_saved_and_restored(prediction: Any) -> None:
    layers = [np.arange(6.0).reshape(2, 3), np.asarray(2.0)]
    state = prediction.init(layers)
    saved = flatten_state(state)
    assert all(isinstance(part, np.ndarray) for part in saved.values())
    again = restore_state(state, saved)
    assert type(again) is type(state)
    before, after = (flatten_state(found) for found in (state, again))
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[name], after[name]) for name in before)
    assert restore_state(state, saved | {"more": np.zeros(1)}) is None


def test_a_model_with_other_than_floating_point_arrays_is_dithered_where_it_can_be(
    nodes: list[Node], rewarded: Make, ledger: Ledger
) -> None:
    model = record(**MODEL, seen=np.asarray(3), half=np.ones(4, np.float16))
    grid = MemoryGrid(nodes)
    options = {"rule": RULE, "dither": Dither(1.0)}
    for rounds in (1, 3):
        result = rewarded(FedSGD(fraction_evaluate=0.0), **options).start(grid, model, num_rounds=rounds)
    sent = grid.sent[0].content.array_records["arrays"]
    assert {name: part.dtype for name, part in sent.items()} == {name: part.dtype for name, part in model.items()}
    assert sent["seen"].numpy() == result.arrays["seen"].numpy() == 3
    assert not np.array_equal(sent["half"].numpy(), model["half"].numpy())
    assert ledger.verify().holds
