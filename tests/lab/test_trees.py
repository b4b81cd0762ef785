"""What a compiled function tells apart, and what it takes as data."""

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from guerdon.lab._trees import register


@register
@dataclass(frozen=True)
class Doubled:
    number: Any
    power: int = field(default=1, metadata={"static": True})

    def value(self) -> Any:
        return (2 * self.number) ** self.power


@register
@dataclass(frozen=True)
class Halved:
    number: Any
    power: int = field(default=1, metadata={"static": True})

    def value(self) -> Any:
        return (self.number / 2) ** self.power


def test_classes_with_the_same_fields_are_different_structures() -> None:
    """JAX's own registration of dataclasses takes them for one, and may then run the other's program."""
    assert jax.tree.structure(Doubled(1.0)) != jax.tree.structure(Halved(1.0))
    assert jax.tree.structure(Doubled(1.0)) == jax.tree.structure(Doubled(2.0))


def test_a_fixed_field_is_part_of_the_kind() -> None:
    assert jax.tree.structure(Doubled(1.0, 2)) != jax.tree.structure(Doubled(1.0, 3))
    assert jax.tree.leaves(Doubled(1.0, 2)) == [1.0]


def test_numbers_are_data_to_a_compiled_function() -> None:
    traced: list[str] = []

    @jax.jit
    def value(tree: Any) -> Any:
        traced.append(type(tree).__name__)
        return tree.value()

    for kind, power, expected in ((Doubled, 1, 6.0), (Doubled, 2, 36.0), (Halved, 1, 1.5)):
        assert value(kind(jnp.float32(3.0), power)) == expected
        value(kind(jnp.float32(4.0), power))
    assert traced == ["Doubled", "Doubled", "Halved"]


def test_it_comes_back_as_it_was() -> None:
    tree = Doubled(3.0, 2)
    leaves, structure = jax.tree.flatten(tree)
    assert jax.tree.unflatten(structure, leaves) == tree
    [(path, leaf)], _ = jax.tree_util.tree_flatten_with_path(tree)
    assert (jax.tree_util.keystr(path), leaf) == (".number", 3.0)


def test_data_may_be_named() -> None:
    @dataclass(frozen=True)
    class Policy:
        step: float
        cost: str

    register(Policy, ["step"])
    assert jax.tree.leaves(Policy(0.5, "free")) == [0.5]


def test_a_field_that_does_not_exist_is_refused() -> None:
    @dataclass(frozen=True)
    class Policy:
        step: float

    with pytest.raises(ValueError, match=r"`data` must name fields of Policy \(step\), got 'steps'"):
        register(Policy, ["steps"])
