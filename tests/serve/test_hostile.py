"""The service on a hostile network: whoever has no part in the run costs its members nothing."""

import contextlib
import http.client
import json
import socket
import ssl
import threading
import time
import tomllib
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from safetensors.numpy import save_file

from guerdon.cli import options
from guerdon.client import ServiceClient, ServiceError
from guerdon.ledger import Ledger
from guerdon.serve.access import Allowance, Members
from guerdon.serve.running import NamedIn, check_members, read_tokens
from guerdon.web import BACKLOG, SPARE, Connections, Exposure, check_private, exposure, most_connections, read_proxies
from tests.serve.conftest import MODEL, RULE, TOKENS, Served, gradient, make_service, serving, together, work, write_key
from tests.support.command_line import run as guerdon

WRONG = "Bearer a-token-that-nobody-has"
SIGNERS = ("north", "south", "east")


def ask(served: Served, target: str, proof: str = WRONG, **headers: str) -> tuple[int, Any]:
    """Return the status and the JSON of an answer."""
    parts = urlsplit(served.address)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=30)
    with contextlib.closing(connection):
        told = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("GET", target, headers={"authorization": proof} | told)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read() or b"null")


def connect(served: Served) -> socket.socket:
    parts = urlsplit(served.address)
    return socket.create_connection((parts.hostname, parts.port), timeout=20)


def ends(opened: socket.socket) -> bool:
    """Tell whether the other side closes a connection; waits for it for a while."""
    try:
        while opened.recv(4096):
            pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


def train(served: Served, tokens: dict[str, str] = TOKENS) -> None:
    """Work as all members do, until the run ends."""
    clients = [served.client(token) for token in tokens.values()]
    together(*(lambda c=c, i=i: work(c, lambda _: gradient(i)) for i, c in enumerate(clients)))


def test_a_right_proof_is_never_refused_for_wrong_ones_at_its_address(tmp_path: Path, ledger: Ledger) -> None:
    ledger.enrol({name: write_key(tmp_path / name) for name in SIGNERS})
    service = make_service(tmp_path, ledger, tokens={"west": TOKENS["west"]}, named=SIGNERS)
    with serving(service) as served:
        signer = ServiceClient(served.address, run="run", key=tmp_path / "north", patience=0)
        statuses = list[int]()
        for _ in range(20):
            statuses.append(ask(served, "/v1/ask")[0])
            assert ask(served, "/v1/ask", f"Bearer {TOKENS['west']}")[0] == 200
            assert json.loads(signer._ask("GET", "/v1/ask"))["agent"] == "north"
        assert statuses == [401] * 5 + [429] * 15, "what is wrong is limited by address"


def test_half_open_connections_cost_only_each_other(tmp_path: Path, ledger: Ledger) -> None:
    """Ten times as many as there is place for, kept up while members work: no member loses a round."""
    connections, stopping, held = Connections(most=20, patience=30.0), threading.Event(), contextlib.ExitStack()

    def attack(served: Served) -> None:
        for _ in range(200):
            half = held.enter_context(connect(served))
            with contextlib.suppress(OSError):
                half.sendall(b"GET /v1/ask HTTP/1.1\r\nHost: 127.0.0.1\r\n")
            if stopping.is_set():
                return

    with held, serving(make_service(tmp_path, ledger), connections=connections) as served:
        attack(served)
        assert len(connections._open) <= 20
        attacker = threading.Thread(target=attack, args=(served,))
        attacker.start()
        train(served)
        stopping.set()
        attacker.join()
    assert [run.rounds for run in ledger.runs()] == [3]
    assert {slip.status for number in (1, 2, 3) for slip in ledger.payslips("run", number)} == {"paid"}


