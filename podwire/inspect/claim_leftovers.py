"""Looks for what the network driver and the kubelet made for claims: links, files; and whose records there are."""

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


def found(state: Path, run: Path, kubelet: Path) -> Iterator[Leftover]:
    """On the calling thread's node. What is damaged is nobody's: it says that something may have been left behind."""
    for directory in (run / "cdi", state / "network-driver/cdi"):
        for path in directory.glob(f"{_CDI}*.json"):
            yield Leftover("CDI file", str(path), path.stem.removeprefix(_CDI))
    for path in (*(state / "network-driver/records").glob(f"*/*{SUFFIX}"), *(kubelet / "claims").glob(f"*{SUFFIX}")):
        yield Leftover("damaged record", str(path), "")
    with contextlib.closing(KernelNetwork()) as network:
        for link in network.links.list():
            if OWN_NAME.fullmatch(link.name) and link.alias.startswith(TAG):
                yield Leftover("link", link.name, link.alias.removeprefix(TAG).partition("/")[0])


def owners(state: Path) -> Iterator[str]:
    """Claims that the driver has records of."""
    for path in (state / "network-driver/records").glob("*/*.json"):
        yield unquote(path.name.partition("~")[0])
