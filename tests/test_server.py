"""One server for every array library: the same round as an array, in layers, agent by agent, compiled and mapped."""

# JAX's transformations forget the types of what they are given.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false

import importlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from guerdon import AffineCost, FixedRequest, InformationPay, NoiseScaleRequest, OutputAgreement, Server, SteadyPay
from guerdon.asking import COPY
from guerdon.cli.once import pay_once
from guerdon.reports import AgentRows
from guerdon.states import flatten_state, map_state, restore_state
from guerdon.statistical.bets import bet
from guerdon.statistical.dithers import Dither
from guerdon.statistical.pairs import pair_scores
from guerdon.statistical.predictions import Extrapolation, RunningMean, ZeroPrediction
from guerdon.statistical.servers import server_for
from tests.support.libraries import Library, needs_torch, without_jax

COST = AffineCost(1, 1)
AGENTS, DIM, ROUNDS = 6, 10, 8
RULE = InformationPay(COST)
SERVERS: dict[str, Server] = {
    "agreement": server_for(OutputAgreement(COST), FixedRequest(8, 0.1)),
    "adaptive": server_for(OutputAgreement(COST), NoiseScaleRequest(COST, 32)),
    "information": server_for(RULE, FixedRequest(8, 0.1)),
    "dithered": server_for(RULE, FixedRequest(8, 0.1), Extrapolation(), Dither(0.5, COST)),
    "alike": server_for(RULE, FixedRequest(8, 0.1), alike=True),
    "alike, dithered": server_for(RULE, FixedRequest(8, 0.1), Extrapolation(), Dither(0.5, COST), alike=True),
}
every_server = pytest.mark.parametrize("name", SERVERS)


def rounds(seed: int = 0) -> list[tuple[Any, Any, Any]]:
    """Return what is sent, who sends, and normals for the dither: with copies, garbage, NaN and an empty round."""
    rng = np.random.default_rng(seed)
    played: list[tuple[Any, Any, Any]] = []
    for t in range(ROUNDS):
        reports, sent = 1 + rng.normal(size=(AGENTS, DIM)), rng.random(AGENTS) < 0.9
        reports[4] *= 1e3 if t % 3 == 0 else 1.0
        if t % 4 == 1:
            reports[1] = reports[0]
        if t == 5:
            reports[2, 3] = np.nan
        played.append((reports, sent & (t != 3), rng.normal(size=DIM)))
    return played


def layers(vector: Any) -> list[Any]:
    return [vector[:6].reshape(2, 3), vector[6:]]


def as_layers(reports: Any, sent: Any) -> Any:
    del sent
    return [reports[:, :6].reshape(AGENTS, 2, 3), reports[:, 6:]]


def as_rows(reports: Any, sent: Any) -> AgentRows:
    return AgentRows([layers(report) if here else None for report, here in zip(reports, sent, strict=True)])


def play(server: Server, form: Any = None, state: Any = None, first: int = 0) -> Any:
    """Return rewards by round, the last model and the last state; with `form` the model is in layers."""
    model: Any = np.zeros(DIM) if form is None else layers(np.zeros(DIM))
    paid: list[Any] = []
    state = server.init(model, AGENTS) if state is None else state
    for reports, sent, normals in rounds()[first:]:
        ask, state = server.ask(state, model, normals if form is None else layers(normals))
        given = reports if form is None else form(reports, sent)
        done, state = server.settle(state, ask, given, sent)
        if form is None:
            model = model - done.step * done.mean
        else:
            model = [part - done.step * mean for part, mean in zip(model, done.mean, strict=True)]
        paid.append(done.payments.released)
    return np.array(paid), model if form is None else np.concatenate([part.reshape(-1) for part in model]), state


@every_server
@pytest.mark.parametrize("form", [as_layers, as_rows])
def test_layers_and_reports_kept_apart_are_the_same(name: str, form: Any) -> None:
    expected, model, state = play(SERVERS[name])
    found, same, after = play(SERVERS[name], form)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(same, model, rtol=1e-9)
    for kept, other in zip(after.lens.pairs, state.lens.pairs, strict=True):
        np.testing.assert_allclose(kept, other, rtol=1e-9, atol=1e-9)


