"""One line each way over a unix socket. Blocking: for programs that live too short for an event loop."""

import errno
import socket


class NotListening(OSError):
    """No server listens at the path."""


def check_listener(path: str, seconds: float) -> None:
    """Raises NotListening."""
    _connect(path, seconds).close()


def exchange_line(path: str, line: bytes, seconds: float, largest: int) -> bytes:
    """Sends a line; returns the answer, which is incomplete without its newline. Raises NotListening, OSError."""
    with _connect(path, seconds) as connection:
        connection.sendall(line)
        answer = bytearray()
        while not answer.endswith(b"\n") and len(answer) <= largest:
            chunk = connection.recv(1 << 16)
            if not chunk:
                break
            answer += chunk
        return bytes(answer)


def _connect(path: str, seconds: float) -> socket.socket:
    """`seconds` is also the longest pause of the peer."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(seconds)
        connection.connect(path)
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        connection.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise NotListening(getattr(error, "errno", None) or errno.EINVAL, reason, path) from error
    return connection
