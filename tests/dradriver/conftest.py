"""A node (support.py) for every test that asks for one."""

import asyncio
import inspect
import shutil
import tempfile
from pathlib import Path

import pytest

from podwire.cluster import apiserver
from podwire.cluster.loopback import LoopbackHttp
from tests.dradriver.support import ADMIN, PATIENCE, Node, alone


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Tests of a node run in a thread with a network of its own."""
    if "driver_node" not in pyfuncitem.fixturenames:
        return None
    arguments = {argname: pyfuncitem.funcargs[argname] for argname in pyfuncitem._fixtureinfo.argnames}

    async def whole():
        node = pyfuncitem.funcargs["driver_node"]
        async with asyncio.timeout(2 * PATIENCE), node.there():
            await inspect.unwrap(pyfuncitem.obj)(**arguments)

    def run():
        # Whether an address of IPv6 is tentative yet is a matter of moments, and no test's.
        Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")
        asyncio.run(whole())

    alone(run)
    return True


@pytest.fixture
def driver_node():
    root = Path(tempfile.mkdtemp(prefix="podwire-drv-", dir="/tmp"))  # a socket's path must be short
    yield Node(root)
    shutil.rmtree(root)


@pytest.fixture(name="alone", scope="session")
def _alone():
    return alone


@pytest.fixture
async def api_server(tmp_path):
    """A real one, without controllers."""
    options = apiserver.Options(data_dir=tmp_path, port=0, store_url="memory://", controllers=frozenset())
    async with apiserver.running(options) as server:
        yield server


@pytest.fixture
def admin_http(api_server):
    return LoopbackHttp(api_server.assembled.server.handle, ADMIN)
