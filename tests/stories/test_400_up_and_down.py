"""`podwire up` and `down`, as a person types them; each cluster on a machine of its own, made of two namespaces.

Whatever a story does to it, `down` leaves nothing, and `leakcheck` agrees.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.eventually import eventually
from tests.stories.machine_support import BEGINNING, OWNER, POD, PODWIRE, SECONDS, Cluster, Machine, named_by

SOAK, SEED = bool(os.environ.get("PODWIRE_SOAK")), os.environ.get("PODWIRE_CRASH_SEED", "1")
IDENTITY = "jsonpath={.metadata.uid} {.status.containerStatuses[0].containerID}"


@pytest.fixture(scope="session", autouse=True)
def _no_orphans() -> None:
    """Clusters of earlier runs that were killed themselves."""
    for owner in Path("/tmp").glob(f"{BEGINNING}*/{OWNER}"):
        if not Path("/proc", owner.read_text()).exists():
            subprocess.run([PODWIRE, "down", "--force", "--prefix", owner.parent], check=False, timeout=SECONDS)
            for item in named_by(owner.parent):  # in namespaces that only they are in any more
                with contextlib.suppress(ProcessLookupError):
                    os.kill(item, signal.SIGKILL)
            shutil.rmtree(owner.parent, ignore_errors=True)


@pytest.fixture
def machine() -> Iterator[Machine]:
    made = Machine()
    yield made
    made.close()


@pytest.fixture
def cluster(machine: Machine) -> Iterator[Cluster]:
    made = Cluster(machine)
    yield made
    made.close()


def test_a_pod_and_its_cluster_survive_the_death_of_every_process_and_down_leaves_nothing(cluster: Cluster):
    said = cluster.up()
    assert str(cluster.kubeconfig) in said
    assert "node/node-1" in cluster.kubectl("wait", "--for=condition=Ready", "node/node-1", "--timeout=60s")
    ip = cluster.run_pod()
    assert cluster.page(ip) == "it works\n"
    before = cluster.kubectl("get", "pod", "web", "-o", IDENTITY)
    config = json.loads(cluster.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]

    cluster.kill_all()
    assert cluster.status()["state"] == "stopped"
    assert cluster.page(ip) == "it works\n", "pods go on"
    cluster.up()

    after = cluster.kubectl("get", "pod", "web", "-o", IDENTITY)
    assert after == before
    assert json.loads(cluster.kubeconfig.read_text())["clusters"][0]["cluster"]["server"] == config
    assert cluster.page(ip) == "it works\n"
    assert cluster.leakcheck() == (0, [])

    cluster.down()
    assert cluster.left() == []
    assert cluster.leakcheck() == (0, [])
    assert cluster.podwire("down").returncode == 0, "again is fine"


def test_after_a_crash_down_alone_removes_everything(cluster: Cluster):
    cluster.up()
    cluster.run_pod()
    cluster.kill_all()
    cluster.down()
    assert cluster.left() == []
    assert cluster.leakcheck() == (0, [])


def test_clusters_that_are_brought_up_at_once_do_not_meet(machine: Machine):
    clusters = [Cluster(machine), Cluster(machine)]
    try:
        begun = [
            subprocess.Popen(
                machine.words(PODWIRE, "up", "--detach", "--prefix", cluster.prefix),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for cluster in clusters
        ]
        for entry in begun:
            said, _ = entry.communicate(timeout=SECONDS)
            assert entry.returncode == 0, said
        statuses = [cluster.status() for cluster in clusters]
        assert len({status["slot"] for status in statuses}) == len({status["apiServer"] for status in statuses}) == 2
        addresses = [cluster.run_pod() for cluster in clusters]
        assert len(set(addresses)) == 2
        assert [each.page(ip) for each, ip in zip(clusters, addresses, strict=True)] == ["it works\n"] * 2
        clusters[0].down()
        assert clusters[1].page(addresses[1]) == "it works\n"
        assert clusters[1].leakcheck() == (0, [])
        clusters[1].down()
        assert [item for cluster in clusters for item in cluster.left()] == []
    finally:
        for entry in clusters:
            entry.close()


def test_up_twice_reports_it_and_status_lists_every_process(cluster: Cluster):
    cluster.up()
    again = cluster.podwire("up")
    assert again.returncode == 0
    assert "already up" in again.stdout
    assert str(cluster.kubeconfig) in again.stdout
    assert cluster.podwire("kubeconfig").stdout.strip() == str(cluster.kubeconfig)
    status = cluster.status()
    assert status["state"] == "up"
    names = {component["name"]: component for component in status["components"]}
    assert set(names) >= {"supervisor", "trace", "apiserver", "runtime", "scheduler", "dns", "kubelet"}
    assert all(name["state"] == "ready" and name["memoryBytes"] > 0 for name in names.values())
    assert "runtime" in cluster.podwire("status").stdout


def test_a_node_reads_the_secrets_of_its_own_pods_and_no_component_becomes_administrator(cluster: Cluster):
    cluster.up("--nodes", "2")
    cluster.kubectl("create", "secret", "generic", "word", "--from-literal=a=b")
    on_second = {**POD["spec"], "nodeName": "node-2", "volumes": [{"name": "v", "secret": {"secretName": "word"}}]}
    cluster.until_account()
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps({**POD, "spec": on_second}))
    cluster.kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=60s")

    state = cluster.prefix / "var/lib/podwire"
    identities = {path: path.stem for path in state.rglob("identities/*.kubeconfig")}
    assert sorted({*identities.values()}) == [
        "dns",
        "gpu-driver",
        "kubelet",
        "local-path",
        "network-driver",
        "nri-network",
        "proxy",
        "scheduler",
    ]
    binding = ("create", "clusterrolebinding", "mine", "--clusterrole=cluster-admin", "--group=system:authenticated")
    readers = []
    for path in identities:

        def ask(*words: object, path: Path = path) -> subprocess.CompletedProcess[str]:
            return cluster.machine.run("kubectl", "--kubeconfig", path, *words)

        assert "is forbidden" in ask("get", "secrets", "-A").stderr
        assert "is forbidden" in ask(*binding).stderr
        readers += [path] if ask("get", "secret", "word").returncode == 0 else []
    assert readers == [state / "nodes/node-2/var/lib/podwire/identities/kubelet.kubeconfig"]
    cluster.kubectl("exec", "web", "--", "true")


def test_a_component_that_is_killed_comes_back(cluster: Cluster):
    cluster.up()
    before = {component["name"]: component["pid"] for component in cluster.status()["components"]}
    os.kill(before["runtime"], signal.SIGKILL)
    until = time.monotonic() + SECONDS
    while True:
        now = {component["name"]: component for component in cluster.status()["components"]}
        if now["runtime"]["state"] == "ready" and now["runtime"]["pid"] != before["runtime"]:
            break
        assert time.monotonic() < until, now
        time.sleep(0.05)
    assert now["runtime"]["restarts"] == 1
    assert now["apiserver"]["pid"] == before["apiserver"]
    assert cluster.run_pod()


def test_on_the_node_the_standard_paths_are_standard_and_the_host_is_left_alone(cluster: Cluster):
    cluster.up()
    script = "ls /etc/cni/net.d /run/netns && touch /opt/cni/bin/x"
    inside = cluster.podwire("node exec", "node-1", "--", "sh", "-c", script)
    assert inside.returncode == 0, inside.stderr
    assert "10-podwire.conflist" in inside.stdout
    assert (cluster.prefix / "opt/cni/bin/x").exists()
    assert not Path("/opt/cni/bin/x").exists()
    links = json.loads(cluster.podwire("node exec", "node-1", "--", "ip", "-j", "link").stdout)
    assert "eth0" in {link["ifname"] for link in links}
    assert cluster.podwire("node exec", "node-1", "--", "sh", "-c", "exit 7").returncode == 7
    assert "no node elsewhere" in cluster.podwire("node exec", "elsewhere", "--", "true").stderr
    (cluster.prefix / "opt/cni/bin/x").unlink()


WORLD = """\
ip link set lo up
ip addr add 192.0.2.1/24 dev world
ip link set world up
mkdir {folder}/www && echo far away >{folder}/www/index.html
exec busybox httpd -f -p 80 -h {folder}/www
"""
FETCH = "printf 'GET /index.html HTTP/1.0\\r\\n\\r\\n' | nc -w 20 192.0.2.1 80"


def test_pods_reach_the_world_as_the_host(cluster: Cluster, tmp_path: Path):
    """Another machine that knows the host's address, and no way to pods and nodes."""
    machine = cluster.machine
    script = f"echo ready; read go\n{WORLD.format(folder=tmp_path)}"
    words = ["setpriv", "--pdeathsig", "KILL", "unshare", "-n", "sh", "-c", script]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as world:
        try:
            assert world.stdout.readline() == "ready\n"
            machine.output("ip", "link", "add", "out", "type", "veth", "peer", "name", "world", "netns", world.pid)
            machine.output("sh", "-c", "ip addr add 192.0.2.2/24 dev out && ip link set out up")
            machine.output("ip", "route", "add", "default", "via", "192.0.2.1")
            world.stdin.write("go\n")
            world.stdin.flush()
            cluster.up()
            cluster.run_pod()
            assert "far away" in cluster.kubectl("exec", "web", "--", "sh", "-c", FETCH)
            assert "192.0.2.2" not in cluster.kubectl("get", "nodes", "-o", "wide")
        finally:
            world.kill()
    cluster.down()


