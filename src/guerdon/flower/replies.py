"""What came back from the nodes of a round: who sent something that can be used, and what is wrong with the rest."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord, Error, Message, Metadata, RecordDict

from guerdon.flower.messages import Answer, without_answer
from guerdon.flower.nodes import Member
from guerdon.flower.payload import view
from guerdon.run.messages import Request
from guerdon.run.reports import Report, Template, check_signature, hash_of, plain

OTHER_SAMPLES = (
    "Nodes report other `%s` than they are paid for: %s. Let their app use `samples_to_use(message)`, and report that"
)
SHOWN = 20  # nodes that are named
HEAVIEST = 2**53  # beyond it, weights could add up to infinity
LATE = "no reply before the deadline"
TWICE = "it answered twice, and not the same"
MOD_FIRST = "put `paid_work()` first among the app's mods, so that it signs what is sent"
_ERRORS = {
    1: "its client app could not be loaded",
    2: "its client app raised an exception",
    3: "the message did not reach it",
    4: "its reply was lost",
    5: "the node was not available",
    6: "a mod of its client app gave up",
    7: "its client app was not accepted",
    8: "its client app crashed",
}

log = logging.getLogger("flwr.guerdon")

Form = frozenset[tuple[str, str, int]]  # the names of records and metrics
Asked = Sequence[tuple[Metadata, Member]]  # the messages that were sent, and their receivers


def put_arrays(report: Report, arrays: Mapping[str, np.ndarray]) -> None:
    """Put other arrays into a reply; what is known of the one that was sent stays."""
    if report.reply is None:
        return
    name, record = next(iter(report.reply.content.array_records.items()))
    changed = {
        key: old if arrays[key] is report.arrays[key] else Array(np.asarray(arrays[key], order="C"))
        for key, old in record.items()
    }
    report.reply.content = RecordDict({**report.reply.content, name: ArrayRecord(changed)})


class Rules(NamedTuple):
    """What a reply must be."""

    template: Template
    request: Request
    weight: str | None  # the metric by which the strategy weighs replies
    require_signatures: bool


def sort_replies(asked: Asked, replies: Iterable[Message], rules: Rules) -> list[Report]:
    """Return one report for each node that was asked, in that order. Whether they are of one form, `agree` tells."""
    answers = _attribute(asked, replies)
    return [_report(member, found, rules) for member, found in answers]


def check_some_worked(reports: Sequence[Report], request: Request) -> None:
    """Raise if every node failed: the round is not to be recorded, for then it would count as done."""
    if not any(report.failed for report in reports) or any(not (r.failed or r.note == LATE) for r in reports):
        return
    reasons = {report.note: report.account for report in reversed(reports)}
    told = "; ".join(f"{account} {note}" for note, account in list(reasons.items())[:-4:-1])
    raise RuntimeError(
        f"round {request.round} of run {request.run!r}: all {len(reports)} nodes failed, so the round is not recorded "
        f"and the run stops. Mend the cause and start the app again: it goes on with this round. {told}"
    )


def warn_of_other_samples(
    reports: Sequence[Report], weight: str, asked: Callable[[str], int], warned: set[int | str]
) -> None:
    """Name the nodes, each once, that say they used other than the requested samples."""
    told: list[str] = []
    for report in reports:
        content = RecordDict() if report.reply is None else report.reply.content
        used = next((record[weight] for record in content.metric_records.values() if weight in record), None)
        account, number = report.account, asked(report.account)
        if isinstance(used, (int, float)) and used != number and account not in warned:
            warned.add(account)
            told.append(f"{account}: {used:g} where {number} were asked for")
    if told:
        log.warning(OTHER_SAMPLES, weight, ", ".join(told[:SHOWN]))


def sort_evaluations(asked: Asked, replies: Iterable[Message], weight: str | None) -> tuple[list[Message], list[str]]:
    """Return the replies to an evaluation that can be used together, and what is wrong with the others."""
    answers = _attribute(asked, replies)
    reports = [_evaluation(member, found, weight) for member, found in answers]
    agree(reports, usual=None)
    wrong = [f"{report.account}: {report.note}" for report in reports if not report.usable]
    return [report.reply for report in reports if report.reply is not None], wrong


def _attribute(asked: Asked, replies: Iterable[Message]) -> list[tuple[Member, list[Message]]]:
    """Return the replies to each message by its id: a failure comes from the SuperLink, not from the node."""
    found: dict[str, list[Message]] = {metadata.message_id: [] for metadata, _ in asked}
    senders = {metadata.message_id: member.node for metadata, member in asked}
    for reply in replies:
        to = reply.metadata.reply_to_message_id
        if to in found and (reply.has_error() or reply.metadata.src_node_id == senders[to]):
            found[to].append(reply)
    return [(member, found[metadata.message_id]) for metadata, member in asked]


def _report(member: Member, replies: list[Message], rules: Rules) -> Report:
    report = Report(member.account)
    reply = _only(report, replies)
    if reply is None:
        return report
    try:
        answer = Answer.read(reply.content)
        if answer is not None and answer.declined:
            report.note = plain(f'"{answer.declined:.200}"')
            return report
        _check_answer(answer, rules)
        record = _only_arrays(reply.content)
        arrays = view(rules.template, record)
        _check_metrics(reply.content, rules.weight)
        hashed, signature = hash_of(arrays), b"" if answer is None else answer.signature
        report.signature = check_signature(
            member.key, signature, rules.request, hashed, required=rules.require_signatures, remedy=MOD_FIRST
        )
    except ValueError as error:
        report.refuse(str(error))
        return report
    reply.content = _in_order(reply.content, record, rules.template)
    report.reply, report.sent, report.arrays, report.gradient = reply, True, arrays, hashed
    return report


def _evaluation(member: Member, replies: list[Message], weight: str | None) -> Report:
    report = Report(member.account)
    reply = _only(report, replies)
    if reply is not None:
        try:
            _check_metrics(reply.content, weight)
            report.reply = reply
        except ValueError as error:
            report.refuse(str(error))
    return report


def _only(report: Report, replies: list[Message]) -> Message | None:
    """Return the one reply with content, or None, and why in the report."""
    if not replies:
        report.note = LATE
        return None
    if any(reply.has_error() for reply in replies):
        report.note = plain(_explain_error(next(reply.error for reply in replies if reply.has_error())))
        report.failed = True
        return None
    if any(reply.content.object_id != replies[0].content.object_id for reply in replies[1:]):
        report.refuse(TWICE)
        return None
    return replies[0]


def _explain_error(error: Error) -> str:
    lines = [line.strip() for line in (error.reason or "").splitlines() if line.strip()]
    return f"failed: {_ERRORS.get(error.code, 'for an unknown reason')}" + (f" ({lines[-1]:.200})" if lines else "")


def _check_answer(answer: Answer | None, rules: Rules) -> None:
    if answer is not None and answer.round != rules.request.round:
        raise ValueError(f"it answers round {answer.round}, not round {rules.request.round}")


def _only_arrays(content: RecordDict) -> ArrayRecord:
    records = list(content.array_records.values())
    if len(records) != 1:
        raise ValueError("it sent no arrays" if not records else f"it sent {len(records)} sets of arrays, not one")
    return records[0]


def _check_metrics(content: RecordDict, weight: str | None) -> None:
    """Raise unless the strategy can compute with the metrics: FedAvg would stop the round for everybody."""
    for record in content.metric_records.values():
        for name, value in record.items():
            if name != weight and not np.isfinite(value).all():
                raise ValueError(f"its metric {name!r:.60} must be finite, got {value!r:.40}")
    if weight is None:
        return
    records = list(content.metric_records.values())
    if len(records) != 1:
        raise ValueError(f"it sent {len(records) or 'no'} sets of metrics, not one")
    value = records[0].get(weight)
    if isinstance(value, list) or value is None or not 0 < value <= HEAVIEST:
        raise ValueError(f"its metric {weight!r} must be a number above 0, at most 2**53, got {value!r:.40}")


def _in_order(content: RecordDict, record: ArrayRecord, template: Template) -> RecordDict:
    """Return a reply's content without our own record, the arrays in the model's order (some strategies go by it)."""
    ordered = ArrayRecord({name: record[name] for name in template.kinds})
    return RecordDict({name: ordered if value is record else value for name, value in without_answer(content).items()})


def agree(reports: Sequence[Report], usual: Form | None) -> Form | None:
    """Refuse the replies whose records are named otherwise than most, and return the form that most have.

    A strategy needs all of them alike. A tie goes to the form that was `usual` so far.
    """
    forms = [(report, _form(report.reply.content)) for report in reports if report.reply is not None]
    if not forms:
        return usual
    counts = Counter(form for _, form in forms)
    most = max(counts, key=lambda form: (counts[form], form == usual))
    for report, form in forms:
        if form != most:
            report.refuse(f"its records {_told(form, most)}")
    return most


def _form(content: RecordDict) -> Form:
    """Return the names of a reply's records and metrics; lists of metrics have a length too."""
    arrays = {(name, "", 0) for name in content.array_records}
    return frozenset(
        arrays | {form for name, record in content.metric_records.items() for form in _metrics(name, record)}
    )


def _metrics(name: str, record: Mapping[str, Any]) -> set[tuple[str, str, int]]:
    return {(name, key, len(value) if isinstance(value, list) else -1) for key, value in record.items()}  # pyright: ignore[reportUnknownArgumentType]


def _told(form: Form, usual: Form) -> str:
    less, more = (
        [f"{'/'.join(filter(None, part[:2])):.60}" for part in sorted(parts)[:3]]
        for parts in (usual - form, form - usual)
    )
    words = [f"lack {', '.join(less)}"] * bool(less) + [f"have {', '.join(more)}"] * bool(more)
    return f"{' and '.join(words)}, unlike those of most nodes"
