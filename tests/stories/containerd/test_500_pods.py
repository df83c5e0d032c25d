"""Pods on Debian's containerd: our API server, scheduler, kubelet and CNI plugins around it, driven by kubectl."""

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.eventually import eventually

OLD = Path(sys.prefix) / "debian/usr/bin/kubectl"
"""Speaks SPDY, where newer ones speak WebSockets."""

FOREVER = "trap 'exit 0' TERM; sleep 100000 & wait"
"""Ends at once when it is asked to."""


def test_a_pod_runs_with_an_address_that_answers(cluster):
    pod = cluster.run(f"echo hello; mkdir /dev/shm/w; echo here > /dev/shm/w/x; httpd -p 8080 -h /dev/shm/w; {FOREVER}")
    status = pod.status
    [container] = status["containerStatuses"]
    assert (status["phase"], container["ready"], container["restartCount"]) == ("Running", True, 0)
    assert container["containerID"].startswith("containerd://")
    assert "sha256:" in container["imageID"]
    assert {address["ip"] for address in status["podIPs"]} > {status["podIP"]}, "both families"
    asked = ("busybox", "wget", "-qO-", f"http://{status['podIP']}:8080/x")
    eventually(lambda: cluster.machine.run(*asked).stdout == b"here\n")
    eventually(lambda: pod.logs() == "hello\n")
    assert cluster.node()["status"]["nodeInfo"]["containerRuntimeVersion"].startswith("containerd://1.6")
    pod.delete()


def test_commands_run_in_it_over_containerds_own_streaming_server(cluster):
    pod = cluster.run(FOREVER)
    done = pod.exec("sh", "-c", "echo out; echo err >&2; hostname; exit 7")
    assert (done.returncode, done.stdout) == (7, f"out\n{pod.name}\n".encode())
    assert done.stderr.startswith(b"err\n")
    line = pod.exec("sh", "-c", "read line; echo got $line", given=b"something\n")
    assert (line.returncode, line.stdout) == (0, b"got something\n")
    much = pod.exec("sh", "-c", "head -c 3000000 /dev/zero")
    assert (much.returncode, len(much.stdout)) == (0, 3_000_000)
    assert "no-such-program" in cluster.machine.refused("kubectl", "exec", pod.name, "--", "/no-such-program")
    pod.delete()


def test_an_old_kubectl_runs_commands_in_it(cluster):
    pod = cluster.run(FOREVER)
    words = (OLD, "--kubeconfig", "/var/lib/podwire/kubeconfig", "exec", "-i", pod.name, "--")
    done = cluster.machine.run(*words, "sh", "-c", "cat; echo err >&2; exit 7", given=b"input to its end")
    assert (done.returncode, done.stdout) == (7, b"input to its end")
    assert done.stderr.startswith(b"err\n")
    pod.delete()


@pytest.mark.parametrize("program", ["kubectl", OLD], ids=["new", "old"])
def test_its_ports_are_forwarded(cluster, program):
    pod = cluster.run(f"mkdir /dev/shm/w; echo here > /dev/shm/w/x; httpd -p 127.0.0.1:8080 -h /dev/shm/w; {FOREVER}")
    assert pod.exec("sh", "-c", "until wget -qO- 127.0.0.1:8080/x; do sleep 0.05; done").returncode == 0
    access = ("--kubeconfig", "/var/lib/podwire/kubeconfig")
    words = cluster.machine.words(program, *access, "port-forward", f"pod/{pod.name}", ":8080", ":8081")
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as child:
        try:
            assert child.stdout is not None
            local = {}
            while len(local) < 2:
                line = child.stdout.readline()
                assert line, "kubectl has left"
                if found := re.match(r"Forwarding from (127\.0\.0\.1:\d+) -> (\d+)", line):
                    local[found[2]] = found[1]
            for _ in range(2):
                fetched = cluster.machine.run("busybox", "wget", "-qO-", f"http://{local['8080']}/x")
                assert fetched.stdout == b"here\n"
            cluster.machine.run("busybox", "wget", "-qO-", f"http://{local['8081']}/x")
            while "an error occurred forwarding" not in (line := child.stdout.readline()):
                assert line, "kubectl has left"
            assert "connection refused" in line
        finally:
            child.kill()
    pod.delete()


