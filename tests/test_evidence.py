"""Evidence against its definition, streaming, precision, and everything that must not be taken for a number."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import guerdon.evidence as gathering
import guerdon.reports as module
from guerdon import gather
from guerdon.evidence import mean_pair_distance
from guerdon.gram import evidence_around_prediction, evidence_around_zero, multiply, shortening, squared_lengths_of
from guerdon.reports import WIDEST, AgentRows, combine
from tests.support import paper_oracle as oracle
from tests.support.libraries import Library, every_library, jax_once, without_jax


def sample(seed: int, agents: int = 5, dim: int = 12) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    mask = rng.random(agents) < 0.7
    return 2 + rng.normal(size=(agents, dim)), mask, rng.normal(size=dim)


@without_jax
@settings(max_examples=25)
@given(seed=st.integers(0, 2**32), agents=st.integers(1, 7), dim=st.integers(1, 9))
def test_agrees_with_the_definition(library: Library, seed: int, agents: int, dim: int) -> None:
    gradients, mask, prediction = sample(seed, agents, dim)
    expected = oracle.evidence(gradients, mask, prediction)
    with library.precision():
        result = gather(library.array(gradients), library.mask(mask), library.array(prediction))
        size = np.sum((gradients - prediction) ** 2) * agents
        for a, b in zip(result, (*expected, mask), strict=True):
            np.testing.assert_allclose(np.asarray(a), b, rtol=library.tolerance, atol=library.tolerance * size)


@without_jax
@pytest.mark.parametrize("common", [0.0, 0.3, 1.0, 3.0])  # below, near and above what is left uncentred
@pytest.mark.parametrize("agents", [2, 7])
def test_agrees_with_the_definition_around_nothing(library: Library, common: float, agents: int) -> None:
    gradients = (common + np.random.default_rng(30).normal(size=(agents, 5000))).astype(np.float32)
    expected = oracle.evidence(gradients.astype(np.float64), np.ones(agents, bool), np.zeros(5000))
    single = Library(library.name, "float32")
    for sent in (single.array(gradients), [single.array(gradients[:, :4000]), single.array(gradients[:, 4000:])]):
        result = gather(sent, single.mask(np.ones(agents)))
        assert type(result.squared_deviation) is type(single.array(gradients))
        for a, b in zip(result[:-1], expected, strict=True):
            np.testing.assert_allclose(np.asarray(a), b, rtol=2e-6, atol=2e-6 * np.abs(b).max())


def test_a_report_that_hardly_differs_from_the_mean_is_centred() -> None:
    """Its deviation is all that is left of two large numbers, and the others' are not."""
    gradients = np.random.default_rng(31).normal(size=(3, 2000)).astype(np.float32)
    gradients[2] = (gradients[0] + gradients[1]) / 2 * (1 + 1e-4)
    expected = oracle.evidence(gradients.astype(np.float64), np.ones(3, bool), np.zeros(2000))
    np.testing.assert_allclose(gather(gradients, np.ones(3, bool)).squared_deviation, expected[0], rtol=2e-4)


def everything(given: Any, here: Any, guess: Any, reference: Any) -> list[Any]:
    """Return all that can be said of a round."""
    both = *gather(given, here, guess), *gather(given, here, guess, reference)
    products = multiply(given, here, guess)
    factors = shortening(squared_lengths_of(products)[0], products.counted, 0.9)
    after = evidence_around_prediction(products, factors, products.counted, reference)
    return [*both, *products, factors, *after, *evidence_around_zero(products, here)]


ROUND: Any = (*sample(20), np.array([False, True, True, True, True]))
ROUND[1][:] = [True, True, False, True, True]


@jax_once
def test_every_library_has_the_numbers_of_numpy(library: Library) -> None:
    """Of one shape, that of nearly all rounds here, because JAX compiles for each."""
    convert = library.array, library.mask, library.array, library.mask
    with library.precision():
        found = everything(*(f(x) for f, x in zip(convert, ROUND, strict=True)))
        for a, b in zip(found, everything(*ROUND), strict=True):
            np.testing.assert_allclose(np.asarray(a), b, rtol=library.tolerance, atol=100 * library.tolerance)


