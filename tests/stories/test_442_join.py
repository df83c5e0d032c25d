"""A second machine joins a cluster by a token: its pods are pods of the cluster, whatever happens to the machine."""

import json
from collections.abc import Iterator

import pytest

from tests.eventually import eventually
from tests.stories.join_support import PODWIRE, FirstMachine, Machine, Switch

FIRST, SECOND, LATER, ELSEWHERE = "192.168.7.1", "192.168.7.2", "192.168.7.3", "192.168.8.2"


@pytest.fixture(scope="module")
def switch() -> Iterator[Switch]:
    switch = Switch()
    yield switch
    switch.close()


@pytest.fixture(scope="module")
def first(switch: Switch) -> Iterator[FirstMachine]:
    machine = FirstMachine("first")
    switch.connect(machine, FIRST)
    machine.up("--advertise-address", FIRST)
    yield machine
    machine.run(PODWIRE, "down", "--prefix", machine.prefix)
    machine.close()


@pytest.fixture(scope="module")
def second(switch: Switch, own_machine_for_all: None) -> Iterator[Machine]:
    machine = Machine("second")
    switch.connect(machine, SECOND)
    machine.before = machine.traces()
    yield machine
    machine.run(PODWIRE, "leave", "--force")
    machine.close()


def join(machine, invitation, *more):
    words = [invitation["server"], "--token", invitation["token"], "--ca-cert-hash", invitation["hash"]]
    return machine.run(PODWIRE, "join", "--detach", *words, *more)


def addresses(first, node):
    return [row["address"] for row in first.node(node)["status"]["addresses"] if row["type"] == "InternalIP"]


def test_01_a_server_with_another_ca_or_token_is_not_trusted_and_nothing_is_left(first, second):
    invitation = first.token()
    assert invitation["server"] == f"https://{FIRST}:16444"
    for wrong, why in (
        ({"hash": "sha256:" + "0" * 64}, "does not have the hash"),
        ({"token": "aaaaaa.aaaaaaaaaaaaaaaa"}, "token aaaaaa does not exist"),
        ({"token": invitation["token"][:-1] + ("x" if invitation["token"][-1] != "x" else "y")}, "does not belong to"),
    ):
        done = join(second, {**invitation, **wrong})
        assert done.returncode == 1
        assert why in done.stderr
        assert second.traces() == second.before
    assert "second" not in first.kubectl("get", "nodes", "-o", "name")


def test_02_a_machine_joins_by_a_token(first, second):
    done = join(second, first.token())
    assert done.returncode == 0, done.stdout + done.stderr
    node = first.node("second")
    assert {row["type"]: row["status"] for row in node["status"]["conditions"]}["Ready"] == "True"
    assert addresses(first, "second")[0] == SECOND
    assert node["spec"]["podCIDRs"][0] == "10.101.16.0/24"
    assert "second" in second.output(PODWIRE, "status")
    assert "leave" in second.run(PODWIRE, "up").stderr


def test_03_pods_of_both_machines_reach_each_other_with_their_own_addresses(first, second):
    here, there = first.start("here", "node-1", app="here"), first.start("there", "second", app="there")
    assert there.startswith("10.101.16.")
    assert first.page("here", there) == "there"
    assert first.page("there", here) == "here"
    # The server saw the address of the pod; and the API server reads logs from a kubelet that it verifies.
    eventually(lambda: f"{here}]" in first.kubectl("logs", "there"))
    eventually(lambda: f"{there}]" in first.kubectl("logs", "here"))
    sixth = first.pod("there")["status"]["podIPs"][1]["ip"]
    assert first.page("here", sixth) == "there"


def test_04_services_and_names_work_on_both_machines(first, second):
    first.kubectl("expose", "pod", "here", "--port=80")
    first.kubectl("expose", "pod", "there", "--port=80")
    for pod, service in (("here", "there"), ("there", "here"), ("there", "there")):
        address = first.kubectl("get", "service", service, "-o", "jsonpath={.spec.clusterIP}")
        eventually(lambda pod=pod, service=service, address=address: first.page(pod, address) == service)
    name = first.kubectl("exec", "there", "--", "nslookup", "here.default.svc.cluster.local")
    assert first.kubectl("get", "service", "here", "-o", "jsonpath={.spec.clusterIP}") in name


def test_05_a_network_policy_holds_across_machines(first, second):
    there = first.pod("there")["status"]["podIP"]
    policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "closed"},
        "spec": {
            "podSelector": {"matchLabels": {"app": "there"}},
            "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "friend"}}}]}],
        },
    }
    first.start("friend", "node-1", app="friend")
    first.kubectl("apply", "-f", "-", stdin=json.dumps(policy))
    eventually(lambda: first.page("here", there) == "")
    eventually(lambda: first.page("friend", there) == "there")
    first.kubectl("delete", "networkpolicy", "closed")
    eventually(lambda: first.page("here", there) == "there")


