"""One connection of a scripted plugin.

It implements ttrpc by hand, with the tables of `protocols/`, because it must be able to send what a correct plugin
never sends.
"""

import asyncio
import os
import signal
from typing import Any, NoReturn, Protocol

from google.protobuf.message import DecodeError, Message

from podwire.nri.fake import actions, frames
from podwire.nri.fake.actions import Action
from podwire.nri.fake.script import REGISTER, RuleQueue, Script, subject
from podwire.nri.fake.yaml_script import default_answer
from podwire.nri.script import to_plain
from podwire.protocols.grpc_status import InvalidArgument, RpcError, Unimplemented
from podwire.protocols.nri import events, methods
from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.ttrpc import mux
from podwire.protocols.ttrpc.sides import Answered, Answering, Asked, Asking, Refused, refuse
from podwire.protocols.ttrpc.wire import Frame, Frames

_METHODS = {method.name: method for method in methods.PLUGIN}


class Leaves(Exception):
    """The script ends the process here, by this code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"the script leaves with code {code}")
        self.code = code


class _Over(Exception):
    """The connection is over; says why."""


class Plugin(Protocol):
    """State that outlives a connection."""

    script: Script
    rules: RuleQueue
    containers: dict[str, str]
    answer_timeout: float

    def tell(self, **facts: Any) -> None: ...


class Connection:
    """One connection, until its end."""

    def __init__(self, plugin: Plugin, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._plugin = plugin
        self._reader, self._writer = reader, writer
        self._asking, self._answering = Asking(), Answering()
        self._waiting: dict[int, asyncio.Future[Answered]] = {}
        self._reads = asyncio.Event()
        self._reads.set()

    async def run(self) -> str:
        """Why it ended. Raises Leaves."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._read(group))
                group.create_task(self._register())
        except ExceptionGroup as group_error:
            first = _first(group_error)
            if isinstance(first, _Over):
                return str(first)
            raise first from None
        return "nothing more to do"

    # What comes in.

    async def _read(self, group: asyncio.TaskGroup) -> NoReturn:
        pieces = mux.Pieces()
        frames = {mux.PLUGIN_SERVICE: Frames(), mux.RUNTIME_SERVICE: Frames()}
        while True:
            await self._reads.wait()
            try:
                data = await self._reader.read(1 << 16)
            except OSError as error:
                raise _Over(f"the connection broke: {error}") from None
            if not data:
                raise _Over("the runtime closed the connection")
            try:
                for conversation, piece in pieces.feed(data):
                    for frame in frames[conversation].feed(piece) if conversation in frames else ():
                        self._receive(group, conversation, frame)
            except mux.BadMux as error:
                raise _Over(str(error)) from None

    def _receive(self, group: asyncio.TaskGroup, conversation: int, frame: Frame) -> None:
        side = self._asking if conversation == mux.RUNTIME_SERVICE else self._answering
        match side.receive(frame):
            case Answered() as answered:
                future = self._waiting.pop(answered.stream, None)
                if future is not None and not future.done():
                    future.set_result(answered)
            case Asked() as asked:
                group.create_task(self._handle(asked))
            case Refused(stream, error):
                self._send(mux.pieces(mux.PLUGIN_SERVICE, refuse(stream, error)))

    # What it answers.

    async def _handle(self, asked: Asked) -> None:
        try:
            call, request = self._understood(asked)
        except RpcError as error:
            self._plugin.tell(call=asked.method, did="refuse", why=str(error))
            self._send(mux.pieces(mux.PLUGIN_SERVICE, refuse(asked.stream, error)))
            return
        rule = self._plugin.rules.next(call, request)
        self._remember(request)
        pod, container = subject(request)
        about = {"via": asked.method} if asked.method != call else {}
        about |= {"pod": pod} if pod else {}
        about |= {"container": container} if container else {}
        self._plugin.tell(
            call=call,
            **about,
            did=rule.name,
            timeout=asked.timeout,
            metadata={key: list(values) for key, values in asked.metadata.items()},
            request=to_plain(request),
        )
        await asyncio.sleep(rule.delay)
        await self._update(rule.update_before)
        await self._do(rule.action, self._answer(rule.action, asked.stream, call, request))
        await self._update(rule.update_after)
        if call == methods.SYNCHRONIZE.name and not request.more:
            self._plugin.tell(event="synchronized")

    def _understood(self, asked: Asked) -> tuple[str, Any]:
        """The call and its request; an event that came as StateChange by its own name. Raises RpcError."""
        script, method = self._plugin.script, _METHODS.get(asked.method)
        event = events.BY_TITLE.get(asked.method)
        hidden = event is not None and event.was_state_change and not script.calls
        if method is None or hidden or (method is methods.STATE_CHANGE and not script.state_change):
            raise Unimplemented(f"method {asked.method}")
        try:
            request: Any = method.request.FromString(asked.payload)
        except DecodeError:
            raise InvalidArgument(f"{method.name}: the payload is not a {method.request.DESCRIPTOR.name}") from None
        if isinstance(request, pb.StateChangeEvent):
            if (state_change := events.from_state_change(request)) is None:
                raise InvalidArgument(f"StateChange of event {request.event}, which never travelled so")
            return state_change[0].title, state_change[1]
        return method.name, request

    def _answer(self, action: Action, stream: int, call: str, request: Any) -> bytes:
        message = action.message if isinstance(action, actions.Answer) else None
        message = default_answer(self._plugin.script, call, request) if message is None else self._addressed(message)
        if isinstance(action, actions.RefuseSplit):
            message = pb.SynchronizeResponse()
        return frames.answer(action, stream, message)

    def _addressed(self, message: Message) -> Message:
        """A script names containers; the wire wants their ids."""
        if "update" in message.DESCRIPTOR.fields_by_name:
            return self._with_ids(message)
        return message

    def _with_ids(self, message: Any) -> Message:
        copy: Any = type(message)()
        copy.CopyFrom(message)
        for container_update in copy.update:
            container_update.container_id = self._plugin.containers.get(
                container_update.container_id, container_update.container_id
            )
        return copy  # type: ignore[no-any-return]  # of the same kind as what came in

    async def _do(self, action: Action, data: bytes) -> None:
        if isinstance(action, actions.StopReading):
            self._reads.clear()
            self._writer.transport.pause_reading()  # type: ignore[attr-defined]  # a socket's transport reads
            await asyncio.sleep(action.seconds)
            self._writer.transport.resume_reading()  # type: ignore[attr-defined]  # as above
            self._reads.set()
        self._send(data)
        match action:
            case actions.Disconnect(half=True):
                self._writer.write_eof()
            case actions.Disconnect():
                raise _Over("the script disconnects")
            case actions.Leave(None):
                os.kill(os.getpid(), signal.SIGKILL)
            case actions.Leave(int(code)):
                raise Leaves(code)

    # What it asks.

    async def _register(self) -> None:
        script, rule = self._plugin.script, self._plugin.rules.next(REGISTER)
        await asyncio.sleep(rule.delay)
        self._plugin.tell(event="registers", name=script.name, index=script.index, did=rule.name)
        if isinstance(rule.action, actions.Silent):
            return
        request = pb.RegisterPluginRequest(plugin_name=script.name, plugin_idx=script.index, NRI_version=script.version)
        stream, frame = self._asking.request(
            methods.RUNTIME_SERVICE, REGISTER, request.SerializeToString(), timeout=self._plugin.answer_timeout
        )
        answered = self._awaited(stream)
        await self._do(rule.action, frames.request(rule.action, stream, frame))
        error = (await answered).error
        self._plugin.tell(event="refused" if error else "registered", **({"why": str(error)} if error else {}))

    async def _update(self, updates: tuple[pb.ContainerUpdate, ...]) -> None:
        if not updates:
            return
        request = self._with_ids(pb.UpdateContainersRequest(update=updates))
        stream, frame = self._asking.request(
            methods.RUNTIME_SERVICE,
            methods.UPDATE_CONTAINERS.name,
            request.SerializeToString(),
            timeout=self._plugin.answer_timeout,
        )
        answered = self._awaited(stream)
        self._send(mux.pieces(mux.RUNTIME_SERVICE, frame))
        try:
            async with asyncio.timeout(self._plugin.answer_timeout):
                answer = await answered
        except TimeoutError:
            self._plugin.tell(event="updated", why=f"no answer within {self._plugin.answer_timeout:g} s")
            return
        response = pb.UpdateContainersResponse.FromString(answer.payload)
        self._plugin.tell(event="updated", why=str(answer.error or ""), response=to_plain(response))

    def _awaited(self, stream: int) -> asyncio.Future[Answered]:
        future: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self._waiting[stream] = future
        return future

    # Smaller things.

    def _send(self, data: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(data)

    def _remember(self, request: Any) -> None:
        fields = request.DESCRIPTOR.fields_by_name
        seen = request.containers if "containers" in fields else [request.container] if "container" in fields else []
        for item in seen:
            self._plugin.containers[item.name] = item.id


def _first(group: ExceptionGroup[Any]) -> Exception:
    """The one that came first; the others are what it led to."""
    leaf: Any = group
    while isinstance(leaf, ExceptionGroup):
        leaf = leaf.exceptions[0]
    return leaf  # type: ignore[no-any-return]  # a leaf of a group of exceptions