def test_compiled_and_mapped_nothing_changes() -> None:
    with jax.enable_x64(True):
        mapped = jax.jit(jax.vmap(everything))(*(x[None] for x in ROUND))
        for a, b in zip(mapped, everything(*ROUND), strict=True):
            np.testing.assert_allclose(a[0], b, rtol=1e-12, atol=1e-12)


@jax_once
def test_a_prediction_of_numpy_is_that_of_any_library(library: Library) -> None:
    gradients, mask, prediction = sample(5, agents=5, dim=4)
    expected = oracle.evidence(gradients, mask, prediction)
    with library.precision():
        result = gather(
            [library.array(gradients[:, :3]), library.array(gradients[:, 3:])], mask, np.split(prediction, [3])
        )
    np.testing.assert_allclose(np.asarray(result.squared_length), expected[2], rtol=library.tolerance)


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("change", [1.0, np.nan, 1e5])  # usable, not usable, nothing but a common part
def test_what_an_accelerator_computes_is_what_the_host_does(
    monkeypatch: pytest.MonkeyPatch, change: float, alone: bool
) -> None:
    gradients, mask, prediction = sample(6)
    gradients[2, 3] *= change
    gradients += 1e5 if change == 1e5 else 0.0
    mask[2] = True
    told = [gradients.astype(np.float32), mask, *([] if alone else [prediction])]
    expected = gather(*told)
    monkeypatch.setattr(gathering, "as_host_array", lambda _: None)  # as where nothing is on the host
    found = gather(*map(jax.numpy.asarray, told))
    assert isinstance(found.squared_deviation, jax.Array)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(a), b, rtol=1e-5, atol=1e-6 * np.max(b))


@jax_once
def test_layers_and_blocks_add_up(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    gradients, mask, prediction = sample(1, dim=36)
    cut = 12 if library.name == "jax" else 6  # blocks of one width for JAX, also narrower ones for the others
    whole = gather(gradients, mask, prediction)
    monkeypatch.setattr(module, "BLOCK", 60)
    monkeypatch.setattr(module, "NARROWEST", 1)
    with library.precision():
        layers = [library.array(gradients[:, :cut].reshape(5, 2, -1)), library.array(gradients[:, cut:])]
        guesses = [library.array(prediction[:cut].reshape(2, -1)), library.array(prediction[cut:])]
        streamed = gather(layers, library.mask(mask), guesses)
        for a, b in zip(whole, streamed, strict=True):
            np.testing.assert_allclose(np.asarray(b), a, rtol=10 * library.tolerance)


class LazyLayers(Sequence[Any]):
    """Builds a layer when it is asked for it, and counts how often it was."""

    def __init__(self, gradients: Any, columns: int) -> None:
        self.gradients, self.columns, self.built = gradients, columns, 0

    def __len__(self) -> int:
        return self.gradients.shape[1] // self.columns

    def __getitem__(self, index: Any) -> Any:
        self.built += 1
        return self.gradients[:, index * self.columns : (index + 1) * self.columns]


def test_a_sequence_is_read_once() -> None:
    gradients, mask, _ = sample(2)
    layers = LazyLayers(gradients, columns=3)
    np.testing.assert_allclose(gather(layers, mask).squared_deviation, gather(gradients, mask).squared_deviation)
    assert layers.built == 4


def test_an_invalid_number_in_the_last_layer_is_found() -> None:
    gradients, mask, prediction = sample(3)
    mask[:] = True
    gradients[1, -1] = np.nan
    without = mask.copy()
    without[1] = False
    guesses = [prediction[i : i + 3] for i in range(0, 12, 3)]
    spoiled, clean = (gather(LazyLayers(gradients, 3), m, guesses) for m in (mask, without))
    assert spoiled.counted.tolist() == without.tolist()
    for a, b in zip(spoiled, clean, strict=True):
        np.testing.assert_array_equal(a, b)


@jax_once
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf, 1e16, -1e30])
def test_unusable_numbers_are_not_counted(library: Library, poison: float) -> None:
    gradients, mask, _ = sample(4)
    mask[:] = True
    gradients[3, 5] = poison
    with library.precision():
        result = gather(library.array(gradients), library.mask(mask))
    assert np.asarray(result.counted).tolist() == [True, True, True, False, True]
    assert all(float(part[3]) == 0 for part in result[:-1])
    assert all(np.isfinite(np.asarray(part)).all() for part in result[:-1])