def test_kubectl_attach_reads_and_writes(cluster):
    script = 'while read -r line; do echo "heard $line"; [ "$line" = end ] && exit 0; done'
    container = {"name": "c0", "image": "podwire.local/busybox", "imagePullPolicy": "Never", "stdin": True}
    container["command"] = ["sh", "-c", script]
    pod = cluster.run(containers=[container], restartPolicy="Never")
    words = cluster.machine.words("kubectl", "--kubeconfig", "/var/lib/podwire/kubeconfig", "attach", "-iq", pod.name)
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for word in (b"hello", b"end"):
            child.stdin.write(word + b"\n")
            child.stdin.flush()
            assert child.stdout.readline() == b"heard " + word + b"\n"
        assert child.wait(60) == 0
    pod.until("phase", "Succeeded")
    eventually(lambda: pod.logs() == "heard hello\nheard end\n")
    pod.delete()


def test_short_containers_are_seen_and_crashed_ones_restarted(cluster):
    done = cluster.run("echo done", wait="jsonpath={.status.phase}=Succeeded", restartPolicy="Never")
    failed = cluster.run("exit 3", wait="jsonpath={.status.phase}=Failed", restartPolicy="Never")
    assert failed.status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    eventually(lambda: done.logs() == "done\n")
    script = f"[ -e /dev/shm/again ] && echo second && {{ {FOREVER}; }}; touch /dev/shm/again; echo first; exit 4"
    crashing = cluster.run(script, wait="")
    crashing.until("containerStatuses[0].restartCount", "1")
    crashing.wait("condition=Ready")
    assert crashing.status["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 4
    eventually(lambda: crashing.logs("--previous") == "first\n")
    eventually(lambda: crashing.logs() == "second\n")
    for pod in (done, failed, crashing):
        pod.delete()


def test_init_containers_come_first_and_one_after_the_other(cluster):
    volume = {"name": "shared", "emptyDir": {}}
    mount = [{"name": "shared", "mountPath": "/shared"}]
    image = {"image": "podwire.local/busybox", "imagePullPolicy": "Never", "volumeMounts": mount}
    inits = [
        {"name": f"i{number}", "command": ["sh", "-c", f"echo {number} >> /shared/order; sleep 0.05"], **image}
        for number in range(2)
    ]
    address = {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    main = {"name": "c0", "command": ["sh", "-c", f"cat /shared/order; echo $IP; {FOREVER}"], "env": [address], **image}
    pod = cluster.run(initContainers=inits, containers=[main], volumes=[volume])
    said = f"0\n1\n{pod.status['podIP']}\n"
    eventually(lambda: pod.logs() == said)
    assert [status["state"]["terminated"]["exitCode"] for status in pod.status["initContainerStatuses"]] == [0, 0]
    pod.delete()


def test_probes_ask_inside_it(cluster):
    ready = {"exec": {"command": ["test", "-e", "/dev/shm/ready"]}, "periodSeconds": 1}
    alive = {"exec": {"command": ["test", "!", "-e", "/dev/shm/dead"]}, "periodSeconds": 1, "failureThreshold": 1}
    container = {"name": "c0", "image": "podwire.local/busybox", "imagePullPolicy": "Never"}
    container |= {"command": ["sh", "-c", FOREVER], "readinessProbe": ready, "livenessProbe": alive}
    pod = cluster.run(containers=[container], wait="jsonpath={.status.phase}=Running")
    assert not pod.status["containerStatuses"][0]["ready"]
    assert pod.exec("touch", "/dev/shm/ready").returncode == 0
    pod.wait("condition=Ready")
    assert pod.exec("mv", "/dev/shm/ready", "/dev/shm/dead").returncode == 0
    eventually(lambda: "Liveness probe failed" in cluster.kubectl("get", "events", "-o", "yaml"))
    pod.until("containerStatuses[0].restartCount", "1")
    pod.delete("--force", "--grace-period=0")


def test_images_are_imported_and_pull_errors_are_containerds(cluster):
    def waiting(image, policy):
        container = {"name": "c0", "image": image, "imagePullPolicy": policy, "command": ["sleep", "1000"]}
        return cluster.run(containers=[container], wait="")

    where = "containerStatuses[0].state.waiting.reason"
    never = waiting("podwire.local/later:1", "Never")
    never.until(where, "ErrImageNeverPull")
    cluster.containerd.bring("podwire.local/later:1")
    always = waiting("localhost:1/none:1", "Always")
    always.until(where, "ErrImagePull")
    events = cluster.kubectl("get", "events", "--field-selector", f"involvedObject.name={always.name}", "-o", "yaml")
    assert "failed to pull and unpack image" in events
    assert "localhost:1/none:1" in events
    never.wait("condition=Ready")
    for pod in (always, never):
        pod.delete("--force", "--grace-period=0")


def left_of(cluster):
    """Leftovers of pods: none, once all of them are removed."""
    root, found = cluster.machine.root, sorted(cluster.containerd.containers())
    found += [link for link in cluster.machine.links() if link.startswith("veth")]
    found += [mount for mount in cluster.machine.mounts() if "k8s.io" in mount or "kubelet/pods" in mount]
    places = ("run/netns/*", "var/lib/podwire/cni/networks/podwire/10.*", "var/lib/kubelet/pods/*", "var/log/pods/*")
    return [*found, *(str(path) for place in places for path in root.glob(place))]


def test_deleting_leaves_nothing(cluster, groups_of):
    pod = cluster.run(FOREVER, FOREVER)
    made = cluster.containerd.containers()
    assert set(pod.ids) < made
    assert len(groups_of(pod.ids)) >= 2
    assert len(left_of(cluster)) > len(made)
    pod.delete()
    with contextlib.suppress(AssertionError):
        eventually(lambda: not left_of(cluster))
    assert left_of(cluster) == []
    assert groups_of(made) == []


def test_the_node_reports_pod_usage(cluster):
    pod = cluster.run(FOREVER)
    name = cluster.node()["metadata"]["name"]
    summary = json.loads(cluster.kubectl("get", "--raw", f"/api/v1/nodes/{name}/proxy/stats/summary"))
    [used] = [item for item in summary["pods"] if item["podRef"]["name"] == pod.name]
    assert used["containers"][0]["memory"]["workingSetBytes"] > 0
    pod.delete()


def test_an_input_is_read_to_its_end(cluster, tmp_path):
    pod = cluster.run(FOREVER)
    data = os.urandom(3_000_000)
    assert pod.exec("cat", given=data).stdout == data
    (tmp_path / "there").write_bytes(data)
    cluster.kubectl("cp", tmp_path / "there", f"{pod.name}:/dev/shm/copy")
    cluster.kubectl("cp", f"{pod.name}:/dev/shm/copy", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == data
    pod.delete()


def test_a_terminal(cluster):
    pod = cluster.run(FOREVER)
    ours, theirs = pty.openpty()
    script = "tty; stty size; read x; echo got $x; exit 3"
    words = [
        "kubectl",
        "--kubeconfig",
        "/var/lib/podwire/kubeconfig",
        "exec",
        "-it",
        pod.name,
        "--",
        "sh",
        "-c",
        script,
    ]
    with subprocess.Popen(cluster.machine.words(*words), stdin=theirs, stdout=theirs, stderr=theirs) as child:
        os.close(theirs)
        seen = b""
        while b"/dev/pts/" not in seen:
            seen += os.read(ours, 1000)
        os.write(ours, b"typed\r")
        with contextlib.suppress(OSError):  # how a terminal says that everybody has left
            while more := os.read(ours, 1000):
                seen += more
        assert child.wait(60) == 3
    os.close(ours)
    assert b"got typed" in seen
    pod.delete()
