"""Starts the components of a machine that joins, and removes all of it when it leaves."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from podwire.cluster.join import components, preparation
from podwire.cluster.join.node_identity import NodeIdentity
from podwire.cluster.join.permissions import NODES
from podwire.cluster.join.preparation import JoinOptions, PreparedNode
from podwire.cluster.up import component_processes, launch, state
from podwire.cluster.up.down import NotRemoved, down, remove_locked
from podwire.cluster.up.launch import Report
from podwire.cluster.up.layout import Layout
from podwire.cluster.up.preparation import Refused, missing
from podwire.cluster.up.slot_claims import SlotClaims
from podwire.cluster.up.status_file import SUPERVISOR, lock_prefix
from podwire.cluster.up.stop import kill, stop
from podwire.durable.locks import FileLock
from podwire.protocols.k8sapi.client_side import ClientError
from podwire.protocols.k8sapi.kubeconfig import BadKubeconfig
from podwire.protocols.k8sapi.status import ApiError

DELETE_SECONDS = 10.0


@contextlib.contextmanager
def held(layout: Layout, wanted: JoinOptions, claims: SlotClaims) -> Iterator[tuple[PreparedNode, FileLock]]:
    """Gives the prepared node and the lock of the machine while the context is open.

    A first join that fails leaves nothing. Raises PrefixLocked, Refused, BadPrefix.
    """
    made = missing(layout)
    known = state.exists(layout.record)
    with contextlib.ExitStack() as undo:
        lock = undo.enter_context(lock_prefix(layout))
        if known:
            kill(list(component_processes.components(layout)))  # left by a supervisor that was just killed
        with contextlib.ExitStack() as failed:
            if not known:
                failed.callback(_undo, layout, claims, made)
            prepared = preparation.prepare(layout, wanted, claims, made)
            failed.pop_all()
        yield prepared, lock


def _undo(layout: Layout, claims: SlotClaims, made: tuple[str, ...]) -> None:
    record = state.load(layout.record)
    if record is not None:
        with contextlib.suppress(NotRemoved):  # the first error is the one to report; `podwire leave` continues
            remove_locked(layout, record, claims)
        return
    (layout.component_tags / SUPERVISOR).unlink(missing_ok=True)
    for path in (layout.component_tags, *map(Path, made)):
        with contextlib.suppress(OSError):
            path.rmdir()


def names(prepared: PreparedNode) -> list[str]:
    return [component.name for component in components.components(prepared)]


def supervise(prepared: PreparedNode, lock: FileLock, report: Report, pipe: Callable[[], list[int]] = list) -> bool:
    """Runs the components until a signal; returns whether they came up."""
    return launch.supervise_all(prepared.layout, components.components(prepared), lock, report, pipe)


def leave(layout: Layout, claims: SlotClaims, *, force: bool = False) -> str | None:
    """Leaves the cluster: the Node is deleted, then everything on this machine. Raises Refused and those of `down`.

    Returns why the Node could not be deleted, or an empty text; None if this machine has not joined.
    """
    known = state.load(layout.record)
    if known is None:
        return None
    if not known.joined:
        raise Refused("this machine has a cluster of its own, and has not joined one; see `podwire down`")
    stop(layout)
    problem = asyncio.run(_delete_node(NodeIdentity(layout, known.nodes[0].name)))
    down(layout, claims, force=force)
    return problem


async def _delete_node(identity: NodeIdentity) -> str:
    try:
        async with asyncio.timeout(DELETE_SECONDS), identity.connect() as api:
            await api.delete(NODES, identity.node)
    except ApiError as error:
        return "" if error.code == 404 else str(error)
    except (BadKubeconfig, ClientError, OSError, TimeoutError) as error:
        return str(error) or "the API server did not answer"
    return ""
