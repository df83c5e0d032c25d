"""Removes all pods of nodes with the runtime's own code, so that everything is released as it was created."""

import asyncio
import json
import logging
import os
import signal
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from podwire import logs
from podwire.cluster import runtime
from podwire.cluster.up.layout import Layout
from podwire.cluster.up.node_namespaces import NodeNamespaces
from podwire.linux import syscalls
from podwire.protocols.cri import methods
from podwire.protocols.grpc_status import RpcError
from podwire.runtime.sandboxes.sandbox import Sandbox
from podwire.transports import grpc_client

_log = logging.getLogger("podwire.down")

POD_UID = "io.kubernetes.pod.uid"
SECONDS = 60.0
"""Timeout of a foreign runtime for one pod."""

Failures = list[str]
Work = Callable[[], Coroutine[Any, Any, Failures]]


def ours(layout: Layout, nodes: Iterable[tuple[runtime.Options, NodeNamespaces | None]]) -> Failures:
    """Removes every sandbox and container of our runtimes, on all nodes at once; returns error messages."""
    children = [
        _fork(layout, partial(_remove_all, replace(options, forgives_missing_plugins=True)), space)
        for options, space in nodes
    ]
    return [failure for child in children for failure in _join(layout, *child)]


def foreign(layout: Layout, endpoint: str, pods: Path) -> Failures:
    """Removes from a foreign runtime the pods whose directories our kubelet created, and no others."""
    uids = {path.name for path in pods.iterdir()} if pods.is_dir() else set()
    if not uids:
        return []
    return _join(
        layout, *_fork(layout, partial(_remove_from_foreign, Path(endpoint.removeprefix("unix://")), uids), None)
    )


def _fork(layout: Layout, work: Work, space: NodeNamespaces | None) -> tuple[int, int]:
    """Forks a process that may enter the node and use gRPC, which this process must not. Returns its pid and the pipe
    for its report."""
    reads, writes = os.pipe2(os.O_CLOEXEC)
    child = os.fork() if space is None else space.fork()
    if child == 0:
        os.close(reads)
        # Never returns: the rest is for the parent, outside of the node.
        try:
            syscalls.die_with_parent(signal.SIGKILL)
            failed = _run(layout, work, space)
            os.write(writes, json.dumps(failed).encode())
        finally:
            os._exit(0)
    os.close(writes)
    return child, reads


def _join(layout: Layout, child: int, reads: int) -> Failures:
    with os.fdopen(reads, "rb") as file:
        report = file.read()
    os.waitpid(child, 0)
    return list(json.loads(report)) if report else [f"the pods were not removed; see {layout.log('down')}"]


def _run(layout: Layout, work: Work, space: NodeNamespaces | None) -> Failures:
    try:
        layout.logs.mkdir(mode=0o755, parents=True, exist_ok=True)
        logs.set_up(stream=layout.log("down").open("a", encoding="utf-8"))
        if space is not None:
            space.enter()
        return asyncio.run(work())
    except (OSError, RpcError, runtime.NoRuntime, runtime.RunsAlready) as error:
        return [str(error)]
    except Exception as error:  # noqa: BLE001 - reported to the parent; the log has the traceback
        _log.exception("cannot remove pods of node")
        return [f"{type(error).__name__}: {error}"]


async def _remove_all(options: runtime.Options) -> Failures:
    async with runtime.running(options) as up:
        done = await asyncio.gather(*(_remove(up, sandbox) for sandbox in up.sandboxes))
    return [failure for failure in done if failure]


async def _remove(up: runtime.Running, sandbox: Sandbox) -> str:
    containers = up.containers.of(sandbox.id)

    async def stop() -> None:
        await asyncio.gather(*(up.containers.stop(container, 0) for container in containers))

    try:
        await up.sandboxes.stop(sandbox, stop)
        await asyncio.gather(*(up.containers.remove(container) for container in containers))
        await up.sandboxes.remove(sandbox)
    except (RpcError, OSError) as error:
        return str(error)
    return ""


async def _remove_from_foreign(socket: Path, uids: set[str]) -> Failures:
    by_name: dict[str, Any] = {method.name.rpartition("/")[2]: method for method in methods.ALL}
    listing, stop, remove = (by_name[name] for name in ("ListPodSandbox", "StopPodSandbox", "RemovePodSandbox"))
    async with grpc_client.connect(socket) as client:
        sandboxes = await client.call(listing, listing.request(), timeout=SECONDS)
        for item in sandboxes.items:
            if item.labels.get(POD_UID) in uids:
                await client.call(stop, stop.request(pod_sandbox_id=item.id), timeout=SECONDS)
                await client.call(remove, remove.request(pod_sandbox_id=item.id), timeout=SECONDS)
    return []
