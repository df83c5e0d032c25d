"""Bridges that show the packets between their ports to the node's rules: set, looked at again, and set again.

Without it packets between two pods on one bridge pass by `inet forward` altogether.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing

from podwire.linux import inotify
from podwire.linux.errors import LinuxError, NoSuchSysctl
from podwire.linux.sysctls import KernelSysctls

CALLS = ("net.bridge.bridge-nf-call-iptables", "net.bridge.bridge-nf-call-ip6tables")


def call_rules(sysctls: KernelSysctls | None = None) -> list[str]:
    """See to it; those that had to be set. Raises CannotJudge."""
    there = sysctls or KernelSysctls()
    healed = []
    try:
        for each in CALLS:
            if there.read(each) != "1":
                there.write(each, "1")
                healed.append(each)
    except NoSuchSysctl as error:
        raise CannotJudge(
            "its link is a bridge's port, and the kernel module br_netfilter is not loaded: packets between ports are "
            "judged by nobody"
        ) from error
    except LinuxError as error:
        raise CannotJudge(f"its link is a bridge's port, and {error}") from error
    return healed


async def changes() -> AsyncIterator[None]:
    """Tells when somebody wrote to the settings, whatever was written; ends at once where there are none."""
    told, loop = asyncio.Event(), asyncio.get_running_loop()
    with closing(inotify.Inotify()) as notes:
        try:
            for each in CALLS:
                notes.add(f"/proc/sys/{each.replace('.', '/')}", inotify.MODIFY)
        except LinuxError:
            return
        loop.add_reader(notes.fileno(), told.set)
        try:
            while True:
                await told.wait()
                told.clear()
                notes.read()
                yield
        finally:
            loop.remove_reader(notes.fileno())


class CannotJudge(Exception):
    """Policies select a pod whose packets nobody would judge; says why."""
