"""A real API server over TLS, and the client connected to it."""

import pytest

from podwire.client import connect
from podwire.cluster.apiserver import Options, running


@pytest.fixture
async def server(tmp_path):
    options = Options(data_dir=tmp_path / "server", port=0, store_url="memory://", controllers=frozenset())
    async with running(options) as server:
        yield server


@pytest.fixture
async def api(server):
    async with connect(server.kubeconfig) as api:
        await api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}})
        yield api
