"""A client of NVIDIA FLARE that sends what is written for it: `client.py FOLDER`."""

# pyright: reportMissingImports=false, reportMissingTypeStubs=false

import sys
from pathlib import Path
from typing import Any

import numpy as np


def main(folder: Path) -> None:
    """Send a line in each round, under another's name."""
    from nvflare import client
    from nvflare.app_common.abstract.fl_model import FLModel, ParamsType

    flare: Any = client
    flare.init()
    site = flare.get_site_name()
    lines = np.load(folder / "lines.npz")[site]
    while flare.is_running():
        received = flare.receive()
        number, request = received.meta["guerdon-round"], received.meta["guerdon-request"]
        (folder / f"{site}-{number}").write_text(str(request))
        line = lines[number - 1]
        params = {"a": line[:8].reshape(2, 4), "b": line[8:]}
        flare.send(FLModel(params=params, params_type=ParamsType.FULL, meta={"client_name": "somebody else"}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
