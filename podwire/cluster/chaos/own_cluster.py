"""A cluster that is started for a run, on a disk of its own if requested, and removed when the run has passed."""

import contextlib
from collections.abc import AsyncIterator, Sequence

from podwire.cluster.chaos.faults import run
from podwire.cluster.up.layout import Layout
from podwire.linux.fs.mounts import KernelMounts
from podwire.linux.fs.trust import make_directory


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
