"""Agents of any framework: they ask, send signed reports, and read what they were paid; nothing twice."""

import json
import socket
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save, save_file

from guerdon import AffineCost, FlatPay, OutputAgreement, SteadyPay
from guerdon.client import ServiceClient, ServiceError, ServiceTask
from guerdon.ledger import Ledger
from guerdon.ledger.books.errors import RefusedError
from guerdon.rule import Need, Rule
from guerdon.serve.access import Members
from guerdon.serve.running import check_members, read_model, read_tokens, write_lines
from guerdon.statistical.dithers import Dither
from tests.serve.conftest import (
    MODEL,
    RULE,
    TOKENS,
    Served,
    gradient,
    make_service,
    save_draft,
    serving,
    together,
    work,
    write_key,
)
from tests.support.command_line import run as guerdon


def answer(
    served: Served, target: str, method: str = "GET", body: bytes | None = None, **headers: str
) -> tuple[int, Any]:
    """Return the status and the JSON of an answer; by default as north."""
    told = {"authorization": f"Bearer {TOKENS['north']}"} | {name.replace("_", "-"): v for name, v in headers.items()}
    asked = urllib.request.Request(served.address + target, body, told, method=method)
    try:
        with urllib.request.urlopen(asked, timeout=30) as found:
            return found.status, json.load(found)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_rounds_are_paid_and_the_model_moves(served: Served, ledger: Ledger) -> None:
    clients = {name: served.client(token) for name, token in TOKENS.items()}
    asked: list[ServiceTask] = []

    def send(place: int) -> Any:
        def report(task: ServiceTask) -> Any:
            asked.append(task)
            return gradient(10 * task.round + place)

        return report

    together(*(lambda c=c, i=i: work(c, send(i)) for i, c in enumerate(clients.values())))
    assert {(task.round, task.request, task.sends) for task in asked} == {(n, 8, "gradients") for n in (1, 2, 3)}
    assert [run.rounds for run in ledger.runs()] == [3]
    assert ledger.verify().holds
    north = clients["north"]
    mean = sum(np.mean([gradient(10 * n + i)["b"] for i in range(4)], axis=0) for n in (1, 2, 3))
    assert north.model()["b"] == pytest.approx(-0.05 * mean)
    told = north.pay(3)
    slip = next(slip for slip in ledger.payslips("run", 3) if slip.agent == "north")
    assert (told["round"], told["status"], told["why"]) == (3, "paid", slip.why)
    assert float(told["reward"]) == slip.reward / 1e6
    happened = [line["what"] for line in north.statement()["lines"]]
    assert happened == ["run, round 1", "run, round 2", "run, round 3", "release"]  # the end of the run: all vests


def test_a_report_again_is_found_and_another_is_refused(served: Served, ledger: Ledger) -> None:
    clients = [served.client(token) for token in TOKENS.values()]
    task = next(clients[0].tasks())
    first = clients[0].report(task, gradient(0))
    assert clients[0].report(task, gradient(0)) == first
    with pytest.raises(ServiceError, match="sent another report in round 1 already; the first answer counts"):
        clients[0].report(task, gradient(1))
    with pytest.raises(ServiceError, match="sent another report"):
        clients[0].decline(task)
    for i, client in enumerate(clients[1:], start=1):
        client.report(task, gradient(i))
    next(clients[1].tasks())  # the next round is open
    assert clients[0].report(task, gradient(0)) == first  # an answer that was lost: asked for again after the round
    with pytest.raises(ServiceError, match="round 1 is settled, without this report"):
        clients[0].report(task, gradient(1))
    with pytest.raises(ServiceError, match="round 1 is not open: round 2 is open"):
        clients[0].decline(task)
    assert [run.rounds for run in ledger.runs()] == [1]


def test_who_declines_is_not_waited_for(served: Served, ledger: Ledger) -> None:
    clients = [served.client(token) for token in TOKENS.values()]
    task = next(clients[0].tasks())
    for i, client in enumerate(clients[:3]):
        client.report(task, gradient(i))
    assert clients[3].decline(task, "maintenance\x1b[2J")["declined"] == "maintenance\N{REPLACEMENT CHARACTER}[2J"
    next(clients[0].tasks())
    found = {slip.agent: (slip.status, slip.why) for slip in ledger.payslips("run")}
    assert found["west"][0] == "declined"
    assert "maintenance" in found["west"][1]
    assert found["north"][0] == "paid"


