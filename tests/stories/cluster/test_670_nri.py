"""A cluster whose pods need an NRI plugin: they wait until it is there, and start when it comes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from podwire.runtime.images.build import ROOT_REFERENCE

pytestmark = pytest.mark.timeout(400)

PODWIRE = Path(sys.executable).with_name("podwire")


def pod(name, **spec):
    container = {"name": "main", "image": ROOT_REFERENCE, "command": ["sleep", "1000"]}
    common = {"terminationGracePeriodSeconds": 0, "automountServiceAccountToken": False, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {**common, **spec}}


class Logger:
    """`podwire nri logger` on the cluster's node."""

    def __init__(self, cluster):
        self.log = cluster.prefix / "logger.log"
        words = [PODWIRE, "nri", "logger", "--socket", cluster.prefix / "run/nri/nri.sock"]
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(cluster.space.command(*words), stdout=log, stderr=log)

    def hooks(self, name):
        """The events that it received about a pod, in order."""
        lines = [line.split() for line in self.log.read_text().splitlines() if f"pod=default/{name}" in line]
        return [line[3] for line in lines if line[2] == "nriplugins.logger:"]

    def close(self):
        self._child.kill()
        self._child.wait()


def require(cluster, **more):
    file = cluster.prefix / "etc/podwire/nri.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"default_validator": {"required_plugins": ["logger"]}, "grace": "500ms", **more}))


def test_pods_wait_for_their_plugin_and_start_when_it_registers(cluster):
    require(cluster)
    cluster.up()
    cluster.apply(pod("web"), pod("host", hostNetwork=True))

    def reason():
        found = cluster.get("events", "--field-selector", "involvedObject.name=web,reason=FailedCreatePodSandBox")
        return found and [item for item in found["items"] if item["count"] >= 4]

    (event, *_) = cluster.eventually(reason, "the reason is reported, and reported again", cluster.describe_pods)
    assert 'NRI plugin "logger" is required for pod default/web' in event["message"]
    assert cluster.pods()["host"]["status"]["phase"] == "Running", "the pod that brings the plugin can start"
    logger = Logger(cluster)
    try:
        cluster.running(2)
        cluster.delete_all()
        wanted = ["RunPodSandbox", "CreateContainer", "PostCreateContainer", "StartContainer", "PostStartContainer"]
        wanted += ["StopContainer", "StopPodSandbox", "RemoveContainer", "RemovePodSandbox"]
        cluster.eventually(lambda: logger.hooks("web")[-1] == wanted[-1], "its end is reported", logger.log.read_text)
        assert [hook for hook in logger.hooks("web") if hook != "ValidateContainerAdjustment"] == wanted
    finally:
        logger.close()


def test_the_trace_shows_the_plugin_between_cni_and_the_sandbox(cluster):
    cluster.up()
    logger = Logger(cluster)
    try:
        cluster.eventually(lambda: "synchronized" in logger.log.read_text(), "the plugin is there")
        cluster.apply(pod("web"))
        cluster.running(1)
        done = cluster.podwire("trace", "web", "--format", "json")
        assert done.returncode == 0, done.stderr
        arrows = [(item["from"], item["to"], item["method"]) for item in json.loads(done.stdout)]
        hook = ("ContainerRuntime", "00-logger", "NRI RunPodSandbox")
        adds = [place for place, (_, to, method) in enumerate(arrows) if to == "CNIPlugin" and method.startswith("ADD")]
        assert max(adds) < arrows.index(hook)
        cluster.delete_all()
    finally:
        logger.close()