@pytest.mark.parametrize("delay", [0.3, 0.5, 0.65, 0.8] if SOAK else [random.Random(SEED).uniform(0.3, 0.8)])
def test_an_up_that_is_killed_anywhere_can_be_repeated_or_removed(cluster: Cluster, delay: float):
    for goes_on in (False, True):
        words = cluster.machine.words(PODWIRE, "up", "--prefix", cluster.prefix)
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as up:
            time.sleep(delay)  # wherever that is: it is right everywhere
            up.kill()
        if goes_on:
            cluster.up()
            assert cluster.status()["state"] == "up"
        cluster.down()
        assert cluster.left() == []
        assert cluster.leakcheck() == (0, [])


@pytest.mark.parametrize("delay", [0.3, 0.45, 0.6] if SOAK else [random.Random(SEED).uniform(0.3, 0.6)])
def test_a_down_that_is_killed_anywhere_is_finished_by_the_next(cluster: Cluster, delay: float):
    cluster.up()
    cluster.run_pod()
    words = cluster.machine.words(PODWIRE, "down", "--prefix", cluster.prefix)
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as down:
        time.sleep(delay)  # wherever that is: it is right everywhere
        down.kill()
    cluster.down()
    assert cluster.left() == []
    assert cluster.leakcheck() == (0, [])


