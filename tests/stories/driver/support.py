"""Clusters with real links on their node, the network driver as a process there, and pods that look for themselves.

A claiming pod's first act is to look for its interface, and to write down what it saw: whatever a story did, nobody may
ever have been `bare`.
"""

import contextlib
import itertools
import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from podwire.dradriver.publish.manifests import SHARED, WHOLE, Deployment, network_driver
from podwire.linux.proc.namespaces import visit
from podwire.protocols.k8sapi.watch import Object
from podwire.runtime.images.build import ROOT_REFERENCE
from tests.stories.cluster import support as clusters
from tests.stories.pids import program_of

DRIVER, API = "net.podwire.dev", "resource.k8s.io/v1"
ATTRIBUTES = f'device.attributes["{DRIVER}"]'
KUBECONFIG = "/var/lib/podwire/identities/network-driver.kubeconfig"
PAGES = itertools.count(9750)
PATIENCE = 60.0
LOOKS = (
    "for each in $WANTED; do "
    '[ -e "/sys/class/net/$each" ] || { echo "$HOSTNAME bare $each" >>/seen/all; exit 9; }; done; '
    'echo "$HOSTNAME attached" >>/seen/all; '
)
SERVES = 'mkdir -p /www && echo "$HOSTNAME" >/www/index.html && exec httpd -f -p 80 -h /www'