def test_who_does_not_come_is_waited_for_until_the_deadline_only(tmp_path: Path, ledger: Ledger) -> None:
    service = make_service(tmp_path, ledger, deadline=3600)

    def three_answer(number: int) -> None:
        for i, name in enumerate(("north", "south", "east")):
            assert not service.settle_if_due()
            service.accept(name, number, save_draft(service, gradient(9 * number + i)), b"")

    three_answer(1)
    assert not service.settle_if_due()  # west may still come
    service._until = 0.0
    assert service.settle_if_due()
    service._seen["west"] -= 3601  # not heard of since
    three_answer(2)
    assert service.settle_if_due()
    service._until = 0.0
    assert not service.settle_if_due()  # nobody has answered
    service.spool.close()
    assert ledger.roster("run") == ["east", "north", "south"]


def test_only_enrolled_keys_may_ask_and_reports_are_signed(tmp_path: Path, ledger: Ledger) -> None:
    names = ("north", "south", "east")
    ledger.enrol({name: write_key(tmp_path / name) for name in names})
    write_key(tmp_path / "stranger")
    with serving(make_service(tmp_path, ledger, tokens={}, named=names, run={"rounds": 1})) as served:
        clients = {name: ServiceClient(served.address, run="run", key=tmp_path / name) for name in names}
        with pytest.raises(ServiceError, match="no agent of run 'run' is enrolled with this key"):
            next(ServiceClient(served.address, run="run", key=tmp_path / "stranger").tasks())
        with pytest.raises(ServiceError, match="the signature is not for GET /v1/ask"):
            next(ServiceClient(served.address, run="another", key=tmp_path / "north").tasks())
        task = next(clients["north"].tasks())
        with pytest.raises(ServiceError, match=r"its signature is not that of the enrolled key.*\(422\)"):
            clients["north"].report(task._replace(recorded=9), gradient(0))
        proof = clients["north"]._proof("PUT", "/v1/rounds/1/report")
        code, told = answer(served, "/v1/rounds/1/report", "PUT", save(gradient(0)), authorization=proof)
        assert (code, told["detail"]) == (422, "it is not signed")
        together(*(lambda c=c, i=i: work(c, lambda _: gradient(i)) for i, c in enumerate(clients.values())))
    assert ledger.verify().holds  # with the signatures
    assert {slip.status for slip in ledger.payslips("run")} == {"paid"}


@pytest.mark.parametrize(
    ("sent", "complaint"),
    [
        (b"", "no safetensors file"),
        (b"\xff" * 400, "no safetensors file"),
        (save({"a": MODEL["a"]}), "it lacks array 'b'"),
        (save({**MODEL, "c": MODEL["b"]}), "it has array 'c' that nobody asked for"),
        (save({"a": MODEL["a"].T.copy(), "b": MODEL["b"]}), r"'a' is float64[4, 2] where float64[2, 4]"),
        (save({"a": MODEL["a"].astype(np.float32), "b": MODEL["b"]}), r"'a' is float32[2, 4] where float64[2, 4]"),
    ],
)
def test_what_is_no_report_is_refused_and_may_be_sent_again(sent: bytes, complaint: str, served: Served) -> None:
    code, told = answer(served, "/v1/rounds/1/report", "PUT", sent)
    assert code == 422
    assert complaint in told["detail"]
    assert answer(served, "/v1/rounds/1/report", "PUT", save(gradient(0)))[0] == 200


def test_a_model_in_place_of_a_gradient_is_refused_in_the_first_round(tmp_path: Path) -> None:
    model = {"w": np.linspace(-1, 1, 60).reshape(20, 3)}
    trained = {"w": model["w"] + 0.01}
    for sends, code in (("gradients", 422), ("models", 200)):
        folder = tmp_path / sends
        folder.mkdir()
        with (
            Ledger(folder / "guerdon.db") as own,
            serving(make_service(folder, own, model=model, sends=sends)) as served,
        ):
            found, told = answer(served, "/v1/rounds/1/report", "PUT", save(trained))
            assert found == code
            if code == 422:
                assert "the report must be a gradient, got a model: it lies ten times nearer" in told["detail"]
                assert answer(served, "/v1/rounds/1/report", "PUT", save(gradient(0, model)))[0] == 200


