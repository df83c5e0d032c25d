"""Secrets stay where they belong: canaries in every kind of secret, and a search through all that a cluster writes.

The cluster runs with its most verbose logs, a trace, and an OpenTelemetry collector.
"""

import base64
import contextlib
import json
import re
import stat
from pathlib import Path

import pytest

from podwire.runtime.images.build import ROOT_REFERENCE
from tests.stories.cluster.canaries import Canary, Exempt, Search, canary
from tests.stories.cluster.telemetry import Telemetry

pytestmark = pytest.mark.timeout(400)

EXEMPT = (
    Exempt(r"var/lib/podwire/apiserver/.*\.db(-wal|-shm)?", "the store has every object"),
    Exempt(r"var/lib/podwire/runtime/containers/[^/]+/config\.json", "the OCI specification, which crun reads"),
    Exempt(r"run/podwire/crun/[^/]+/config\.json", "the copy that crun makes of it"),
    Exempt(r"var/lib/kubelet/secrets/[^/]+/.*", "volumes of pods, on a tmpfs of the kubelet"),
    Exempt(r"var/lib/podwire/kubeconfig", "credentials of the administrator"),
    Exempt(r"var/lib/podwire/identities/.*", "credentials of a component"),
    Exempt(r"var/lib/podwire/apiserver/(pki/.*|kubeconfig)", "the cluster's keys"),
)
OF_THE_NODE = ("var/lib/podwire", "var/lib/kubelet", "var/log/pods", "run/podwire", "run/cdi", "etc/cni", "etc/cdi")
"""Directories that are searched as the node has them, with its mounts."""
TRACES = [
    ("secrets", "--color", "never"),
    ("secrets", "--brief"),
    ("secrets", "--format", "json"),
    ("secrets", "--format", "html"),
    ("secrets", "--format", "mermaid"),
    ("--slow",),
    ("--diff", "secrets", "secrets", "--format", "json"),
    ("--format", "json"),
]
PAGES = ("/metrics", *(f"/api/v1/nodes/node-1/proxy/{path}" for path in ("metrics", "stats/summary", "configz")))
"""Of the API server, if it has any, and of the kubelet."""


@pytest.fixture
def telemetry(cluster, tmp_path):
    with contextlib.closing(Telemetry(cluster, tmp_path / "telemetry")) as made:
        yield made


class Planted:
    """Objects with canaries."""

    def __init__(self) -> None:
        self.secret = canary("a value of a Secret")
        self.string = canary("a value of stringData")
        self.plain = canary("the value of a variable")
        self.password = canary("the password of a registry")
        self.header = canary("a header of a probe")
        self.command = canary("a command of exec")
        self.bearer = canary("a wrong bearer token")
        self.invalid = canary("a value of an invalid Secret")
        self.always = [self.secret, self.string, self.password, self.command, self.bearer, self.invalid]
        """They are in nobody's object but a Secret."""

    def objects(self) -> list[dict]:
        login = {"username": "me", "password": self.password.value}
        auths = {"podwire.local": login, "registry.example": {"auth": _base64(f"me:{self.password.value}")}}
        registry = {".dockerconfigjson": _base64(json.dumps({"auths": auths}))}
        return [
            _secret("keys", data={"password": _base64(self.secret.value)}, stringData={"text": self.string.value}),
            _secret("login", type="kubernetes.io/dockerconfigjson", data=registry),
            self.pod(),
        ]

    def pod(self) -> dict:
        reference = {"secretKeyRef": {"name": "keys", "key": "password"}}
        sources = [{"secret": {"name": "keys"}}, {"serviceAccountToken": {"path": "token"}}]
        container = {
            "name": "main",
            "image": ROOT_REFERENCE,
            "imagePullPolicy": "Always",
            "command": ["sh", "-c", "trap 'exit 0' TERM; sleep 100000 & wait", "$(FROM_SECRET)"],
            "args": ["$(PLAIN)"],
            "env": [{"name": "FROM_SECRET", "valueFrom": reference}, {"name": "PLAIN", "value": self.plain.value}],
            "envFrom": [{"secretRef": {"name": "keys"}, "prefix": "ALL_"}],
            "volumeMounts": [{"name": "keys", "mountPath": "/keys"}, {"name": "mixed", "mountPath": "/mixed"}],
            "startupProbe": {"exec": {"command": ["cat", "/keys/password"]}},
            "lifecycle": {"postStart": {"exec": {"command": ["sh", "-c", "env; cat /keys/text"]}}},
            "livenessProbe": {
                "httpGet": {"path": "/", "port": 80, "httpHeaders": [{"name": "X-Key", "value": self.header.value}]},
                "initialDelaySeconds": 1000,
            },
        }
        volumes = [
            {"name": "keys", "secret": {"secretName": "keys"}},
            {"name": "mixed", "projected": {"sources": sources}},
        ]
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "secrets", "namespace": "default"},
            "spec": {"containers": [container], "volumes": volumes, "imagePullSecrets": [{"name": "login"}]},
        }


