"""A temporary Flower deployment on this machine: a SuperLink and SuperNodes with TLS and authentication.

Everything that it needs (certificates, keys, databases, logs) is in one folder. At the end it stops every process that
it started. In production each part runs on its own machine, and the commands are the same.
"""

import ipaddress
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

HOST = "127.0.0.1"
CONNECTION = "local"  # the name under which `flwr` knows the SuperLink
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}


@dataclass
class Deployment:
    """A SuperLink and its SuperNodes. `start_node` may be called again for a node that was killed."""

    folder: Path
    secure: bool = True  # TLS, and only registered keys may connect; otherwise plain text, and anybody may connect
    port: int = field(default_factory=lambda: free_port())
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict[str, "subprocess.Popen[bytes]"])

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = (
            f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"  # Flower starts its own programs
        )
        self.environment = os.environ | QUIET | {"FLWR_HOME": str(self.folder / "flwr"), "PATH": path}
        if self.secure:
            make_certificates(self.folder)
        home = self.folder / "flwr"
        home.mkdir(exist_ok=True)
        trust = f'root-certificates = "{self.folder / "ca.crt"}"' if self.secure else "insecure = true"
        known = f'[superlink.{CONNECTION}]\naddress = "{HOST}:{self.port}"\n{trust}\n'
        (home / "config.toml").write_text(f'[superlink]\ndefault = "{CONNECTION}"\n\n{known}')

    def start_superlink(self) -> None:
        """Start the SuperLink and wait until it answers; started again, it remembers its nodes."""
        command = ["flower-superlink", "--host", HOST, "--port", str(self.port)]
        command += ["--database", str(self.folder / "flower.db"), "--disable-runtime-dependency-installation"]
        if self.secure:
            files = {"--ssl-ca-certfile": "ca.crt", "--ssl-certfile": "server.crt", "--ssl-keyfile": "server.key"}
            command += [part for flag, name in files.items() for part in (flag, str(self.folder / name))]
            command += ["--enable-supernode-auth"]
        else:
            command += ["--insecure"]
        self._start("superlink", command)
        self._wait("superlink", self.port)

    def register(self, name: str) -> None:
        """Make a key for a node and register it with the SuperLink."""
        make_key(self.folder / name)
        self.flwr("supernode", "register", f"{self.folder / name}.pub", CONNECTION, "--name", name)

    def start_node(self, name: str, config: Mapping[str, Any]) -> None:
        """Start a SuperNode with the key of that name, if there is one."""
        port = free_port()
        told = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
        command = ["flower-supernode", "--superlink", f"{HOST}:{self.port}", "--host", HOST, "--port", str(port)]
        command += ["--node-config", told]
        if self.secure:
            command += ["--root-certificates", str(self.folder / "ca.crt")]
            files = {"--ssl-ca-certfile": "ca.crt", "--ssl-certfile": "server.crt", "--ssl-keyfile": "server.key"}
            command += [part for flag, file in files.items() for part in (flag, str(self.folder / file))]
        else:
            command += ["--insecure"]
        if (self.folder / name).exists():
            command += ["--auth-supernode-private-key", str(self.folder / name)]
        self._start(name, command)
        self._wait(name, port)

    def flwr(self, *arguments: str, check: bool = True) -> str:
        """Run a command of Flower's own command line, and return what it printed."""
        command = [program("flwr"), *arguments]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        if check and done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def run_app(self, app: Path, config: Mapping[str, Any] | None = None) -> "Run":
        """Submit an app, and return its run."""
        arguments = ["run", str(app), CONNECTION, "--format", "json"]
        for key, value in (config or {}).items():
            arguments += ["--run-config", f"{key}={json.dumps(value)}"]
        return Run(self, str(json.loads(self.flwr(*arguments))["run-id"]))

    def log(self, name: str) -> str:
        """Return what a process has printed."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def kill(self, name: str) -> None:
        """Kill a process and everything that it started, without warning."""
        process = self.processes.pop(name)
        _kill([process.pid, *descendants(process.pid)])
        process.wait()

    def kill_serverapp(self) -> bool:
        """Kill the process that runs a ServerApp, without warning; return whether there was one."""
        running = [
            number for number in descendants(self.processes["superlink"].pid) if "flwr-serverapp" in _command(number)
        ]
        _kill(running)
        return bool(running)

    def stop(self) -> None:
        """Stop everything that was started: nodes first, so that they can say goodbye."""
        for name, process in reversed(self.processes.copy().items()):
            started = descendants(process.pid)
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=10)
            self.kill(name)
            _kill(started)

    def _start(self, name: str, command: Sequence[str]) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [program(command[0]), *command[1:]], env=self.environment, cwd=self.folder, stdout=log,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def _wait(self, name: str, port: int) -> None:
        """Wait until a process listens."""
        for _ in range(600):
            if self.processes[name].poll() is not None:
                raise RuntimeError(f"{name} stopped:\n{self.log(name)[-2000:]}")
            with socket.socket() as attempt:
                attempt.settimeout(1)
                if attempt.connect_ex((HOST, port)) == 0:
                    return
            time.sleep(0.1)
        raise RuntimeError(f"{name} does not listen on port {port}:\n{self.log(name)[-2000:]}")


@dataclass(frozen=True)
class Run:
    """A run of an app."""

    deployment: Deployment
    number: str

    def status(self) -> str:
        """Return the status of the run, such as running or finished:completed."""
        listed = json.loads(self.deployment.flwr("list", CONNECTION, "--run-id", self.number, "--format", "json"))
        return str(listed["runs"][0]["status"])

    def wait(self, seconds: float = 300) -> str:
        """Wait until the run has finished, and return its status."""
        followed = [program("flwr"), "log", self.number, CONNECTION, "--stream"]  # it ends when the run does
        with suppress(subprocess.TimeoutExpired):
            environment = self.deployment.environment
            subprocess.run(followed, env=environment, capture_output=True, check=False, timeout=seconds)
        status = self.status()
        if not status.startswith("finished"):
            raise RuntimeError(f"run {self.number} has not finished after {seconds:.0f} s:\n{self.log()[-4000:]}")
        return status

    def log(self) -> str:
        """Return what the run has logged."""
        return self.deployment.flwr("log", self.number, CONNECTION, "--show", check=False)


@contextmanager
def deployed(folder: Path, nodes: Mapping[str, Mapping[str, Any]]) -> Generator[Deployment]:
    """Run a SuperLink with TLS and authentication and one SuperNode for each entry (its name and configuration)."""
    deployment = Deployment(folder)
    try:
        deployment.start_superlink()
        for name, config in nodes.items():
            deployment.register(name)
            deployment.start_node(name, {**config, "guerdon-key": str(folder / name)})
        yield deployment
    finally:
        deployment.stop()


def make_key(path: Path) -> None:
    """Write a new key pair (ECDSA P-384, OpenSSH) as `ssh-keygen -t ecdsa -b 384` does: `path` and `path`.pub."""
    key = ec.generate_private_key(ec.SECP384R1())
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    path.chmod(0o600)
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    path.with_name(path.name + ".pub").write_bytes(public + b"\n")


def make_certificates(folder: Path) -> None:
    """Write a certificate authority (ca.crt) and a server certificate for this machine (server.crt, server.key)."""
    authority, server = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    issuer = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Guerdon demo CA")])
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    root = _certificate(issuer, issuer, authority, authority).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    )
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(HOST))]
    leaf = _certificate(subject, issuer, server, authority).add_extension(
        x509.SubjectAlternativeName(names), critical=False
    )
    for name, builder in (("ca.crt", root), ("server.crt", leaf)):
        (folder / name).write_bytes(builder.sign(authority, hashes.SHA384()).public_bytes(Encoding.PEM))
    private = server.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "server.key").write_bytes(private)
    (folder / "server.key").chmod(0o600)


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, signer: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=2))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def program(name: str) -> str:
    """Return the path of a program that is installed next to this Python."""
    return str(Path(sys.executable).with_name(name))


def descendants(number: int) -> list[int]:
    """Return the processes that a process started, those that they started, and so on (Linux)."""
    parents: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            fields = status.read_text().rpartition(")")[2].split()
            parents.setdefault(int(fields[1]), []).append(int(status.parent.name))
    found = parents.get(number, [])
    return found + [deeper for child in found for deeper in descendants(child)]


def _command(number: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{number}/cmdline").read_text()
    return ""


def _kill(numbers: Sequence[int]) -> None:
    for number in numbers:
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
