"""One run, served: opens rounds, takes answers, and settles a round once all who work have answered, or time is up."""

import logging
import threading
import time
from pathlib import Path

from guerdon.ledger.books.errors import RefusedError, UnavailableError
from guerdon.ledger.read.statements import Payslip
from guerdon.run.book import Book
from guerdon.run.driver import PaidRun
from guerdon.run.messages import GRADIENTS, Request
from guerdon.run.mistaken import is_model
from guerdon.run.reports import Report, check_signature, hash_of, plain
from guerdon.serve.access import Members
from guerdon.serve.spool import Spool, SpooledAnswer, view_safetensors

log = logging.getLogger("guerdon.serve")

MISTAKEN = (
    "the report must be a gradient, got a model: it lies ten times nearer to the model that was sent than to zero; "
    "send the gradient, or start the service with `--sends models`"
)
LATE = "no answer before the deadline"
HEADER = 2**16  # bytes that a report may have more than the model: another header
DEADLINE = 600.0  # seconds that a round waits for agents that do not answer, unless the terms say otherwise
PATIENCE = 5.0  # seconds after which a round that could not be settled is tried again


class ConflictError(Exception):
    """What is asked for does not fit the state of the run."""


class Service:
    """A run in a ledger that agents, the `members`, work for.

    A round is settled once all that it asked have answered, or as many as the `quorum` of the terms; or, where somebody
    has, at their `deadline` (default: ten minutes). An agent that has not been heard of for as long as a deadline is
    not waited for; when it comes back, its reports count again, and the next round waits for it. A round that nobody
    answered stays open.
    """

    def __init__(self, run: PaidRun, spool: Path, members: Members) -> None:
        if not isinstance(run.book, Book):
            raise TypeError(f"`run` must be a run in a ledger, as `open_run` gives, got {type(run.book).__name__}")
        self.run, self.book, self.members = run, run.book, members
        self.terms = run.book.terms
        self.deadline = DEADLINE if self.terms.deadline is None else self.terms.deadline
        self.problem = ""  # why the run does not go on
        self.ended = False
        self.model = Path()  # what is broadcast
        self.spool = Spool(spool, run.name, self.book.name)
        self._lock = threading.RLock()
        self._asked: list[str] = []
        self._answered: dict[str, SpooledAnswer] = {}
        self._seen: dict[str, float] = {}
        self._until = 0.0
        self._wake, self._stopping = threading.Event(), False
        self._clerk = threading.Thread(target=self._work, name="guerdon-serve", daemon=True)
        try:
            self._open()
        except BaseException:
            self.spool.close()
            raise

    # Asked by agents

    @property
    def round(self) -> int:
        """The round that is open, or the last one where the run has ended."""
        return self.run.done if self.ended else self.run.done + 1

    @property
    def left(self) -> float:
        """The seconds until the open round may be settled without the agents that have not answered."""
        return max(0.0, self._until - time.monotonic())

    @property
    def largest(self) -> int:
        """The bytes that a report may have."""
        return self.model.stat().st_size + HEADER

    def see(self, agent: str) -> None:
        """Note that an agent is there."""
        self._seen[agent] = time.monotonic()

    def request_of(self, agent: str) -> Request | None:
        """Return what an agent is asked for; None where the run has ended."""
        with self._lock:
            if self.problem:
                raise UnavailableError(self.problem)
            return None if self.ended else self.run.request_of(agent)

    def has_answered(self, agent: str) -> bool:
        """Tell whether an agent has answered in the open round."""
        return agent in self._answered

    def accept(self, agent: str, number: int, draft: Path, signature: bytes) -> SpooledAnswer:
        """Keep an agent's report, or raise; the same again is found, whatever has become of the round."""
        arrays = view_safetensors(draft)
        self.run.template.view(arrays)
        hashed, key = hash_of(arrays), self.members.key_of(agent)
        with self._lock:  # a round is open, or in the ledger, and never between
            if self._is_open(number):
                request = self.run.request_of(agent)
                if number == 1 and request.sends == GRADIENTS and is_model(arrays, self.run.sent):
                    raise ValueError(MISTAKEN)
                checked = check_signature(
                    key, signature, request, hashed, required=key is not None or self.terms.signatures
                )
                return self._keep(number, draft, SpooledAnswer(agent, hashed, checked or b""))
        settled = self.payslip(agent, number)
        if settled is None:
            self._check_open(number)
        elif settled.gradient == hashed:
            return SpooledAnswer(agent, hashed, signature)
        raise ConflictError(f"round {number} is settled, without this report")

    def decline(self, agent: str, number: int, reason: str) -> SpooledAnswer:
        """Note that an agent sends nothing in a round."""
        return self._keep(number, self.spool.draft(), SpooledAnswer(agent, declined=plain(reason[:200]) or "no reason"))

    def payslip(self, agent: str, number: int) -> Payslip | None:
        """Return what an agent was paid for a round; None if it is not settled, or the agent had no part in it."""
        if number > self.run.done:
            return None
        return next((slip for slip in self.book.ledger.payslips(self.run.name, number) if slip.agent == agent), None)

    def final_model(self) -> Path:
        """Return the file of the model that the run ended with."""
        with self._lock:
            return self.spool.write_final(self.run.model)

    # Kept going

    def start(self) -> None:
        """Begin to settle rounds in the background."""
        self._clerk.start()

    def stop(self) -> None:
        """Settle nothing more; what was acknowledged is on the disk."""
        self._stopping = True
        self._wake.set()
        if self._clerk.is_alive():
            self._clerk.join()
        self.spool.close()

    def settle_if_due(self) -> bool:
        """Settle the open round if all who work have answered, or time is up; tell whether it was."""
        with self._lock:
            if self.ended or not self._is_due():
                return False
            number = self.run.done + 1
            self.run.settle([self._report(number, account) for account in self._seats()])
            self._open()
            return True

    def _keep(self, number: int, draft: Path, answer: SpooledAnswer) -> SpooledAnswer:
        with self._lock:
            try:
                self._check_open(number)
                kept = self.spool.keep(number, draft, answer)
            finally:
                self.spool.discard(draft)
            self._answered[answer.agent] = kept
        self._wake.set()
        if (kept.gradient, kept.declined) != (answer.gradient, answer.declined):
            was = "declined" if kept.declined else "sent another report"
            raise ConflictError(f"the agent has {was} in round {number} already; the first answer counts")
        return kept

    def _is_open(self, number: int) -> bool:
        return not self.ended and number == self.run.done + 1

    def _check_open(self, number: int) -> None:
        if not self._is_open(number):
            now = "the run has ended" if self.ended else f"round {self.run.done + 1} is open"
            raise ConflictError(f"round {number} is not open: {now}")

    def _open(self) -> None:
        """Open the next round, or open again the one that was open when the process ended."""
        number = self.run.done + 1
        found = self.spool.opened(number)
        members, normals, named = found or (self._find_members(), self.run.normals(), None)
        request = self.run.ask(members, normals, named=named)
        self.ended = request is None
        if not self.ended:
            if found is None:
                self.spool.open(number, members, normals, self.run.named)
            self.model = self.spool.write_model(number, self.run.sent)
            self._asked = members
            self._answered = {answer.agent: answer for answer in self.spool.answers(number)}
            for member in members:
                self._seen.setdefault(member, time.monotonic())
            self._until = time.monotonic() + self.deadline
            log.info("Round %d of run %r is open", number, self.run.name)
        else:
            log.info("Run %r has ended after round %d", self.run.name, self.run.done)

    def _find_members(self) -> list[str]:
        found = self.members.names()
        if not found:
            raise RefusedError(
                "no payment without identity: enrol the agents' public keys (guerdon ledger enrol NAME --public-key "
                "FILE), or give --tokens"
            )
        since = time.monotonic() - self.deadline
        there = [name for name in found if self._seen.get(name, since) >= since]
        return there or found

    def _is_due(self) -> bool:
        if not self._answered:
            return False
        if self.terms.quorum is not None and self._reported() >= self.terms.quorum:
            return True
        since = time.monotonic() - self.deadline
        waited = [name for name in self._asked if self._seen.get(name, 0.0) >= since]
        return self.left == 0.0 or all(name in self._answered for name in waited)

    def _reported(self) -> int:
        return sum(not answer.declined for answer in self._answered.values())

    def _seats(self) -> list[str]:
        """Return whose reports make the round: who answered, and who had a part in the run before."""
        return sorted({*self._answered, *(set(self._asked) & set(self.book.roster))})

    def _report(self, number: int, account: str) -> Report:
        answer = self._answered.get(account)
        if answer is None or answer.declined:
            return Report(account, LATE if answer is None else f'"{answer.declined}"')
        path = self.spool.report(number, account)
        arrays = self.run.template.view(view_safetensors(path))
        return Report(account, "", True, False, path, arrays, answer.gradient, answer.signature or None)

    def _work(self) -> None:
        while not self._stopping:
            self._wake.wait(min(PATIENCE, max(self.left, 0.05)))
            self._wake.clear()
            try:
                while not self._stopping and self.settle_if_due():
                    pass
                self.problem = ""
            except Exception as error:
                log.exception("Round %d of run %r could not be settled", self.run.done + 1, self.run.name)
                self.problem = (
                    f"the last round could not be settled ({type(error).__name__}); the operator's log has more"
                )
                self._recover()

    def _recover(self) -> None:
        """Go on from what the ledger has: nothing that was acknowledged is lost."""
        time.sleep(PATIENCE)
        try:
            with self._lock:
                self.run.resume()
                self._open()
        except Exception:
            log.exception("Run %r cannot go on yet", self.run.name)
