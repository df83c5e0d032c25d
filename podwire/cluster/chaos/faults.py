"""Carries faults out: signals to the processes of a cluster, damage to its records, a full disk, its nodes cut off."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

from podwire.cluster.chaos import broken_plugins, partitions
from podwire.cluster.chaos.history import History
from podwire.cluster.chaos.plan import Fault, Step
from podwire.cluster.up import component_processes, state, status_file
from podwire.cluster.up.layout import Layout
from podwire.cluster.up.node_namespaces import NodeNamespaces
from podwire.cluster.up.slots import Slot
from podwire.cluster.up.state import NodeRecord
from podwire.linux.errors import LinuxError, NoSuchProcess
from podwire.linux.fs.mounts import KernelMounts, mounted
from podwire.linux.fs.trust import make_directory
from podwire.linux.proc import processes

RECORDS = {
    "runtime": ("runtime/sandboxes/*/record.json", "runtime/containers/*/record.json", "cni/cache/*"),
    "kubelet": ("../kubelet/devices/*", "../kubelet/claims/*"),
    "network-driver": ("network-driver/records/*/*.json", "network-driver/addresses/*", "network-driver/listed/*"),
}
"""By component: its records, relative to the directory of the state."""

FILL = "chaos-fill"
LARGEST_DISK = 1 << 30
"""A larger file system is not filled: that takes long, and is probably not ours alone."""
UP_SECONDS = 120.0
PARTITION_FACTOR = 3.0
"""A partition lasts longer than other faults: retries and timeouts of connections take seconds."""
_NOT_OURS = "the cluster was not started by this command"


class CannotRestart(Exception):
    """`podwire up` failed after everything was killed, or a node could not be rebooted; has the output."""


class Faults:
    """The faults of one cluster. `up` is the command that starts it again; empty if it is not ours to start."""

    def __init__(self, layout: Layout, history: History, up: Sequence[str] = ()) -> None:
        self._layout = layout
        self._history = history
        self._up = up
        self._restarting = asyncio.Lock()
        self._stopped: set[tuple[int, int]] = set()
        self._plugins = asyncio.Lock()

    def available(self, fault: Fault) -> str:
        """Returns why a fault cannot be carried out here; empty if it can."""
        if fault is Fault.KILL_ALL and not self._up:
            return f"{_NOT_OURS}, which therefore cannot start it again as it was"
        if fault is Fault.REBOOT and not self._up:
            return f"{_NOT_OURS}, and containers of others would end"
        if fault in (Fault.PARTITION, Fault.REBOOT) and not self._nodes():
            return "the node is the host itself"
        if fault is Fault.PLUGIN and not self._has_own_runtime():
            return "the runtime is not podwire's"
        if fault is Fault.DISK and not self._has_own_disk():
            return f"{self._layout.state} is not on a file system of its own of at most {LARGEST_DISK >> 20} MiB"
        return ""

    async def carry_out(self, step: Step) -> None:
        match step.action:
            case Fault.KILL:
                self._kill(step.pick)
            case Fault.STOP:
                await self._stop(step)
            case Fault.KILL_ALL:
                await self._kill_all()
            case Fault.DAMAGE | Fault.REMOVE:
                self._damage(step)
            case Fault.DISK:
                await self._fill(step.seconds)
            case Fault.PARTITION:
                await self._partition(step)
            case Fault.PLUGIN:
                await self._break_plugin(step)
            case Fault.REBOOT:
                await self._reboot(step)

    def heal(self) -> None:
        """Ends every fault that lasts."""
        (self._layout.state / FILL).unlink(missing_ok=True)
        broken_plugins.restore_cni(self._layout.state / "cni/bin")
        for node in self._nodes():
            with contextlib.suppress(LinuxError):  # it is just being built
                partitions.reconnect(NodeNamespaces(self._layout, node.name).net)
        for pid, ticks in [*self._stopped]:
            self._signal(pid, ticks, signal.SIGCONT)
        self._stopped.clear()

    def is_up(self) -> bool:
        """Whether all components are ready."""
        status = status_file.read(self._layout)
        return (
            status is not None
            and status_file.is_alive(status)
            and status.up
            and all(entry.ready for entry in status.components)
        )

    def _processes(self) -> list[tuple[str, int, int]]:
        """Returns name, pid and start of the components that run."""
        status = status_file.read(self._layout)
        entries = status.components if status is not None else ()
        return [(entry.name, entry.pid, entry.start_ticks) for entry in entries if entry.pid]

    def _signal(self, pid: int, ticks: int, number: signal.Signals) -> bool:
        """Sends a signal, unless the process has ended."""
        try:
            pidfd = processes.open_process(pid, ticks)
        except NoSuchProcess:
            return False
        try:
            processes.send_signal(pidfd, number)
        finally:
            os.close(pidfd)
        return True

    def _kill(self, pick: float, names: Sequence[str] = ()) -> None:
        running = [process for process in self._processes() if not names or process[0] in names]
        if running:
            name, pid, ticks = running[int(pick * len(running))]
            if self._signal(pid, ticks, signal.SIGKILL):
                self._history.add(f"killed {name}, process {pid}")

    async def _stop(self, step: Step) -> None:
        if not (running := self._processes()):
            return
        name, pid, ticks = running[int(step.pick * len(running))]
        if not self._signal(pid, ticks, signal.SIGSTOP):
            return
        self._stopped.add((pid, ticks))
        self._history.add(f"stopped {name}, process {pid}, for {step.seconds:.1f} s")
        await asyncio.sleep(step.seconds)
        self._signal(pid, ticks, signal.SIGCONT)
        self._stopped.discard((pid, ticks))
        self._history.add(f"continued {name}, process {pid}")

    async def _kill_all(self) -> None:
        async with self._restarting:
            status = status_file.read(self._layout)
            if status is None or not self._signal(status.pid, status.start_ticks, signal.SIGKILL):
                return
            for _, pid, ticks in self._processes():
                self._signal(pid, ticks, signal.SIGKILL)
            self._history.add("killed the supervisor and all components")
            while component_processes.components(self._layout):  # noqa: ASYNC110 - they are not our children
                await asyncio.sleep(0.05)
            code, output = await run(self._up)
            if code:
                raise CannotRestart(f"`podwire up` failed with exit code {code}:\n{output}")
            self._history.add("started the cluster again")

    def _damage(self, step: Step) -> None:
        records = [(owner, path) for owner, paths in RECORDS.items() for path in self._files(paths)]
        if not records:
            return
        owner, path = records[int(step.pick * len(records))]
        shown = path.relative_to(self._layout.prefix)
        if step.action is Fault.REMOVE:
            path.unlink(missing_ok=True)
            self._history.add(f"removed {shown}, a record of {owner}")
        else:
            with contextlib.suppress(FileNotFoundError), path.open("r+b") as file:
                file.seek(path.stat().st_size // 2)
                file.write(b"\0chaos\0")
            self._history.add(f"damaged {shown}, a record of {owner}")
        self._kill(0.0, [owner])

    def _nodes(self) -> list[NodeRecord]:
        """Returns the nodes with their own namespaces."""
        known = state.load(self._layout.record)
        return [node for node in known.nodes if node.own] if known is not None else []

    def namespaces(self) -> dict[str, str]:
        """Returns the network namespaces of the nodes by name; the host's is empty."""
        known = state.load(self._layout.record)
        return {
            node.name: str(NodeNamespaces(self._layout, node.name).net) if node.own else ""
            for node in (known.nodes if known is not None else ())
        }

    def _has_own_runtime(self) -> bool:
        known = state.load(self._layout.record)
        return known is not None and known.runtime == "podwire"

    async def _partition(self, step: Step) -> None:
        known, candidates = state.load(self._layout.record), self._nodes()
        if known is None or not candidates:
            return
        node, seconds = candidates[int(step.pick * len(candidates))], step.seconds * PARTITION_FACTOR
        netns = NodeNamespaces(self._layout, node.name).net
        try:
            partitions.cut_off(netns, Slot(known.slot).gateways(ipv6=True))
        except LinuxError as error:  # it is just being rebooted
            self._history.add(f"could not cut {node.name} off: {error}")
            return
        self._history.add(f"cut {node.name} off from the control plane for {seconds:.1f} s")
        await asyncio.sleep(seconds)
        with contextlib.suppress(LinuxError):
            partitions.reconnect(netns)
        self._history.add(f"connected {node.name} again")

    async def _break_plugin(self, step: Step) -> None:
        """The first half of `pick` chooses a failure of CNI, the second one of NRI."""
        share = step.pick * 2 % 1.0
        if step.pick >= 0.5:
            failures, names = [*broken_plugins.NRI_ACTIONS], self._layout.nodes()
            failure, node = failures[int(share * len(failures))], names[int(share * 97 % len(names))]
            self._history.add(f"an NRI plugin on {node} {failure} for {step.seconds:.1f} s")
            socket = self._layout.standard(node) / "run/nri/nri.sock"
            await broken_plugins.run_broken_nri(socket, failure, step.seconds)
            self._history.add(f"the NRI plugin on {node} is gone")
            return
        cases = [(name, how) for name in broken_plugins.CNI_PLUGINS for how in broken_plugins.CNI_FAILURES]
        plugin, failure = cases[int(share * len(cases))]
        async with self._plugins:
            try:
                with broken_plugins.broken_cni(self._layout.state / "cni/bin", plugin, failure):
                    self._history.add(f"CNI plugin {plugin} {failure} for {step.seconds:.1f} s")
                    await asyncio.sleep(step.seconds)
                self._history.add(f"CNI plugin {plugin} works again")
            except OSError as error:  # the disk is full
                self._history.add(f"could not break CNI plugin {plugin}: {error}")

    async def _reboot(self, step: Step) -> None:
        async with self._restarting:
            candidates = self._nodes()
            node = candidates[int(step.pick * len(candidates))]
            self._history.add(f"reboots {node.name}")
            code, output = await run(("node", "reboot", node.name, "--prefix", str(self._layout.prefix)))
            if code:
                raise CannotRestart(f"`podwire node reboot {node.name}` failed with exit code {code}:\n{output}")
            self._history.add(f"rebooted {node.name}")

    def _files(self, patterns: Sequence[str]) -> Iterator[Path]:
        for pattern in patterns:
            parent = self._layout.state.parent if pattern.startswith("../") else self._layout.state
            yield from sorted(
                path for path in parent.glob(pattern.removeprefix("../")) if path.is_file() and path.name != "lock"
            )

    def _has_own_disk(self) -> bool:
        state = self._layout.state
        size = os.statvfs(state).f_blocks * os.statvfs(state).f_frsize
        own = [mount.target for mount in mounted() if Path(mount.target).is_relative_to(self._layout.prefix)]
        return size <= LARGEST_DISK and any(state.is_relative_to(target) for target in own)

    async def _fill(self, seconds: float) -> None:
        path = self._layout.state / FILL
        async with self._restarting:  # a cluster does not start on a full disk, and says so
            self._history.add(f"filled the disk for {seconds:.1f} s")
            with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(bytes(1 << 16))
            await asyncio.sleep(seconds)
            path.unlink(missing_ok=True)
            self._history.add("freed the disk")


async def run(words: Sequence[str]) -> tuple[int, str]:
    """Runs a command of podwire to its end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "podwire.cli.main",
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    async with asyncio.timeout(UP_SECONDS):
        output, _ = await process.communicate()
    return process.returncode or 0, output.decode("utf-8", "replace")


class NotStarted(Exception):
    """`podwire up` or `podwire down` failed; has its output."""


@contextlib.asynccontextmanager
async def own_cluster(layout: Layout, up: Sequence[str], disk_mib: int) -> AsyncIterator[None]:
    """Runs a cluster while the context is open. If the body fails, the cluster stays, to be examined."""
    mounts = KernelMounts()
    make_directory(layout.prefix, no_links_below=None)
    if disk_mib:
        mounts.mount("podwire-chaos", layout.prefix, "tmpfs", [f"size={disk_mib}m", "mode=0755"])
    await _succeed(up)
    yield
    await _succeed(("down", "--prefix", str(layout.prefix)))
    if disk_mib:
        mounts.unmount(layout.prefix)


async def _succeed(words: Sequence[str]) -> None:
    code, output = await run(words)
    if code:
        raise NotStarted(f"`podwire {' '.join(words)}` failed with exit code {code}:\n{output}")