def test_too_much_is_not_taken(served: Served) -> None:
    largest = served.service.largest
    code, told = answer(served, "/v1/rounds/1/report", "PUT", bytes(largest + 1))
    assert (code, told["detail"]) == (413, f"a report has at most {largest} bytes here: the model's arrays")
    pieces = (bytes(2**16) for _ in range(100))  # of a length that is not told
    asked = urllib.request.Request(
        f"{served.address}/v1/rounds/1/report", pieces, {"authorization": f"Bearer {TOKENS['north']}"}, method="PUT"
    )
    with pytest.raises((urllib.error.HTTPError, OSError)):
        urllib.request.urlopen(asked, timeout=30)
    assert not list((served.service.spool.folder / "incoming").iterdir())


def test_nobody_else_gets_in(served: Served) -> None:
    assert answer(served, "/v1/health", authorization="")[0] == 200
    code, told = answer(served, "/v1/ask", authorization="")
    assert (code, told["title"]) == (401, "Token needed")
    for _ in range(5):
        assert answer(served, "/v1/ask", authorization="Bearer wrong")[0] == 401
    assert answer(served, "/v1/ask", authorization="Bearer wrong")[0] == 429  # guesses from this address have to wait
    assert answer(served, "/v1/ask")[0] == 200, "who has the right token does not wait for others at its address"


@pytest.mark.parametrize(
    ("target", "code", "told"),
    [
        ("/v1/rounds/2/model", 409, "round 2 is not open; round 1 is the newest"),
        ("/v1/rounds/1/pay", 404, "round 1 is not settled yet, or was settled without this agent"),
        ("/v1/statement", 404, "the agent has no account yet: nothing was paid"),
        ("/v1/model", 409, "the model can be had once the run has ended"),
    ],
)
def test_what_is_not_there_yet_is_named(target: str, code: int, told: str, served: Served) -> None:
    assert answer(served, target)[0] == code
    assert answer(served, target)[1]["detail"] == told


def test_a_client_shows_a_key_or_a_token(served: Served, tmp_path: Path) -> None:
    write_key(tmp_path / "key.pem")
    both: dict[str, Any] = {"key": tmp_path / "key.pem", "token": TOKENS["north"]}
    for given in (dict[str, Any](), both):
        with pytest.raises(ValueError, match="one of `key` and `token` must be given"):
            ServiceClient(served.address, run="run", **given)


def test_files_that_are_no_model_and_no_tokens_are_named(tmp_path: Path) -> None:
    file = tmp_path / "given"
    file.touch(0o600)
    for content, complaint in (("{", "a JSON file"), ('["a"]', "a JSON object"), ('{"a": 1}', "a JSON object")):
        file.write_text(content)
        with pytest.raises(ValueError, match=f"`--tokens` must be {complaint}"):
            read_tokens(file)
    with pytest.raises(ValueError, match=r"`MODEL` must be a safetensors file of arrays that NumPy has, got .*given"):
        read_model(file)


def test_other_hosts_are_not_answered(served: Served) -> None:
    assert answer(served, "/v1/ask", host="evil.example")[0] == 421


def test_a_run_that_has_ended_says_so(tmp_path: Path, ledger: Ledger) -> None:
    service = make_service(tmp_path, ledger, run={"rounds": 1}, terms={"budget": 1.0})
    assert service.ended
    service.spool.close()


def test_one_process_serves_from_a_folder(tmp_path: Path, ledger: Ledger) -> None:
    service = make_service(tmp_path, ledger)
    with pytest.raises(RefusedError, match="another process serves from"):
        make_service(tmp_path, ledger)
    service.spool.close()
    with Ledger(tmp_path / "other.db") as other, pytest.raises(RefusedError, match="belongs to another run or ledger"):
        make_service(tmp_path, other)


def test_without_agents_nothing_is_served(tmp_path: Path, ledger: Ledger) -> None:
    with pytest.raises(RefusedError, match="no payment without identity: enrol"):
        make_service(tmp_path, ledger, tokens={})


def test_a_service_that_nobody_can_work_for_does_not_start(tmp_path: Path) -> None:
    save_file(MODEL, tmp_path / "model.safetensors")
    (tmp_path / "none.json").write_text("{}")
    (tmp_path / "none.json").chmod(0o600)
    for more in ((), ("--tokens", "none.json")):
        done = guerdon("serve", "model.safetensors", "--run", "x", "--request", "8", *more, cwd=tmp_path)
        assert done.code == 2
        told = " ".join(done.stderr.split())
        assert "`guerdon serve` must have agents of this run, got no enrolled key and no token: run `guerdon" in told


