"""What JAX compiled once is kept in the user's cache folder, so that no command compiles it again.

The folder may be deleted at any time. `GUERDON_CACHE=off` keeps nothing, and where JAX was given a folder of its own
(`JAX_COMPILATION_CACHE_DIR`) that is used.
"""

import hashlib
import os
import platform
from pathlib import Path

VARIABLE = "GUERDON_CACHE"
OFF = ("off", "0", "no", "false")


def keep_programs() -> Path | None:
    """Let JAX keep its programs, and return the folder; None where nothing is kept, or JAX was told where."""
    if os.environ.get(VARIABLE, "").lower() in OFF or "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return None
    folder = _cache_home() / "guerdon" / "programs" / _processor()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None  # a home that cannot be written to: compile as before
    # XLA says of each program on a processor that it might not fit, for features that it made up itself.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import jax

    for name, value in {
        "jax_compilation_cache_dir": str(folder),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": 0,
    }.items():
        jax.config.update(name, value)  # pyright: ignore[reportUnknownMemberType]
    return folder


def _cache_home() -> Path:
    given = os.environ.get("XDG_CACHE_HOME", "")
    return Path(given) if Path(given).is_absolute() else Path.home() / ".cache"


def _processor() -> str:
    """Return a name for this kind of processor: a home may be shared by machines that differ."""
    about = [platform.machine(), platform.processor()]
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        about += sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))})
    except OSError:
        pass  # not Linux
    return hashlib.sha256("\n".join(about).encode()).hexdigest()[:16]
