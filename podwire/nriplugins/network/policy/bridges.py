"""Bridges must hand their frames to `inet forward`, or nothing there judges what passes from one port to another.

`net.bridge.bridge-nf-call-iptables` and `-ip6tables` say so for a network namespace. They are set, and watched: whoever
writes them is heard, and they are set again. A write through another mount of procfs (that of a container) is not
heard; `heal` finds it whenever it is called.
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
    """Pods on bridges cannot have policies here; the text says why."""


class Bridges:
    """The bridges of one namespace; synchronous."""

    def __init__(self, netns: Path | None = None) -> None:
        self._netns = netns
        self._sysctls = KernelSysctls(netns)
        self._inotify: Inotify | None = None
        self.healed = 0
        """How often somebody else had switched it off."""

    def ensure(self) -> None:
        """Before a pod on a bridge is said to be protected. Raises NotEnforceable."""
        for each in CALLS:
            self._switch_on(each)

    def _switch_on(self, name: str) -> bool:
        """Whether it was off."""
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
        """Begin to listen: whoever waits for the descriptor calls `heal` then. Raises NotEnforceable, LinuxError."""
        if self._inotify is None:
            self._inotify = Inotify()
            with ExitStack() as there:
                if self._netns is not None:
                    there.enter_context(visit(self._netns))
                for each in CALLS:
                    self._inotify.add("/proc/sys/" + each.replace(".", "/"), MODIFY)
            self.ensure()
        return self._inotify.fileno()

    def heal(self) -> list[str]:
        """Switch on again what somebody switched off; what it was. Raises NotEnforceable."""
        if self._inotify is not None:
            self._inotify.read()
        off = [each for each in CALLS if self._switch_on(each)]
        if self._inotify is not None:
            self._inotify.read()  # what was heard last is our own writing
        self.healed += bool(off)
        return off

    def close(self) -> None:
        if self._inotify is not None:
            self._inotify.close()
            self._inotify = None
