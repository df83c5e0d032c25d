"""A real API server that is attacked by idle connections, that encrypts what it stores, and that records who asks."""

import base64
import contextlib
import json
import socket
import ssl
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from tests.eventually import eventually
from tests.stories.support import PODWIRE, ApiServer, Process

SECRETS = "/api/v1/namespaces/default/secrets"
CANARY = "c4n4ry-s3cr3t"
FILES = 600
"""Open files that the crowded server may have, of which it keeps 256 for itself."""


class CrowdedServer(ApiServer):
    """One that may not have many open files, however it tries."""

    def run(self, *command: Any, **options: Any) -> None:
        super().run("prlimit", f"--nofile={FILES}:{FILES}", *command, **options)


@contextlib.contextmanager
def anonymous(server: ApiServer, number: int) -> Iterator[None]:
    """So many TLS connections without credentials, each of which asked once and stays."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    address = urlsplit(server.url)
    with contextlib.ExitStack() as stack:
        for _ in range(number):
            plain = stack.enter_context(socket.create_connection((address.hostname, address.port), timeout=30))
            client = stack.enter_context(context.wrap_socket(plain))
            client.sendall(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
            assert client.recv(15).startswith(b"HTTP/1.1 200")
        yield


def test_idle_anonymous_connections_do_not_lock_the_administrator_out(tmp_path):
    server = CrowdedServer(tmp_path / "server")
    server.start()
    with anonymous(server, FILES - 256 + 50):
        assert server.ask("GET", "/api/v1/nodes")[0] == 200
    assert server.stop() == 0
    server.close()


@pytest.fixture
def configured(tmp_path: Path) -> Any:
    """`configured(key)`: the options of a server that encrypts secrets with this key, and its audit log."""
    audit = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}
    (tmp_path / "audit.yaml").write_text(yaml.safe_dump(audit))

    def options(name: str) -> tuple[str, ...]:
        key = {"name": name, "secret": base64.b64encode(name.encode().ljust(32)).decode()}
        rule = {"resources": ["secrets"], "providers": [{"aesgcm": {"keys": [key]}}, {"identity": {}}]}
        document = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration", "resources": [rule]}
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(document))
        return (
            "--encryption-provider-config", str(tmp_path / f"{name}.yaml"),
            "--audit-policy-file", str(tmp_path / "audit.yaml"), "--audit-log-path", str(tmp_path / "audit.log"),
        )  # fmt: skip

    return options


def test_secrets_are_encrypted_requests_are_recorded_and_another_key_is_refused(tmp_path, configured):
    server = ApiServer(tmp_path / "server", *configured("first"))
    server.start()
    server.rest("POST", SECRETS, {"metadata": {"name": "s"}, "stringData": {"k": CANARY}})
    stored = base64.b64encode(CANARY.encode()).decode()
    assert server.rest("GET", f"{SECRETS}/s")["data"] == {"k": stored}
    assert server.stop() == 0
    server.close()
    written = b"".join(path.read_bytes() for path in (tmp_path / "server" / "store").iterdir())
    assert b"k8s:enc:aesgcm:v1:first:" in written
    assert stored.encode() not in written

    log = tmp_path / "audit.log"
    events = [json.loads(line) for line in log.read_text().splitlines()]
    created = [event for event in events if event["verb"] == "create" and event["stage"] == "ResponseComplete"]
    (secret,) = [event for event in created if event["objectRef"]["resource"] == "secrets"]
    assert (secret["objectRef"]["name"], secret["sourceIPs"]) == ("s", ["127.0.0.1"])
    assert stat.S_IMODE(log.stat().st_mode) == 0o600

    again = Process("podwire apiserver with another key", tmp_path / "again.log")
    again.run(PODWIRE, "apiserver", "--data-dir", tmp_path / "server", "--listen", "127.0.0.1:0", *configured("second"))
    assert again.exit_code(60) == 1
    eventually(lambda: "no key of the encryption configuration is k8s:enc:aesgcm:v1:first:" in again.log.read_text())
    assert "Traceback" not in again.log.read_text()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            ("--audit-policy-file", "bad.yaml", "--audit-log-path", "-"),
            "bad.yaml: rules[0].level: 'All' must be one of",
        ),
        (("--encryption-provider-config", "bad.yaml"), "bad.yaml: apiVersion: 'audit.k8s.io/v1' must be one of"),
        (("--audit-policy-file", "bad.yaml"), "--audit-policy-file and --audit-log-path need each other"),
        (("--encryption-provider-config", "absent.yaml"), "absent.yaml"),
        (("--audit-webhook-config-file", "bad.yaml"), "--audit-webhook-config-file: webhooks for audit events are not"),
    ],
)
def test_a_bad_file_is_refused_with_its_name_the_field_and_the_reason(tmp_path, options, words):
    document = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "All"}], "resources": []}
    del document["resources" if "--audit-log-path" in options else "rules"]
    (tmp_path / "bad.yaml").write_text(yaml.safe_dump(document))
    given = [str(tmp_path / option) if option.endswith(".yaml") else option for option in options]
    server = Process("podwire apiserver", tmp_path / "log")
    server.run(PODWIRE, "apiserver", "--data-dir", tmp_path / "server", "--listen", "127.0.0.1:0", *given)
    assert server.exit_code(60) == 1
    assert words in server.log.read_text().replace(f"{tmp_path}/", "")
    assert "Traceback" not in server.log.read_text()
