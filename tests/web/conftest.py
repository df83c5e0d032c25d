"""A page over a real API server and recorded starts; a browser to look at it."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from podwire.cluster import apiserver
from podwire.protocols.k8sapi.client_side import Client
from podwire.trace.record import Record, decode, encode
from podwire.trace.segments import Writer
from podwire.transports import credentials, http_client
from podwire.web.server import Options, Served, serving
from tests.web.chromium import PROGRAM, Page, browser

DATA = Path(__file__).parents[1] / "trace" / "data"


def pod_object(name: str, **status: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "web"}], "nodeName": "node-1"},
        "status": status,
    }


def recorded(name: str) -> list[Record]:
    """A recorded start of tests/trace/data."""
    return [decode(line) for line in (DATA / f"{name}.jsonl").read_bytes().splitlines()]


class Site:
    """The page of a cluster: its link, its API, and its records."""

    def __init__(self, served: Served, client: Client, traces: Path) -> None:
        self.link, self.hub, self.client, self._writer = served.link, served.hub, client, Writer(traces)
        self.origin = self.link.partition("/?")[0]

    def record(self, *records: Record) -> None:
        self._writer.write([encode(record) for record in records])

    async def pod(self, name: str, **status: Any) -> dict[str, Any]:
        made = await self.client.create(pod_object(name))
        if status:
            made = await self.client.replace({**made, "status": status}, subresource="status")
        return made


def renamed(records: list[Record], pod: str, name: str) -> list[Record]:
    """The same start of another pod."""
    old = next(record.detail["name"] for record in records if record.detail.get("name"))
    suffix = pod[:8]

    def one(record: Record) -> Record:
        detail = msgspec.json.decode(msgspec.json.encode(record.detail))
        if detail.get("name") == old:
            detail["name"] = name
        return msgspec.structs.replace(
            record,
            id=record.id.replace(".", f"{suffix}."),
            pod=pod if record.pod else None,
            method=record.method.replace(f"/{old}", f"/{name}"),
            detail=detail,
        )

    return [one(record) for record in records]


@contextlib.asynccontextmanager
async def site_below(directory: Path, **options: Any) -> AsyncIterator[Site]:
    server_options = apiserver.Options(data_dir=directory / "data", port=0, store_url="memory://")
    async with apiserver.running(server_options) as server:
        access = credentials.load(server.kubeconfig)
        traces = directory / "trace"
        traces.mkdir()
        async with (
            http_client.connect(access) as http,
            serving(Options(access=access, traces=traces, cluster="a test", **options)) as served,
        ):
            yield Site(served, Client(http), traces)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with site_below(tmp_path) as made:
        yield made


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[Page]:
    if PROGRAM is None:
        pytest.skip("needs Chromium; scripts/setup installs it")
    async with browser(tmp_path / "browser") as opened:
        await opened.size(1600, 1000)
        yield opened
