"""Files in the state directory, which is the working directory."""

import errno
import os


def write_file(name: str, text: str, *, durable: bool = False) -> None:
    fd = os.open(".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        data = f"{text}\n".encode(errors="surrogateescape")
        if os.write(fd, data) != len(data):
            raise OSError(errno.ENOSPC, name)
        if durable:
            os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(".new", name)
    if durable:
        here = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(here)
        finally:
            os.close(here)


def remove(*names: str) -> None:
    for name in names:
        if os.path.lexists(name):
            os.unlink(name)