@pytest.mark.parametrize("rule", [OutputAgreement(AffineCost(1, 1)), RULE, FlatPay(AffineCost(1, 1))])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_fewer_agents_than_can_be_compared_are_warned_of(
    rule: Rule, count: int, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    check_members(Members("run", ledger.keys, dict(list(TOKENS.items())[:count])), rule)
    warned = f"Only {count} of the agents that it takes, 3, can work (" in caplog.text
    assert warned == (count < 3 and (Need.OTHERS in rule.needs))


def test_tokens_must_be_different_and_hard_to_guess(tmp_path: Path, ledger: Ledger) -> None:
    with pytest.raises(ValueError, match="two agents have the same"):
        make_service(tmp_path, ledger, tokens={"a": "x" * 20, "b": "x" * 20})
    with pytest.raises(ValueError, match="at least 16"):
        make_service(tmp_path, ledger, tokens={"a": "short"})


def test_an_answer_that_breaks_off_is_asked_for_again() -> None:
    """A service that is killed may leave nothing, half a line or half an answer."""
    whole = b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n" + b'{"lines":[]}'

    def serve(opened: socket.socket) -> None:
        for left in (0, 4, len(whole) - 12, len(whole) - 5, len(whole)):
            talk = opened.accept()[0]
            with talk:
                talk.recv(4096)
                talk.sendall(whole[:left])

    with socket.create_server(("127.0.0.1", 0)) as opened:
        thread = threading.Thread(target=serve, args=(opened,), daemon=True)
        thread.start()
        client = ServiceClient(f"http://127.0.0.1:{opened.getsockname()[1]}", run="run", token="t", patience=30)  # noqa: S106
        assert client.statement() == {"lines": []}
        thread.join()


def test_steady_pay_without_a_dither_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cost = AffineCost(1, 1)
    for rule, dither, said in ((SteadyPay(cost), None, 1), (SteadyPay(cost), Dither(3.0), 0), (FlatPay(cost), None, 0)):
        caplog.clear()
        folder = tmp_path / f"{rule.name}-{dither}"
        folder.mkdir()
        with Ledger(folder / "guerdon.db") as own:
            make_service(folder, own, rule=rule, dither=dither).spool.close()
        assert caplog.text.count("Without a dither there is little to tell") == said


def test_numbers_of_each_round_are_told(tmp_path: Path, ledger: Ledger) -> None:
    told: list[dict[str, float]] = []
    service = make_service(tmp_path, ledger, run={"on_round": told.append})
    for i, name in enumerate(TOKENS):
        service.accept(name, 1, save_draft(service, gradient(0 if name == "west" else i)), b"")  # a copy of north's
    assert service.settle_if_due()
    service.spool.close()
    slips = {slip.agent: slip.reward / 1e6 for slip in ledger.payslips("run", 1)}
    assert {name: told[0][f"guerdon/reward/{name}"] for name in TOKENS} == pytest.approx(slips, abs=1e-6)
    assert told[0]["guerdon/paid"] == pytest.approx(sum(slips.values()), abs=1e-5)
    assert {name: told[0][f"guerdon/{name}"] for name in ("round", "request", "participants", "copies", "differs")} == {
        "round": 1, "request": 8, "participants": 2, "copies": 2, "differs": 0,
    }  # fmt: skip


def test_pay_does_not_wait_for_a_log_that_cannot_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ValueError, match="`--log` must be a file that can be written"):
        write_lines(tmp_path)
    folder = tmp_path / "logs"
    folder.mkdir()
    write, told = write_lines(folder / "rounds.jsonl"), {"guerdon/round": 1.0, "guerdon/paid": 34.0}
    write(told)
    write(told | {"guerdon/round": 2.0})
    assert [json.loads(line)["guerdon/round"] for line in (folder / "rounds.jsonl").read_text().splitlines()] == [
        1.0,
        2.0,
    ]
    (folder / "rounds.jsonl").unlink()
    folder.rmdir()
    write(told)
    assert "The numbers of round 1 are not in" in caplog.text
