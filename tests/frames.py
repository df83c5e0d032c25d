"""Counts the Python frames of the four paths of docs/architecture.md, while tests walk them.

    .venv/bin/pytest -p tests.frames tests/nri/plugin/test_with_adaptation.py tests/apiserver/write \
        tests/dradriver/test_driver.py tests/cniplugins/test_bridge.py

A profile function (sys.setprofile) sees every call. At the call of a segment's last function it walks the stack up to
the segment's first, and counts the frames of `podwire/`; the event loop and the standard library do not count. A path
that goes on in another task, thread or process has a segment for each, and its frames are the sum. Of several stacks
the deepest counts: `through` and `without` exclude those that belong to another call, such as the undo of a failed one.
"""

import sys
import threading
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import pytest

Function = tuple[str, str]
"""A file below podwire/, and a function's qualified name."""


@dataclass
class Segment:
    """A part of a path on one stack."""

    first: Function
    last: Function
    through: Function | None = None
    without: Function | None = None
    deepest: list[Function] = field(default_factory=list)


_HOOKS, _MUX, _FILES = "dradriver/dra_hooks.py", "transports/mux_connection.py", "durable/files.py"
_ADAPTATION, _CONNECTED = "nri/adaptation/adaptation.py", "nri/adaptation/connected_plugin.py"
_DAEMON, _ATTACH = "cniplugins/daemon/server.py", ("cniplugins/bridge/plugin.py", "Bridge.attach")
_RECORD = ("dradriver/attach/attachments.py", "Attachments.prepare")
_NETLINK, _MASQUERADE = ("linux/net/netlink.py", "Netlink.exchange"), ("cniplugins/masquerading.py", "masquerade")
_STORE, _CREATE = ("store/memory.py", "MemoryStore.create"), ("apiserver/request/verbs.py", "create")
_RESERVE = ("apiserver/admission/chain.py", "Operation.reserve")
_OLD = ("nri/stub.py", "Stub._state_change")

PATHS = {
    "API create, ApiServer.handle to the store": [
        Segment(("apiserver/server.py", "ApiServer.handle"), _STORE, through=_CREATE, without=_RESERVE),
    ],
    "CNI ADD of bridge, thread of the daemon to the netlink message": [
        Segment((_DAEMON, "Daemon._work"), _NETLINK, through=_ATTACH, without=_MASQUERADE),
    ],
    "the same with ipMasq": [
        Segment((_DAEMON, "Daemon._work"), _NETLINK, through=_MASQUERADE),
    ],
    "NodePrepareResources, gRPC handler to the write of the record": [
        Segment((_HOOKS, "handlers.<locals>.prepare"), (_HOOKS, "DraHooks.prepare")),
        Segment((_HOOKS, "DraHooks._prepare_claim"), (_HOOKS, "DraHooks._prepare_claim")),
        Segment(("dradriver/publish/metrics.py", "observe.<locals>.observed"), (_FILES, "write_file"), through=_RECORD),
    ],
    "NRI RunPodSandbox, adaptation to the plugin's method, without hook and method": [
        Segment((_ADAPTATION, "Adaptation.run_pod_sandbox"), (_CONNECTED, "ConnectedPlugin.call")),
        Segment((_CONNECTED, "ConnectedPlugin._send"), (_MUX, "MuxConnection._write")),
        Segment((_MUX, "MuxConnection.data_received"), (_MUX, "MuxConnection._asked")),
        Segment((_MUX, "MuxConnection._handle"), ("nri/stub.py", "Stub._call_hook"), without=_OLD),
    ],
}

_ENDING: dict[str, list[Segment]] = {}
for _path in PATHS.values():
    for _segment in _path:
        _ENDING.setdefault(_segment.last[1], []).append(_segment)


def _function(frame: FrameType) -> Function | None:
    _, below, file = frame.f_code.co_filename.rpartition("/podwire/")
    return (file, frame.f_code.co_qualname) if below else None


def _profile(frame: FrameType, event: str, _argument: Any) -> None:
    if event != "call" or frame.f_code.co_qualname not in _ENDING:
        return
    for segment in _ENDING[frame.f_code.co_qualname]:
        stack: list[Function] = []
        at: FrameType | None = frame
        while at is not None and (not stack or stack[-1] != segment.first):
            stack += [function] if (function := _function(at)) else []
            at = at.f_back
        is_whole = bool(stack) and stack[0] == segment.last and stack[-1] == segment.first
        is_meant = (segment.through is None or segment.through in stack) and segment.without not in stack
        if is_whole and is_meant and len(stack) > len(segment.deepest):
            segment.deepest = stack


def pytest_configure() -> None:
    threading.setprofile(_profile)
    sys.setprofile(_profile)


def pytest_unconfigure() -> None:
    sys.setprofile(None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for name, segments in PATHS.items():
        stacks = [segment.deepest for segment in segments]
        if all(stacks):
            functions = [function for stack in stacks for function in reversed(stack)]
            files = len({file for file, _ in functions})
            terminalreporter.write_line(f"{name}: {len(functions)} frames in {files} files")
            terminalreporter.write_line("  " + " → ".join(qualified for _, qualified in functions))