@every_server
@without_jax
def test_libraries_agree(name: str, library: Library) -> None:
    server, (expected, model, _) = SERVERS[name], play(SERVERS[name])
    with library.precision():
        now, paid = library.array(np.zeros(DIM)), list[Any]()
        state = server.init(now, AGENTS)
        for reports, sent, normals in rounds():
            ask, state = server.ask(state, now, library.array(normals))
            done, state = server.settle(state, ask, library.array(reports), library.mask(sent))
            now = now - done.step * done.mean
            assert now.dtype == library.array(np.zeros(1)).dtype
            paid.append(np.asarray(done.payments.released))
        loose = 1e-8 if library.dtype == "float64" else 2e-2
        np.testing.assert_allclose(paid, expected, rtol=loose, atol=5 * loose)
        np.testing.assert_allclose(np.asarray(now), model, rtol=loose, atol=loose)


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param("adaptive", marks=pytest.mark.slow), "dithered"])
def test_compiled_mapped_and_scanned_it_is_the_same(name: str) -> None:
    server, (expected, model, state) = SERVERS[name], play(SERVERS[name])
    with jax.enable_x64(True):
        drawn = [jnp.asarray(np.array(part)) for part in zip(*rounds(), strict=True)]

        def one(carry: Any, x: Any) -> Any:
            now, before = carry
            reports, sent, normals = x
            ask, before_round = server.ask(before, now, normals)
            done, after = server.settle(before_round, ask, reports, sent)
            after = jax.tree.map(lambda old, new: jnp.asarray(new, old.dtype), before, after)
            return (now - done.step * done.mean, after), done.payments.released

        def train(start: Any) -> Any:
            begun = jax.tree.map(jnp.asarray, server.init(start, AGENTS))
            return jax.lax.scan(one, (start, begun), tuple(drawn))

        (models, states), paid = jax.jit(jax.vmap(train))(jnp.zeros((2, DIM)))
    np.testing.assert_allclose(paid[1], expected, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(models[0], model, rtol=1e-8)
    for kept, other in zip(*map(jax.tree.leaves, (states.lens.pairs, state.lens.pairs)), strict=True):
        np.testing.assert_allclose(kept[0], other, atol=1e-8)


@every_server
def test_a_state_that_was_saved_goes_on_as_if_it_had_not_been(name: str) -> None:
    server = SERVERS[name]
    model: Any = np.zeros(DIM)
    state, paid = server.init(model, AGENTS), list[Any]()
    for reports, sent, normals in rounds():
        arrays = flatten_state(state)
        state = restore_state(server.init(np.zeros(DIM), AGENTS), {key: value.copy() for key, value in arrays.items()})
        ask, state = server.ask(state, model, normals)
        done, state = server.settle(state, ask, reports, sent)
        model = model - done.step * done.mean
        paid.append(done.payments.released)
    np.testing.assert_array_equal(paid, play(server)[0])
    assert restore_state(state, flatten_state(state) | {"more": np.zeros(1)}) is None


def test_notes_say_what_was_done_with_a_report() -> None:
    reports = np.random.default_rng(1).normal(size=(AGENTS, DIM))
    reports[1], reports[3], reports[5] = reports[0], 1e6 * reports[3], np.nan
    payments, notes = pay_once(RULE, 8, reports)
    assert notes[:2] == [COPY, COPY]
    assert notes[3].startswith("shortened to ")
    assert [notes[k] for k in (2, 4, 5)] == ["", "", ""]
    assert [int(status) for status in payments.status] == [5, 5, 0, 0, 0, 5]


@pytest.mark.parametrize("dither", [None, Dither(0.5, COST)])
def test_models_are_compared_as_moves(dither: Dither | None) -> None:
    """As gradients would be that have the opposite sign; a step adds the mean move whole, in every round."""
    moved = server_for(RULE, FixedRequest(8, 0.5), RunningMean(), dither, sends="models")
    plain = server_for(RULE, FixedRequest(8, 0.5), RunningMean(), dither)
    model, other = np.full(DIM, 3.0), np.zeros(DIM)
    state, same = moved.init(model, AGENTS), plain.init(other, AGENTS)
    for reports, sent, normals in rounds():
        ask, state = moved.ask(state, model, normals)
        done, state = moved.settle(state, ask, ask.model + reports, sent)
        asked, same = plain.ask(same, other, normals)
        told, same = plain.settle(same, asked, reports, sent)
        np.testing.assert_allclose(done.payments.released, told.payments.released, rtol=1e-7, atol=1e-7)
        used = done.reading.used & (done.reading.parts == 1)
        if np.array_equal(used, done.reading.used) and used.any():
            np.testing.assert_allclose(done.mean, reports[used].mean(axis=0), rtol=1e-7, atol=1e-7)
        if dither is None:
            np.testing.assert_allclose(done.mean, told.mean, rtol=1e-7, atol=1e-9)
        assert float(done.step) == -1
        np.testing.assert_allclose(done.offset, told.offset)
        model = model - done.step * done.mean


def test_newcomers_are_strangers_wherever_they_sit() -> None:
    """A place given to somebody else is the same as a place added at the end."""
    server = SERVERS["information"]
    played = rounds(2)
    _, _, state = play(server)
    given = server.admit(state, np.arange(AGENTS) == AGENTS - 1)
    few = server_for(RULE, FixedRequest(8, 0.1))
    fewer = few.init(np.zeros(DIM), AGENTS - 1)
    shorter = map_state(lambda part, like: part[tuple(map(slice, like.shape))], state, fewer)
    added = few.enlarge(shorter, AGENTS)
    one, other = flatten_state(given._replace(enrolled=0)), flatten_state(added._replace(enrolled=0))
    assert {"rule.signal", "lens.trust.wealth", "lens.pairs.wealth", "lens.records.total"} <= set(one) == set(other)
    for key, value in one.items():
        np.testing.assert_array_equal(value, other[key], key)
    assert (int(given.enrolled), int(added.enrolled)) == (AGENTS + 1, AGENTS)
    model = np.zeros(DIM)
    ask, _ = server.ask(state, model)
    done, _ = server.settle(given, ask, played[0][0], np.ones(AGENTS, dtype=bool))
    assert np.isfinite(done.payments.released).all()


def test_a_round_without_reports_teaches_nothing() -> None:
    server, nobody = SERVERS["dithered"], np.zeros(AGENTS, dtype=bool)
    _, model, state = play(server)
    ask, asked = server.ask(state, model, np.ones(DIM))
    done, after = server.settle(asked, ask, np.full((AGENTS, DIM), np.nan), nobody)
    assert not done.mean.any()
    assert float(done.step) == 0
    assert after.broadcast.answered == asked.broadcast.answered  # the half is asked for again
    for a, b in ((after.lens.prediction, asked.lens.prediction), (after.rule, asked.rule)):
        a, b = flatten_state(a), flatten_state(b)
        assert all(np.array_equal(a[key], b[key]) for key in a)


def test_without_a_mean_the_pay_is_the_same() -> None:
    server = server_for(OutputAgreement(COST), FixedRequest(8, 0.1), alike=True)
    reports, sent, _ = rounds()[0]
    ask, state = server.ask(server.init(np.zeros(DIM), AGENTS), np.zeros(DIM))
    with_mean, without = (server.settle(state, ask, reports, sent, mean=mean)[0] for mean in (True, False))
    np.testing.assert_array_equal(with_mean.payments.released, without.payments.released)
    assert not without.mean.any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sends": "anything"}, "`sends` must be one of 'gradients', 'models', got 'anything'"),
        ({"sends": "models", "requests": NoiseScaleRequest(COST)}, "`requests` that learn need gradients"),
        ({"requests": NoiseScaleRequest(COST), "dither": Dither(1.0)}, "must be fixed or scheduled under a dither"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"requests": FixedRequest(8, 0.1)} | options
    with pytest.raises(ValueError, match=message):
        server_for(RULE, **given)


def test_a_prediction_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="`prediction` must have 10 numbers, as a gradient has, got 3"):
        pay_once(RULE, 8, np.ones((3, DIM)), np.zeros(3))
    lens: Any = server_for(RULE, FixedRequest(8, 0.1), ZeroPrediction()).lens
    assert lens.prediction == ZeroPrediction()