@pytest.mark.parametrize(
    "begun", [b"", b"GET /v1/ask HTTP/1.1\r\nHost: ", b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\nGET /v1"]
)
def test_a_header_that_does_not_end_ends_its_connection(begun: bytes, tmp_path: Path, ledger: Ledger) -> None:
    with serving(make_service(tmp_path, ledger), connections=Connections(patience=0.4)) as served:
        with connect(served) as half:
            half.sendall(begun)
            assert ends(half)
        with connect(served) as drip, contextlib.suppress(OSError):
            drip.sendall(b"GET /v1/ask HTTP/1.1\r\nX: ")
            for _ in range(200):  # a byte at a time is no progress
                drip.sendall(b"x")
                time.sleep(0.02)
            raise AssertionError("4 s of single bytes were taken")


def test_a_handshake_that_does_not_begin_ends_too(tmp_path: Path, ledger: Ledger, certificate: Exposure) -> None:
    connections = Connections(patience=0.4)
    with serving(make_service(tmp_path, ledger), connections=connections, exposed=certificate) as served:
        with connect(served) as half:
            assert ends(half)
        assert not connections._open


def test_without_a_proof_no_body_is_read(served: Served) -> None:
    for target in ("decline", "report"):
        with connect(served) as opened:
            opened.sendall(
                f"PUT /v1/rounds/1/{target} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                "Content-Length: 1000000000\r\n\r\n{".encode()
            )
            assert opened.recv(65536).startswith(b"HTTP/1.1 401")
            assert ends(opened)


def test_a_body_is_short_and_does_not_stall(tmp_path: Path, ledger: Ledger) -> None:
    head = (
        "PUT /v1/rounds/1/{} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {TOKENS['north']}\r\nContent-Length: {{}}\r\n\r\n"
    )
    with serving(make_service(tmp_path, ledger), stalled=0.3) as served:
        for target, size, sent, code in (
            ("decline", 10**9, b"x" * 5000, b"413"), ("decline", 30, b"{", b"408"), ("report", 30, b"{", b"408"),
        ):  # fmt: skip
            with connect(served) as opened:
                opened.sendall(head.format(target, size).encode() + sent)
                assert opened.recv(65536).startswith(b"HTTP/1.1 " + code), target
        assert not list((served.service.spool.folder / "incoming").iterdir())


def test_who_asks_too_much_hinders_nobody_else(tmp_path: Path, ledger: Ledger) -> None:
    north, south = (f"Bearer {TOKENS[name]}" for name in ("north", "south"))
    with serving(make_service(tmp_path, ledger), allowance=Allowance(together=2, rate=0.001, burst=5)) as served:
        with connect(served) as first, connect(served) as second:
            for opened in (first, second):
                opened.sendall(f"GET /v1/ask?after=1&wait=20 HTTP/1.1\r\nHost: localhost\r\nAuthorization: {north}\r\n\r\n".encode())  # noqa: E501  # fmt: skip
            while (told := ask(served, "/v1/ask", north))[0] == 200:  # until both have come in
                time.sleep(0.01)
            assert (told[0], "are being answered already" in told[1]["detail"]) == (429, True)
            assert ask(served, "/v1/ask", south)[0] == 200
        end = time.monotonic() + 10.0  # of the 20 s that the two would have waited
        while "are being answered already" in str(ask(served, "/v1/ask", north)[1]):
            assert time.monotonic() < end, "who has gone keeps its turns"
            time.sleep(0.05)
        told = list[tuple[int, Any]]()
        for _ in range(6):
            told.append(ask(served, "/v1/ask", south))
        assert [code for code, _ in told] == [200] * 4 + [429] * 2
        assert "asks more than 0.001 times a second" in told[-1][1]["detail"]


def test_a_key_of_another_run_opens_nothing_and_delays_nothing(tmp_path: Path, ledger: Ledger) -> None:
    """It is enrolled in the same ledger; the deadline is an hour away, and its questions do not hold up the round."""
    ledger.enrol({name: write_key(tmp_path / name) for name in (*SIGNERS, "other")})
    service = make_service(tmp_path, ledger, tokens={}, named=SIGNERS, deadline=3600.0, run={"rounds": 2})
    with serving(service) as served:
        other = ServiceClient(served.address, run="run", key=tmp_path / "other", patience=20)
        for target in ("/v1/ask", "/v1/rounds/1/model", "/v1/model", "/v1/statement"):
            with pytest.raises(ServiceError, match="no agent of run 'run' is enrolled with this key"):
                other._ask("GET", target)
        clients = {name: ServiceClient(served.address, run="run", key=tmp_path / name) for name in SIGNERS}
        together(*(lambda c=c, i=i: work(c, lambda _: gradient(i)) for i, c in enumerate(clients.values())))
    assert ledger.roster("run") == sorted(SIGNERS)
    assert [run.rounds for run in ledger.runs()] == [2]


def test_a_round_waits_only_for_those_it_asked(tmp_path: Path, ledger: Ledger) -> None:
    """A member that comes while a round is open may answer, and holds nobody up."""
    tokens = {name: TOKENS[name] for name in SIGNERS}
    with serving(make_service(tmp_path, ledger, tokens=tokens, deadline=3600.0, run={"rounds": 1})) as served:
        served.service.members._tokens["west"] = TOKENS["west"]
        assert ask(served, "/v1/ask", f"Bearer {TOKENS['west']}")[0] == 200
        train(served, tokens)
    assert ledger.roster("run") == sorted(SIGNERS)


def test_signatures_are_for_one_ledger(tmp_path: Path, ledger: Ledger) -> None:
    """Two services with one run name and one key: neither takes what was signed for the other."""
    keys = {name: write_key(tmp_path / name) for name in SIGNERS}
    with Ledger(tmp_path / "other.db") as other:
        for one in (ledger, other):
            one.enrol(keys)
        with serving(make_service(tmp_path, ledger, tokens={}, named=SIGNERS)) as served:
            told = ServiceClient(served.address, run="run", key=tmp_path / "north", patience=5)
            fooled = ServiceClient(served.address, run="run", key=tmp_path / "north", ledger=other.name, patience=5)
            task = next(told.tasks())
            with pytest.raises(ServiceError, match=r"the signature is not for GET /v1/ask.* in ledger"):
                fooled._ask("GET", "/v1/ask")
            told._sign = fooled._sign  # a report that was signed for the other service, sent by who may ask here
            with pytest.raises(ServiceError, match=r"its signature is not that of the enrolled key.*\(422\)"):
                told.report(task, gradient(0))


def test_forwarded_addresses_are_believed_of_named_proxies_only(tmp_path: Path, ledger: Ledger) -> None:
    def wrong(served: Served, host: str = "127.0.0.1") -> list[int]:
        return [ask(served, "/v1/ask", X_Forwarded_For=f"203.0.113.{i}", Host=host)[0] for i in range(6)]

    with serving(make_service(tmp_path, ledger)) as served:
        assert wrong(served) == [401] * 5 + [429], "a made-up address is not looked at"
    proxied = Exposure(proxies=read_proxies("127.0.0.1"))
    with serving(make_service(tmp_path, ledger), exposed=proxied) as served:
        assert wrong(served, "guerdon.example.org") == [401] * 6, "the proxy tells six addresses"
        assert ask(served, "/v1/ask", X_Forwarded_For="198.51.100.1, 203.0.113.9")[0] == 401
    with serving(make_service(tmp_path, ledger), exposed=Exposure(proxies=read_proxies("10.9.8.7"))) as served:
        parts = urlsplit(served.address)
        with contextlib.closing(http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=30)) as connection:
            connection.request("GET", "/v1/health")
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (403, b"only the proxy may ask")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Exposure:
    """A certificate of this machine, and its key."""
    folder, key = tmp_path_factory.mktemp("tls"), ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, SHA256())
    )  # fmt: skip
    (folder / "cert.pem").write_bytes(made.public_bytes(Encoding.PEM))
    (folder / "key.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    (folder / "key.pem").chmod(0o600)
    return Exposure(tls=(folder / "cert.pem", folder / "key.pem"))


def test_a_run_over_tls(tmp_path: Path, ledger: Ledger, certificate: Exposure, monkeypatch: pytest.MonkeyPatch) -> None:
    assert certificate.tls is not None
    certificate.check()
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.tls[0]))
    with serving(make_service(tmp_path, ledger), exposed=certificate) as served:
        assert served.address.startswith("https://")
        train(served)
        assert ssl.get_server_certificate(("127.0.0.1", urlsplit(served.address).port or 0))
    assert [run.rounds for run in ledger.runs()] == [3]


