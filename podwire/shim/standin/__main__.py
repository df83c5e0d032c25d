"""The foreground: reads the command line, starts a shim, waits until the start is decided, and says so."""

import os
import sys

from podwire.shim.standin.attached import check_attached
from podwire.shim.standin.command import PATH, USAGE, USAGE_LINE, Given, die
from podwire.shim.standin.launcher import launch, supervise
from podwire.shim.standin.life import Shim


def detach(given: Given, told: int) -> None:
    """As daemon(3) does it."""
    if os.fork():
        os._exit(0)
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for each in range(3):
        os.dup2(null, each)
    os.close(null)
    Shim(given, told).live()


def run(given: Given) -> int:
    hearing, told = os.pipe()
    if not os.fork():
        try:
            os.close(hearing)
            detach(given, told)
        finally:
            os._exit(1)
    os.close(told)
    with open(hearing, encoding="utf-8", errors="surrogateescape") as pipe:
        text = pipe.read()
    if not text.startswith("+"):
        die(1, text[1:] or "the shim died before the start was decided")
    os.write(1, f"{text[1:]}\n".encode())
    return 0


def execute(given: Given) -> int:
    caller = given.values.get("--die-with")
    if caller is None:
        launch(given)
    return supervise(given, int(caller) if caller.isdecimal() else 0)


def main() -> int:
    os.closerange(3, 1 << 20)
    match sys.argv[1:]:
        case ["version"]:
            return os.write(1, b"podwire-shim 1 python\n") and 0
        case ["run", *words]:
            return run(Given("run", words))
        case ["exec", *words]:
            return execute(Given("exec", words))
        case ["attached", file] if file.startswith("/") and len(os.fsencode(file)) <= PATH:
            return check_attached(file)
        case _:
            return die(USAGE, USAGE_LINE)


if __name__ == "__main__":
    sys.exit(main())