def _secret(name: str, **content) -> dict:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "default"}, **content}


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_secrets_are_only_where_they_belong(cluster, telemetry):
    planted = Planted()
    cluster.up("--log-level", "debug", "--otlp", telemetry.url)
    errors = refused_bodies(cluster, planted)
    cluster.apply(*planted.objects())
    cluster.running(1)
    token = cluster.output("exec", "secrets", "--", "cat", "/mixed/token").strip()
    account = cluster.output("exec", "secrets", "--", "cat", "/var/run/secrets/kubernetes.io/serviceaccount/token")
    cluster.output("exec", "secrets", "--", "sh", "-c", f"echo {planted.command.value} $FROM_SECRET")
    cluster.eventually(lambda: "Running after" in traced(cluster, "secrets", "--color", "never"), "it has started")
    keys = [
        Canary("a projected token", token.rpartition(".")[2]),
        Canary("the token of the service account", account.strip().rpartition(".")[2]),
        *private_keys(cluster.layout.state),
    ]
    secrets = [*planted.always, *keys]
    recorded = [*secrets, planted.plain, planted.header]

    outputs = {f"podwire trace {' '.join(words)}": traced(cluster, *words) for words in TRACES}
    traced(cluster, "secrets", "--otlp", telemetry.url)
    outputs |= {f"span {path.name}": path.read_text(errors="replace") for path in telemetry.folder.glob("*.otlp")}
    assert any("CreateContainer" in text for name, text in outputs.items() if name.startswith("span"))
    outputs |= {"events": cluster.output("get", "events", "-A", "-o", "yaml"), **errors}
    outputs |= {path: page(cluster, path) for path in PAGES}
    outputs |= {command: output_of(cluster, command) for command in ("status", "leakcheck")}
    outputs |= processes(cluster)
    shown = {f"describe {kind}": cluster.output("describe", kind) for kind in ("pods", "secrets", "sa", "nodes")}
    shown["pods"] = cluster.output("get", "pods", "-o", "yaml")
    assert [name for name, text in (outputs | shown).items() if not text.strip()] == []
    logs = {f"log {path.name}": path.read_text(errors="replace") for path in cluster.layout.logs.glob("*.log")}
    assert any(" debug " in text for text in logs.values())

    search, node = Search(recorded, EXEMPT), Path(f"/proc/{cluster.pid('kubelet')}/root")
    found = leaked(outputs | logs, recorded) + leaked(shown, secrets)
    found += search.wrong(cluster.prefix) + search.wrong(node, OF_THE_NODE)
    found += open_keys(cluster.layout.state) + open_specs(cluster)
    assert not found, "\n".join(found)
    assert search.unused <= {EXEMPT[0]}, "an exception that is not needed; the store may be encrypted"
    assert ("tmpfs", "/var/lib/kubelet/secrets") in mounts(cluster)

    cluster.delete_all()
    later = Search([planted.secret, planted.string, *keys[:2]], EXEMPT[:1])
    cluster.eventually(
        lambda: not later.wrong(cluster.prefix) + later.wrong(node, OF_THE_NODE),
        "only the store has secrets of the pod",
        lambda: "\n".join(later.wrong(cluster.prefix) + later.wrong(node, OF_THE_NODE)),
    )


