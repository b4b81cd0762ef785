"""Three PyTorch processes that know nothing of Flower, paid over HTTP: `python -m examples.served_torch`.

Each works as anybody would: it asks what to do, computes a gradient, sends it signed, and reads its statement. The last
one uses a quarter of the samples it is asked for. Agreement needs three: two could only be compared with each other.
Three are too few for a rule that trusts nobody, so these are trusted to send gradients (docs/how-to/choose-rule.md).
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from safetensors.torch import save_file

from guerdon.client import ServiceClient, ServiceTask
from guerdon.ledger import Ledger

ROUNDS, PORT = 20, 8734
CENTRES = torch.randn(10, 20, generator=torch.Generator().manual_seed(1))


def work(task: ServiceTask, samples: int, generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Return the gradient of fresh samples at the model that was sent, by the model's names."""
    labels = torch.randint(10, (samples,), generator=generator)
    features = CENTRES[labels] + torch.randn(samples, 20, generator=generator)
    weight = torch.tensor(task.model["weight"], requires_grad=True)
    torch.nn.functional.cross_entropy(features @ weight.T, labels).backward()
    return {"weight": weight.grad}  # pyright: ignore[reportReturnType]


def agent(key: str, seed: int, share: int) -> None:
    """Work until the run ends, then say what was paid."""
    client, generator = ServiceClient(f"http://127.0.0.1:{PORT}", run="demo", key=key), torch.Generator()
    generator.manual_seed(seed)
    for task in client.tasks():
        client.report(task, work(task, task.request // share, generator))
    told = client.statement(count=ROUNDS)
    print(f"{told['agent']} has {told['lines'][-1]['balance']} {told['unit']}; last: {told['lines'][-1]['why']}")


def main(folder: Path) -> None:
    """Enrol three keys, serve a run, and start three agents as processes of their own."""
    names = ("north", "south", "east")
    with Ledger(folder / "guerdon.db") as ledger:
        for name in names:
            key = Ed25519PrivateKey.generate()
            (folder / name).write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
            ledger.enrol({name: key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)})
    save_file({"weight": torch.zeros(10, 20)}, folder / "model.safetensors")
    command = f"serve model.safetensors --run demo --request 16 --step 0.02 --rounds {ROUNDS} --rule agreement".split()
    (folder / "demo.members").write_text("\n".join(names))
    command += ["--members", "demo.members", "--log", "rounds.jsonl"]
    service = subprocess.Popen([str(Path(sys.executable).with_name("guerdon")), *command], cwd=folder)
    try:
        own = [sys.executable, "-m", "examples.served_torch"]
        agents = [
            subprocess.Popen([*own, str(folder / name), str(i), "4" if name == "east" else "1"], stdout=subprocess.PIPE)
            for i, name in enumerate(names)
        ]
        for process in agents:  # one after the other: two that print at once would mix their lines
            print(process.communicate()[0].decode(), end="")
        failed = sum(process.returncode != 0 for process in agents)
        if failed:
            sys.exit(f"{failed} agents failed")
        last = json.loads((folder / "rounds.jsonl").read_text().splitlines()[-1])
        print(f"Round {last['guerdon/round']:.0f} paid {last['guerdon/paid']:.2f} for work that cost 39")
    finally:
        service.terminate()
        service.wait()


if __name__ == "__main__":
    if len(sys.argv) == 4:
        agent(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    else:
        with tempfile.TemporaryDirectory() as scratch:
            main(Path(scratch))
