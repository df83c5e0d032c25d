"""podwire cni add, del, check, gc, status, version: with Debian's plugins, with ours, with scripts."""

import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from podwire.cniplugins.install import install

PODWIRE = Path(sys.executable).with_name("podwire")
REFERENCE = Path("/usr/lib/cni")
SCRIPT = """#!/bin/sh
config=$(cat)
echo "$CNI_COMMAND $CNI_CONTAINERID $CNI_IFNAME $CNI_NETNS $CNI_ARGS $config" >>"$0.calls"
[ -e "$0.$CNI_COMMAND" ] && cat "$0.$CNI_COMMAND" && exit 1
[ $CNI_COMMAND = ADD ] && echo '{"cniVersion": "1.1.0", "ips": [{"address": "10.1.0.5/24"}]}'
exit 0
"""


class Place:
    """Directories, and a host with a network of its own."""

    def __init__(self, root, network):
        self.root, self.host = root, network
        (root / "net.d").mkdir()
        (root / "bin").mkdir(mode=0o755)
        self.bin = root / "bin"

    def network(self, *plugins, version="1.1.0"):
        config = {"cniVersion": version, "name": "net", "plugins": list(plugins)}
        (self.root / "net.d/10-net.conflist").write_text(json.dumps(config))

    def script(self):
        path = self.bin / "one"
        path.write_text(SCRIPT)
        path.chmod(0o755)
        self.network({"type": "one", "capabilities": {"mac": True}})

    def calls(self):
        path = self.bin / "one.calls"
        return path.read_text().splitlines() if path.exists() else []

    def __call__(self, verb, *more, network="net"):
        where = ["--conf-dir", self.root / "net.d", "--bin-dir", self.bin, "--state-dir", self.root / "state"]
        words = ["nsenter", f"--net={self.host}", PODWIRE, "cni", verb, network, *more, *where]
        return subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=60, check=False)

    def done(self, verb, *more):
        result = self(verb, *more)
        assert (result.returncode, result.stderr) == (0, ""), result
        return result.stdout


@contextmanager
def namespace():
    """One that nobody else has, and that goes with the process in it."""
    words = [
        "setpriv",
        "--pdeathsig",
        "KILL",
        "unshare",
        "--net",
        "sh",
        "-c",
        "ip link set lo up; echo; exec sleep 600",
    ]
    holder = subprocess.Popen(words, stdout=subprocess.PIPE)
    holder.stdout.readline()
    try:
        yield f"/proc/{holder.pid}/ns/net"
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()


@pytest.fixture
def place(tmp_path):
    with namespace() as host:
        yield Place(tmp_path, host)


@pytest.fixture
def netns(tmp_path):
    path = tmp_path / "netns"
    with namespace() as found:
        path.symlink_to(found)
        yield str(path)


def test_plugins_get_the_arguments_of_the_command_line(place, netns):
    place.script()
    output = place.done(
        "add", netns, "--container-id", "c1", "--ifname", "net1", "--args", "IgnoreUnknown=1", "--capabilities",
        '{"mac": "02:00:00:00:00:01", "ips": []}',
    )  # fmt: skip
    assert json.loads(output)["ips"] == [{"address": "10.1.0.5/24"}]
    place.done("check", "--container-id", "c1", "--ifname", "net1")
    place.done("del", "--container-id", "c1", "--ifname", "net1")
    add, check, delete = place.calls()
    assert add.startswith(f"ADD c1 net1 {netns} IgnoreUnknown=1 ")
    assert check.startswith(f"CHECK c1 net1 {netns} IgnoreUnknown=1 ")
    sent = json.loads(delete.split(" ", 5)[5])
    assert sent["runtimeConfig"] == {"mac": "02:00:00:00:00:01"}
    assert sent["prevResult"]["ips"] == [{"address": "10.1.0.5/24"}]