def traced(cluster, *words: str) -> str:
    done = cluster.podwire("trace", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def leaked(outputs: dict[str, str], canaries: list[Canary]) -> list[str]:
    return [f"{name} has {one.what}" for name, text in outputs.items() for one in canaries if one.is_in(text.encode())]


def refused_bodies(cluster, planted: Planted) -> dict[str, str]:
    """The answers to requests that are wrong, with a secret in each."""
    invalid = planted.invalid.value
    answers = {}
    for name, wrong in {
        "not base64": _secret("wrong", data={"password": f"!{invalid}"}),
        "wrong type": _secret("wrong", stringData={"password": {"nested": invalid}}),
        "wrong list": _secret("wrong", data=[invalid]),
        "wrong key": _secret("wrong", stringData={"not a key": invalid}),
        "bad login": _secret("wrong", type="kubernetes.io/dockerconfigjson", stringData={".dockerconfigjson": invalid}),
    }.items():
        done = cluster.kubectl("create", "--validate=false", "-f", "-", given=json.dumps(wrong))
        assert done.returncode, f"{name} was created"
        answers[f"refused: {name}"] = done.stdout + done.stderr
    words = ("--kubeconfig", "/dev/null", "--insecure-skip-tls-verify", "--token", planted.bearer.value)
    server = json.loads(cluster.output("config", "view", "-o", "json"))["clusters"][0]["cluster"]["server"]
    done = cluster.space.run("kubectl", *words, "--server", server, "get", "pods", HOME=str(cluster.prefix))
    assert done.returncode
    return answers | {"refused: token": done.stdout + done.stderr}


def page(cluster, path: str) -> str:
    done = cluster.kubectl("get", "--raw", path)
    return done.stdout + done.stderr


def output_of(cluster, command: str) -> str:
    done = cluster.podwire(command, "-o", "json")
    return done.stdout + done.stderr


def processes(cluster) -> dict[str, str]:
    """Command lines and environments of our processes, without those of containers."""
    texts = {}
    for pid in [*cluster.processes(), *cluster.residents()]:
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
            if "sleep" not in command:
                environment = Path(f"/proc/{pid}/environ").read_text(errors="replace")
                texts[f"process {pid}"] = f"{command} {environment}"
    assert any("podwire-shim" in text for text in texts.values())
    return texts


def private_keys(state: Path) -> list[Canary]:
    """All keys of the cluster: a line of the PEM text of each."""
    texts = {path.name: path.read_text() for path in (state / "apiserver/pki").glob("*.key")}
    for path in (state / "kubeconfig", *(state / "identities").glob("*.kubeconfig")):
        [data] = re.findall(r"client-key-data\W+([\w+/=]+)", path.read_text())
        texts[path.name] = base64.b64decode(data).decode()
    return [Canary(f"the key in {name}", text.splitlines()[1]) for name, text in texts.items()]


def mounts(cluster) -> list[tuple[str, str]]:
    """File system types and mount points of the node."""
    lines = Path(f"/proc/{cluster.pid('kubelet')}/mounts").read_text().splitlines()
    return [(kind, path) for _, path, kind, *_ in map(str.split, lines)]


def open_keys(state: Path) -> list[str]:
    """Files of keys that others than root can read, and directories of keys that they can list."""
    places = [state / "kubeconfig", *(state / "identities").rglob("*"), *(state / "apiserver/pki").rglob("*")]
    places += [state / "identities", state / "apiserver/pki"]
    return [
        f"{path}: {stat.S_IMODE(path.stat().st_mode):o}"
        for path in places
        if stat.S_IMODE(path.stat().st_mode) != (0o700 if path.is_dir() else 0o600)
    ]


def open_specs(cluster) -> list[str]:
    """OCI specifications that others than root can read."""
    specs = [*(cluster.layout.state / "runtime/containers").glob("*/config.json")]
    assert specs
    return [str(path) for path in specs if stat.S_IMODE(path.stat().st_mode) & 0o077]
