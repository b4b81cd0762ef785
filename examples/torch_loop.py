"""A plain PyTorch loop that pays its workers, without any framework: `python -m examples.torch_loop`.

The network is yours, and so is the data. Of eight agents the seventh uses half of the samples, and the last sends
zeros.
"""

import numpy as np
import torch
from torch import Tensor, nn

from guerdon import AffineCost, FixedRequest, SteadyPay
from guerdon.statistical.dithers import Dither
from guerdon.statistical.servers import server_for

AGENTS, CLASSES, FEATURES, ROUNDS = 8, 5, 20, 100


def gradient(network: nn.Module, model: list[Tensor], features: Tensor, labels: Tensor) -> list[Tensor]:
    """Return the gradient of the mean loss over some samples, layer by layer, at the model that was broadcast."""
    names = [name for name, _ in network.named_parameters()]
    weights = {name: part.clone().requires_grad_() for name, part in zip(names, model, strict=True)}
    scores = torch.func.functional_call(network, weights, (features,))
    return list(torch.autograd.grad(nn.functional.cross_entropy(scores, labels), list(weights.values())))


def main() -> None:
    """Train, pay, and say what everybody earned."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, CLASSES))
    centres = torch.randn(CLASSES, FEATURES)
    cost = AffineCost(fixed=1, per_sample=1)
    server = server_for(SteadyPay(cost, period=ROUNDS), FixedRequest(16, step=0.1), dither=Dither(3.0))
    model = [part.detach().clone() for part in network.parameters()]  # the server's own
    state, paid = server.init(model, AGENTS), np.zeros(AGENTS)  # pay is NumPy's, as the ledger computes it
    for _ in range(ROUNDS):
        ask, state = server.ask(state, model)
        sent = list[list[Tensor]]()
        for agent in range(AGENTS):
            labels = torch.randint(CLASSES, (int(ask.request) // (2 if agent == 6 else 1),))
            found = gradient(network, ask.model, centres[labels] + torch.randn(len(labels), FEATURES), labels)
            sent.append([0 * part if agent == 7 else part for part in found])
        reports = [torch.stack(layer) for layer in zip(*sent, strict=True)]  # for each layer a row for each agent
        done, state = server.settle(state, ask, reports, torch.ones(AGENTS, dtype=torch.bool))
        model = [part - done.step * mean for part, mean in zip(model, done.mean, strict=True)]
        paid = paid + done.payments.released
    for agent, work in enumerate(["16 samples"] * 6 + ["8 samples", "zeros"]):
        print(f"agent {agent} ({work}) was paid {float(paid[agent]) / ROUNDS:.1f} a round; 16 samples cost 17")


if __name__ == "__main__":
    main()