def test_ctrl_c_keeps_the_state_and_prints_how_to_resume(cluster: Cluster):
    words = cluster.machine.words(PODWIRE, "up", "--prefix", cluster.prefix)
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as up:
        said = []
        for line in up.stdout:
            said.append(line)
            if "Ctrl-C" in line:
                break
        up.send_signal(signal.SIGINT)
        said.append(up.stdout.read())
    assert up.returncode == 0, said
    assert f"podwire down --prefix {cluster.prefix}" in said[-1]
    assert cluster.status()["state"] == "stopped"
    cluster.down()
    assert cluster.left() == []


def test_a_cluster_that_cannot_start_reports_the_reason_and_exits(cluster: Cluster):
    cluster.up()
    port = int(cluster.status()["apiServer"].rpartition(":")[2])
    cluster.kill_all()
    code = f"import socket, time; s = socket.create_server(('127.0.0.1', {port})); print('ready', flush=True)"
    words = cluster.machine.words(sys.executable, "-c", f"{code}; time.sleep(600)")
    words = ["setpriv", "--pdeathsig", "KILL", *words]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"ready\n"
        refused = cluster.podwire("up --detach")
        other.kill()
    assert refused.returncode == 1
    assert f"port {port} of 127.0.0.1 is in use" in refused.stderr
    assert "Traceback" not in refused.stderr
    cluster.up()


