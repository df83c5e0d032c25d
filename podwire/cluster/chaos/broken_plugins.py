"""Plugins that do not do what they should: a CNI plugin of the default network, and an NRI plugin of our own.

A broken CNI plugin never pretends that DEL succeeded: resources that a plugin does not release and denies are its own.
"""

import asyncio
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from podwire.cniplugins.install import NOTE
from podwire.durable.files import replace_file
from podwire.nri.fake import FakePlugin, Leaves, Script
from podwire.nri.fake.actions import Action, Disconnect, Fail, Garble, Rule, Silent, Undecodable
from podwire.protocols.grpc_status import Unknown

REAL = ".chaos"
"""The directory, beside the plugins, of the real one while another program has its name."""
_SELF = f'"${{0%/*}}/{REAL}/${{0##*/}}"'
_ADD_ONLY = f'[ "$CNI_COMMAND" = ADD ] || exec {_SELF}; '
_BODIES = {
    "fails": "cat >&2; exit 3",
    "hangs": "sleep 3; exit 1",
    "prints garbage": _ADD_ONLY + """cat >&2; echo '{"cniVersion": "1.0.0"'""",
    "prints nothing": f"{_ADD_ONLY}cat >&2",
    "answers in version 9.9.9": _ADD_ONLY + """cat >&2; echo '{"cniVersion": "9.9.9", "ips": []}'""",
    "loses its answer": f"{_ADD_ONLY}{_SELF} >&2; exit 1",
}
CNI_FAILURES = {failure: f"#!/bin/sh\n{body}\n".encode() for failure, body in _BODIES.items()}
"""Programs by what they do. The last one does its work, and does not say so."""
CNI_PLUGINS = ("bridge", "portmap", "host-local")

NRI_ACTIONS: dict[str, Action] = {
    "fails": Fail(Unknown("broken by chaos")),
    "does not answer": Silent(),
    "disconnects": Disconnect(),
    "sends garbage": Garble(b"\xff" * 64),
    "answers with another message": Undecodable(),
}
NRI_CALLS = ("RunPodSandbox", "CreateContainer", "StopContainer", "StopPodSandbox")


@contextlib.contextmanager
def broken_cni(directory: Path, plugin: str, failure: str) -> Iterator[None]:
    """Replaces a plugin while the context is open. Raises OSError; then nothing is replaced."""
    real = directory / REAL
    restore_cni(directory)
    real.mkdir(mode=0o755)
    try:
        for name in (plugin, NOTE):
            with contextlib.suppress(FileNotFoundError):  # without a compiler at build time there is no note
                os.link(directory / name, real / name)
        replace_file(directory / plugin, CNI_FAILURES[failure], mode=0o755)
        yield
    finally:
        restore_cni(directory)


def restore_cni(directory: Path) -> None:
    """Puts the real plugin back, if it was replaced."""
    real = directory / REAL
    for name in CNI_PLUGINS:
        with contextlib.suppress(FileNotFoundError):
            (real / name).replace(directory / name)
    for name in (*CNI_PLUGINS, NOTE):  # a rename to another name of the same file does nothing
        (real / name).unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):
        real.rmdir()


async def run_broken_nri(socket: Path, failure: str, seconds: float) -> None:
    """Is an NRI plugin of a runtime that fails in one way, for a while, or until the runtime has had enough."""
    rule = Rule(NRI_ACTIONS[failure], failure)
    script = Script(name="chaos", index="99", on=dict.fromkeys(NRI_CALLS, (rule,)))
    with contextlib.suppress(OSError, EOFError, ValueError, TimeoutError, Leaves):
        async with asyncio.timeout(seconds):
            await FakePlugin(script, lambda _facts: None).run(str(socket))