GOOD, EVERYBODY = np.ones((AGENTS, DIM)), np.ones(AGENTS, dtype=bool)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (np.zeros(3, dtype=int), "`model` must hold real floating-point numbers, got dtype int64"),
        ({"w": np.zeros(3)}, "`model` must be an array, or a list of arrays .*, got dict"),
        (None, "`model` must be an array, or a list of arrays .*, got NoneType"),
        ([], "`model` must be an array, or a list of arrays .*, got list"),
        ([np.zeros(3), "b"], "`model` must be an array, or a list of arrays"),
    ],
)
def test_a_model_that_cannot_be_trained_is_refused(model: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        SERVERS["agreement"].init(model, 4)


@pytest.mark.parametrize(
    ("reports", "sent", "error", "message"),
    [
        (
            GOOD[:, :1],
            EVERYBODY,
            ValueError,
            r"for each of the 6 agents, with the 10 numbers of the model, got .*\(6, 1\)",
        ),
        (np.ones((6, 2, 6)), EVERYBODY, ValueError, r"with the 10 numbers of the model, got shape \(6, 2, 6\)"),
        (
            np.ones((7, DIM)),
            np.ones(7, dtype=bool),
            ValueError,
            "`sent` must have one entry for each of the 6 agents, got 7",
        ),
        (GOOD[:5], EVERYBODY, ValueError, r"one row for each of the 6 agents, .* got shape \(5, 10\)"),
        ([GOOD], EVERYBODY, TypeError, "`reports` must be an array .*, as the model is an array, got list"),
        (None, EVERYBODY, TypeError, "`reports` must be an array .* got NoneType"),
        (GOOD, [True] * 6, TypeError, "`sent` must be an array of booleans, one entry per agent, got list"),
        (GOOD.astype(int), EVERYBODY, TypeError, "`reports` must hold real floating-point numbers, got dtype int64"),
        (GOOD, np.ones(AGENTS), TypeError, "`sent` must be an array of booleans, got dtype float64"),
    ],
)
@pytest.mark.parametrize("name", ["agreement", "information"])
def test_reports_of_another_form_are_refused(name: str, reports: Any, sent: Any, error: Any, message: str) -> None:
    server, model = SERVERS[name], np.zeros(DIM)
    ask, state = server.ask(server.init(model, AGENTS), model)
    with pytest.raises(error, match=message):
        server.settle(state, ask, reports, sent)


def test_layers_are_counted() -> None:
    server, model = SERVERS["agreement"], layers(np.zeros(DIM))
    ask, state = server.ask(server.init(model, AGENTS), model)
    with pytest.raises(
        ValueError, match="one entry for each of the model's 2 layers, each with a row for every agent, got 1"
    ):
        server.settle(state, ask, as_layers(GOOD, None)[:1], EVERYBODY)
    with pytest.raises(ValueError, match=r"with the 4 numbers of the model in layer 1, got shape \(6, 3\)"):
        server.settle(state, ask, [as_layers(GOOD, None)[0], GOOD[:, :3]], EVERYBODY)
    with pytest.raises(TypeError, match="`reports` must be arrays, one row per agent, got list for layer 1"):
        server.settle(state, ask, [as_layers(GOOD, None)[0], [1.0]], EVERYBODY)
    with pytest.raises(TypeError, match="`reports` must be a list of layers, as the model is, got ndarray"):
        server.settle(state, ask, GOOD, EVERYBODY)


def test_parts_that_are_none_are_refused() -> None:
    nothing: Any = None
    with pytest.raises(TypeError, match="`rule` must be a payment rule"):
        Server(nothing, FixedRequest(8, 0.1))
    with pytest.raises(TypeError, match="`requests` must be a policy"):
        Server(RULE, nothing)
    text: Any = "steady"
    number: Any = 3.0
    with pytest.raises(TypeError, match=r"`dither` must be a Dither, such as .*, got 3\.0: give Dither\(3\.0\)"):
        server_for(RULE, FixedRequest(8, 0.1), dither=number)
    with pytest.raises(TypeError, match=r"`rule` must be a payment rule, .* got 'steady'"):
        Server(text, FixedRequest(8, 0.1))
    with pytest.raises(TypeError, match=r"`prediction` must be a prediction, such as RunningMean\(\), got 'steady'"):
        server_for(RULE, FixedRequest(8, 0.1), text)
    with pytest.raises(TypeError, match=r"`cost` must be a cost, .* got 'steady'"):
        Dither(3.0, text)


@pytest.mark.parametrize("alike", [True, False])
def test_a_report_of_which_the_model_takes_a_part_has_a_note(alike: bool) -> None:
    server = server_for(OutputAgreement(COST), FixedRequest(8, 0.1), alike=alike)
    ask, state = server.ask(server.init(np.zeros(DIM), AGENTS), np.zeros(DIM))
    reports = np.random.default_rng(0).normal(size=(AGENTS, DIM))
    reports[2] *= 1e6
    done, _ = server.settle(state, ask, reports, EVERYBODY)
    part = done.reading.parts[2]
    assert 0 < part < 1e-4
    assert done.notes == [f"the model takes {part:.3g} of it" if seat == 2 else "" for seat in range(AGENTS)]


@pytest.mark.parametrize("name", ["agreement", "information", "dithered"])
def test_a_model_of_another_size_is_refused_where_it_is_asked_about(name: str) -> None:
    server = SERVERS[name]
    state = server.init(np.zeros(DIM), AGENTS)
    with pytest.raises(ValueError, match="`model` must have the size of the model that `init` was given, 10 numbers, "):
        server.ask(state, np.zeros(DIM + 1))
    layered = server.init([np.zeros(2), np.zeros((2, 3))], AGENTS)
    with pytest.raises(ValueError, match=r"2 layers of \[2, 6\] numbers, got 3 layers of \[2, 6, 1\] numbers"):
        server.ask(layered, [np.zeros(2), np.zeros((2, 3)), np.zeros(1)])


@needs_torch
@pytest.mark.parametrize("form", [lambda one: one, lambda one: [one]], ids=["array", "layers"])
def test_reports_of_another_library_are_refused(form: Any) -> None:
    torch: Any = importlib.import_module("torch")
    server, arrays, tensors = SERVERS["agreement"], np.zeros(DIM), torch.zeros(DIM)
    for model, reports, libraries in (
        (arrays, torch.zeros(AGENTS, DIM), r"\(numpy\), got torch"),
        (tensors, GOOD, r"\(torch\), got numpy"),
    ):
        ask, state = server.ask(server.init(form(model), AGENTS), form(model))
        with pytest.raises(TypeError, match=f"`reports` must be of the model's library {libraries}"):
            server.settle(state, ask, form(reports), EVERYBODY)


def test_a_state_of_another_size_is_not_restored() -> None:
    server = SERVERS["information"]
    saved = flatten_state(server.init(np.zeros(DIM), AGENTS))
    assert restore_state(server.init(np.zeros(DIM + 1), AGENTS), saved) is None
    assert restore_state(server.init(np.zeros(DIM), AGENTS + 1), saved) is None


def test_a_state_is_restored_into_the_library_it_came_from() -> None:
    model = jnp.zeros(DIM)
    server = SERVERS["information"]
    _, state = server.ask(server.init(model, AGENTS), model)
    back = restore_state(state, flatten_state(state))
    assert isinstance(back.lens.prediction.total, jax.Array)
    assert back.lens.prediction.total.dtype == model.dtype


def test_a_dither_needs_normals_in_a_compiled_function() -> None:
    """There they would be drawn once, when it is compiled, and every round would be asked at the same points."""
    server, model = SERVERS["dithered"], jnp.zeros(DIM)
    state = server.init(model, AGENTS)
    with pytest.raises(ValueError, match="`normals` must be given under a dither in a compiled function"):
        jax.jit(lambda now: server.ask(state, now)[0].model)(model)


@needs_torch
def test_a_network_of_pytorch_is_asked_next_to_its_model_and_never_changed() -> None:
    """Its own parameters are refused: training changes them in place, and the model with them."""
    torch: Any = importlib.import_module("torch")
    network = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 1))
    server, live = SERVERS["dithered"], list(network.parameters())
    with pytest.raises(ValueError, match=r"`model` must be a copy without gradients, .* \[part.detach\(\).clone\(\)"):
        server.init(live, AGENTS)
    model = [part.detach().clone() for part in live]
    state = server.init(model, AGENTS)
    with pytest.raises(ValueError, match="`model` must be a copy without gradients"):
        server.ask(state, live)
    ask, state = server.ask(state, model)
    moved = [asked - part for asked, part in zip(ask.model, model, strict=True)]
    assert [part.dtype for part in ask.model] == [torch.float32] * 4
    assert sum(float((part**2).sum()) for part in moved) == pytest.approx(0.5**2, rel=1e-5)
    reports = [torch.ones((AGENTS, *part.shape)) for part in model]
    with pytest.raises(ValueError, match=r"`reports` must not require gradients: .* \.detach\(\)"):
        server.settle(state, ask, [part.requires_grad_() for part in reports], torch.ones(AGENTS, dtype=torch.bool))


