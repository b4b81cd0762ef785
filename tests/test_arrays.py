"""The checks that stand at every door."""

from typing import Any

import numpy as np
import pytest

from guerdon.arrays import as_mask, check_choice, check_number, check_positive_integer, namespace
from tests.support.libraries import Library, every_library


@every_library
def test_namespace_is_that_of_the_arrays(library: Library) -> None:
    assert namespace(1.0, library.array([1.0])).__name__.startswith(("array_api_compat." + library.name, library.name))


@every_library
def test_counts_may_be_scalars_of_any_library(library: Library) -> None:
    check_positive_integer("n", library.module.asarray(3))
    with pytest.raises(ValueError, match="`n` must be a positive integer"):
        check_positive_integer("n", library.module.asarray(0))
    with pytest.raises(TypeError, match="`n` must be a positive integer"):
        check_positive_integer("n", library.array(3.0))


@pytest.mark.parametrize("value", [np.nan, np.inf, -1, "1", None, True, [1, 2], 1j])
def test_a_number_must_be_finite_and_large_enough(value: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="`x` must be a finite number of at least 0, got"):
        check_number("x", value, minimum=0)


def test_an_exclusive_minimum_is_excluded() -> None:
    check_number("x", 0, minimum=0)
    with pytest.raises(ValueError, match="`x` must be a finite number above 0, got 0"):
        check_number("x", 0, minimum=0, inclusive=False)


def test_a_mask_may_be_a_list_but_not_of_integers() -> None:
    assert as_mask(np, [True, False], (2,)).tolist() == [True, False]
    with pytest.raises(TypeError, match="`participating` must be an array of booleans, got dtype int64"):
        as_mask(np, [1, 0], (2,))


def test_a_choice_names_what_is_allowed() -> None:
    with pytest.raises(ValueError, match="`crowd` must be one of 'present', 'enrolled', got 'both'"):
        check_choice("crowd", "both", ("present", "enrolled"))