def test_off_this_machine_nothing_is_served_in_the_clear(tmp_path: Path) -> None:
    save_file(MODEL, tmp_path / "model.safetensors")
    anywhere = ("--host", "0.0.0.0")  # noqa: S104
    for command in (("serve", "model.safetensors", "--run", "x", "--request", "8"), ("dashboard", "--no-browser")):
        done = guerdon(*command, *anywhere, cwd=tmp_path)
        assert done.code == 2, command
        assert "`--host` must be an address of this machine only where there is no TLS, got '0.0.0.0'" in (
            " ".join(done.stderr.split())
        )
    assert not (tmp_path / "guerdon.db").exists()


def test_what_opens_a_server_to_others_is_checked(tmp_path: Path, certificate: Exposure) -> None:
    assert certificate.tls is not None
    cert, key = certificate.tls
    assert exposure("0.0.0.0", cert, key, None).tls == (cert, key)  # noqa: S104
    assert not exposure("127.0.0.1", None, None, "10.0.0.5").loopback, "others come by the proxy"
    assert exposure("::1", None, None, None).loopback
    with pytest.raises(ValueError, match="must be given together"):
        exposure("127.0.0.1", cert, None, None)
    with pytest.raises(ValueError, match=r"`--tls-cert` and `--tls-key` must be a certificate \(PEM\) and its key"):
        exposure("127.0.0.1", key, key, None)
    (tmp_path / "open.pem").write_bytes(key.read_bytes())
    (tmp_path / "open.pem").chmod(0o644)
    with pytest.raises(ValueError, match="`--tls-key` must be a file that other users cannot open"):
        exposure("127.0.0.1", cert, tmp_path / "open.pem", None)
    for wrong in ("", "proxy.example.org", "10.0.0.5/8", "0.0.0.0/0", "10.0.0.5,::/0"):
        with pytest.raises(ValueError, match="`--behind-proxy` must"):
            exposure("127.0.0.1", None, None, wrong)


