"""Runs an API server on a disk that another program fills. Asserts everything itself.

full_disk_program.py stopped DIRECTORY    a server that is stopped and started again; DIRECTORY is a small file system
full_disk_program.py killed DIRECTORY     a server that is killed and started again
"""

import asyncio
import contextlib
import os
import signal
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
LARGE = 14
"""ConfigMaps of 900 KB, with finalizers: their deletion writes three times as much as is reserved."""


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


async def fill_store(server: Running, other: Path | None, name: str) -> None:
    """Writes until that is refused, while the other program takes whatever becomes free."""
    for number in range(500):
        body = {"metadata": {"name": f"{name}{number}"}, "data": {"x": "x" * 50_000}}
        status, _ = await call(server, "POST", MAPS, body)
        if status == FULL:
            return
        if other:
            fill_disk(other)
    raise AssertionError("the disk is never full")


async def delete_works(server: Running, name: str) -> None:
    """The deletion's mark, the removal of the finalizer, the end."""
    assert (await call(server, "DELETE", f"{PODS}/{name}"))[0] == 200
    assert (await call(server, "PATCH", f"{PODS}/{name}", {"metadata": {"finalizers": None}}))[0] == 200
    await call(server, "DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})
    assert (await call(server, "GET", f"{PODS}/{name}"))[0] == 404


def options_in(directory: Path) -> Options:
    tokens = {TOKEN: User("admin", groups=("system:masters",))}
    return Options(data_dir=directory / "data", port=0, static_tokens=tokens)


async def stopped(directory: Path) -> None:
    other, options = directory / "other-program.log", options_in(directory)
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


async def fill_and_die(directory: Path) -> None:
    """A server with large objects, whose disk is full when it is killed."""
    async with running(options_in(directory)) as server:
        for number in range(LARGE):
            metadata = {"name": f"large{number}", "finalizers": ["example.com/wait"]}
            status, body = await call(server, "POST", MAPS, {"metadata": metadata, "data": {"x": "x" * 900_000}})
            assert status == 201, body
        fill_disk(directory / "other-program.log")
        await fill_store(server, None, "first")
        os.kill(os.getpid(), signal.SIGKILL)


def kill_a_server(directory: Path) -> None:
    if not (child := os.fork()):
        asyncio.run(fill_and_die(directory))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    fill_disk(directory / "other-program.log")


async def killed(directory: Path) -> None:
    async with running(options_in(directory)) as server:
        status, body = await call(server, "GET", "/readyz")
        assert (status, b"no space left on the disk" in body) == (500, True), body
        status, body = await call(server, "POST", MAPS, {"metadata": {"name": "ordinary"}})
        assert status == FULL, body
        for number in range(LARGE):
            status, body = await call(server, "DELETE", f"{MAPS}/large{number}")
            assert status == 200, (number, body)
        for number in range(LARGE):
            path = f"{MAPS}/large{number}"
            status, body = await call(server, "PATCH", path, {"metadata": {"finalizers": None}})
            assert status == 200, (number, body)
            assert (await call(server, "GET", path))[0] == 404


if __name__ == "__main__":
    restart, place = sys.argv[1], Path(sys.argv[2])
    if restart == "killed":
        kill_a_server(place)
    asyncio.run(killed(place) if restart == "killed" else stopped(place))
    sys.stdout.write("done\n")