def test_06_a_machine_that_is_cut_off_keeps_its_pods_and_follows_when_it_is_back(first, second, switch):
    before = first.pod("there")
    first.start("doomed", "second")
    switch.plug(second, plugged=False)
    assert first.page("here", before["status"]["podIP"]) == ""
    first.kubectl("delete", "pod", "doomed", "--wait=false")
    switch.plug(second, plugged=True)
    eventually(lambda: first.page("here", before["status"]["podIP"]) == "there")
    eventually(lambda: "doomed" not in first.kubectl("get", "pods", "-o", "name"))
    now = first.pod("there")
    assert now["metadata"]["uid"] == before["metadata"]["uid"]
    assert now["status"]["containerStatuses"][0]["restartCount"] == 0


def test_07_processes_that_were_killed_start_again_without_a_token(first, second):
    started = first.pod("there")["status"]["containerStatuses"][0]["containerID"]
    components = json.loads(second.output(PODWIRE, "status", "-o", "json"))["components"]
    second.run("kill", "-9", *(row["pid"] for row in components if row["pid"]))
    eventually(lambda: second.run(PODWIRE, "join", "--detach").returncode == 0)
    assert first.pod("there")["status"]["containerStatuses"][0]["containerID"] == started
    assert first.page("here", first.pod("there")["status"]["podIP"]) == "there"


def test_08_a_machine_that_gets_another_address_is_found_there(first, second):
    second.sh(f"ip addr flush dev eth0; ip addr add {LATER}/24 dev eth0; ip route add default via 192.168.7.254")
    eventually(lambda: addresses(first, "second")[0] == LATER)
    there = first.pod("there")["status"]["podIP"]
    eventually(lambda: first.page("here", there) == "there")
    eventually(lambda: first.kubectl("logs", "there"))


def test_09_a_machine_on_another_segment_is_reached_through_a_vxlan(first, second):
    first.sh("ip route replace 192.168.8.0/24 via 192.168.7.254")
    second.sh(f"ip addr flush dev eth0; ip addr add {ELSEWHERE}/24 dev eth0; ip route add default via 192.168.8.254")
    eventually(lambda: addresses(first, "second")[0] == ELSEWHERE)
    there, here = first.pod("there")["status"]["podIP"], first.pod("here")["status"]["podIP"]
    eventually(lambda: first.page("here", there) == "there")
    assert "podwire-vx4097" in first.output("ip", "route", "get", there)
    assert "mtu 1450" in second.output("ip", "link", "show", "podwire-vx4097")
    first.start("small", "second")
    # The kubelet gets a certificate for its new address in the background.
    link = eventually(lambda: first.kubectl("exec", "small", "--", "ip", "link", "show", "eth0"))
    assert "mtu 1450" in link
    assert first.page("small", here) == "here"
    first.kubectl("exec", "small", "--", "dd", "if=/dev/zero", "of=/www/big", "bs=1000", "count=200")
    ask = f"printf 'GET /big HTTP/1.0\\r\\n\\r\\n' | nc -w 5 {first.pod('small')['status']['podIP']} 80 | wc -c"
    assert int(first.kubectl("exec", "here", "--", "sh", "-c", ask)) > 200_000  # segments as large as the VXLAN allows


def test_10_a_node_that_was_deleted_meanwhile_joins_again_with_its_old_state(first, second):
    status = json.loads(second.output(PODWIRE, "status", "-o", "json"))
    supervisor = next(row["pid"] for row in status["components"] if row["name"] == "supervisor")
    second.run("kill", "-TERM", supervisor)
    eventually(lambda: json.loads(second.run(PODWIRE, "status", "-o", "json").stdout)["state"] == "stopped")
    first.kubectl("delete", "node", "second")
    first.kubectl("delete", "pods", "there", "small", "--force", "--wait=false")
    assert second.run(PODWIRE, "join", "--detach").returncode == 0
    again = first.start("again", "second")
    assert first.page("here", again) == "again"
    # Pods of the deleted Node do not run on beside the new ones.
    eventually(lambda: "there" not in second.output("ps", "-e", "-o", "args"))


def test_11_a_machine_that_leaves_has_nothing_left(first, second):
    assert second.output(PODWIRE, "leave") == "node second has left\n"
    assert "second" not in first.kubectl("get", "nodes", "-o", "name")
    left = second.traces()
    assert {key: value for key, value in left.items() if value != second.before[key]} == {}
    eventually(lambda: "10.101.16" not in first.output("ip", "route"))
    assert "podwire-vx" not in first.output("ip", "link")