def test_a_file_of_tokens_that_others_can_open_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    file.write_text(json.dumps(TOKENS))
    for mode in (0o644, 0o604, 0o602):
        file.chmod(mode)
        with pytest.raises(ValueError, match=f"`--tokens` must be a file that other users cannot open, .*{mode:04o}"):
            read_tokens(file)
    for mode in (0o600, 0o640):  # the group of the service may read it
        file.chmod(mode)
        assert read_tokens(file) == TOKENS
    with pytest.raises(ValueError, match=r"`--tokens` must be a file that can be read, got .*none: no such"):
        check_private(tmp_path / "none", "--tokens")


def test_members_are_named_in_a_file_that_may_change(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "heart.members"
    with pytest.raises(ValueError, match="`--members` must be a file with the name of an agent on each line"):
        NamedIn(file)
    file.write_text("# the consortium\nnorth\n\nsouth  # since May\n")
    named = NamedIn(file)
    assert named() == ["north", "south"]
    file.write_text("north\neast\n")
    assert named() == ["north", "east"]
    file.write_text("nor\x00th\n")
    assert named() == ["north", "east"], "a slip of the editor ends no run"
    assert "Members stay as they were" in caplog.text


def test_a_name_without_a_key_is_warned_of(ledger: Ledger, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ledger.enrol({"north": write_key(tmp_path / "north")})
    check_members(Members("run", ledger.keys, TOKENS, named=lambda: ["north", "south", "nroth"]), RULE)
    assert caplog.messages == ["`--members` names nroth, without a key in the ledger or a token (yet)"]


def test_a_key_is_taken_once_it_is_named(tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("guerdon.serve.access.STALE", 0.0)
    ledger.enrol({name: write_key(tmp_path / name) for name in SIGNERS})
    file = tmp_path / "run.members"
    file.write_text("north\nsouth\n")
    service = make_service(tmp_path, ledger, tokens={}, named=NamedIn(file)())
    service.members._named = NamedIn(file)
    with serving(service) as served:
        east = ServiceClient(served.address, run="run", key=tmp_path / "east", patience=5)
        with pytest.raises(ServiceError, match="no agent of run 'run' is enrolled"):
            east._ask("GET", "/v1/ask")
        file.write_text("north\nsouth\neast\n")
        assert json.loads(east._ask("GET", "/v1/ask"))["agent"] == "east"


def test_there_is_place_for_as_many_as_files_may_be_open(monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    for soft, most in ((1024, 416), (256, 32), (65536, 32672), (10, 32)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, soft=soft: (soft, soft))
        assert most_connections() == most
        assert 2 * most + SPARE + BACKLOG <= max(soft, 2 * 32 + SPARE + BACKLOG)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert most_connections() > 10_000


def test_who_makes_room_is_the_oldest_of_the_address_that_has_most() -> None:
    pairs = [socket.socketpair() for _ in range(6)]
    connections = Connections(most=5)
    peers = [("10.0.0.1", 1), ("10.0.0.2", 1), ("10.0.0.2", 2), ("10.0.0.2", 3), ("10.0.0.3", 1), ("10.0.0.4", 1)]
    for (taken, _), peer in zip(pairs[:5], peers, strict=False):
        assert connections.add(taken, peer)
    first = connections.find(("10.0.0.2", 1))
    assert first is not None
    first.proven = True
    assert connections.add(pairs[5][0], peers[5])
    assert set(connections._open) == {*peers} - {("10.0.0.2", 2)}
    for one in connections._open.values():
        one.proven = True
    assert not connections.add(pairs[0][0], ("10.0.0.5", 1)), "who has proved itself gives way to nobody"
    for pair in pairs:
        for one in pair:
            one.close()


def test_a_client_without_a_service_says_so(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("guerdon.client.SILENT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    lonely = ServiceClient(f"http://127.0.0.1:{port}", run="run", token=TOKENS["north"], patience=1.0)
    with pytest.raises(ServiceError, match=rf"{port} does not answer \(.*refused\); is `guerdon serve` running"):
        next(lonely.tasks())
    assert [record.getMessage().rpartition(" for ")[0] for record in caplog.records] == [
        f"http://127.0.0.1:{port} does not answer ([Errno 111] Connection refused); is `guerdon serve` running there? "
        "(0); asking again"
    ]


@pytest.mark.parametrize("url", ["http://example.org:8734", "http://0.0.0.0:1", "ftp://127.0.0.1", "127.0.0.1:8734"])
def test_a_client_tells_nobody_on_the_way(url: str) -> None:
    with pytest.raises(ValueError, match="`url` must begin with https://, or with http:// on this machine only, got"):
        ServiceClient(url, run="run", token=TOKENS["north"])


def test_where_it_runs_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders are locked and put on the disk as POSIX has it: the package names Linux and macOS, the command too."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert {"Operating System :: POSIX :: Linux", "Operating System :: MacOS"} == {
        line for line in project["classifiers"] if line.startswith("Operating System")
    }
    monkeypatch.setattr(options, "os", SimpleNamespace(name="nt"))
    with pytest.raises(OSError, match=r"`guerdon serve` must run on Linux or macOS, got .*: use one of these, or WSL"):
        options.need_posix("guerdon serve")


@pytest.mark.slow
def test_two_hundred_members_lose_no_round_to_ten_hostile_clients(tmp_path: Path, ledger: Ledger) -> None:
    """Wrong tokens, half-open connections, another run's key, garbage, and members that take all that they may."""
    honest = {f"member-{i:03}": f"token-of-member-{i:03}" for i in range(200)}
    slow = {f"slow-{i}": f"token-of-a-slow-one-{i}" for i in range(2)}
    ledger.enrol({"other": write_key(tmp_path / "other")})
    terms, stopping = {"quorum": len(honest)}, threading.Event()

    def keep(attack: Any) -> threading.Thread:
        def forever() -> None:
            while not stopping.is_set():
                with contextlib.suppress(OSError, http.client.HTTPException, ServiceError, ValueError):
                    attack()
                stopping.wait(0.05)

        thread = threading.Thread(target=forever, daemon=True)
        thread.start()
        return thread

    service = make_service(tmp_path, ledger, tokens=honest | slow, deadline=3600.0, terms=terms)
    with contextlib.ExitStack() as held, serving(service, connections=Connections(most=416, patience=2.0)) as served:
        other = ServiceClient(served.address, run="run", key=tmp_path / "other", patience=0)

        def half_open() -> None:
            half = held.enter_context(connect(served))
            half.sendall(b"GET /v1/ask HTTP/1.1\r\nHost: 127.0.0.1\r\n")

        def garbage() -> None:
            with connect(served) as opened:
                opened.sendall(b"\xff" * 999)

        def stalled(token: str) -> None:
            with connect(served) as opened:
                opened.sendall(f"PUT /v1/rounds/1/report HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Length: 99\r\n\r\nx".encode())  # noqa: E501  # fmt: skip
                stopping.wait(1.0)

        attacks = [
            *[lambda: ask(served, "/v1/ask", X_Forwarded_For=str(time.monotonic()))] * 2, *[half_open] * 2,
            *[lambda: other._ask("GET", "/v1/ask?wait=20")] * 2, *[garbage] * 2,
            *[lambda token=token: stalled(token) for token in slow.values()],
        ]  # fmt: skip
        hostile = [keep(attack) for attack in attacks]
        assert len(hostile) == 10
        clients = [ServiceClient(served.address, run="run", token=token, patience=300) for token in honest.values()]
        together(*(lambda c=c, i=i: work(c, lambda _: gradient(i)) for i, c in enumerate(clients)))
        stopping.set()
        for thread in hostile:
            thread.join()
    for number in (1, 2, 3):
        found = {slip.agent: slip.status for slip in ledger.payslips("run", number) if slip.agent in honest}
        assert found == dict.fromkeys(honest, "paid")