def test_a_failure_is_one_line_with_plugin_and_code_and_leaves_nothing(place, netns):
    place.script()
    (place.bin / "one.ADD").write_text('{"code": 11, "msg": "busy", "details": "come\\nback"}')
    result = place("add", netns, "-o", "json")
    assert result.returncode == 1
    assert result.stderr == "podwire cni: CNI plugin one failed ADD: code 11: busy (come back)\n"
    error = json.loads(result.stdout)
    assert error == {"cniVersion": "1.1.0", "code": 11, "msg": "busy", "details": "come\nback", "plugin": "one"}
    assert [call.split()[0] for call in place.calls()] == ["ADD", "DEL"]
    assert list((place.root / "state/by-hand/net").iterdir()) == []


def test_a_failed_del_keeps_its_record_for_the_next_del(place, netns):
    place.script()
    place.done("add", netns)
    (place.bin / "one.DEL").write_text('{"code": 5, "msg": "disk"}')
    assert "one failed DEL: code 5: disk" in place("del", netns).stderr
    (place.bin / "one.DEL").unlink()
    (place.root / "net.d/10-net.conflist").unlink()
    place.done("del", netns)
    assert "already" not in place("add", netns).stderr


@pytest.mark.parametrize(
    ("verb", "words", "said"),
    [
        ("add", ["/no/such/netns"], "/no/such/netns"),
        ("add", ["NETNS", "--container-id", "a/b"], "'a/b' is not a valid CNI_CONTAINERID"),
        ("add", ["NETNS", "--ifname", "much-too-long-a-name"], "is not a valid CNI_IFNAME"),
        ("del", [], "NETNS or --container-id"),
        ("check", ["--container-id", "c1"], "code 3: c1 eth0 has no recorded attachment to net"),
    ],
)
def test_invalid_arguments_are_refused_before_plugins_are_called(place, netns, verb, words, said):
    place.script()
    result = place(verb, *(netns if word == "NETNS" else word for word in words))
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert said in result.stderr
    assert place.calls() == []


def test_a_network_that_is_not_there_and_one_that_is_broken_are_named(place):
    (place.root / "net.d/10-net.conflist").write_text("{")
    result = place("status")
    assert result.returncode == 1
    assert "no network net in" in result.stderr
    assert "10-net.conflist" in result.stderr
    assert not (place.root / "state").exists()


def test_status_and_gc_need_1_1_0(place):
    place.script()
    place.network({"type": "one"}, version="1.0.0")
    for verb in ("status", "gc"):
        result = place(verb)
        assert (result.returncode, result.stderr.startswith("podwire cni: code 1: ")) == (1, True)
    assert place.calls() == []


def test_with_disable_gc_plugins_are_not_called(place):
    place.script()
    path = place.root / "net.d/10-net.conflist"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"disableGC": True}))
    gone = place.root / "gone"
    gone.symlink_to("/proc/self/ns/net")
    place.done("add", str(gone))
    gone.unlink()
    result = place("gc")
    assert (result.returncode, "disableGC is set" in result.stderr) == (0, True)
    assert [call.split()[0] for call in place.calls()] == ["ADD"]


def test_gc_keeps_living_named_and_recorded_attachments(place, netns):
    place.script()
    place.done("add", netns, "--container-id", "lives")
    gone = place.root / "gone"
    gone.symlink_to("/proc/self/ns/net")
    place.done("add", str(gone), "--container-id", "dead")
    gone.unlink()
    runtime = place.root / "state/cache"
    runtime.mkdir(mode=0o700)
    (runtime / "pod@eth0.json").write_text("{")
    result = place("gc", "--valid", "named/net1")
    assert (result.returncode, "id=pod" in result.stderr) == (0, True), "what cannot be read is reported, and stays"
    dead, gc = place.calls()[2:]
    assert dead.startswith("DEL dead eth0")
    sent = json.loads(gc[gc.index("{") :])["cni.dev/valid-attachments"]
    assert [item["containerID"] for item in sent] == ["lives", "named", "pod"]


