"""Terms in a file, for commands and frameworks that take plain values: TOML, with the names of `Terms`.

budget = 5000
deadline = 600
hold = { kind = "vesting", rounds = 20 }

[cost_factors]
north = 1.5
"""

import os
import tomllib
from pathlib import Path
from typing import Any

from guerdon.terms import Terms, terms_from


def read_terms(file: str | os.PathLike[str]) -> Terms:
    """Return the terms in a file, or raise a ValueError that names what is wrong with it.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "terms.toml"
    >>> _ = file.write_text('budget = 5000\\nhold = { kind = "vesting", rounds = 20 }')
    >>> read_terms(file).hold
    Vesting(rounds=20)
    """
    path = Path(file)
    try:
        found: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"terms must be a TOML file, got {path}: {error}") from error
    try:
        return terms_from(found)
    except (TypeError, ValueError) as error:
        raise ValueError(f"terms in {path}: {error}") from error