@pytest.mark.parametrize("poison", [np.nan, np.inf, 1e30])
def test_unusable_numbers_under_jit(poison: float) -> None:
    gradients, mask, _ = sample(4)
    mask[:] = True
    gradients[3, 5] = poison
    eager = gather(jax.numpy.asarray(gradients), mask)
    for a, b in zip(jax.jit(gather)(jax.numpy.asarray(gradients), mask), eager, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


@pytest.mark.parametrize("column", [0, 7, 11])
def test_an_invalid_number_in_any_layer_is_found(column: int) -> None:
    gradients, mask, _ = sample(8)
    mask[:] = True
    gradients[4, column] = np.inf
    assert gather(LazyLayers(gradients, 3), mask).counted.tolist() == [True] * 4 + [False]


def test_the_limit_is_measured_from_the_prediction() -> None:
    far = np.array([5e15, 0.0])
    gradients = far + np.array([[0.0, 0.0], [1.1e15, 0.0], [0.0, 2.0]])
    assert gather(gradients, [True] * 3, far).counted.tolist() == [True, False, True]
    assert not gather(gradients, [True] * 3).counted.any()


def test_a_foreign_byte_order_is_read_as_what_it_is() -> None:
    gradients, mask, _ = sample(9)
    swapped = (1e8 + gradients).astype(">f8")
    expected = gather(1e8 + gradients, mask).squared_deviation
    np.testing.assert_allclose(gather(swapped, mask).squared_deviation, expected, rtol=1e-12)


@jax_once
def test_length_and_alignment_keep_their_precision_near_a_large_prediction(library: Library) -> None:
    rng = np.random.default_rng(10)
    dim = 12 if library.name == "jax" else 1000
    gradients, prediction = 1e4 + rng.normal(size=(5, dim)), 1e4 + rng.normal(size=dim)
    gradients = gradients.astype(np.float32).astype(np.float64)
    prediction = prediction.astype(np.float32).astype(np.float64)
    mask = np.array([False, True, True, True, True])  # the first participant is not the first agent
    expected = oracle.evidence(gradients, mask, prediction)
    with library.precision():
        result = gather(library.array(gradients), library.mask(mask), library.array(prediction))
        for a, b in zip(result[:-1], expected, strict=True):
            np.testing.assert_allclose(np.asarray(a), b, rtol=1e-5, atol=1e-5 * np.abs(b).max())


def test_large_numbers_up_to_the_limit_count() -> None:
    gradients = np.array([[1e14, 0.0], [0.0, 0.0], [0.0, 1.0]])
    result = gather(gradients, [True, True, True])
    assert result.counted.all()
    np.testing.assert_allclose(result.squared_deviation[0], (2e14 / 3) ** 2, rtol=1e-12)


def test_everybody_unusable_is_like_nobody() -> None:
    result = gather(np.full((3, 2), np.nan), [True, True, True])
    assert not result.counted.any()
    assert [part.tolist() for part in result[:-1]] == [[0.0] * 3] * 4


@without_jax
@pytest.mark.parametrize("dim", [3, 1000, 100_000])
def test_a_large_common_part_costs_no_precision(library: Library, dim: int) -> None:
    rng = np.random.default_rng(5)
    gradients = (1e4 + rng.normal(size=(10, dim))).astype(np.float32)
    exact = np.sum((gradients - np.mean(gradients, axis=0, dtype=np.float64)) ** 2, axis=1, dtype=np.float64)
    with library.precision():
        float32 = Library(library.name, "float32")
        result = gather(float32.array(gradients), float32.mask(np.ones(10)))
        np.testing.assert_allclose(np.asarray(result.squared_deviation), exact, rtol=1e-5)


def test_a_large_common_part_costs_no_precision_in_a_compiled_program() -> None:
    gradients = (1e4 + np.random.default_rng(5).normal(size=(10, 1000))).astype(np.float32)
    exact = np.sum((gradients - np.mean(gradients, axis=0, dtype=np.float64)) ** 2, axis=1, dtype=np.float64)
    np.testing.assert_allclose(jax.jit(gather)(gradients, np.ones(10, bool)).squared_deviation, exact, rtol=1e-5)


def test_identical_gradients_have_no_deviation_at_all() -> None:
    row = np.random.default_rng(6).normal(size=1000)
    assert (gather(np.tile(row, (7, 1)), [True] * 7).squared_deviation == 0).all()


def test_half_precision_is_summed_in_single() -> None:
    gradients, mask, _ = sample(7)
    half = gradients.astype(np.float16)
    exact = gather(half.astype(np.float64), mask)
    np.testing.assert_allclose(gather(half, mask).squared_deviation, exact.squared_deviation, rtol=1e-5)


GOOD = np.ones((3, 4))
YES = np.ones(3, dtype=bool)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((GOOD.astype(int), YES), TypeError, "`gradients` must hold real floating-point numbers, got dtype int64"),
        ((GOOD + 1j, YES), TypeError, "`gradients` must hold real floating-point numbers, got dtype complex128"),
        ((np.ones(4), YES), ValueError, r"`gradients` must have shape \(agents, dim\).*got \(4,\); stack"),
        ((np.ones((3, 0)), YES), ValueError, r"`gradients` must have shape \(agents, dim\).*got \(3, 0\)"),
        ((np.ones((0, 4)), YES), ValueError, r"`gradients` must have shape \(agents, dim\).*got \(0, 4\)"),
        (([], YES), ValueError, "`gradients` must hold at least one layer"),
        (([np.ones(4)] * 3, YES), ValueError, r"`gradients\[0\]` must have shape \(agents, dim\).*stack one vector"),
        (([[1.0, 2.0]], YES), TypeError, r"`gradients\[0\]` must be an array of NumPy, JAX or PyTorch, got list"),
        (([GOOD, np.ones((2, 4))], YES), ValueError, r"`participating` must have shape \(2,\)"),
        ((GOOD, np.ones(3)), TypeError, "`participating` must be an array of booleans"),
        (
            (GOOD, np.ones(4, bool)),
            ValueError,
            r"`participating` must have shape \(3,\), one entry per agent, got \(4,\)",
        ),
        (
            (GOOD, YES, np.ones(3)),
            ValueError,
            r"`prediction` must have the shape of one agent's `gradients` \(4 numbers\)",
        ),
        (
            (GOOD, YES, np.array([1.0, np.nan, 0.0, 0.0])),
            ValueError,
            "`prediction` of `gradients` must hold finite numbers",
        ),
        (([GOOD, GOOD], YES, [np.ones(4)]), ValueError, r"`prediction` must have one array per layer \(2\), got 1"),
    ],
)
def test_bad_input_never_gives_a_number(arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        gather(*arguments)


# Whom the alignment is with.

few_shapes = pytest.mark.parametrize(("agents", "dim", "seed"), [(1, 3, 0), (2, 1, 1), (6, 5, 2), (6, 5, 3), (6, 5, 4)])


@without_jax
@few_shapes
def test_alignment_is_with_the_reference(library: Library, agents: int, dim: int, seed: int) -> None:
    gradients, mask, prediction = sample(seed, agents, dim)
    trusted = np.random.default_rng(seed).random(agents) < 0.6
    apart = gradients - prediction
    expected = [
        mask[k] * sum(apart[k] @ apart[i] for i in range(agents) if mask[i] & trusted[i]) for k in range(agents)
    ]
    with library.precision():
        arrays = library.array(gradients), library.mask(mask), library.array(prediction)
        everybody, result = gather(*arrays), gather(*arrays, library.mask(trusted))
        size = np.sum(apart**2) * agents
        np.testing.assert_allclose(np.asarray(result.alignment), expected, atol=library.tolerance * size)
        for a, b in zip(
            (everybody.squared_deviation, everybody.squared_length),
            (result.squared_deviation, result.squared_length),
            strict=True,
        ):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=library.tolerance)


