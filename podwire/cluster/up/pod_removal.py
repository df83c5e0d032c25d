"""Removes all pods of nodes, by the runtime's own code: what is recorded is given back as it was taken."""

import asyncio
import json
import logging
import os
import signal
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

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
"""How long a foreign runtime may take for one pod."""

Failures = list[str]
Work = Callable[[], Coroutine[Any, Any, Failures]]


def ours(layout: Layout, nodes: Iterable[tuple[runtime.Options, NodeNamespaces | None]]) -> Failures:
    """Remove every sandbox and container of our runtimes, on all nodes at once; what went wrong, in words."""
    begun = [_begun(layout, partial(_removed, options), space) for options, space in nodes]
    return [failure for child in begun for failure in _ended(layout, *child)]


def foreign(layout: Layout, endpoint: str, pods: Path) -> Failures:
    """Remove from a foreign runtime the pods whose directories our kubelet made, and no others."""
    uids = {path.name for path in pods.iterdir()} if pods.is_dir() else set()
    if not uids:
        return []
    return _ended(layout, *_begun(layout, partial(_removed_by, Path(endpoint.removeprefix("unix://")), uids), None))


def _begun(layout: Layout, work: Work, space: NodeNamespaces | None) -> tuple[int, int]:
    """In a process of its own, which may enter the node and use gRPC: this one stays as it is. The process, and the
    pipe by which it tells."""
    told, tells = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        os.close(told)
        _be_it(layout, work, space, tells)
    os.close(tells)
    return child, told


def _ended(layout: Layout, child: int, told: int) -> Failures:
    with os.fdopen(told, "rb") as file:
        said = file.read()
    os.waitpid(child, 0)
    return list(json.loads(said)) if said else [f"the pods were not removed: see {layout.log('down')}"]


def _be_it(layout: Layout, work: Work, space: NodeNamespaces | None, tells: int) -> NoReturn:
    """Never returns, whatever happens: what follows is the parent's to do, and not from inside the node."""
    try:
        syscalls.die_with_parent(signal.SIGKILL)
        failed = _worked(layout, work, space)
        os.write(tells, json.dumps(failed).encode())
    finally:
        os._exit(0)


def _worked(layout: Layout, work: Work, space: NodeNamespaces | None) -> Failures:
    try:
        layout.logs.mkdir(mode=0o755, parents=True, exist_ok=True)
        logs.set_up(stream=layout.log("down").open("a", encoding="utf-8"))
        if space is not None:
            space.enter()
        return asyncio.run(work())
    except (OSError, RpcError, runtime.NoRuntime, runtime.RunsAlready) as error:
        return [str(error)]
    except Exception as error:  # noqa: BLE001 - the parent is told, and the log has the rest
        _log.exception("the pods were not removed")
        return [f"{type(error).__name__}: {error}"]


async def _removed(options: runtime.Options) -> Failures:
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


async def _removed_by(socket: Path, uids: set[str]) -> Failures:
    by_name: dict[str, Any] = {method.name.rpartition("/")[2]: method for method in methods.ALL}
    listing, stop, remove = (by_name[name] for name in ("ListPodSandbox", "StopPodSandbox", "RemovePodSandbox"))
    async with grpc_client.connect(socket) as client:
        found = await client.call(listing, listing.request(), timeout=SECONDS)
        for item in found.items:
            if item.labels.get(POD_UID) in uids:
                await client.call(stop, stop.request(pod_sandbox_id=item.id), timeout=SECONDS)
                await client.call(remove, remove.request(pod_sandbox_id=item.id), timeout=SECONDS)
    return []