def test_copies_do_not_count_in_the_length_that_others_are_cut_to() -> None:
    """Two short copies among six: the long report is cut to three times the median of the three others."""
    lengths = np.array([0.1, 0.1, 1.0, 1.2, 1.5, 20.0])
    directions = np.random.default_rng(3).normal(size=(AGENTS, DIM))
    directions[1] = directions[0]
    reports = lengths[:, None] * directions / np.linalg.norm(directions, axis=1, keepdims=True)
    server, model = SERVERS["information"], np.zeros(DIM)
    ask, state = server.ask(server.init(model, AGENTS), model)
    found = server.settle(state, ask, reports, EVERYBODY)[0].reading
    assert found.copies.tolist() == [True, True, False, False, False, False]
    assert found.factors[5] == pytest.approx(3 * 1.2 / 20)  # with the copies it would be 3 · 1.0/20
    assert (found.factors[2:5] == 1).all()


def test_pairs_are_compared_with_pairs_of_trusted_agents() -> None:
    """An agent that is not trusted is still watched, but others are not compared with it."""
    server, model = SERVERS["information"], np.zeros(DIM)
    ask, state = server.ask(server.init(model, AGENTS), model)
    wealth = np.array(state.lens.trust.wealth)
    wealth[..., 5] = 5.0
    state = state._replace(lens=state.lens._replace(trust=state.lens.trust._replace(wealth=wealth)))
    reports = 1 + np.random.default_rng(4).normal(size=(AGENTS, DIM))
    done, after = server.settle(state, ask, reports, EVERYBODY)
    assert done.reading.trusted.tolist() == [True] * 5 + [False]
    apart = reports - ask.prediction
    trusted, everybody = (
        bet(state.lens.pairs.wealth, pair_scores(apart @ apart.T, EVERYBODY, reference))
        for reference in (np.arange(AGENTS) < 5, EVERYBODY)
    )
    found = after.lens.pairs.wealth
    np.testing.assert_allclose(found, trusted, atol=1e-9)
    assert np.abs(found - everybody).max() > 0.01
    assert found[:, 5, :5].any()


