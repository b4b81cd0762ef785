"""What a pilot has shown, round by round, as arrays and as a JSON file."""

# What JSON holds has no type until it is checked, which is what this module does.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from guerdon.arrays import Array, check_choice, check_positive_integer
from guerdon.costs import ExpressionCost
from guerdon.pilot.design import half_of
from guerdon.pilot.trial import RoundScores

FORMAT, VERSION = "guerdon-pilot", 1
LARGEST_FILE = 2**28  # bytes
LONGEST_NAME = 200
SERIES = ("pay", "ghosts", "evidence", "variance", "signal", "apart")


def _no_rounds() -> Any:
    return np.zeros((0, 0))


@dataclass(frozen=True)
class PilotRecord:
    """Arrays are (rounds, agents) or (rounds,); NaN where nothing is known, as of an agent that sent nothing.

    `cost` is the formula that the rules were given, `asked` 0 for an agent that was not asked, `pay` what each rule
    would have paid for a request of `request` samples, `ghosts` what it would have paid agents that do nothing, and
    `evidence` the logarithm of the evidence against each agent, of rules that keep bets. `variance` and `signal` are
    σ² and ‖m‖² as the reports of full work have them, `apart` how far a witness's gradient is from theirs
    (‖m − m_w‖²·ν/σ²; NaN without one). Rules that are `holding` pay when an agent's reports have told something.
    """

    request: int
    cost: str
    sends: str
    agents: tuple[str, ...] = ()
    asked: Array = field(default_factory=_no_rounds)
    sent: Array = field(default_factory=_no_rounds)
    pay: Mapping[str, Array] = field(default_factory=dict[str, Any])
    ghosts: Mapping[str, Mapping[str, Array]] = field(default_factory=dict[str, Any])
    evidence: Mapping[str, Array] = field(default_factory=dict[str, Any])
    variance: Array = field(default_factory=lambda: np.zeros(0))
    signal: Array = field(default_factory=lambda: np.zeros(0))
    apart: Array = field(default_factory=lambda: np.zeros(0))
    holding: tuple[str, ...] = ()

    @property
    def rounds(self) -> int:
        """How many rounds it holds."""
        return len(self.asked)

    @property
    def half(self) -> int:
        """Half of the request, rounded up."""
        return half_of(self.request)

    def with_round(self, agents: Sequence[str], asked: Array, sent: Array, scores: RoundScores) -> "PilotRecord":
        """Return the record with one more round; agents that are new come last."""
        if tuple(agents[: len(self.agents)]) != self.agents:
            raise ValueError(f"`agents` must begin with those of the earlier rounds, got {list(agents)[:5]}")

        def longer(old: Array | None, new: Any, missing: float = np.nan) -> Array:
            before = np.zeros((self.rounds, 0)) if old is None else old
            wider = np.pad(before, [(0, 0), (0, len(agents) - before.shape[1])], constant_values=missing)
            return np.vstack([wider, np.asarray(new, dtype=wider.dtype)])

        earned = {
            rule: {name: np.append(self.ghosts.get(rule, {}).get(name, np.zeros(0)), x) for name, x in values.items()}
            for rule, values in scores.ghosts.items()
        }
        return replace(
            self,
            agents=tuple(agents),
            asked=longer(self.asked, asked, 0),
            sent=longer(self.sent, sent, 0),
            pay={rule: longer(self.pay.get(rule), values) for rule, values in scores.pay.items()},
            ghosts=earned,
            evidence={rule: longer(self.evidence.get(rule), values) for rule, values in scores.evidence.items()},
            variance=np.append(self.variance, scores.variance),
            signal=np.append(self.signal, scores.signal),
            apart=np.append(self.apart, scores.apart),
        )

    def save(self, path: Path | str) -> None:
        """Write it as JSON, at once or not at all."""
        whole = {"asked": self.asked.astype(int).tolist(), "sent": self.sent.astype(bool).tolist()}
        series = {name: _plain(getattr(self, name)) for name in SERIES}
        header = {"format": FORMAT, "version": VERSION, "request": self.request, "cost": self.cost, "sends": self.sends}
        names = {"holding": list(self.holding), "agents": list(self.agents)}
        text = json.dumps({**header, **names, **whole, **series}, ensure_ascii=False)
        written = Path(f"{path}.part")
        written.write_text(text + "\n", encoding="utf-8")
        os.replace(written, path)

    @classmethod
    def load(cls, path: Path | str) -> "PilotRecord":
        """Return the record in a file, or raise with what is wrong."""
        file = Path(path)
        if file.is_file() and file.stat().st_size > LARGEST_FILE:
            raise ValueError(f"`{path}` must be a pilot of at most {LARGEST_FILE:,} bytes, got {file.stat().st_size:,}")
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            return _read(content)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            what = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else error
            raise ValueError(f"`{path}` cannot be read as a pilot: {what}") from error


