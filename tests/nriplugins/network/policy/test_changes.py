"""Fate of packets while pods, namespaces, labels and policies change."""

import socket
import subprocess
import threading
from contextlib import contextmanager, suppress
from dataclasses import replace
from shutil import which

import pytest

from podwire.linux.net.conntrack import KernelConntrack
from podwire.linux.proc.namespaces import visit
from podwire.nriplugins.network.policy import Content, Kernel, LocalPod
from podwire.nriplugins.network.policy.policies import policy_of
from tests.eventually import eventually

APP = {"matchLabels": {"app": "job"}}


def manifest(spec, name="p", namespace="shop"):
    return {"metadata": {"namespace": namespace, "name": name}, "spec": spec}


FROM_JOB = manifest({"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{"from": [{"podSelector": APP}]}]})
FROM_OPS = manifest(
    {"podSelector": {}, "ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"team": "ops"}}}]}]}
)
DENY = manifest({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}, "deny")
DENY_IN = manifest({"podSelector": {}}, "deny")


def agreed(world, source, destination, port=80, protocol="UDP"):
    """Verdicts of `explain` and of packets of both families, which must be equal."""
    said = {world.explained(source, destination, port, protocol, family) for family in (4, 6)}
    said |= {world.send(source, destination, port, protocol, family) for family in (4, 6)}
    assert len(said) == 1, said
    return said.pop()


def test_a_pod_with_other_labels_has_another_identity(world):
    with world.policies(FROM_JOB):
        assert agreed(world, "job", "web")
        assert not agreed(world, "db", "web")
        db, job = (world.model.pods[name] for name in ("db", "job"))
        world.model.put_pod(replace(db, labels={"app": "job"}))
        world.model.put_pod(replace(job, labels={"app": "other"}))
        world.settle()
        assert agreed(world, "db", "web")
        assert not agreed(world, "job", "web")


def test_a_pod_with_other_labels_is_selected_by_others(world):
    with world.policies(FROM_JOB):
        assert not agreed(world, "db", "web")
        assert agreed(world, "web", "db")
        web, db = (world.model.pods[name] for name in ("web", "db"))
        world.model.put_pod(replace(web, labels={}))
        world.model.put_pod(replace(db, labels={"app": "web"}))
        world.settle()
        assert agreed(world, "db", "web")
        assert not agreed(world, "web", "db")


def test_a_namespace_with_other_labels_is_meant_by_others(world):
    with world.policies(FROM_OPS):
        assert agreed(world, "mon", "web")
        assert not agreed(world, "tool", "web")
        world.model.put_namespace("ops", {})
        world.model.put_namespace("dev", {"team": "ops"})
        world.settle()
        assert not agreed(world, "mon", "web")
        assert agreed(world, "tool", "web")
        world.model.remove_namespace("dev")
        world.settle()
        assert not agreed(world, "tool", "web")


def test_policies_come_change_and_go(world):
    assert agreed(world, "db", "web")
    with world.policies(DENY_IN):
        assert not agreed(world, "db", "web")
        other = manifest({"podSelector": {}, "ingress": [{"ports": [{"protocol": "UDP", "port": 80}]}]}, "deny")
        world.model.put_policy(policy_of(other))
        world.settle()
        assert agreed(world, "db", "web")
        assert not agreed(world, "db", "web", 81)
        world.model.put_policy(policy_of(manifest({"podSelector": {"matchLabels": {"app": "db"}}}, "deny")))
        world.settle()
        assert agreed(world, "db", "web")
        assert not agreed(world, "web", "db")
    assert agreed(world, "db", "web")


def test_a_named_port_moves_with_its_pod(world):
    rule = {"ports": [{"port": "http"}]}
    named = manifest({"podSelector": {}, "policyTypes": ["Ingress", "Egress"], "ingress": [rule], "egress": [rule]})
    with world.policies(named):
        assert agreed(world, "db", "web", 8080, "TCP")
        assert not agreed(world, "db", "web", 8888, "TCP")
        world.model.put_pod(replace(world.model.pods["web"], ports={("TCP", "http"): 8888}))
        world.settle()
        assert not agreed(world, "db", "web", 8080, "TCP")
        assert agreed(world, "db", "web", 8888, "TCP")


def test_a_deleted_pod_has_no_identity(world):
    with world.policies(FROM_JOB):
        assert agreed(world, "job", "web")
        world.model.remove_pod("job")
        world.content.remove("job")
        world.settle()
        assert not any(world.send("job", "web", 80, "UDP", family) for family in (4, 6))


@contextmanager
def flow(world, source, destination, port):
    """A TCP connection, both ends."""
    here, there = world.ips(source)[0], world.ips(destination)[0]
    with visit(world.paths[destination]):
        listener = socket.create_server((str(there), port))
    with visit(world.paths[source]):
        caller = socket.socket()
    with listener, caller:
        caller.settimeout(30)
        caller.bind((str(here), 0))
        caller.connect((str(there), port))
        accepted, _ = listener.accept()
        with accepted:
            accepted.settimeout(30)
            yield caller, accepted


def test_an_established_flow_is_kept_and_a_new_one_is_not(world):
    with flow(world, "job", "web", 7100) as (caller, accepted), world.policies(DENY):
        caller.sendall(b"still")
        assert accepted.recv(16) == b"still"
        accepted.sendall(b"there")
        assert caller.recv(16) == b"there"
        assert not agreed(world, "job", "web", 7101, "TCP")


def test_no_pod_inherits_the_connections_of_an_address(world):
    with flow(world, "job", "web", 7200) as (caller, _):
        conntrack = KernelConntrack(world.node)
        with world.policies(DENY):
            before = world.drops()
            world.kernel.release(world.ips("web"))
            assert all(conntrack.flush(address) == 0 for address in world.ips("web")), "they are forgotten"
            held = world.kernel.content()
            for name, elements in held.items():
                packed = [address.packed for address in world.ips("web")]
                if name[:-1] in ("identity", "ingress", "egress", "self", "sources", "verdicts"):
                    assert not [element for element in elements if any(ip in element for ip in packed)], name
            world.model.release_addresses(world.ips("web"))
            world.content.remove("web")
            world.settle()
            # The next pod gets the address.
            world.model.hold("web", world.ips("web"))
            world.content.put(LocalPod(uid="web", ips=world.ips("web")))
            world.settle()
            caller.sendall(b"who are you?")
            eventually(lambda: world.drops() > before)
        conntrack.close()


def test_released_addresses_stay_released_despite_a_late_status(world):
    with world.policies(FROM_JOB):
        world.model.release_addresses(world.ips("job"))
        world.model.put_pod(replace(world.model.pods["job"], labels={"app": "job", "late": "yes"}))
        world.settle()
        assert not any(world.send("job", "web", 80, "UDP", family) for family in (4, 6))
        world.model.hold("job", world.ips("job"))
        world.settle()
        assert agreed(world, "job", "web")


def test_an_address_of_two_pods_belongs_to_the_latest(world):
    """The one who came last has it; when that one goes the other does."""
    with world.policies(FROM_JOB):
        db = world.model.pods["db"]
        world.model.put_pod(replace(world.model.pods["job"], uid="ghost", name="ghost", ips=db.ips))
        world.settle()
        assert all(world.send("db", "web", 80, "UDP", family) for family in (4, 6))
        world.model.remove_pod("ghost")
        world.settle()
        assert not agreed(world, "db", "web")


def test_a_local_pod_that_is_missed_takes_nothing_from_its_successor(world):
    """A sandbox whose end was not reported: its address belongs to another by now."""
    with world.policies(DENY_IN):
        world.content.put(LocalPod(uid="old", ips=world.ips("web")))
        world.settle()
        world.content.put(world.content.locals["web"])
        world.settle()
        world.content.remove("old")
        world.settle()
        assert not agreed(world, "db", "web")


@contextmanager
def listening(world, name, port):
    with visit(world.paths[name]):
        end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    with end:
        end.bind((str(world.ips(name)[0]), port))
        yield end


def heard(end):
    """Packets that arrived so far; some may have been checked before there was a rule to check against."""
    found = set()
    with suppress(BlockingIOError):
        while True:
            found.add(end.recv(16))
    return found


def test_no_forbidden_packet_gets_through_in_the_first_moment(world):
    """Others shout at the pod, and it shouts itself, from before it is protected; nothing arrives afterwards."""
    stop, protected = threading.Event(), threading.Event()
    web, job = world.ips("web")[0], world.ips("job")[0]

    def shout(source, here, there):
        with visit(world.paths[source]):
            end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with end:
            end.bind((str(here), 0))
            while not stop.is_set():
                late = protected.is_set()  # before it leaves: what is sent early may arrive late
                end.sendto(b"late" if late else b"early", (str(there), 7300))

    known = world.model.pods["web"]
    world.model.put_policy(policy_of(DENY))
    world.content.remove("web")
    world.model.remove_pod("web")
    world.settle()
    shouting = [threading.Thread(target=shout, args=item) for item in (("job", job, web), ("web", web, job))]
    for entry in shouting:
        entry.start()
    try:
        for _ in range(5):
            protected.clear()
            world.add(world.model, world.content, known)
            world.kernel.apply(world.content.desired())
            protected.set()
            with listening(world, "web", 7300) as inner, listening(world, "job", 7300) as outer:
                before = world.drops()
                while world.drops() < before + 200:
                    assert heard(inner) | heard(outer) <= {b"early"}
            world.kernel.release(world.ips("web"))
            world.content.remove("web")
            world.model.remove_pod("web")
            world.settle()
    finally:
        stop.set()
        for entry in shouting:
            entry.join()
        world.model.remove_policy("shop", "deny")
        world.add(world.model, world.content, known)
        world.settle()


def test_a_restarted_process_changes_nothing(world):
    with world.policies(FROM_JOB, DENY_IN):
        assert not agreed(world, "db", "web")
        content = Content(world.model)
        for local in world.content.locals.values():
            content.put(local)
        restarted = Kernel(world.node)
        assert restarted.apply(content.desired()) == 0
        restarted.close()
        assert not agreed(world, "db", "web")


@pytest.mark.skipif(which("nft") is None, reason="no nft program")
def test_routes_changed_by_others_are_repaired(world):
    with world.policies(FROM_JOB):
        assert world.kernel.audit()
        nft = ["nsenter", f"--net={world.node}", "nft"]
        subprocess.run([*nft, "flush", "map", "inet", "podwire-policy", "ingress4"], check=True)
        assert world.send("db", "web", 80, "UDP", 4)
        assert not world.kernel.audit()
        world.settle()
        assert not agreed(world, "db", "web")
        subprocess.run([*nft, "delete", "table", "inet", "podwire-policy"], check=True)
        world.model.put_policy(policy_of(DENY_IN))
        world.settle()
        assert not agreed(world, "db", "web")
        world.model.remove_policy("shop", "deny")
        shown = subprocess.run([*nft, "list", "ruleset"], check=True, capture_output=True, text=True).stdout
        assert "podwire-policy" in shown


def test_verdicts_are_counted_by_address_and_direction(world):
    with world.policies(FROM_JOB):
        ip = world.ips("web")[0]
        for source in ("job", "job", "db"):
            world.send(source, "web", 80, "UDP", 4)
        counted = {
            (verdict.direction, verdict.allowed): verdict.counted.packets
            for verdict in world.kernel.verdicts()
            if verdict.address == ip.packed
        }
        assert counted == {("Ingress", True): 2, ("Ingress", False): 1}


def test_nothing_is_left_of_it(world):
    world.kernel.remove()
    if which("nft"):
        finished = subprocess.run(
            ["nsenter", f"--net={world.node}", "nft", "list", "ruleset"], check=True, capture_output=True
        )
        assert finished.stdout == b""
    world.kernel.close()
    world.kernel = Kernel(world.node)
    world.settle()
