"""The file of a member's secret: made once, and read only where nobody else can read it."""

import os
import re
from pathlib import Path

from guerdon.looks.commitment import SECRET, new_secret

HEAD = "guerdon secret 1"
_FORM = re.compile(rf"{HEAD}\n[0-9a-f]{{{2 * SECRET}}}\n?")


def make_secret(path: Path | str) -> bytes:
    """Write a new secret to a file that does not exist yet, readable by its owner only, and return it (32 bytes).

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     make_secret(f"{folder}/bern.secret") == read_secret(f"{folder}/bern.secret")
    True
    """
    secret = new_secret()
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(f"{HEAD}\n{secret.hex()}\n")
        file.flush()
        os.fsync(file.fileno())  # a commitment must never outlive its secret
    return secret


def read_secret(path: Path | str) -> bytes:
    """Return the secret in a file, or raise where the file holds none, or somebody else may read it.

    `path`: of a file that `make_secret` wrote. Only POSIX systems tell who may read a file: elsewhere that is not
    checked.
    """
    path = Path(path)
    mode = path.stat().st_mode & 0o777
    if os.name == "posix" and mode & 0o077:
        raise ValueError(
            f"`{path}` must be readable by its owner only, got mode {mode:04o}: run `chmod 600 {path}`, and if others "
            "could have read it, commit anew with a new secret"
        )
    text = path.read_text(encoding="ascii", errors="replace")
    if not _FORM.fullmatch(text):
        raise ValueError(f"`{path}` must be a member's secret, as `guerdon commit` wrote it: restore it from a backup")
    return bytes.fromhex(text.split("\n")[1])