def test_a_reference_of_everybody_is_the_default() -> None:
    gradients, mask, prediction = sample(11)
    for a, b in zip(gather(gradients, mask, prediction), gather(gradients, mask, prediction, mask), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_the_reference_adds_up_over_layers_and_is_traced() -> None:
    gradients, mask, prediction = sample(12)
    mask[:] = True
    gradients[1, -1] = np.nan
    trusted = np.array([True, True, False, True, False])
    whole = gather(gradients, mask, prediction, trusted)
    guesses = [prediction[i : i + 3] for i in range(0, 12, 3)]
    streamed = gather(LazyLayers(gradients, 3), mask, guesses, trusted)
    traced = jax.jit(gather)(gradients, mask, prediction, trusted)
    for a, b, c in zip(whole, streamed, traced, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
        np.testing.assert_allclose(a, c, rtol=1e-5, atol=1e-5)


def test_a_reference_of_nobody_aligns_with_nothing() -> None:
    gradients, _, prediction = sample(13)
    result = gather(gradients, np.ones(5, bool), prediction, np.zeros(5, bool))
    assert (result.alignment == 0).all()
    assert (result.squared_length > 0).all()


@pytest.mark.parametrize(
    ("reference", "error", "message"),
    [
        (np.ones(3), TypeError, "`reference` must be an array of booleans, got dtype float64"),
        (np.ones(4, bool), ValueError, r"`reference` must have shape \(3,\), one entry per agent, got \(4,\)"),
    ],
)
def test_a_bad_reference_is_refused(reference: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        gather(GOOD, YES, None, reference)


# The mean distance to the others.


@every_library
def test_the_mean_distance_to_the_others_is_that_of_a_loop_over_pairs(library: Library) -> None:
    """Of many rounds at once, and also where two, one or none are counted."""
    gradients = np.random.default_rng(14).normal(size=(6, 5, 12))
    masks = np.array([[1, 1, 1, 1, 1], [0, 1, 1, 0, 1], [1, 0, 0, 0, 1], [0, 0, 1, 0, 0], [0] * 5, [1] * 5], bool)
    gradients[5] = gradients[5, 0]  # all alike
    expected = np.zeros((6, 5))
    for turn, mask in enumerate(masks):
        present = np.flatnonzero(mask).tolist()
        for k in present:
            expected[turn, k] = oracle.pair_distance(gradients[turn], present, k)
    deviation = np.stack([gather(*given).squared_deviation for given in zip(gradients, masks, strict=True)])
    deviation = np.where(masks, deviation, np.nan)  # those of agents that are not counted are not looked at
    with library.precision():
        arrays = library.array(deviation), library.mask(masks)
        found = [mean_pair_distance(*arrays)]
        if library.name == "jax":
            found.append(jax.jit(mean_pair_distance)(*arrays))
    for one in found:
        assert str(one.dtype).endswith(library.dtype)
        np.testing.assert_allclose(np.asarray(one), expected, rtol=library.tolerance, atol=1e-30)


# Inner products, and what follows from them.


@without_jax
@few_shapes
def test_products_agree_with_the_definition(library: Library, agents: int, dim: int, seed: int) -> None:
    gradients, mask, prediction = sample(seed, agents, dim)
    gradients[0, 0] = np.nan if seed % 2 else gradients[0, 0]
    counted = mask & np.isfinite(gradients).all(axis=1)
    apart = np.where(counted[:, None], gradients - prediction, 0.0)
    with library.precision():
        found = multiply(library.array(gradients), library.mask(mask), library.array(prediction))
        expected = [[float(np.dot(x, y)) for y in apart] for x in apart]
        size = library.tolerance * (1 + np.sum(apart**2) + prediction @ prediction)
        np.testing.assert_allclose(np.asarray(found.inner), expected, atol=size)
        np.testing.assert_allclose(np.asarray(found.lean), apart @ prediction, atol=size)
        assert float(found.origin) == pytest.approx(prediction @ prediction, rel=10 * library.tolerance)
        assert np.asarray(found.counted).tolist() == counted.tolist()


@without_jax
@few_shapes
def test_evidence_from_products_is_that_of_shortened_reports(
    library: Library, agents: int, dim: int, seed: int
) -> None:
    gradients, mask, prediction = sample(seed, agents, dim)
    rng = np.random.default_rng(seed)
    factors, reference = rng.choice([1.0, 0.3, 1e-3], agents), mask & (rng.random(agents) < 0.7)
    shortened = prediction + factors[:, None] * (gradients - prediction)
    with library.precision():
        products = multiply(library.array(gradients), library.mask(mask), library.array(prediction))
        found = evidence_around_prediction(
            products, library.array(factors), library.mask(mask), library.mask(reference)
        )
        size = library.tolerance * agents * (1 + np.sum((gradients - prediction) ** 2))
        for a, b in zip(found, gather(shortened, mask, prediction, reference), strict=True):
            np.testing.assert_allclose(np.asarray(a), b, atol=size)
        for a, b in zip(evidence_around_zero(products, library.mask(mask)), gather(gradients, mask), strict=True):
            np.testing.assert_allclose(np.asarray(a), b, atol=size + 10 * library.tolerance * np.sum(gradients**2))


def test_products_are_those_of_a_round_without_who_is_not_counted() -> None:
    """To the last bit; and they add up over layers, which are read once."""
    gradients, mask, prediction = sample(14)
    mask[:] = [True, True, False, True, True]
    bad = gradients.copy()
    bad[2, 7], mask[2] = np.inf, True
    found, without = multiply(bad, mask, prediction), multiply(np.delete(gradients, 2, 0), mask[:4], prediction)
    assert not found.inner[2].any()
    assert not found.inner[:, 2].any()
    assert np.array_equal(np.delete(np.delete(found.inner, 2, 0), 2, 1), without.inner)
    assert np.array_equal(np.delete(found.lean, 2), without.lean)
    guesses, layers = [prediction[i : i + 3] for i in range(0, 12, 3)], LazyLayers(gradients, 3)
    whole = multiply(gradients, mask, prediction)
    for a, b in zip(multiply(layers, mask, guesses), whole, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    assert layers.built == 4
    for a, b in zip(jax.jit(multiply)(bad, mask, prediction), found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="`gradients` must hold at least one layer"):
        multiply([], mask)


def test_reports_that_stay_where_they_are_have_the_same_numbers() -> None:
    """Agent by agent, in arrays of their own shapes; who has none is as good as absent."""
    gradients, _, prediction = sample(17)
    mask = np.array([True, False, True, True, True])
    rows = AgentRows([[x[:8].reshape(2, 4), x[8:]] if here else None for x, here in zip(gradients, mask, strict=True)])
    guess, reference = [prediction[:8], prediction[8:]], np.array([True, True, False, True, True])
    for a, b in zip(gather(rows, mask, guess, reference), gather(gradients, mask, prediction, reference), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    for a, b in zip(multiply(rows, mask, guess), multiply(gradients, mask, prediction), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    weights = np.array([0.5, 0.0, 0.25, 0.0, -1.0])
    first, second = combine(rows, weights)
    assert first.shape == (2, 4)
    np.testing.assert_allclose(np.concatenate([first.reshape(-1), second]), combine(gradients, weights), rtol=1e-12)
    wide = np.random.default_rng(18).normal(size=(3, WIDEST + 7))
    one = multiply(AgentRows([[x[:5], x[5:].reshape(-1, 2)] for x in wide]), mask[[0, 2, 3]])
    np.testing.assert_allclose(one.inner, wide @ wide.T, rtol=1e-12, atol=1e-9)  # cut into blocks, none left out
    nobody = AgentRows([None] * 5)
    assert not np.any([*gather(nobody, mask), multiply(nobody, mask).lean])


@pytest.mark.parametrize("library", [Library("numpy", "float32"), Library("jax", "float32")], ids=str)
@pytest.mark.parametrize("size", [1e3, 1e6, 1e9])
def test_nothing_is_lost_beside_a_huge_report(library: Library, size: float) -> None:
    """Sums around the mean lose the rest: at 10⁶ times the rest, every number of float32 is used up by the mean."""
    gradients = np.random.default_rng(15).normal(size=(5, 12))
    gradients[3] *= size
    everybody = np.ones(5, dtype=bool)
    products = multiply(library.array(gradients), library.mask(everybody))
    expected = np.sum(gradients**2, axis=1)
    np.testing.assert_allclose(np.asarray(squared_lengths_of(products)[0]), expected, rtol=1e-5)
    factors = shortening(squared_lengths_of(products)[0], library.mask(everybody), 2.0)
    most = 2 * np.sqrt(np.sort(np.delete(expected, 3))[1] / expected[3])
    assert np.asarray(factors)[3] == pytest.approx(most, rel=1e-5)
    assert (np.delete(np.asarray(factors), 3) == 1).all()
    found = evidence_around_prediction(products, factors, library.mask(everybody), library.mask(everybody))
    shortened = gradients * np.where(np.arange(5) == 3, most, 1.0)[:, None]
    for a, b in zip(found, gather(shortened, everybody), strict=True):
        np.testing.assert_allclose(np.asarray(a), b, rtol=1e-4, atol=1e-4)


@without_jax
@pytest.mark.parametrize("limit", [1.0, 1.5, 10.0, np.inf])
@pytest.mark.parametrize("agents", [1, 2, 3, 8])
def test_shortening_agrees_with_the_definition(library: Library, agents: int, limit: float) -> None:
    for seed in range(10):
        compare_shortening(library, agents, limit, np.random.default_rng(seed))


def compare_shortening(library: Library, agents: int, limit: float, rng: np.random.Generator) -> None:
    length, counted = rng.choice([0.0, 1.0, 1.0, 9.0, 1e4, 1e9], agents), rng.random(agents) < 0.8
    length[~counted] = 0
    expected = np.ones(agents)
    for k in range(agents):
        others = sorted(np.sqrt(length[i]) for i in range(agents) if counted[i] and i != k)
        if counted[k] and others:
            most = limit * others[(len(others) - 1) // 2] if limit < np.inf else np.inf
            expected[k] = most / np.sqrt(length[k]) if np.sqrt(length[k]) > most else 1.0
    with library.precision():
        result = np.asarray(shortening(library.array(length), library.mask(counted), limit))
        np.testing.assert_allclose(result, expected, rtol=library.tolerance)


def test_no_agent_sets_its_own_limit() -> None:
    everybody = np.ones(4, dtype=bool)
    for own in (5.0, 50.0, 1e12):
        factor = shortening(np.array([own**2, 1.0, 1.0, 9.0]), everybody, 2.0)[0]
        assert own * factor == pytest.approx(2.0)


@pytest.mark.parametrize("huge", [np.inf, 1e300])
def test_an_agent_that_is_not_counted_changes_no_digit_of_the_others(huge: float) -> None:
    gradients = np.random.default_rng(0).normal(size=(5, 1000))
    gradients[2, 7] = huge
    without = np.arange(5) != 2
    everybody, four = gather(gradients, np.ones(5, dtype=bool)), gather(gradients[without], np.ones(4, dtype=bool))
    absent = gather(gradients, without)
    for part in ("squared_deviation", "squared_length", "alignment"):
        np.testing.assert_array_equal(getattr(everybody, part)[without], getattr(four, part))
        np.testing.assert_array_equal(getattr(absent, part)[without], getattr(four, part))
