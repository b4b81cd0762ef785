"""Looks from the command line: one run from the commitments to the money, every command given twice."""

import shlex
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from guerdon.ledger import Ledger
from guerdon.looks.auditors import read_auditor
from guerdon.looks.coins import read_commitments
from guerdon.looks.exchange import Task
from guerdon.looks.recompute import arrays_hash
from tests.pages.test_pages import TEXT
from tests.support.command_line import Done, run, run_json
from tests.support.look_scenes import Clock
from tests.support.look_story import NAMES, PAY, ROUNDS, RULE, RUN, Server, terms, write_rows

DB = "--db", "guerdon.db"
REPLACES = "Lyon"  # one row of 16, in every round


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


class Folder:
    """A temporary folder in which commands are given twice: the second time nothing may change but what is said."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, *words: str) -> Done:
        first = self.once(*words)
        before = self.state()
        again = run(*words, cwd=self.path)
        assert (again.code, again.stderr) == (0, ""), words
        assert self.state() == before, f"{words} given again changed something"
        return first

    def once(self, *words: str) -> Done:
        done = run(*words, cwd=self.path)
        assert (done.code, done.stderr) == (0, ""), (words, done.output)
        return done

    def state(self) -> tuple[Any, ...]:
        files = {
            str(file.relative_to(self.path)): file.read_bytes()
            for file in sorted(self.path.rglob("*"))
            if file.is_file() and "guerdon.db" not in file.name
        }
        if not (self.path / "guerdon.db").exists():
            return (files,)
        with Ledger(str(self.path / "guerdon.db"), read_only=True) as ledger:
            proof = ledger.verify()
            assert proof.holds, proof.problem
            return files, proof.records, proof.head


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keys, commitments and coins, as they are made before the run; then four rounds, and their coins."""
    folder = tmp_path_factory.mktemp("prepared")
    with pytest.MonkeyPatch.context() as patched:
        Clock(patched)
        do = Folder(folder)
        write_rows(folder)
        with Ledger(str(folder / "guerdon.db")) as ledger:
            name = ledger.name
        for who in ("auditor", "second"):
            do("looks", "key", "--out", f"{who}.pem")
        for member in NAMES:
            kept = ["--secret", f"{member}.secret", "--out", f"{member}.commitment.npz"]
            do.once("commit", f"{member}.npz", "--ledger", name, "--run", RUN, "--member", member, *kept)
            do("looks", "commit", f"{member}.commitment.json", *DB)
        names = ["--key", "auditor.pem", "--ledger", name, "--run", RUN]
        do("looks", "coins", *names, "--rounds", str(ROUNDS), "--out", "coins.json")
        do("looks", "open", *names, "--rounds", f"1-{ROUNDS}", "--out", "nonces.json")
        with Ledger(str(folder / "guerdon.db")) as ledger:
            keys = [public(do, who) for who in ("auditor", "second")]
            ledger.start_run(RUN, list(NAMES), RULE, terms(folder, *keys))
            server = Server(folder, ledger, read_commitments((folder / "coins.json").read_text()))
            for number in range(1, ROUNDS + 1):
                server.play(number, {REPLACES: 1})
        yield folder


@pytest.fixture
def scene(prepared: Path, tmp_path: Path, clock: Clock) -> Folder:
    """A copy of the prepared folder: the run's last round is recorded."""
    assert clock.now
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    return Folder(tmp_path)


def public(do: Folder, who: str) -> str:
    return run_json("looks", "key", "--out", f"{who}.pem", cwd=do.path)["auditor"]


def looks_of(do: Folder, member: str) -> list[int]:
    listed = run_json("looks", "list", *DB, cwd=do.path)["looks"]
    return [one["look"] for one in listed if one["member"] == member]


def tasks(do: Folder) -> Done:
    return do("looks", "tasks", *DB, "--auditor", "auditor.json", "--auditor", "second.json", "--out", "tasks")


