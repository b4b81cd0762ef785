"""The node's side: a mod that reads the request, chooses how much to do, signs what is sent, and logs the pay.

app = ClientApp(mods=[paid_work()])

@app.train()
def train(message, context):
    samples = samples_to_use(message)
    ...
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable, Mod

from guerdon.flower.messages import ANSWER, PAY, Answer
from guerdon.flower.payload import read_arrays
from guerdon.ledger.books.errors import RefusedError
from guerdon.ledger.books.money import format_amount
from guerdon.ledger.proof.submissions import read_private_key, sign_submission
from guerdon.looks.recompute import arrays_hash
from guerdon.run.messages import CHOSEN, Pay, Request, Work, find_settings
from guerdon.run.reports import hash_of

log = logging.getLogger("flwr.guerdon")

KEY = "guerdon-key"  # in a node's configuration: the file of its private key


def paid_work() -> Mod:
    """Return the mod for a `ClientApp` that takes part in paid rounds.

    The node does what it is asked, signs what it sends if its configuration names its private key (`--node-config
    'guerdon-key="/path/to/key"'`), and logs what it was paid.
    """

    def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        content = message.content if message.has_content() else RecordDict()
        pay, request = Pay.read(content), Request.read(content)
        if pay is not None:
            _tell(context, pay)
        if request is not None and request.work is not None:
            _check_model(content, request.work)
        reply = call_next(message, context)
        return reply if request is None else _signed(reply, request, _private_key(context))

    return mod


def samples_to_use(message: Message) -> int:
    """Return how many samples to use for a message: what is asked, or what the node's agent has chosen."""
    found = find_settings(message.content, CHOSEN)
    if found is None:
        raise ValueError("the message holds no request: is the server's strategy wrapped in `guerdon.flower.Paid`?")
    return int(str(found[CHOSEN]))


def named_work(message: Message, dataset: Any = None) -> tuple[Any, int]:
    """Return the rows that a message names, and the seed of all other randomness of the work.

        rows, seed = named_work(message, dataset)

    `dataset`: the rows that the member committed to, in that order: an array, arrays by name whose first axis counts
    rows, or any sequence. The rows come in the order in which they are to be used, in the dataset's form (a list where
    it is neither array nor arrays). Without a dataset: their indices.

    Raises ValueError where the message names no work: then the run's pay is not held until looks.
    """
    request = Request.read(message.content)
    if request is None or request.work is None:
        raise ValueError("the message names no rows: the terms of the run must say `hold=Looks(...)`")
    rows = np.array(request.work.rows, dtype=np.int64)
    if dataset is None:
        return rows, request.work.seed
    if isinstance(dataset, Mapping):
        return {name: array[rows] for name, array in dataset.items()}, request.work.seed  # pyright: ignore[reportUnknownVariableType]
    if hasattr(dataset, "shape"):
        return dataset[rows], request.work.seed
    return [dataset[int(row)] for row in rows], request.work.seed


def decline(message: Message, reason: str = "no reason given") -> Message:
    """Return the reply of a node that sends nothing this round: it is paid nothing, and nobody is harmed."""
    request = Request.read(message.content)
    answer = Answer(0 if request is None else request.round, declined=reason or "no reason given")
    return Message(RecordDict({ANSWER: answer.record()}), reply_to=message)


def last_pay(message: Message) -> Pay | None:
    """Return the node's last payment if a message contains it, otherwise None."""
    return Pay.read(message.content)


def _check_model(content: RecordDict, work: Work) -> None:
    """Raise unless the model is the one that a look would compute the work at: the node's signature covers it."""
    hashes = [arrays_hash(read_arrays(record)).hex() for record in content.array_records.values()]
    if work.model not in hashes:
        raise ValueError("the model must be the one that the request names: another was sent, so no work is done at it")


def _tell(context: Context, pay: Pay) -> None:
    """Log the pay of a round, once, and keep it in the node's state."""
    known = context.state.config_records.get(PAY)
    told = pay.settings()
    if known is None or dict(known) != told:
        log.info(
            "Round %d: %s %s (%s; balance %s). %s",
            pay.round, format_amount(pay.reward), pay.unit, pay.status, format_amount(pay.balance), pay.why,
        )  # fmt: skip
        context.state[PAY] = ConfigRecord(told)


def _signed(reply: Message, request: Request, key: Any) -> Message:
    """Return a reply with an answer for this round, signed if there is a key; leave a refusal or failure unsigned."""
    if not reply.has_content() or ANSWER in reply.content or len(reply.content.array_records) != 1:
        return reply
    signature = b""
    if key is not None:
        hashed = hash_of(read_arrays(next(iter(reply.content.array_records.values()))))
        signature = sign_submission(key, request.signed(hashed))
    Answer(request.round, signature).put(reply)
    return reply


def _private_key(context: Context) -> Any:
    """Return the node's private key, None if its configuration names none, or raise."""
    where = context.node_config.get(KEY)
    if where is None:
        return None
    try:
        return read_private_key(Path(str(where)).expanduser())
    except RefusedError as error:
        raise ValueError(f"`{KEY}` must name the file of a private key: {error}") from error
