"""The environment that a script is played in: the host of NRI on a socket of its own, a proxy before it that sees
everything, and the plugin's process.

The proxy is where connections are cut, and where what passes is seen as it passes.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from podwire.nri.adaptation import Adaptation, Settings
from podwire.nri.play.node import PlayedNode
from podwire.nri.play.plugin import DEFAULT_LIMITS, How, Limits, Process, connecting, launched
from podwire.nri.play.script import OLD, Script
from podwire.nri.proxy import Exchange, Proxy, Seen
from podwire.protocols.nri import methods

_ADAPTATION_LOG = logging.getLogger("podwire.nri.adaptation")


class _LastWarning(logging.Handler):
    """The adaptation's last warning: why a registration failed is in its log only."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.last = str(getattr(record, "error", "") or record.getMessage())


class NotReady(Exception):
    """The plugin is not there; says why."""


class Setup:
    """Everything that is there while a script is played."""

    def __init__(self, script: Script, how: How, node: PlayedNode, folder: Path, limits: Limits) -> None:
        self._limits = limits
        self._script = script
        self._how = how
        self._node = node
        self._socket = folder / "nri.sock"
        self._runtime = folder / "runtime.sock"
        self._hosting = AsyncExitStack()
        self._pairs: set[asyncio.Task[None]] = set()
        self._active = asyncio.Event()
        self._refused = asyncio.Event()
        """It came several times, and was not let in."""
        self._tries = 0
        self.host: Adaptation
        self.process: Process | None = None
        self.seen: list[Seen] = []
        self._proxy = Proxy(self._runtime, self._see)
        self._last_warning = _LastWarning()
        self._limit = limits.start + script.runtime.registration_timeout + script.runtime.synchronize_timeout

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """The runtime listens; the plugin is not started yet."""
        _ADAPTATION_LOG.addHandler(self._last_warning)
        try:
            async with self._proxy.listening(self._socket):
                await self._start_host()
                yield
        finally:
            await self._hosting.aclose()
            await self.end_plugin(gently=self._how.launch is None)
            _ADAPTATION_LOG.removeHandler(self._last_warning)

    def _see(self, seen: Seen) -> None:
        self.seen.append(seen)
        if isinstance(seen, Exchange) and seen.method == methods.REGISTER_PLUGIN.name:
            self._tries += 1
            if self._tries > self._limits.registrations:
                self._refused.set()

    def step_is_over(self) -> None:
        """Every hook has come back: what the plugin has not answered by now, the runtime has given up."""
        self._proxy.give_up()

    def _expect_plugin(self) -> None:
        self._active.clear()
        self._refused.clear()
        self._tries = 0

    # The runtime.

    async def _start_host(self) -> None:
        script = self._script.runtime
        settings = Settings(
            socket=self._runtime,
            registration_timeout=script.registration_timeout,
            request_timeout=script.request_timeout,
            synchronize_timeout=script.synchronize_timeout,
            plugin_config=self._script.config,
            state_change=script.generation == OLD,
        )
        self.host = Adaptation(settings, self._node, runtime_name=script.name, runtime_version=script.version)
        self.host.on_registered.append(lambda _: self._active.set())
        self.host.know(*self._node.snapshot())
        await self._hosting.enter_async_context(self.host.running())

    async def restart_runtime(self) -> None:
        """All connections end; a plugin that the runtime started ends with it. Raises NotReady."""
        self._expect_plugin()
        await self._hosting.aclose()
        if self._how.launch is not None:
            await self.end_plugin()
        await self._start_host()
        await self.plugin_is_ready()

    async def disconnect(self) -> None:
        """Raises NotReady."""
        self._expect_plugin()
        await self._proxy.cut()
        await self._end_pairs()
        await self.plugin_is_ready()

    # The plugin.

    async def start_plugin(self) -> None:
        """Raises NotReady."""
        self._expect_plugin()
        self._begin()
        await self.plugin_is_ready(again=False)

    async def restart_plugin(self) -> None:
        """Raises NotReady."""
        await self.end_plugin()
        await self.start_plugin()

    def _begin(self) -> None:
        try:
            if self._how.launch is None:
                self.process = connecting(self._how, str(self._socket))
                return
            self.process, ours = launched(self._how, self._how.launch)
        except OSError as error:
            raise NotReady(f"the plugin cannot be started: {error}") from error
        ours.setblocking(False)
        task = asyncio.get_running_loop().create_task(self._pair(ours), name="a launched plugin's connection")
        self._pairs.add(task)
        task.add_done_callback(self._pairs.discard)

    async def _pair(self, ours: socket.socket) -> None:
        plugin = await asyncio.open_connection(sock=ours)
        await self._proxy.between(plugin, await asyncio.open_unix_connection(str(self._runtime)))

    async def end_plugin(self, *, gently: bool = False) -> None:
        if self.process is not None:
            await self.process.end(grace=self._limits.stop if gently else 0.0)
        self.process = None
        await self._end_pairs()

    async def _end_pairs(self) -> None:
        for pair in tuple(self._pairs):
            pair.cancel()
        await asyncio.gather(*self._pairs, return_exceptions=True)

    async def plugin_is_ready(self, *, again: bool = True) -> None:
        """Wait until it is active. One that ends because its connection did is started again, as its supervisor would.

        Raises NotReady.
        """
        try:
            async with asyncio.timeout(self._limit):
                while not self._active.is_set():
                    process = self.process
                    if self._refused.is_set():
                        raise NotReady(self._why())
                    if process is not None and process.code is None:
                        await self._active_or_ended(process)
                    elif again:
                        again = False
                        self._begin()
                    else:
                        raise NotReady(self._why())
        except TimeoutError:
            raise NotReady(self._why()) from None

    async def _active_or_ended(self, process: Process) -> None:
        waits = [asyncio.ensure_future(event.wait()) for event in (self._active, self._refused, process.ended)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiter in waits:
                waiter.cancel()

    def _why(self) -> str:
        if self.process is not None and self.process.code is not None:
            why = f"its process ended with code {self.process.code} before it was ready"
        elif self._refused.is_set():
            why = f"it registered {self._tries} times without success"
        else:
            why = f"it was not ready within {self._limit:g} s"
        return f"{why}; the runtime logged: {self._last_warning.last}" if self._last_warning.last else why

    def why_gone(self) -> str:
        if self.process is not None and self.process.code is not None:
            return f"its process ended with code {self.process.code}"
        return next((report.last_error for report in self.host.report() if report.last_error), "")


@asynccontextmanager
async def opened(script: Script, how: How, node: PlayedNode, limits: Limits = DEFAULT_LIMITS) -> AsyncIterator[Setup]:
    """A setup in a folder of its own, which goes with it."""
    with TemporaryDirectory(prefix="pw-play-") as folder:
        setup = Setup(script, how, node, Path(folder), limits)
        async with setup.open():
            yield setup
