"""Starting, stopping, starting twice, and all the ways in which a start must be refused in one clear line."""

import asyncio
import contextlib
import json
import socket
import sqlite3
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import aiohttp
import pytest

from tests.eventually import eventually, eventually_async

PODWIRE = Path(sys.executable).with_name("podwire")
NAMESPACES = "/api/v1/namespaces"
MAPS = f"{NAMESPACES}/default/configmaps"


def refused(*options: object, wrapper: tuple[str, ...] = ()) -> tuple[int, str]:
    """Exit code and complaint of a server that cannot start."""
    command = [*wrapper, PODWIRE, "apiserver", *map(str, options)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr, ended.stderr
    return ended.returncode, ended.stderr


def test_one_data_directory_serves_one_server(start_server):
    server = start_server()
    code, error = refused("--data-dir", server.data_dir, "--listen", "127.0.0.1:0")
    assert (code, error.count("\n")) == (1, 1), error
    assert f"{server.data_dir}/store: in use by another process (pid " in error
    assert server.ask("GET", "/readyz") == (200, "ok")


def test_a_server_that_was_killed_leaves_no_lock(start_server):
    server = start_server()
    server.kill()
    server.start()
    assert server.stop() == 0


FREE = ("--listen", "127.0.0.1:0")


def a_busy_port(folder):
    taken = socket.create_server(("127.0.0.1", 0))
    where = f"127.0.0.1:{taken.getsockname()[1]}"
    return ["--data-dir", folder, "--listen", where], taken, 1, "Address already in use"


def a_file_for_a_directory(folder):
    file = folder / "file"
    file.touch()
    return ["--data-dir", file, *FREE], None, 1, "Not a directory"


def a_directory_that_cannot_be_made(_folder):
    return ["--data-dir", "/proc/nowhere", *FREE], None, 1, "/proc/nowhere"


def a_newer_store(folder):
    (folder / "store").mkdir()
    with contextlib.closing(sqlite3.connect(folder / "store/store.db")) as database:
        database.execute("PRAGMA user_version=99")
    return ["--data-dir", folder, *FREE], None, 1, "written by a newer podwire (format 99; this one supports up to 1)"


def a_store_that_is_none(folder):
    (folder / "store").mkdir()
    (folder / "store/store.db").write_bytes(b"not a database at all" * 100)
    return ["--data-dir", folder, *FREE], None, 1, "file is not a database"


def keys_that_are_none(folder):
    (folder / "pki").mkdir()
    for name in ("ca.crt", "ca.key", "sa.key"):
        (folder / "pki" / name).write_text("not a key")
    return ["--data-dir", folder, *FREE], None, 1, str(folder / "pki")


def an_etcd_that_is_not_there(folder):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    return ["--data-dir", folder, *FREE, "--store", f"etcd://127.0.0.1:{port}"], None, 1, f"127.0.0.1:{port}"


def an_unknown_store(folder):
    return ["--data-dir", folder, *FREE, "--store", "mysql://here"], None, 1, "the store must be memory://, sqlite://"


def an_address_of_somebody_else(folder):
    return ["--data-dir", folder, "--listen", "192.0.2.1:0"], None, 1, "Cannot assign requested address"


def no_port(folder):
    return ["--data-dir", folder, "--listen", "127.0.0.1"], None, 2, "is not ADDRESS:PORT"


def a_name_for_an_address(folder):
    return ["--data-dir", folder, "--listen", "localhost:1"], None, 2, "is not ADDRESS:PORT"


def an_impossible_port(folder):
    return ["--data-dir", folder, "--listen", "127.0.0.1:70000"], None, 2, "is not ADDRESS:PORT"


def an_unknown_flag(folder):
    return ["--data-dir", folder, "--colour", "red"], None, 2, "unrecognized arguments: --colour red"


def a_bad_network(folder):
    return ["--data-dir", folder, "--service-cluster-ip-range", "10.0.0.0/33"], None, 2, "10.0.0.0/33"


def no_token_file(folder):
    return ["--data-dir", folder, "--token-auth-file", folder / "none"], None, 2, "No such file or directory"


def a_bad_token_file(folder):
    (folder / "tokens").write_text("good,user,1\nbad line\n")
    return ["--data-dir", folder, "--token-auth-file", folder / "tokens"], None, 2, "line 2: expected token,user,uid"


REFUSED = [
    a_busy_port, a_file_for_a_directory, a_directory_that_cannot_be_made, a_newer_store, a_store_that_is_none,
    keys_that_are_none, an_etcd_that_is_not_there, an_unknown_store, an_address_of_somebody_else, no_port,
    a_name_for_an_address, an_impossible_port, an_unknown_flag, a_bad_network, no_token_file, a_bad_token_file,
]  # fmt: skip


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.__name__.replace("_", " "))
def test_a_start_is_refused_in_one_clear_line(case, tmp_path):
    options, held, expected, words = case(tmp_path)
    with contextlib.closing(held) if held else contextlib.nullcontext():
        code, error = refused(*options)
    *usage, line = [line for line in error.splitlines() if not line.startswith("see `podwire ")]
    assert code == expected, error
    assert words in line, error
    assert bool(usage) == (expected == 2), error  # who gets the flags wrong is shown them


def test_a_data_directory_that_cannot_be_read_is_named(start_server):
    server = start_server()
    server.stop()
    server.data_dir.chmod(0o000)
    plain = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")  # root, but bound by permissions
    code, error = refused("--data-dir", server.data_dir, *FREE, wrapper=plain)
    assert code == 1, error
    assert "Permission denied" in error
    assert str(server.data_dir) in error
    assert error.count("\n") == 1, error


