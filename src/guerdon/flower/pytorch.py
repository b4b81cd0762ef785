"""The work of a PyTorch app as one function, which nodes train by and an auditor computes again."""

# PyTorch is optional, and its types are unknown where it is not installed.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false

from collections.abc import Callable, Mapping
from typing import Any


def torch_work(network: Callable[[], Any], train: Callable[..., Any], batch_size: int, **settings: Any) -> Any:
    """Return the function work(model, rows, seed), which trains on some rows and returns the model's state.

        work = torch_work(Net, train, batch_size=8, epochs=1, lr=0.03, device="cpu")

    - `network`: makes the network. Its names are those of `model`, a state or arrays by name.
    - `train`: trains a network in place, as `train(network, loader, **settings)`.
    - `batch_size`: rows of a step. The loader has the rows in the order in which they are given: named rows are
      shuffled already. A batch has a tensor for each name of the rows, in the order of the names.
    - `settings`: what else decides the work. It stands in the code, whose hash is in the terms.

    The seed fixes PyTorch's random numbers while it trains. A model in double precision is trained in double precision,
    which an auditor needs for its tolerance. Work on a CPU repeats best.
    """

    def work(model: Mapping[str, Any], rows: Mapping[str, Any], seed: int) -> dict[str, Any]:
        import torch  # only where it is used: guerdon does not need it
        from torch.utils.data import DataLoader, TensorDataset

        state = {name: torch.as_tensor(part) for name, part in model.items()}
        data = TensorDataset(*(torch.as_tensor(rows[name]) for name in sorted(rows)))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            made = network()
            made = made.double() if any(part.dtype == torch.float64 for part in state.values()) else made
            made.load_state_dict(state)
            train(made, DataLoader(data, batch_size=batch_size), **settings)
        return dict(made.state_dict())

    return work
