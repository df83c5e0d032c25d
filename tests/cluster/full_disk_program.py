"""Runs an API server on a disk that another program fills. Asserts everything itself.

full_disk_program.py DIRECTORY: a small file system of its own.
"""

import asyncio
import contextlib
import os
import sys
from pathlib import Path
from typing import Any

import msgspec

from podwire.apiserver.identity.users import User
from podwire.cluster.apiserver import Options, Running, running
from podwire.protocols.k8sapi.server_side import Request, Response

PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"
TOKEN = "token"
FULL = 507


def fill_disk(path: Path) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for size in (1 << 20, 4096, 512, 1):
        with contextlib.suppress(OSError):
            while os.write(file, b"\0" * size):
                pass
    os.close(file)


async def call(server: Running, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
    data = b"" if body is None else msgspec.json.encode(body)

    async def read(_limit: int) -> bytes:
        return data

    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    headers = {"authorization": f"Bearer {TOKEN}", "content-type": kind, "accept": "application/json"}
    answer = await server.assembled.server.handle(Request(method=method, path=path, headers=headers, read=read))
    assert isinstance(answer, Response), answer
    return answer.status, answer.body


def pod(name: str) -> Any:
    spec = {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}], "serviceAccountName": "default"}
    return {"metadata": {"name": name, "finalizers": ["example.com/wait"]}, "spec": spec}


async def fill_store(server: Running, other: Path, name: str) -> None:
    for number in range(500):
        body = {"metadata": {"name": f"{name}{number}"}, "data": {"x": "x" * 50_000}}
        status, _ = await call(server, "POST", MAPS, body)
        if status == FULL:
            return
        fill_disk(other)
    raise AssertionError("the disk is never full")


async def delete_works(server: Running, name: str) -> None:
    """The deletion's mark, the removal of the finalizer, the end."""
    assert (await call(server, "DELETE", f"{PODS}/{name}"))[0] == 200
    assert (await call(server, "PATCH", f"{PODS}/{name}", {"metadata": {"finalizers": None}}))[0] == 200
    await call(server, "DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})
    assert (await call(server, "GET", f"{PODS}/{name}"))[0] == 404


async def main(directory: Path) -> None:
    other = directory / "other-program.log"
    tokens = {TOKEN: User("admin", groups=("system:masters",))}
    options = Options(data_dir=directory / "data", port=0, static_tokens=tokens)
    async with running(options) as server:
        await call(server, "POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
        for name in "abc":
            status, body = await call(server, "POST", PODS, pod(name))
            assert status == 201, body
        assert (await call(server, "GET", "/readyz"))[0] == 200
        fill_disk(other)
        await fill_store(server, other, "first")
        status, body = await call(server, "GET", "/readyz")
        assert status == 500, body
        assert b"no space left on the disk" in body
        assert (await call(server, "GET", "/livez"))[0] == 200, "a restart would not help"
        await delete_works(server, "a")
        assert (await call(server, "GET", f"{PODS}/b"))[0] == 200
    fill_disk(other)
    async with running(options) as server:
        status, body = await call(server, "GET", f"{PODS}/b")
        assert status == 200, body
        await delete_works(server, "b")
        fill_disk(other)
        await fill_store(server, other, "second")
        other.unlink()
        status, body = await call(server, "POST", MAPS, {"metadata": {"name": "with-space"}})
        assert status == 201, body
        assert (await call(server, "GET", "/readyz"))[0] == 200
        assert (await call(server, "GET", f"{PODS}/c"))[0] == 200
    sys.stdout.write("done\n")


asyncio.run(main(Path(sys.argv[1])))
