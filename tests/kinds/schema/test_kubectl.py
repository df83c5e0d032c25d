"""Real kubectl reads what the server tells about itself: discovery, explain, validation."""

import http.server
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from podwire.kinds.schema import Discovery, OpenApi
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.kinds import Kind

CLOUD_SDK = Path("/usr/lib/google-cloud-sdk/bin")
KUBECTLS = [
    pytest.param(str(path), id=path.name) for path in sorted(CLOUD_SDK.glob("kubectl.1.*")) if os.access(path, os.X_OK)
] or [pytest.param(shutil.which("kubectl") or "", id="kubectl")]

WIDGET = Kind(group="example.com", version="v1", resource="widgets", kind="Widget", singular="widget")
WIDGET_SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {"type": "object", "properties": {"size": {"type": "integer", "description": "How large it is."}}}
    },
}
POD = """
apiVersion: v1
kind: Pod
metadata: {name: web}
spec: {containers: [{name: c, image: nginx}]}
"""


class Answers(http.server.BaseHTTPRequestHandler):
    """Discovery and OpenAPI over HTTP, nothing else."""

    discovery = Discovery([*BUILTIN.all, WIDGET], address="127.0.0.1")
    openapi = OpenApi(BUILTIN.all)
    openapi.replace_custom([(WIDGET, WIDGET_SCHEMA)])

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        found = self.answer(url.path, parse_qs(url.query).get("hash", [""])[0])
        self.send_response(200 if found else 404)
        content_type, body = found or ("text/plain", b"404 page not found")
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def answer(self, path: str, hash_: str) -> tuple[str, bytes] | None:
        accept = self.headers.get("Accept", "")
        if path == "/version":
            return "application/json", b'{"major":"1","minor":"36","gitVersion":"v1.36.0"}'
        if path == "/openapi/v2":
            old = self.openapi.v2(accept)
            return old.content_type, old.body
        if path == "/openapi/v3":
            return "application/json", self.openapi.index()
        if path.startswith("/openapi/v3/"):
            document = self.openapi.document(path.removeprefix("/openapi/v3/"), hash_)
        else:
            document = self.discovery.document(path, accept)
        return (document.content_type, document.body) if document else None

    def log_message(self, *words: object) -> None:
        """Say nothing."""


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 64  # kubectl up to 1.29 asks for every group at once; a dropped SYN costs a second


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with Server(("127.0.0.1", 0), Answers) as served:
        thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{served.server_port}"
        served.shutdown()
        thread.join()


@pytest.fixture(scope="module", params=KUBECTLS)
def kubectl(request, server, tmp_path_factory):
    if not request.param:
        pytest.skip("there is no kubectl on this machine")

    home = tmp_path_factory.mktemp("home")  # kubectl keeps what it has seen there

    def run(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        command = [request.param, "--server", server, *words]
        environment = {"HOME": str(home), "PATH": os.environ["PATH"]}
        return subprocess.run(
            command, input=stdin, capture_output=True, text=True, env=environment, timeout=60, check=False
        )

    return run


def test_kubectl_lists_the_served_resources(kubectl):
    listed = kubectl("api-resources", "-o", "wide", "--no-headers")
    assert listed.returncode == 0, listed.stderr
    rows = {(line.split()[0], words[0]): line for line in listed.stdout.splitlines() for words in [_group_word(line)]}
    only_preferred = {(kind.group, kind.resource): kind for kind in reversed((*BUILTIN.all, WIDGET))}
    expected = {(kind.resource, kind.api_version) for kind in only_preferred.values()}
    assert set(rows) == expected
    pods = rows["pods", "v1"]
    assert " po " in pods
    assert "create,delete,deletecollection,get,list,patch,update,watch" in pods


def _group_word(line: str) -> list[str]:
    """The words from APIVERSION on, whether or not there are short names."""
    words = line.split()
    start = next(index for index, word in enumerate(words) if word in ("true", "false")) - 1
    return words[start:]


@pytest.mark.parametrize(
    ("field", "explanation"),
    [
        ("pod.spec.containers", "List of containers belonging to the pod."),
        ("deployments.spec.strategy", "The deployment strategy to use to replace existing pods"),
        ("pod.spec.containers.resources.limits", "<map[string]Quantity>"),
        ("widget.spec.size", "How large it is."),
        ("widget.metadata.labels", "<map[string]string>"),
    ],
)
def test_kubectl_explains(kubectl, field, explanation):
    explained = kubectl("explain", field)
    assert explained.returncode == 0, explained.stderr
    assert " ".join(explanation.split()) in " ".join(explained.stdout.split())


def test_kubectl_leaves_validation_to_the_server(kubectl):
    made = kubectl("create", "--dry-run=client", "--validate=true", "-o", "name", "-f", "-", stdin=POD)
    assert (made.returncode, made.stdout) == (0, "pod/web\n"), made.stderr
