"""What is learned: ten classes of points in 64 dimensions, and a small network that tells them apart."""

import secrets

import torch
from torch import Tensor, nn

CLASSES, DIMENSION = 10, 64


def make_model() -> nn.Module:
    """Return the network, the same each time."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(DIMENSION, 32), nn.ReLU(), nn.Linear(32, CLASSES))


def draw(samples: int, seed: int | None = None) -> tuple[Tensor, Tensor]:
    """Return fresh samples: in a real app, the node's own data."""
    centres = torch.randn(CLASSES, DIMENSION, generator=torch.Generator().manual_seed(1))
    rng = torch.Generator().manual_seed(secrets.randbits(62) if seed is None else seed)
    labels = torch.randint(CLASSES, (samples,), generator=rng)
    return centres[labels] + 1.5 * torch.randn(samples, DIMENSION, generator=rng), labels


def train(model: nn.Module, samples: int, learning_rate: float) -> float:
    """Take one step on this many fresh samples, and return the loss before it."""
    points, labels = draw(samples)
    optimiser = torch.optim.SGD(model.parameters(), lr=learning_rate)
    loss = nn.functional.cross_entropy(model(points), labels)
    loss.backward()
    optimiser.step()
    return float(loss)


def accuracy(model: nn.Module) -> float:
    """Return the share of 2,000 test samples that the model gets right."""
    points, labels = draw(2000, seed=2)
    with torch.no_grad():
        return float((model(points).argmax(1) == labels).float().mean())