def answer(do: Folder, member: str, file: str, who: str = "auditor", rows: str = "") -> None:
    kept = ["--commitment", f"{member}.commitment.npz", "--secret", f"{member}.secret"]
    words = ["--rows", rows or f"{member}.npz", *kept, "--auditor", public(do, who)]
    do("looks", "answer", f"tasks/{file}.npz", *words)
    do("looks", "receive", f"tasks/{file}.answer", *DB)


def judge(do: Folder, file: str, who: str = "auditor") -> str:
    said = do("look", f"tasks/{file}.npz", f"tasks/{file}.answer", "--key", f"{who}.pem").stdout
    do("looks", "verdict", f"tasks/{file}.verdict.json", *DB, *["--appeal"] * (who == "second"))
    return said


def balances(do: Folder) -> dict[str, tuple[int, int]]:
    with Ledger(str(do.path / "guerdon.db"), read_only=True) as ledger:
        assert ledger.verify().holds
        return {found.agent: (found.balance, found.held) for found in ledger.balances()}


def test_a_run_from_commitments_to_money(scene: Folder, clock: Clock) -> None:
    do = scene
    drawn = do("looks", "draw", "nonces.json", *DB).stdout
    assert f"Drew the coins of {ROUNDS} rounds" in drawn
    assert "No closed round waits for coins." in drawn
    listed = do("looks", "list", *DB).stdout
    assert "the rows of the member" in listed
    assert "in 1 minutes" in listed, "deadlines in words, too"
    tasks(do)

    # Basel works; Lyon replaced one row of 16; Porto refuses: it does not answer.
    for look in looks_of(do, "Basel"):
        answer(do, "Basel", f"look-{look}")
        assert "of Basel: passed." in judge(do, f"look-{look}")
    for look in looks_of(do, REPLACES):
        answer(do, REPLACES, f"look-{look}")
        assert "of Lyon: failed." in judge(do, f"look-{look}")
    settled = do("looks", "settle", *DB).stdout
    assert "Basel" in settled
    assert "Lyon" not in settled
    assert balances(do) == {"Basel": (4 * PAY, 0), "Lyon": (0, 4 * PAY), "Porto": (0, 4 * PAY)}
    assert "an appeal of the member: failed" in do("looks", "list", *DB).stdout

    clock.now += 201  # Porto did not answer, and nobody appealed
    do("looks", "settle", *DB)
    assert balances(do) == {"Basel": (4 * PAY, 0), "Lyon": (0, 0), "Porto": (0, 0)}
    with Ledger(str(do.path / "guerdon.db"), read_only=True) as ledger:
        assert ledger.common_balances()["reserve"] == 8 * PAY
        outcomes = {one.member: set(one.looks.values()) for one in ledger.looks.settled(RUN)}
    assert outcomes == {"Basel": {"passed"}, "Lyon": {"failed"}, "Porto": {"unanswered"}}
    assert not list((do.path / "guerdon.db.files" / f"run {RUN}").iterdir()), "no look can be at these rounds any more"
    assert "No look is open in run 'knee'." in do("looks", "list", *DB).stdout
    said = do("looks", "check", *DB, "--member", "Lyon").stdout
    assert "✓ All draws, named rows and verdicts follow." in said
    assert "of what was held" in said
    for member, outcome in (("Basel", "passed"), ("Lyon", "failed"), ("Porto", "unanswered")):
        assert outcome in do("ledger", "statement", member, *DB).stdout


def test_an_appeal_is_decided_by_the_second_auditor(scene: Folder, clock: Clock) -> None:
    do = scene
    do("looks", "draw", "nonces.json", *DB)
    tasks(do)
    for look in looks_of(do, "Basel"):  # goes unanswered, and appeals when it has noticed
        assert look
    clock.now += 101
    tasks(do)
    for look in looks_of(do, "Basel"):
        assert "unanswered" in do("looks", "list", *DB).stdout
        answer(do, "Basel", f"look-{look}-appeal", "second")
        assert "of Basel: passed." in judge(do, f"look-{look}-appeal", "second")
    do("looks", "settle", *DB)
    assert balances(do)["Basel"] == (4 * PAY, 0)
    assert run_json("looks", "check", *DB, cwd=do.path)["holds"]


