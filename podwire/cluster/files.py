"""Files that must be whole or not there, and nobody else's to read."""

import os
from pathlib import Path


def write_private(path: Path, data: bytes, *, lasting: bool = True) -> None:
    """Replace a file at once, readable by its owner only; `lasting` is also there after a loss of power."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if lasting:
                os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
