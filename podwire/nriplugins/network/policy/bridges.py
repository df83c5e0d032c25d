"""Bridges must pass their frames to `inet forward`, or traffic between two ports is not filtered there.

`net.bridge.bridge-nf-call-iptables` and `-ip6tables` say so for a network namespace. They are set and
watched: after a write by others they are set again. A write through another mount of procfs (that of a container) does
not show in inotify; `heal` finds it whenever it is called.
"""

from contextlib import ExitStack

from podwire.linux import errors
from podwire.linux.fs.inotify import MODIFY, Inotify
from podwire.linux.net.sysctls import KernelSysctls
from podwire.linux.proc.namespaces import visit
from podwire.linux.values import Path

CALLS = ("net.bridge.bridge-nf-call-iptables", "net.bridge.bridge-nf-call-ip6tables")
_ON = "1"


class NotEnforceable(Exception):
    """Policies cannot be enforced on bridged pods of this node; says why."""


class Bridges:
    """The bridges of one namespace; synchronous."""

    def __init__(self, netns: Path | None = None) -> None:
        self._netns = netns
        self._sysctls = KernelSysctls(netns)
        self._inotify: Inotify | None = None
        self.healed = 0
        """The number of times that others had switched it off."""

    def ensure(self) -> None:
        """Switches the sysctls on, before a bridged pod counts as protected. Raises NotEnforceable."""
        for call in CALLS:
            self._switch_on(call)

    def _switch_on(self, name: str) -> bool:
        """Returns whether it was off."""
        try:
            if self._sysctls.read(name) == _ON:
                return False
            self._sysctls.write(name, _ON)
            if self._sysctls.read(name) == _ON:
                return True
            why = "it does not stay 1"
        except errors.NoSuchSysctl:
            why = "it is not there; the module br_netfilter is not loaded"
        except errors.LinuxError as error:
            why = str(error)
        raise NotEnforceable(f"bridges do not hand frames to inet forward: {name} is not 1: {why}")

    def watch(self) -> int:
        """Begins to watch; when the returned descriptor is readable, call `heal`. Raises NotEnforceable, LinuxError."""
        if self._inotify is None:
            self._inotify = Inotify()
            with ExitStack() as there:
                if self._netns is not None:
                    there.enter_context(visit(self._netns))
                for call in CALLS:
                    self._inotify.add("/proc/sys/" + call.replace(".", "/"), MODIFY)
            self.ensure()
        return self._inotify.fileno()

    def heal(self) -> list[str]:
        """Switches on what others switched off; returns the sysctls that were off. Raises NotEnforceable."""
        if self._inotify is not None:
            self._inotify.read()
        off = [call for call in CALLS if self._switch_on(call)]
        if self._inotify is not None:
            self._inotify.read()  # what was heard last is our own writing
        self.healed += bool(off)
        return off

    def close(self) -> None:
        if self._inotify is not None:
            self._inotify.close()
            self._inotify = None