def test_who_opens_other_rows_fails_and_the_reason_is_said(scene: Folder) -> None:
    do = scene
    do("looks", "draw", "nonces.json", *DB)
    tasks(do)
    look = looks_of(do, "Porto")[0]
    seal_other_rows(do, "Porto", f"look-{look}")
    do("looks", "receive", f"tasks/look-{look}.answer", *DB)
    said = judge(do, f"look-{look}")
    assert "of Porto: failed." in said
    assert "was named and must be opened" in said


def seal_other_rows(do: Folder, member: str, file: str) -> None:
    """Answer with a row that was not named in place of the last one."""
    from guerdon.looks import Commitment, read_rows, read_secret
    from guerdon.looks.exchange import answer_to

    task = Task.from_bytes((do.path / f"tasks/{file}.npz").read_bytes())
    own = read_rows(do.path / f"{member}.npz")
    mine = Commitment.load(do.path / f"{member}.commitment.npz", own, read_secret(do.path / f"{member}.secret"))
    other = next(row for row in range(60) if row not in task.subject.rows)
    sealed = answer_to(task, mine.open([*task.subject.rows[:-1], other]))
    (do.path / f"tasks/{file}.answer").write_bytes(sealed.to_bytes())


def test_an_auditor_that_is_silent_past_its_deadline_releases(scene: Folder, clock: Clock) -> None:
    do = scene
    do("looks", "draw", "nonces.json", *DB)
    tasks(do)
    for look in looks_of(do, REPLACES):
        answer(do, REPLACES, f"look-{look}")
    assert "the verdict of the auditor" in do("looks", "list", *DB).stdout
    clock.now += 101
    do("looks", "settle", *DB)
    assert balances(do)[REPLACES] == (4 * PAY, 0)


def test_at_the_member_s_site_only_the_verdict_leaves(scene: Folder) -> None:
    do = scene
    do("looks", "draw", "nonces.json", *DB)
    tasks(do)
    look = looks_of(do, "Basel")[0]
    kept = ["--commitment", "Basel.commitment.npz", "--secret", "Basel.secret"]
    words = ["look", f"tasks/look-{look}.npz", "--key", "auditor.pem", "--at-site", "--rows", "Basel.npz", *kept]
    assert "of Basel: passed." in do(*words).stdout
    said = do("looks", "verdict", f"tasks/look-{look}.verdict.json", *DB).stdout
    assert "passed. It is recorded." in said


def test_a_coin_that_is_refused_has_its_round_looked_at(scene: Folder) -> None:
    do = scene
    name = run_json("looks", "list", *DB, cwd=do.path)["ledger"]
    names = ["--key", "auditor.pem", "--ledger", name, "--run", RUN]
    do("looks", "open", *names, "--rounds", "1,3-4", "--out", "some.json")
    assert (
        "Drew the coins of 1 round; 0 looks opened.\nRound 2 comes next."
        in do("looks", "draw", "some.json", *DB).stdout
    )
    do("looks", "draw", "some.json", "--refused", "2", *DB)
    do("looks", "draw", *DB)
    found = run_json("looks", "check", *DB, cwd=do.path)
    assert found["holds"]
    lyon = next(one for one in found["periods"] if one["member"] == "Lyon")
    shown = {one["round"]: one["why"] for one in lyon["looks"]}
    joined = [why for reasons in shown.values() for why in reasons if why["coin"] is None]
    later = max(shown) > 2 and 2 not in shown
    assert joined or later, "round 2 is looked at, unless later coins replaced it in every look"


def wrong_key(_: Folder, look: int) -> tuple[list[str], str]:
    words = ["--rows", "Basel.npz", "--commitment", "Basel.commitment.npz", "--secret", "Basel.secret"]
    return ["looks", "answer", f"tasks/look-{look}.npz", *words, "--auditor", "ab" * 32], "must be who the task is for"


