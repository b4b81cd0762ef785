"""A socket that listens, and the address under which it is reached."""

import os
import socket


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens, or raise an OSError that says what to do."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        raise OSError(f"`--host` must be an address of this machine, got {host!r}") from error
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":  # elsewhere it would let two programs share a port
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(address)
        opened.listen(128)
    except OSError as error:
        opened.close()
        raise OSError(
            f"cannot listen on port {port} of {host} ({error.strerror}); choose another with --port, or 0 for any"
        ) from error
    return opened


def address_of(opened: socket.socket, host: str) -> str:
    """Return the address to type into a browser."""
    name = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(host, host)  # noqa: S104 - compared with
    return f"http://{f'[{name}]' if ':' in name else name}:{opened.getsockname()[1]}/"
