"""A pod's network is taken apart, and put together again, behind everybody's back: people hear of it."""

import json
import sys
import time

import pytest

from podwire.runtime.images.build import ROOT_REFERENCE

pytestmark = pytest.mark.timeout(400)

FAILED, RECOVERED = "NetworkCheckFailed", "NetworkCheckRecovered"
HOST_PORT = 18080
SERVE = "echo hello > /tmp/index.html; exec httpd -f -p 80 -h /tmp"


def web(name, port):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "containers": [
                {
                    "name": "web",
                    "image": ROOT_REFERENCE,
                    "command": ["sh", "-c", SERVE],
                    "ports": [{"containerPort": 80, "hostPort": port}],
                }
            ],
        },
    }


class PodTrace:
    """Two pods of one cluster; what is done to the first must not be reported of the second."""

    def __init__(self, cluster):
        self.cluster = cluster
        cluster.apply(web("a", HOST_PORT), web("b", HOST_PORT + 1))
        cluster.running(2)
        cluster.eventually(lambda: all(map(self.check, "ab")), "both were checked")

    def sandbox(self, name):
        (found,) = self.cluster.sandboxes(ready=True).get(name, [""])
        return found

    def check(self, name):
        """The runtime's status of the last CHECK; empty before the first."""
        answer = self.cluster.cri("PodSandboxStatus", pod_sandbox_id=self.sandbox(name), verbose=True)
        return json.loads(answer.info.get("networkCheck", "{}"))

    def events(self, name, reason):
        """How often it was reported, by its message."""
        found = self.cluster.get("events", "--field-selector", f"involvedObject.name={name},reason={reason}")
        return {item["message"]: item["count"] for item in found["items"]} if found else {}

    def event_message(self, reason, word):
        """The message, once people can read it; how long that took is printed."""
        begun = time.monotonic()

        def heard():
            return next((event for event in self.events("a", reason) if word in event), None)

        message = self.cluster.eventually(heard, f"{reason} is reported", lambda: self.cluster.output("get", "events"))
        sys.stdout.write(f"{reason}: {message!r} after {time.monotonic() - begun:.2f} s, as kubectl sees it\n")
        return message

    def inside(self, name, *words):
        """Run something in a pod's network namespace."""
        pid = next(container.pid for container in self.cluster.containers() if container.pod == name and container.pid)
        return self._run(pid, *words)

    def node(self, *words):
        """Run something in the node's network namespace."""
        return self._run(self.cluster.pid("runtime"), *words)

    def listed(self):
        """Output of `podwire cni list`."""
        directory = self.cluster.layout.state / "cni/attachments"
        return self.cluster.space.run(self.cluster.program, "cni", "list", "--data-dir", directory).stdout

    def _run(self, pid, *words):
        done = self.cluster.space.run("nsenter", "-t", pid, "-n", *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def answers(self, port):
        done = self.cluster.space.run(
            "nsenter", "-t", self.cluster.pid("runtime"), "-n", "busybox", "wget", "-qO-", f"http://127.0.0.1:{port}/"
        )
        return done.stdout == "hello\n"


def test_a_lost_route_or_port_and_its_recovery_are_reported_once_each(cluster):
    cluster.up()
    story = PodTrace(cluster)

    default = story.inside("a", "ip", "-4", "route", "show", "default").split()
    story.inside("a", "ip", "route", "del", "default")
    lost = f"the route to 0.0.0.0/0 via {default[default.index('via') + 1]} does not exist"
    assert lost in story.event_message(FAILED, "route")
    assert {letter: story.check(letter)["state"] for letter in "ab"} == {"a": "failed", "b": "ok"}
    assert story.check("a")["plugin"] == "bridge"
    assert lost in story.listed()
    story.inside("a", "ip", "route", "add", *default)
    story.event_message(RECOVERED, "as it was made")

    element = f"{{ tcp . {HOST_PORT} }}"
    story.node("nft", "delete", "element", "inet", "podwire", "ports4", element)
    assert f"host port tcp {HOST_PORT}" in story.event_message(FAILED, "port")
    assert story.events("b", FAILED) == {}
    cluster.delete_all()
    cluster.empty()
    cluster.down()


def test_with_restart_a_pod_that_lost_its_network_gets_another(cluster):
    cluster.up("--cni-check-action", "restart")
    story = PodTrace(cluster)
    before, other = story.sandbox("a"), story.sandbox("b")
    cluster.eventually(lambda: story.answers(HOST_PORT), "it answers")
    begun = time.monotonic()
    story.inside("a", "ip", "link", "set", "eth0", "down")

    def works():
        now = cluster.sandboxes(ready=True).get("a", [])
        return now and now != [before] and story.answers(HOST_PORT)

    cluster.eventually(works, "a new sandbox answers", cluster.describe_pods)
    sys.stdout.write(f"it answers again after {time.monotonic() - begun:.2f} s\n")
    story.event_message(FAILED, "eth0")
    cluster.running(2)
    assert cluster.pods()["a"]["status"]["containerStatuses"][0]["restartCount"] == 1
    assert story.sandbox("b") == other
    cluster.delete_all()
    cluster.empty()
    cluster.down()