@pytest.mark.parametrize("rule", [OutputAgreement(COST), RULE])
def test_no_report_moves_the_model_by_more_than_three_of_the_others(rule: Any) -> None:
    """Under every rule, unless all are said to be alike: there output agreement takes reports as they come."""
    reports = 1 + 0.1 * np.random.default_rng(8).normal(size=(AGENTS, DIM))
    reports[0] *= -1e6
    server, model = server_for(rule, FixedRequest(8, 0.1)), np.zeros(DIM)
    ask, state = server.ask(server.init(model, AGENTS), model)
    done, _ = server.settle(state, ask, reports, EVERYBODY)
    middle = np.sort(np.linalg.norm(reports, axis=1))[(AGENTS - 2) // 2]
    assert np.linalg.norm(AGENTS * done.mean - reports[1:].sum(axis=0)) == pytest.approx(3 * middle, rel=1e-6)


@pytest.mark.parametrize("credited", [False, True])
def test_two_that_share_made_up_noise_earn_nothing_by_it(credited: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the pair is seen. If their agreement were credited, they would earn much more than honest work."""
    if credited:
        monkeypatch.setattr("guerdon.statistical.lenses.without_credit", lambda products, *_: products)
    rng, model, paid = np.random.default_rng(9), np.zeros(40), list[Any]()
    server = server_for(RULE, FixedRequest(8, 0.0))
    state = server.init(model, 8)
    for _ in range(120):
        ask, state = server.ask(state, model)
        reports = 0.1 * rng.normal(size=40) + rng.normal(size=(8, 40)) / 8**0.5
        reports[:2] = ask.prediction + rng.normal(size=40) / 8**0.5 + 0.01 * rng.normal(size=(2, 40))
        done, state = server.settle(state, ask, reports, np.ones(8, dtype=bool))
        paid.append(done.payments.released)
    late = np.mean(paid[30:], axis=0)
    assert late[:2].min() > 1.5 * COST(8) if credited else late[:2].max() < 0
    assert late[2:].mean() < 0.5 * COST(8) if credited else late[2:].mean() > 0.9 * COST(8)


def test_four_idle_members_take_little_from_six_that_work() -> None:
    """They send short reports: among them honest ones look long to bets that rank them among all."""
    rng, model, paid = np.random.default_rng(5), np.zeros(30), np.zeros(10)
    server = server_for(SteadyPay(COST, period=120), FixedRequest(16, 0.05), dither=Dither(3.0))
    state = server.init(model, 10)
    for _ in range(120):
        ask, state = server.ask(state, model, rng.normal(size=30))
        reports = ask.model + 6 * rng.normal(size=(10, 30)) / 4
        reports[:4] = ask.prediction + 0.1 * rng.normal(size=(4, 30))
        done, state = server.settle(state, ask, reports, np.ones(10, dtype=bool))
        model, paid = model - done.step * done.mean, paid + done.payments.released / 120
    assert paid[:4].max() < 0.01 * COST(16)
    assert paid[4:].mean() > 0.95 * COST(16)