def other_member(do: Folder, look: int) -> tuple[list[str], str]:
    words = ["--rows", "Lyon.npz", "--commitment", "Lyon.commitment.npz", "--secret", "Lyon.secret"]
    told = ["looks", "answer", f"tasks/look-{look}.npz", *words, "--auditor", public(do, "auditor")]
    return told, "`--commitment` must be the one that counts in round"


def second_auditor(do: Folder, look: int) -> tuple[list[str], str]:
    answer(do, "Basel", f"look-{look}")
    words = [f"tasks/look-{look}.npz", f"tasks/look-{look}.answer", "--key", "second.pem", "--out", "other.json"]
    return ["look", *words], "`key` must be that of the task's auditor"


def other_code(do: Folder, look: int) -> tuple[list[str], str]:
    answer(do, "Basel", f"look-{look}")
    (do.path / "task.py").write_text((do.path / "task.py").read_text() + "\n")
    words = [f"tasks/look-{look}.npz", f"tasks/look-{look}.answer", "--key", "auditor.pem", "--out", "other.json"]
    return ["look", *words], "must have the code of the terms"


def damaged_archive(do: Folder, look: int) -> tuple[list[str], str]:
    for file in (do.path / "guerdon.db.files").rglob("model.npz"):
        file.write_bytes(next(file.parent.glob("of Basel.npz")).read_bytes())
    words = ["--auditor", "auditor.json", "--out", f"others-{look}"]
    return ["looks", "tasks", *DB, *words], "`model` must have the hash that the ledger has"


def keys_are_missing(_: Folder, look: int) -> tuple[list[str], str]:
    words = ["--auditor", "second.json", "--out", f"others-{look}"]
    return ["looks", "tasks", *DB, *words], "needs the keys of the auditor"


def no_appeal_yet(do: Folder, look: int) -> tuple[list[str], str]:
    answer(do, "Basel", f"look-{look}")
    judge(do, f"look-{look}")
    return ["looks", "verdict", f"tasks/look-{look}.verdict.json", "--appeal", *DB], "must be signed by the auditor"


def other_model(do: Folder, look: int) -> tuple[list[str], str]:
    """The operator hands out a task with another model: member and auditor do as they are told."""
    judged_on_another_model(do, look)
    return ["looks", "verdict", "lie.verdict.json", *DB], "is on other rows, another seed, model or function"


def judged_on_another_model(do: Folder, look: int) -> None:
    task = Task.from_bytes((do.path / f"tasks/look-{look}.npz").read_bytes())
    model = {"w": task.model["w"] + 1}
    lie = replace(task, model=model, subject=task.subject._replace(model=arrays_hash(model).hex()))
    (do.path / "lie.npz").write_bytes(lie.to_bytes())
    answer(do, "Basel", f"look-{look}")
    assert "of Basel: failed." in do("look", "lie.npz", f"tasks/look-{look}.answer", "--key", "auditor.pem").stdout


def other_answer(do: Folder, look: int) -> tuple[list[str], str]:
    """The operator recorded one answer, and passes on another."""
    answer(do, "Basel", f"look-{look}")
    kept = ["--commitment", "Basel.commitment.npz", "--secret", "Basel.secret", "--auditor", public(do, "auditor")]
    do("looks", "answer", f"tasks/look-{look}.npz", "--rows", "Basel.npz", *kept, "--out", "second.answer")
    do("look", f"tasks/look-{look}.npz", "second.answer", "--key", "auditor.pem", "--out", "second.verdict.json")
    return ["looks", "verdict", "second.verdict.json", *DB], "is on another answer than the one that is recorded"


def another_answer_received(_: Folder, look: int) -> tuple[list[str], str]:
    return ["looks", "receive", "second.answer", *DB], f"look {look} has another in answers already: the first"


