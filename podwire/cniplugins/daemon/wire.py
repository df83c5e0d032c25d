"""What a plugin's program and the daemon say to each other on a stream; `shim/podwire-cni.c` is the other end. No I/O.

A call: lengths, the plugin's name, the environment as the kernel has it, standard input. With its first byte come four
descriptors: the caller's network and mount namespaces, its root and its working directory.

Then one byte: BEGUN, or DECLINED. Without the former nothing was or will be done, so the program does it by itself. A
call that is not whole is never begun, nor one whose caller does not hear that it is.

An answer: the exit code and lengths, standard output, standard error.
"""

from struct import Struct
from typing import NamedTuple

MAGIC = b"PWC1"
CALL = Struct("=4sIII")
ANSWER = Struct("=III")
BEGUN, DECLINED = b"B", b"D"
DESCRIPTORS = 4
LARGEST = (255, 4 << 20, 16 << 20)
"""Bytes of a name, of an environment, of a configuration."""


class NotACall(Exception):
    """Somebody else talks, or one of another version."""


class Request(NamedTuple):
    name: str
    environ: dict[str, str]
    stdin: bytes


def lengths(head: bytes) -> tuple[int, int, int]:
    """Of name, environment and standard input, which follow."""
    if len(head) != CALL.size:
        raise NotACall(f"{len(head)} bytes, and then nothing")
    magic, *told = CALL.unpack(head)
    if magic != MAGIC:
        raise NotACall(f"it begins with {head[:16]!r}")
    if any(each > largest for each, largest in zip(told, LARGEST, strict=True)):
        raise NotACall(f"lengths of {told}, and {list(LARGEST)} is the most")
    return told[0], told[1], told[2]


def request(sizes: tuple[int, int, int], body: bytes) -> Request:
    """Names and values that are no UTF-8 become what the interpreter makes of them for itself."""
    name, environment = body[: sizes[0]], body[sizes[0] : sizes[0] + sizes[1]]
    text = environment.decode("utf-8", "surrogateescape")
    pairs = (each.partition("=") for each in text.split("\0") if "=" in each)
    environ = {key: value for key, _, value in pairs}
    return Request(name.decode("utf-8", "surrogateescape"), environ, body[sizes[0] + sizes[1] :])


def answer(code: int, stdout: bytes, stderr: bytes) -> bytes:
    return ANSWER.pack(code, len(stdout), len(stderr)) + stdout + stderr