async def test_a_stopping_server_ends_watches_cleanly(start_server):
    server = await asyncio.to_thread(start_server)
    connector = aiohttp.TCPConnector(limit=0, ssl=server.tls)
    async with aiohttp.ClientSession(server.url, connector=connector) as http:
        answers = [await http.get(f"{NAMESPACES}?watch=true") for _ in range(30)]
        reading = [asyncio.create_task(answer.read()) for answer in answers]
        begun = time.monotonic()
        code = await asyncio.to_thread(server.stop)
        took = time.monotonic() - begun
        ends = await asyncio.gather(*reading)
    assert code == 0
    assert took < 5
    for end in ends:  # a stream that was cut would have raised
        events = [json.loads(line) for line in end.splitlines()]
        assert {event["type"] for event in events} == {"ADDED"}


async def test_in_flight_requests_finish_before_shutdown(start_server):
    server = await asyncio.to_thread(start_server)
    acknowledged = []

    async def write(http, number):
        with contextlib.suppress(aiohttp.ClientError, ConnectionError):
            for count in range(1000):
                name = f"w{number}-{count}"
                async with http.post(MAPS, json={"metadata": {"name": name}}) as answer:
                    await answer.read()
                    if answer.status == 201:
                        acknowledged.append(name)

    connector = aiohttp.TCPConnector(limit=0, ssl=server.tls)
    async with aiohttp.ClientSession(server.url, connector=connector) as http:
        writers = [asyncio.create_task(write(http, number)) for number in range(10)]
        await eventually_async(lambda: len(acknowledged) >= 100, interval=0.01)
        assert await asyncio.to_thread(server.stop) == 0
        await asyncio.gather(*writers)
    await asyncio.to_thread(server.start)
    page = await asyncio.to_thread(server.rest, "GET", MAPS)
    assert set(acknowledged) <= {item["metadata"]["name"] for item in page["items"]}


def test_a_second_start_honours_the_first_ones_certificates_and_tokens(start_server, tmp_path):
    server = start_server()
    path = f"{NAMESPACES}/default/serviceaccounts/default"
    eventually(lambda: server.ask("GET", path)[0] == 200)
    token = server.rest("POST", f"{path}/token", {"spec": {"expirationSeconds": 3600}})["status"]["token"]
    authority, admin = server.access.ca.text, server.tls
    keys = {path.name: path.read_bytes() for path in (server.data_dir / "pki").iterdir()}
    assert server.stop() == 0
    server.start()
    assert server.access.ca.text == authority
    assert {path.name: path.read_bytes() for path in (server.data_dir / "pki").iterdir()} == keys
    assert _asked(server.url, MAPS, tls=admin) == 200
    assert _asked(server.url, "/api", authority=authority, token=token) == 200
    assert _asked(server.url, MAPS, authority=authority, token=f"{token[:-4]}AAAA") == 401
    assert _asked(server.url, MAPS, authority=authority) == 403


def _asked(url, path, *, tls=None, authority=None, token=""):
    """The status of a GET with a client certificate, or trusting an authority, perhaps with a token."""
    context = tls or ssl.create_default_context(cadata=authority)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(url + path, headers=headers)
    try:
        with urllib.request.urlopen(request, context=context, timeout=10) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


async def test_two_servers_on_one_etcd_are_one(start_server, etcd):
    store = etcd.url()
    one = await asyncio.to_thread(start_server, "one", store=store)
    two = await asyncio.to_thread(start_server, "two", store=store)
    async with (
        aiohttp.ClientSession(one.url, connector=aiohttp.TCPConnector(ssl=one.tls)) as first,
        aiohttp.ClientSession(two.url, connector=aiohttp.TCPConnector(ssl=two.tls)) as second,
    ):
        async with second.get(MAPS) as answer:
            revision = (await answer.json())["metadata"]["resourceVersion"]
        query = {"watch": "true", "resourceVersion": revision}
        async with second.get(MAPS, params=query) as watch:
            written = await _turns(first, second)
            seen = []
            async with asyncio.timeout(20):
                while len(seen) < len(written):
                    event = json.loads(await watch.content.readline())
                    if event["object"]["metadata"]["name"] != "kube-root-ca.crt":
                        seen.append((event["type"], event["object"]["metadata"]["resourceVersion"]))
    assert seen == written
    for server in (one, two):
        assert await asyncio.to_thread(server.stop) == 0


async def _turns(first, second):
    """Both servers change one object in turn, each upon what the other left; kinds and versions of the changes."""
    async with first.post(MAPS, json={"metadata": {"name": "ours"}, "data": {"turn": "0"}}) as answer:
        assert answer.status == 201
        newest = (await answer.json())["metadata"]["resourceVersion"]
    written = [("ADDED", newest)]
    for turn in range(1, 21):
        http = (first, second)[turn % 2]
        async with http.get(f"{MAPS}/ours", params={"resourceVersion": newest}) as answer:
            current = await answer.json()
        assert current["metadata"]["resourceVersion"] == newest
        current["data"] = {"turn": str(turn)}
        async with http.put(f"{MAPS}/ours", json=current) as answer:
            assert answer.status == 200
            newest = (await answer.json())["metadata"]["resourceVersion"]
        written.append(("MODIFIED", newest))
        stale = {**current, "data": {"turn": "stale"}}
        async with (first, second)[turn % 2 - 1].put(f"{MAPS}/ours", json=stale) as answer:
            assert answer.status == 409
    return written