def _plain(values: Any) -> Any:
    """Return arrays as lists, None for what is not finite."""
    if isinstance(values, Mapping):
        return {name: _plain(part) for name, part in values.items()}
    finite: Any = np.where(np.isfinite(values), values, None)
    return finite.tolist()


def _read(content: Any) -> PilotRecord:
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(f"`format` must be {FORMAT!r}; `guerdon.flower.Pilot` writes such files")
    if content["version"] != VERSION:
        raise ValueError(f"`version` must be {VERSION}, got {content['version']!r}; use the Guerdon that wrote it")
    check_positive_integer("request", content["request"])
    check_choice("sends", content["sends"], ("gradients", "models"))
    ExpressionCost(content["cost"])
    agents = content["agents"]
    if not isinstance(agents, list) or not all(map(_is_name, agents)) or len(set(agents)) < len(agents):
        raise ValueError("`agents` must be a list of different names that can be printed")
    each, whole = (len(content["asked"]), len(agents)), (len(content["asked"]),)
    asked = _array("asked", content["asked"], each)
    allowed = (0, content["request"], half_of(content["request"]))
    if not np.isin(asked, allowed).all():
        raise ValueError(f"`asked` must be one of {allowed} for each agent in each round")
    sent = _array("sent", content["sent"], each)
    if not np.isin(sent, (0, 1)).all() or (sent > asked).any():
        raise ValueError("`sent` must be true or false, and false for an agent that was not asked")
    return PilotRecord(
        content["request"], content["cost"], content["sends"], tuple(agents), asked, sent,
        _arrays("pay", content["pay"], each),
        {rule: _arrays(f"ghosts.{rule}", table, whole) for rule, table in _table("ghosts", content["ghosts"])},
        _arrays("evidence", content["evidence"], each),
        *(_array(name, content[name], whole) for name in ("variance", "signal", "apart")),
        holding=tuple(name for name, _ in _table("holding", dict.fromkeys(content["holding"]))),
    )  # fmt: skip


def _is_name(value: Any) -> bool:
    """Tell whether it can be shown as it is: it comes from a file that anybody may have changed."""
    return isinstance(value, str) and 0 < len(value) <= LONGEST_NAME and value.isprintable()


def _table(name: str, content: Any) -> Any:
    if not isinstance(content, dict) or not all(map(_is_name, content)):
        raise ValueError(f"`{name}` must be a table by names that can be printed, got {content!r:.40}")
    return content.items()


def _arrays(name: str, content: Any, shape: tuple[int, ...]) -> dict[str, Array]:
    return {key: _array(f"{name}.{key}", values, shape) for key, values in _table(name, content)}


def _array(name: str, values: Any, shape: tuple[int, ...]) -> Array:
    """Return an array of numbers, NaN for None, or raise."""
    try:
        array = np.array(values, dtype=np.float64)
    except (ValueError, TypeError) as error:
        raise ValueError(f"`{name}` must hold numbers or null, in rows of one length") from error
    if array.shape != shape and not (array.size == 0 and 0 in shape):
        raise ValueError(f"`{name}` must have shape {shape}, got {array.shape}")
    if np.isinf(array).any():
        raise ValueError(f"`{name}` must hold finite numbers or null, got infinity")
    return array.reshape(shape)
