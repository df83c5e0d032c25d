"""Finds resources of claims: links, CDI files, damaged records; and claims that have records."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from podwire.dradriver.attach.records import OWN_NAME, TAG
from podwire.dradriver.claims.damaged_records import SUFFIX
from podwire.dradriver.names import DRIVER
from podwire.inspect.leakcheck import Leftover
from podwire.linux.net.network import KernelNetwork

_CDI = f"{DRIVER}-claim@"


def find_resources(state: Path, run: Path, kubelet: Path, *, network: bool = True) -> Iterator[Leftover]:
    """Searches the node of the calling thread. A damaged record has no owner: its resources may be left over."""
    for directory in (run / "cdi", state / "network-driver/cdi"):
        for path in directory.glob(f"{_CDI}*.json"):
            yield Leftover("CDI file", str(path), path.stem.removeprefix(_CDI))
    for path in (*(state / "network-driver/records").glob(f"*/*{SUFFIX}"), *(kubelet / "claims").glob(f"*{SUFFIX}")):
        yield Leftover("damaged record", str(path), "")
    if not network:
        return
    with contextlib.closing(KernelNetwork()) as kernel:
        for link in kernel.links.list():
            if OWN_NAME.fullmatch(link.name) and link.alias.startswith(TAG):
                yield Leftover("link", link.name, link.alias.removeprefix(TAG).partition("/")[0])


def owners(state: Path) -> Iterator[str]:
    """Returns the claims that the driver has records of."""
    for path in (state / "network-driver/records").glob("*/*.json"):
        yield unquote(path.name.partition("~")[0])
