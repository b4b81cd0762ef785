"""A plain PyTorch loop that pays its workers, without any framework: `python -m examples.torch_loop`.

Honest work is paid its cost on average; a single round's pay is noisy.
"""

import torch

from guerdon import AffineCost, FixedRequest, InformationPay, Server, explain
from guerdon.server import Ask

AGENTS, CLASSES, FEATURES, ROUNDS = 8, 10, 20, 40
CENTRES = torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(1))


def work(agent: int, ask: Ask, generator: torch.Generator) -> torch.Tensor:
    """Return an agent's gradient at the model that was broadcast; the last agent uses a quarter of the samples."""
    size = int(ask.request) if agent < AGENTS - 1 else int(ask.request) // 4
    labels = torch.randint(CLASSES, (size,), generator=generator)
    features = CENTRES[labels] + torch.randn(size, FEATURES, generator=generator)
    weights = ask.model.reshape(CLASSES, FEATURES).clone().requires_grad_()
    torch.nn.functional.cross_entropy(features @ weights.T, labels).backward()
    return weights.grad.reshape(-1)  # pyright: ignore[reportOptionalMemberAccess]


def main() -> None:
    """Train, pay, and say what everybody earned."""
    generator = torch.Generator().manual_seed(0)
    server = Server(InformationPay(AffineCost(fixed=1, per_sample=1)), FixedRequest(16, step=0.02))
    model, earned = torch.zeros(CLASSES * FEATURES), torch.zeros(AGENTS)
    state, sent = server.init(model, AGENTS), torch.ones(AGENTS, dtype=torch.bool)
    for turn in range(ROUNDS):
        ask, state = server.ask(state, model)
        reports = torch.stack([work(agent, ask, generator) for agent in range(AGENTS)])
        done, state = server.settle(state, ask, reports, sent)
        model = model - done.step * done.mean
        earned += done.payments.reward
        if turn == ROUNDS - 1:
            print(f"The last agent got, at last, {explain(server.mechanism, done.payments, int(ask.request))[-1]}")
    for agent in range(AGENTS):
        print(f"agent {agent} was paid {float(earned[agent]) / ROUNDS:7.2f} a round; honest work costs 17")


if __name__ == "__main__":
    main()
