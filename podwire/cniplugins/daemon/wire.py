"""Wire format between a plugin's executable (`shim/podwire-cni.c`) and the daemon. No I/O.

    client -> daemon   CALL header (magic, three lengths), plugin name, environment as in /proc/PID/environ, stdin;
                       with the first byte SCM_RIGHTS: network namespace, mount namespace, root, working directory
    daemon -> client   one byte: BEGUN or DECLINED
    daemon -> client   after BEGUN: ANSWER header (exit code, two lengths), stdout, stderr

Without BEGUN nothing was done and nothing will be, so the executable does the work itself. The daemon begins neither an
incomplete call nor one whose caller cannot be sent BEGUN.
"""

from struct import Struct
from typing import NamedTuple

MAGIC = b"PWC1"
CALL = Struct("=4sIII")
ANSWER = Struct("=III")
BEGUN, DECLINED = b"B", b"D"
DESCRIPTORS = 4
LARGEST = (255, 4 << 20, 16 << 20)
"""Largest name, environment and configuration, in bytes."""


class NotACall(Exception):
    """The peer does not speak this protocol, or another version of it."""


class Request(NamedTuple):
    name: str
    environ: dict[str, str]
    stdin: bytes


def lengths(head: bytes) -> tuple[int, int, int]:
    """Returns the lengths of name, environment and stdin."""
    if len(head) != CALL.size:
        raise NotACall(f"the connection ended after {len(head)} bytes")
    magic, *sizes = CALL.unpack(head)
    if magic != MAGIC:
        raise NotACall(f"it begins with {head[:16]!r}")
    if any(size > largest for size, largest in zip(sizes, LARGEST, strict=True)):
        raise NotACall(f"lengths of {sizes} exceed {list(LARGEST)}")
    return sizes[0], sizes[1], sizes[2]


def request(sizes: tuple[int, int, int], body: bytes) -> Request:
    """Decodes a call. Bytes that are not UTF-8 are decoded as Python decodes its own environment (surrogateescape)."""
    name, environment = body[: sizes[0]], body[sizes[0] : sizes[0] + sizes[1]]
    text = environment.decode("utf-8", "surrogateescape")
    pairs = (entry.partition("=") for entry in text.split("\0") if "=" in entry)
    environ = {key: value for key, _, value in pairs}
    return Request(name.decode("utf-8", "surrogateescape"), environ, body[sizes[0] + sizes[1] :])


def answer(code: int, stdout: bytes, stderr: bytes) -> bytes:
    return ANSWER.pack(code, len(stdout), len(stderr)) + stdout + stderr