def early_appeal(do: Folder, look: int) -> tuple[list[str], str]:
    task = Task.from_bytes((do.path / f"tasks/look-{look}.npz").read_bytes())
    second = read_auditor((do.path / "second.json").read_text())
    (do.path / "early.npz").write_bytes(replace(task, appeal=True, auditor=second).to_bytes())
    kept = ["--commitment", "Basel.commitment.npz", "--secret", "Basel.secret", "--auditor", public(do, "second")]
    do("looks", "answer", "early.npz", "--rows", "Basel.npz", *kept)
    return ["looks", "receive", "early.answer", *DB], "cannot be appealed: it neither failed nor went unanswered"


WRONG = [  # in this order: the last ones change what the others need
    wrong_key, other_member, keys_are_missing, second_auditor, other_answer, another_answer_received,
    early_appeal, no_appeal_yet, other_model, damaged_archive, other_code,
]  # fmt: skip


def test_what_is_wrong_is_said_in_one_line(scene: Folder) -> None:
    do = scene
    do("looks", "draw", "nonces.json", *DB)
    tasks(do)
    looks = looks_of(do, "Basel")
    for make in WRONG:
        command, words = make(do, looks[0])
        refused(do, command, words)


def test_a_verdict_on_another_model_is_found_by_every_member(scene: Folder) -> None:
    do = scene
    do("looks", "draw", "nonces.json", *DB)
    tasks(do)
    look = looks_of(do, "Basel")[0]
    judged_on_another_model(do, look)
    with Ledger(str(do.path / "guerdon.db")) as ledger:  # by another program than `guerdon looks verdict`
        ledger.looks.verdict((do.path / "lie.verdict.json").read_text())
    done = run("looks", "check", *DB, cwd=do.path)
    assert done.code == 1
    assert f"✗ look {look}: the verdict on look {look} is on other rows, another seed, model or function" in done.stdout


def refused(do: Folder, command: list[str], words: str) -> None:
    done = run(*command, cwd=do.path)
    assert done.code == 2, done.output
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def commands_of(page: str) -> list[list[str]]:
    """Return the commands in a page's code, without the one that installs."""
    lines = TEXT[page].replace(" \\\n", " ").splitlines()
    return [shlex.split(line)[1:] for line in lines if line.startswith("    ") and line.split()[0] == "guerdon"]


@pytest.mark.parametrize(("page", "count"), [("docs/how-to/looks.md", 16), ("docs/how-to/look.md", 5)])
def test_the_commands_of_the_pages_run_in_their_order(scene: Folder, page: str, count: int) -> None:
    do = scene
    given = {"NAME": run_json("looks", "list", *DB, cwd=do.path)["ledger"], "HEX": public(do, "auditor")}
    if page == "docs/how-to/look.md":
        do("looks", "draw", "nonces.json", *DB)
        tasks(do)
        answer(do, "Basel", "look-1")
    commands = commands_of(page)
    assert len(commands) == count
    for words in commands:
        do(*(given.get(word, word) for word in words))


def test_a_stream_that_grew_shows_that_its_old_rows_are_unchanged(tmp_path: Path) -> None:
    do = Folder(tmp_path)
    with Ledger(str(tmp_path / "guerdon.db")) as ledger:
        names = ["--ledger", ledger.name, "--run", RUN, "--member", "Bern"]
    rows = tmp_path / "rows.csv"
    rows.write_text("age\n63\n41\n")
    do.once("commit", "rows.csv", *names, "--stream")
    do("looks", "commit", "rows.commitment.json", *DB)
    rows.write_text("age\n63\n41\n55\n")
    do.once("commit", "rows.csv", *names, "--append")
    proof = tmp_path / "rows.commitment.growth.json"
    wrong = proof.read_text().replace('"proof": ["', '"proof": ["ab", "')
    (tmp_path / "wrong.json").write_text(wrong)
    grown = ["looks", "commit", "rows.commitment.json", *DB, "--growth"]
    refused(do, [*grown, "wrong.json"], "must be those of the old record: they are others")
    assert "Bern: 3 rows" in do(*grown, proof.name).stdout
