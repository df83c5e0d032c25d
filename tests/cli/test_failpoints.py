"""`podwire failpoints`, and that a daemon obeys one that it names."""

import json
import signal

import pytest

from podwire.controllers.kinds import NAMESPACES
from podwire.protocols.k8sapi.client_side import Client, ClientError
from podwire.transports.credentials import load
from podwire.transports.http_client import connect


def test_every_failpoint_is_listed_with_when_it_is_passed(podwire):
    done = podwire("failpoints")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines == sorted(lines)
    assert all(len(line.split(maxsplit=1)) == 2 for line in lines)
    assert any(line.startswith("store.") for line in lines)


def test_json_is_the_same_list(podwire):
    text, document = podwire("failpoints").stdout, json.loads(podwire("failpoints", "-o", "json").stdout)
    assert {line.split()[0]: line.split(maxsplit=1)[1] for line in text.splitlines()} == document


async def test_a_daemon_killed_after_a_commit_has_the_commit(daemon, tmp_path):
    given = ("apiserver", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0", "--no-controllers")
    failpoints = tmp_path / "failpoints"
    server = daemon(*given, PODWIRE_FAILPOINTS_FILE=str(failpoints))
    server.wait_for("serving")
    failpoints.write_text("store.after-commit=kill")
    async with connect(load(tmp_path / "kubeconfig")) as http:
        with pytest.raises(ClientError):
            await Client(http).create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kept"}})
    assert server.wait() == -signal.SIGKILL

    daemon(*given).wait_for("serving")
    async with connect(load(tmp_path / "kubeconfig")) as http:
        assert (await Client(http).get(NAMESPACES, "kept"))["metadata"]["name"] == "kept"