class Process:
    """`podwire network-driver` on a cluster's node."""

    def __init__(self, stage: "Stage", name: str) -> None:
        self._stage, self.log = stage, stage.directory / f"{name}.log"
        self.port = next(PAGES)
        self._child: subprocess.Popen[bytes] | None = None

    def start(self, *words: object, ready: bool = True, failpoints: Path | None = None) -> "Process":
        cluster, config = self._stage.cluster, self._stage.config
        command = [clusters.PODWIRE, "node", "exec", "--prefix", cluster.prefix, "node-1", "--"]
        command += [clusters.PODWIRE, "network-driver", "--kubeconfig", KUBECONFIG, "--node-name", "node-1"]
        command += ["--listen", f"127.0.0.1:{self.port}", *(["--config", config] if config else []), *words]
        env = {**os.environ, **({"PODWIRE_FAILPOINTS_FILE": str(failpoints)} if failpoints else {})}
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(cluster.space.command(*command), stdout=log, stderr=log, env=env)
        if ready:
            self.ready()
        return self

    def ready(self) -> None:
        self._stage.cluster.eventually(lambda: self.page("readyz") == (200, "ok"), "the driver is ready", self.log_tail)

    def page(self, name: str) -> tuple[int, str]:
        """Status and text of one of its pages; 0 while nobody answers."""
        done: list[tuple[int, str]] = []
        with contextlib.suppress(OSError, KeyError), visit(self._stage.netns):
            done.append(self._asked(name))
        return done[0] if done else (0, "")

    def _asked(self, name: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/{name}", timeout=PATIENCE) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def log_tail(self) -> str:
        return self.log.read_text()[-6000:] if self.log.exists() else ""

    @property
    def alive(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def signal(self, number: int) -> None:
        assert self._child is not None
        os.kill(program_of(self._child.pid), number)

    def kill(self) -> None:
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(program_of(self._child.pid), signal.SIGKILL)
            self._child.wait()
            self._child = None

    def ended(self) -> None:
        """Wait for an end that somebody else brought about."""
        assert self._child is not None
        self._child.wait(PATIENCE)
        self._child = None

    def stop(self) -> int:
        """Ask it to end; its exit code."""
        assert self._child is not None
        self._child.terminate()
        code, self._child = self._child.wait(PATIENCE), None
        return code

    def close(self) -> None:
        self.kill()
        log = self.log.read_text() if self.log.exists() else ""
        assert "Traceback" not in log, log[log.index("Traceback") :][:6000]


class Stage:
    """A cluster, its driver, links on its node, and what the pods saw."""

    def __init__(self, directory: Path) -> None:
        self.cluster, self.directory = clusters.Cluster(), directory
        self.config: Path | None = None
        self.driver = Process(self, "driver")
        self._others: list[Process] = []
        self._netns = ""
        self.seen = directory / "seen"
        self.seen.mkdir()

    # Up and down

    def up(self, *words: str, config: dict[str, Any] | None = None, **env: str) -> None:
        """With a config, the driver's; it is not started yet."""
        self.cluster.up(*words, **env)
        self.cluster.apply(*[manifest for manifest in network_driver(Deployment()) if manifest["kind"] != "DaemonSet"])
        if config is not None:
            self.config = self.directory / "driver.yaml"
            self.config.write_text(yaml.safe_dump(config))

    def another(self, name: str) -> Process:
        made = Process(self, name)
        self._others.append(made)
        return made

    def close(self) -> None:
        for other in (self.driver, *self._others):
            other.kill()
        self.cluster.close()
        for other in (self.driver, *self._others):
            other.close()

    def logs(self) -> str:
        drivers = "\n".join(f"=== {other.log.name}\n{other.log_tail()}" for other in (self.driver, *self._others))
        seen = self.cluster.kubectl("get", "pods,resourceclaims", "-o", "wide").stdout
        return f"{seen}\n{drivers}\n{self.cluster.logs()}"

    # The node

    @property
    def netns(self) -> str:
        if not self._netns or not Path(self._netns).exists():
            self._netns = f"/proc/{self.cluster.pid('kubelet')}/ns/net"
        return self._netns

    def node(self, *words: object, given: str = "") -> str:
        """A program where the node's links and files are."""
        entered = ["nsenter", "-t", str(self.cluster.pid("kubelet")), "-n", "-m", "-p", "--", *map(str, words)]
        done = subprocess.run(entered, input=given, capture_output=True, text=True, check=False, timeout=PATIENCE)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def ip(self, line: str) -> Any:
        output = self.node("ip", "-j", *line.split())
        return json.loads(output) if output.strip() else []

    def batch(self, *lines: str) -> None:
        self.node("ip", "-batch", "-", given="\n".join(lines))

    def veth(self, name: str, address: str = "", *, far: str = "", up: bool = True) -> None:
        """A link of two ends, whose other end, `NAMEp`, stays with the node."""
        lines = [f"link add {name} type veth peer name {name}p"]
        lines += [f"link set {item} up" for item in (name, f"{name}p") if up]
        lines += [f"addr add {address} dev {name}"] if address else []
        lines += [f"addr add {far} dev {name}p"] if far else []
        self.batch(*lines)

    def bridge(self, name: str, mac: str = "02:00:00:00:00:b0") -> None:
        """With one port, whose other end, `NAMEpp`, stays with the node."""
        self.batch(
            f"link add {name} address {mac} type bridge",
            f"link add {name}p type veth peer name {name}pp",
            f"link set {name}p master {name}",
            *(f"link set {item} up" for item in (name, f"{name}p", f"{name}pp")),
        )

    def dump(self, *prefixes: str) -> dict[str, Any]:
        """The links that begin so, and all that is known of them, but for counters and numbers that are given anew."""
        changing = ("ifindex", "link_index", "valid_life_time", "preferred_life_time", "tso_max_size")
        self.cluster.eventually(
            lambda: not any(self.ip("-6 addr show tentative")), "the kernel has tried its addresses"
        )
        links = sorted(self.ip("-d addr show"), key=lambda each: each["ifname"])
        mine = {link["ifname"]: _without(link, changing) for link in links if link["ifname"].startswith(prefixes)}
        tables = [self.ip(f"{family} route show table all") for family in ("-4", "-6")]
        routes = [item for table in tables for item in table if item.get("dev") in mine]
        rules = [rule for family in ("-4", "-6") for rule in self.ip(f"{family} rule show")]
        neighbours = [neighbour for neighbour in self.ip("neigh show nud permanent") if neighbour["dev"] in mine]
        return {"links": mine, "routes": _sorted(routes), "rules": rules, "neighbours": _sorted(neighbours)}

    def as_before(self, before: dict[str, Any], *prefixes: str) -> None:
        """Once whatever is on its way back is there."""
        self.cluster.eventually(
            lambda: self.dump(*prefixes) == before,
            "the links are as they were",
            lambda: self._differs(before, prefixes),
        )

    def _differs(self, before: dict[str, Any], prefixes: tuple[str, ...]) -> str:
        was, now = set(_lines(before)), set(_lines(self.dump(*prefixes)))
        return "\n".join(["was:", *sorted(was - now), "is:", *sorted(now - was)])

    # What is offered and claimed

    def offered(self, *names: str) -> dict[str, Object]:
        """Devices by name, once these are there."""

        def found() -> dict[str, Object] | None:
            listed = self.devices()
            return listed if set(names) <= listed.keys() else None

        known: dict[str, Object] = self.cluster.eventually(found, f"{names} are offered", self.logs)
        return known

    def devices(self) -> dict[str, Object]:
        slices = self.cluster.get("resourceslices", "--field-selector", f"spec.driver={DRIVER}")
        listed = [slice_["spec"].get("devices") or () for slice_ in (slices or {"items": []})["items"]]
        return {device["name"]: device for devices in listed for device in devices}

    def given(self, claim: str) -> list[str]:
        """The devices that a claim was allocated."""
        status = (self.cluster.get("resourceclaim", claim) or {}).get("status") or {}
        return [
            result["device"] for result in status.get("allocation", {"devices": {"results": []}})["devices"]["results"]
        ]

    def claimed_devices(self, claim: str, status: str, reason: str) -> list[Object]:
        """The claim's devices in its status, once all are said to be so."""

        def found() -> list[Object] | None:
            devices = ((self.cluster.get("resourceclaim", claim) or {}).get("status") or {}).get("devices") or []
            said = {(one["status"], one["reason"]) for device in devices for one in device.get("conditions", ())}
            return devices if said == {(status, reason)} else None

        devices: list[Object] = self.cluster.eventually(found, f"{claim} is {status}, {reason}", self.logs)
        return devices

    # Pods

    def run(self, *objects: Object) -> None:
        """Apply; the pods among them are ready then."""
        self.cluster.apply(*objects)
        self.ready(*(object_["metadata"]["name"] for object_ in objects if object_["kind"] == "Pod"))

    def ready(self, *pods: str) -> None:
        words = ("wait", "--for=condition=Ready", f"--timeout={PATIENCE:.0f}s", *(f"pod/{pod}" for pod in pods))
        done = self.cluster.kubectl(*words)
        assert done.returncode == 0, f"{done.stderr}\n{self.logs()}"

    def inside(self, pod: str, command: str) -> str:
        said: str = self.cluster.output("exec", pod, "--", "sh", "-c", command)
        return said.strip()

    def netns_of(self, pod: str) -> str:
        pid = next(container.pid for container in self.cluster.containers() if container.pod == pod and container.pid)
        return f"/proc/{pid}/ns/net"

    def look(self, pod: str, line: str) -> Any:
        """Output of `ip` about a pod's network."""
        words = ["nsenter", f"--net={self.netns_of(pod)}", "ip", "-j", *line.split()]
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=PATIENCE)
        return json.loads(done.stdout) if done.stdout.strip() else []

    def deleted(self, *pods: str) -> None:
        self.cluster.output("delete", "pods", *pods, f"--timeout={PATIENCE:.0f}s")

    def waits(self, pod: str, *texts: str) -> str:
        """Until events of a pod have all these texts; it has no container that ran."""
        found = self.cluster.eventually(
            lambda: (said := self.events(pod)) and all(text in said for text in texts) and said,
            f"events of {pod}: {texts}",
            lambda: self.events(pod) + self.logs(),
        )
        assert f"{pod} " not in self.log_of_pods()
        return str(found)

    def events(self, name: str) -> str:
        found = self.cluster.get("events", "--field-selector", f"involvedObject.name={name}")
        return (
            "".join(f"{item['type']} {item['reason']}: {item['message']}\n" for item in found["items"]) if found else ""
        )

    def log_of_pods(self) -> str:
        file = self.seen / "all"
        return file.read_text() if file.exists() else ""

    def never_bare(self, *pods: str) -> None:
        """No container ever ran without what its pod claims; each of these did, once."""
        lines = self.log_of_pods().splitlines()
        assert [line for line in lines if " bare" in line] == []
        assert {pod: lines.count(f"{pod} attached") for pod in pods} == dict.fromkeys(pods, 1)

    def pod(self, name: str, *claims: str, interfaces: str = "net1", command: str = "", **spec: Any) -> Object:
        """With claims by their names, or `NAME=TEMPLATE`."""
        known = dict(claim.partition("=")[::2] for claim in claims)
        entries = [
            {"name": each, **({"resourceClaimTemplateName": of} if of else {"resourceClaimName": each})}
            for each, of in known.items()
        ]
        container = {
            "name": "main",
            "image": ROOT_REFERENCE,
            "command": ["sh", "-c", LOOKS + (command or SERVES)],
            "env": [{"name": "WANTED", "value": interfaces}],
            "resources": {"claims": [{"name": item} for item in known]},
            "volumeMounts": [{"name": "seen", "mountPath": "/seen"}],
            "securityContext": {"capabilities": {"add": ["NET_RAW"]}},
        }
        container |= spec.pop("container", {})
        spec = {
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "resourceClaims": entries,
            "containers": [container],
            "volumes": [{"name": "seen", "hostPath": {"path": str(self.seen)}}],
            **spec,
        }
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def _without(value: Any, names: tuple[str, ...]) -> Any:
    if isinstance(value, dict):
        kept = {key: each for key, each in value.items() if key not in names and not key.endswith("_timer")}
        return {key: _without(each, names) for key, each in kept.items()}
    return [_without(item, names) for item in value] if isinstance(value, list) else value


def _lines(value: Any, at: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _lines(each, f"{at}.{key}")
    elif isinstance(value, list):
        yield from (f"{at}: {json.dumps(item)}" for item in value)
    else:
        yield f"{at}: {value}"


def _sorted(values: list[Any]) -> list[Any]:
    return sorted(values, key=lambda each: json.dumps(each, sort_keys=True))


def parameters(**fields: Any) -> Object:
    """Opaque parameters for this driver; keywords that are no groups are of the interface."""
    groups = ("routes", "rules", "neighbours", "ethtool", "rdma", "locks")
    grouped = {key: value for key, value in fields.items() if key in groups}
    interface = {"name": "net1"} | {key.rstrip("_"): value for key, value in fields.items() if key not in groups}
    return {"apiVersion": f"{DRIVER}/v1alpha1", "kind": "InterfaceParameters", "interface": interface, **grouped}


def claim(name: str, /, *interfaces: str, kind: str = "ResourceClaim", **more: Any) -> Object:
    """For a whole device, one of these; `shared` for a part of one; `bandwidth` is how much; others are parameters."""
    exactly: dict[str, Any] = {"deviceClassName": more.pop("class_", SHARED if more.pop("shared", False) else WHOLE)}
    if interfaces:
        exactly["selectors"] = [{"cel": {"expression": f"{ATTRIBUTES}.interface in {json.dumps(interfaces)}"}}]
    exactly |= {"count": count} if (count := more.pop("count", 0)) else {}
    exactly |= {"capacity": {"requests": {"bandwidth": much}}} if (much := more.pop("bandwidth", "")) else {}
    exactly |= more.pop("exactly", {})
    given = more.pop("parameters", None) or (parameters(**more) if more or not count else None)
    devices: dict[str, Any] = {"requests": [{"name": "nic", "exactly": exactly}]}
    devices |= {"config": [{"requests": ["nic"], "opaque": {"driver": DRIVER, "parameters": given}}]} if given else {}
    spec: dict[str, Any] = {"devices": devices}
    meta = {"name": name, "namespace": "default"}
    return {
        "apiVersion": API,
        "kind": kind,
        "metadata": meta,
        "spec": {"spec": spec} if kind == "ResourceClaimTemplate" else spec,
    }
