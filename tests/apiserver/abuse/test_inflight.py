"""Who holds many places leaves some for others."""

import asyncio
from typing import Any

from podwire.apiserver.limits import Limits
from podwire.protocols.k8sapi.server_side import Certificate, Request

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
ADMIN = Certificate("kubernetes-admin", ("system:masters",))


def dripping(release: asyncio.Event) -> Request:
    """A review whose body does not come to its end, by a service account."""

    async def read(_limit: int) -> bytes:
        await release.wait()
        return b'{"spec":{"nonResourceAttributes":{"path":"/","verb":"get"}}}'

    headers = {"impersonate-user": "system:serviceaccount:default:default", "content-type": "application/json"}
    return Request(method="POST", path=REVIEWS, headers=headers, certificate=ADMIN, read=read)


async def crowded(server: Any, number: int) -> tuple[list[int], int, int]:
    """What the dripping ones, one more of them, and an administrator are answered."""
    release = asyncio.Event()
    slow = [asyncio.create_task(server.handle(dripping(release))) for _ in range(number)]
    await asyncio.sleep(0.01)
    another = await server.handle(dripping(release))

    async def body(_limit: int) -> bytes:
        return b'{"metadata":{"name":"quick"}}'

    path = "/api/v1/namespaces/default/configmaps"
    quick = await server.handle(Request(method="POST", path=path, certificate=ADMIN, read=body))
    release.set()
    answers = await asyncio.gather(*slow)
    return [each.status for each in answers], another.status, quick.status


def test_one_account_cannot_hold_all_places_and_gives_its_own_back(house):
    half = Limits().writing // 2
    for _ in range(3):
        slow, another, quick = house.run(crowded(house.assembled.server, half))
        assert (set(slow), another) == ({201}, 429)
        assert quick in (201, 409)
