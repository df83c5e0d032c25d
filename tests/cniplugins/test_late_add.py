"""An ADD that hung and goes on after its DEL, or that nobody waits for: it leases no address and makes no link."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from podwire.cniplugins.attachments import Attachments
from podwire.cniplugins.skeleton import Call
from podwire.ipam.deletions import TICK, Deletions
from podwire.linux.proc.processes import has_ended
from podwire.protocols.cni.config import plugin_config
from podwire.protocols.cni.verbs import Invocation
from tests.cniplugins.support import PATIENCE, Refused
from tests.eventually import eventually

DUAL = ("10.88.0.0/24", "fd88::/64")


def finished(process):
    stdout, _ = process.communicate(timeout=PATIENCE)
    return process.returncode, json.loads(stdout) if stdout else None


def pass_a_tick():
    time.sleep(3 * TICK / 1e9)


@pytest.mark.parametrize("plugin", ["bridge", "ptp", "macvlan", "host-local"])
def test_add_that_was_started_before_its_del_is_refused(host, plugin):
    """The program is stopped before it has the lock, and goes on after the DEL."""
    host.way = "program"
    host.pod("a")
    config = host.config(plugin, *DUAL, master="lo")
    adding = host.run("ADD", "a", config)
    os.kill(adding.pid, signal.SIGSTOP)
    pass_a_tick()
    host.delete("a", config)
    os.kill(adding.pid, signal.SIGCONT)
    code, error = finished(adding)
    assert (code, error["code"], error["msg"]) == (1, 3, "a eth0 was deleted while this ADD waited")
    assert host.left() == {}
    pass_a_tick()
    if plugin != "macvlan":  # loopback is not a master
        host.add("a", config)
        host.delete("a", config)
    assert host.left() == {}


@pytest.mark.parametrize("way", ["program", "daemon"])
def test_add_that_waits_for_the_lock_of_its_del_is_refused(host, way):
    host.way = way
    host.pod("a")
    config = host.bridge(*DUAL)
    call = Call(Invocation("DEL", "a", "", "eth0"), plugin_config(json.dumps(config).encode()))
    attachments = Attachments(call.config, "bridge")
    refusals = []

    def add():
        try:
            host.add("a", config)
        except Refused as error:
            refusals.append(error.code)

    with attachments.lock(call):
        host.begin()
        adding = threading.Thread(target=add)  # in the namespaces of this thread
        adding.start()
        time.sleep(0.3)
        attachments.note_deletion(call)
    adding.join(PATIENCE)
    assert refusals == [3]
    assert host.left() == {}


def test_add_succeeds_after_a_del_of_the_same_ids(host):
    host.way = "daemon"
    host.pod("a")
    config = host.bridge(*DUAL)
    for _ in range(5):
        host.add("a", config)
        host.delete("a", config)
    assert host.left() == {}


ORPHAN = """
import os, subprocess, sys, time
environment = dict(os.environ)
process = subprocess.Popen([sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
process.stdin.write(sys.argv[2].encode())
process.stdin.close()
print(process.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("plugin", ["bridge", "host-local"])
def test_add_whose_runtime_has_died_is_not_begun(host, plugin):
    """By the pipe of the answer, which has no reader any more."""
    host.pod("a")
    config = host.config(plugin, *DUAL)
    runtime = subprocess.Popen(
        [sys.executable, "-c", ORPHAN, str(host.programs / plugin), json.dumps(config)],
        env=host.environment("ADD", "a"),
        stdout=subprocess.PIPE,
    )
    pid = int(runtime.stdout.readline())
    os.kill(pid, signal.SIGSTOP)
    runtime.kill()
    runtime.communicate(timeout=PATIENCE)
    os.kill(pid, signal.SIGCONT)
    eventually(lambda: has_ended(pid))
    assert host.left() == {}


def test_lease_is_refused_if_its_namespace_ended_after_the_del(host):
    """As another main plugin asks that hung: it starts our IPAM plugin after the DEL."""
    config = host.config("host-local", *DUAL)
    host.way = "program"
    netns = host.pod("a")
    host.add("a", config)
    host.delete("a", config)
    host.namespaces.remove("a")
    pass_a_tick()
    with pytest.raises(Refused, match="was deleted while this ADD waited"):
        host.add("a", config, CNI_NETNS=netns)
    assert host.left() == {}


def test_deletions_are_known_by_key_and_time(tmp_path):
    deletions = Deletions(str(tmp_path / "deletions"))
    before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    assert not deletions.is_noted("a")
    pass_a_tick()
    deletions.note("a")
    pass_a_tick()
    after = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    assert deletions.is_noted("a")
    assert deletions.is_noted("a", before)
    assert not deletions.is_noted("a", after)
    assert not deletions.is_noted("b")


def test_deletions_survive_a_torn_file(tmp_path):
    path = tmp_path / "deletions"
    path.write_bytes(b"\xff" * 7)
    deletions = Deletions(str(path))
    assert not deletions.is_noted("a")
    deletions.note("a")
    assert deletions.is_noted("a")