@pytest.mark.parametrize("whose", ["ours", "Debian's"])
def test_a_namespace_gets_its_address_and_gives_it_back_although_it_is_gone(place, netns, whose):
    if whose == "ours":
        install(str(place.bin))
        version, record = "1.1.0", {"dataDir": str(place.root / "records")}
    else:
        if not (REFERENCE / "ptp").exists():
            pytest.skip("Debian's containernetworking-plugins are not here")
        place.bin, version, record = REFERENCE, "1.0.0", {}
    leases = place.root / "leases"
    net = "10.219.7"
    ipam = {"type": "host-local", "dataDir": str(leases), "ranges": [[{"subnet": f"{net}.0/29"}]]}
    place.network({"type": "ptp", "ipam": ipam, **record}, {"type": "tuning", **record}, version=version)
    assert version in json.loads(place.done("version", "-o", "json"))["plugins"]["ptp"]
    result = json.loads(place.done("add", netns))
    assert result["ips"][0]["address"] == f"{net}.2/29"
    place.done("check", netns)
    assert "is attached to net already" in place("add", netns).stderr
    if whose == "ours":
        place.done("status")
        place.done("gc")
        place.done("check", netns)
    Path(netns).unlink()
    place.done("del", netns)
    assert [path.name for path in (leases / "net").iterdir() if f"{net}.2" in path.name and path.name[0] != "l"] == []
    place.done("del", netns)


def steps(stderr, plugin, verb):
    rows = [line.split() for line in stderr.splitlines()]
    assert rows[0] == ["PLUGIN", "VERB", "STEP", "TIMES", "MS"]
    return {row[2]: float(row[4]) for row in rows if row[:2] == [plugin, verb]}


@pytest.mark.parametrize("served", [False, True], ids=["without the daemon", "through the daemon"])
def test_timings_show_the_duration_of_each_step(place, netns, served, tmp_path):
    socket = tmp_path / "cni.sock"
    install(str(place.bin), socket=str(socket))
    records = {"dataDir": str(place.root / "records")}
    ipam = {"type": "host-local", "dataDir": str(place.root / "leases"), "ranges": [[{"subnet": "10.219.7.0/29"}]]}
    place.network({"type": "bridge", "ipMasq": True, "ipam": ipam, **records})
    words = ["nsenter", f"--net={place.host}", PODWIRE, "cni", "daemon", "--socket", socket]
    daemon = subprocess.Popen(list(map(str, words)), stderr=subprocess.PIPE, text=True) if served else None
    try:
        if daemon is not None:
            assert "serving" in daemon.stderr.readline()
        added = place("add", netns, "--timings")
        assert json.loads(added.stdout)["ips"], "what is printed is what is always printed"
        durations = steps(added.stderr, "bridge", "ADD")
        assert set(durations) >= {"start", "ipam", "netlink", "netfilter", "nft", "whole"}
        assert sum(durations.values()) == pytest.approx(2 * durations["whole"], abs=0.1)
        for verb in ("check", "del"):
            assert "ipam" in steps(place(verb, netns, "--timings").stderr, "bridge", verb.upper())
        for verb in ("gc", "status"):
            assert "ipam" in steps(place(verb, "--timings").stderr, "bridge", verb.upper())
    finally:
        if daemon is not None:
            daemon.terminate()
            daemon.communicate(timeout=60)


def test_timings_of_any_plugin_and_of_one_that_fails(place, netns):
    place.script()
    (place.bin / "one.ADD").write_text('{"code": 11, "msg": "busy"}')
    result = place("add", netns, "--timings", "-o", "json")
    assert result.returncode == 1
    assert json.loads(result.stdout)["code"] == 11
    listed, _, line = result.stderr.partition("\npodwire cni: ")
    assert "busy" in line
    assert [(item["plugin"], item["verb"], item["name"]) for item in json.loads(listed)] == [
        ("one", "ADD", "whole"),
        ("one", "DEL", "whole"),
    ]
