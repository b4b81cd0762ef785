"""The one form in which values are hashed and signed."""

import json
from typing import Any

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def canonical(value: Any) -> str:
    """Return JSON in its one form: sorted keys, no spaces.

    >>> canonical({"b": [1.5, None], "a": "é"})
    '{"a":"é","b":[1.5,null]}'
    """
    return _ENCODER.encode(value)