def test_a_component_that_does_not_come_up_is_named_with_the_end_of_its_log(cluster: Cluster):
    refused = cluster.podwire("up --detach", "--store", "etcd://127.0.0.1:1")  # where nobody listens
    assert refused.returncode == 1
    assert "apiserver did not start; the end of" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert named_by(cluster.prefix) == []
    cluster.down()
    assert cluster.left() == []


def test_static_pods_run_on_all_nodes_as_long_as_their_directory_is_given(cluster: Cluster, tmp_path: Path):
    pod = {**POD, "metadata": {"name": "fixed"}}
    (tmp_path / "fixed.json").write_text(json.dumps(pod))
    cluster.up("--nodes", 2, "--pod-manifest-path", tmp_path)

    def mirrors() -> list[str]:
        return sorted(cluster.kubectl("get", "pods", "-o", "name").split())

    eventually(lambda: mirrors() == ["pod/fixed-node-1", "pod/fixed-node-2"], SECONDS)
    cluster.kubectl("wait", "--for=condition=Ready", *mirrors(), "--timeout=60s")
    assert cluster.leakcheck() == (0, [])
    cluster.kill_all()
    cluster.up()
    eventually(lambda: mirrors() == [], SECONDS)
    cluster.down()
    assert cluster.left() == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        pytest.param(("--prefix", "/tmp/" + "x" * 40), "longer than 40 bytes", id="a long prefix"),
        pytest.param(("--hardware", "nics.yaml"), "nor one of the profiles sriov, two-numa", id="hardware"),
        pytest.param(("--nodes", "17", "--prefix", "/tmp/pwup-none"), "between 1 and 16 nodes", id="many nodes"),
        pytest.param(
            ("--pod-manifest-path", "/nowhere", "--prefix", "/tmp/pwup-none"),
            "--pod-manifest-path /nowhere: is not a directory",
            id="static pods nowhere",
        ),
        pytest.param(("--runtime", "docker"), "must be podwire or unix:///", id="a runtime that is none"),
    ],
)
def test_invalid_options_are_refused_in_one_line(machine: Machine, words, says):
    done = machine.run(PODWIRE, "up", *words)
    assert done.returncode in (1, 2)
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not Path("/tmp/pwup-none").exists()


def test_a_user_who_is_not_root_gets_an_error(machine: Machine):
    done = machine.run("setpriv", "--reuid", "65534", "--clear-groups", PODWIRE, "up")
    if "ermission denied" in done.stderr and "podwire up" not in done.stderr:
        pytest.skip("nobody else may read this tree")
    assert done.returncode == 1
    assert "needs root" in done.stderr


def test_doctor_checks_this_machine(machine: Machine):
    done = machine.run(PODWIRE, "doctor", "-o", "json")
    found = {item["name"]: item for item in json.loads(done.stdout)}
    assert done.returncode == 0
    needed = ("root", "network namespaces", "veth links", "bridges", "nftables with NAT")
    assert all(found[item]["ok"] for item in needed)
    assert all(item["helps"] for item in found.values() if not item["ok"])


def test_missing_programs_are_reported_with_their_packages(machine: Machine):
    done = machine.run("env", "PATH=/nowhere", PODWIRE, "doctor")
    assert done.returncode == 1
    assert "MISSING  crun or runc" in done.stdout
    assert "apt install crun" in done.stdout
