"""A cluster of other programs, seen from outside: its starts are what the API server's watch tells."""

import aiohttp

from podwire.cli.ui import UNSEEN
from podwire.cluster.tracing import CollectorOptions
from tests.eventually import eventually_async
from tests.web.conftest import site_below
from tests.web.test_page import RUNNING


async def test_a_start_is_made_of_watch_events_and_the_page_says_what_it_cannot_see(tmp_path):
    collector = CollectorOptions(socket=tmp_path / "trace.sock", directory=tmp_path / "trace")
    async with site_below(tmp_path, collector=collector, unseen=UNSEEN) as site:
        token = site.link.rpartition("=")[2]
        headers = {"Authorization": f"Bearer {token}"}
        async with aiohttp.ClientSession(headers=headers) as session, session.get(f"{site.origin}/api/events"):

            async def get(path: str):
                async with session.get(site.origin + path) as answer:
                    return await answer.json()

            await eventually_async(lambda: site.hub.clients == 1)
            pod = await site.pod("web", **RUNNING)
            uid = pod["metadata"]["uid"]

            async def drawn() -> bool:
                start = await get(f"/api/starts/{uid}")
                return "MODIFIED default/web (Running, on node-1)" in "".join(start.get("pieces", ()))

            await eventually_async(drawn)
            about = await get("/api/about")
            assert about["unseen"] == list(UNSEEN)
            assert not about["local"]
            for path in ("/api/nodes/node-1", "/api/path?from=default/web&to=default/web&port=80"):
                assert "cluster of `podwire up` on this machine" in (await get(path))["error"]
