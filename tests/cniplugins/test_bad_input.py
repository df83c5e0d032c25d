"""Every wrong environment, configuration, range and path: the right error object, and nothing is changed."""

import json
import os
import subprocess

import pytest

from podwire.linux.net.network import KernelNetwork

ADD = {"CNI_COMMAND": "ADD", "CNI_CONTAINERID": "a", "CNI_IFNAME": "eth0"}
IPAM = {"type": "host-local", "subnet": "10.88.0.0/24"}


def ipam(**keys):
    return {"ipam": IPAM | keys}


def ranges(*sets):
    return {"ipam": {"type": "host-local", "ranges": list(sets)}}


TABLE = {
    "environment": {
        "no such command": ({"CNI_COMMAND": "FOO"}, {}, 4),
        "lower case": ({"CNI_COMMAND": "add"}, {}, 4),
        "an empty command": ({"CNI_COMMAND": ""}, {}, 4),
        "no container": ({"CNI_CONTAINERID": ""}, {}, 4),
        "no namespace": ({"CNI_NETNS": ""}, {}, 4),
        "no interface": ({"CNI_IFNAME": ""}, {}, 4),
        "a way out": ({"CNI_CONTAINERID": "../../etc/x"}, {}, 4),
        "a newline": ({"CNI_CONTAINERID": "a\nb"}, {}, 4),
        "no ASCII": ({"CNI_CONTAINERID": "ü"}, {}, 4),
        "a name too long": ({"CNI_IFNAME": "a" * 16}, {}, 4),
        "a name that the kernel fills in": ({"CNI_IFNAME": "eth%d"}, {}, 4),
        "a name with a slash": ({"CNI_IFNAME": "a/b"}, {}, 4),
        "dots": ({"CNI_IFNAME": ".."}, {}, 4),
        "arguments that are no pairs": ({"CNI_ARGS": "FOO"}, {}, 4),
        "arguments that nobody knows": ({"CNI_ARGS": "FOO=1"}, {}, 4),
        "a MAC address that is none": ({"CNI_ARGS": "MAC=zz"}, {}, 7),
        "an address that is none": ({"CNI_ARGS": "IP=10.88.0"}, {}, 7),
        "GC without a path": ({"CNI_COMMAND": "GC", "CNI_PATH": ""}, {}, 4),
        "a relative path": ({"CNI_PATH": "/nowhere:bin"}, {}, 4),
        "the working directory as a path": ({"CNI_PATH": "."}, {}, 4),
        "a relative path for CHECK": ({"CNI_COMMAND": "CHECK", "CNI_PATH": "bin"}, {}, 4),
        "a relative path for GC": ({"CNI_COMMAND": "GC", "CNI_PATH": "bin"}, {}, 4),
        "a container id too long": ({"CNI_CONTAINERID": "a" * 201}, {}, 4),
    },
    "namespace": {
        "a path that is not there": ({"CNI_NETNS": "/nowhere"}, {}, 8),
        "a file": ({"CNI_NETNS": "/etc/passwd"}, {}, 8),
        "a directory": ({"CNI_NETNS": "/etc"}, {}, 8),
        "a namespace of another kind": ({"CNI_NETNS": f"/proc/{os.getpid()}/ns/mnt"}, {}, 8),
        "a device": ({"CNI_NETNS": "/dev/null"}, {}, 8),
    },
    "standard input": {
        "nothing": ({}, b"", 6),
        "half an object": ({}, b"{", 6),
        "a list": ({}, b"[]", 6),
        "null": ({}, b"null", 6),
        "no UTF-8": ({}, b"\xff\xfe", 6),
        "a byte order mark": ({}, b"\xef\xbb\xbf{}", 6),
        "too deep": ({}, b'{"a":' * 100_000, 6),
        "no version that we know": ({}, {"cniVersion": "9.9.9"}, 1),
        "a version that is none": ({}, {"cniVersion": "abc"}, 1),
        "a version that is a number": ({}, {"cniVersion": 1.1}, 6),
        "no name": ({}, {"name": None}, 7),
        "a name that leads out": ({}, {"name": "../x"}, 7),
        "a name that is not a string": ({}, {"name": 5}, 6),
        "a network's name too long": ({}, {"name": "n" * 190}, 7),
        "a directory too long": ({}, {"dataDir": "/x" * 3000}, 7),
        "a part of a directory too long": ({}, {"dataDir": f"/{'x' * 256}"}, 7),
        "a directory with a null": ({}, {"dataDir": "/x\0y"}, 7),
        "CHECK before its time": ({"CNI_COMMAND": "CHECK"}, {"cniVersion": "0.3.1"}, 1),
        "GC before its time": ({"CNI_COMMAND": "GC"}, {"cniVersion": "1.0.0"}, 1),
        "STATUS before its time": ({"CNI_COMMAND": "STATUS"}, {"cniVersion": "1.0.0"}, 1),
        "GC without a list": ({"CNI_COMMAND": "GC"}, {}, 7),
        "CHECK without a result": ({"CNI_COMMAND": "CHECK"}, {}, 7),
        "runtimeConfig that is not an object": ({}, {"runtimeConfig": []}, 6),
    },
    "bridge": {
        "a name that no link can have": ({}, {"bridge": "a/b"}, 7),
        "a name that is not a string": ({}, {"bridge": 5}, 6),
        "a flag that is none": ({}, {"ipMasq": "yes"}, 6),
        "a negative MTU": ({}, {"mtu": -1}, 7),
        "a MTU beyond all": ({}, {"mtu": 1 << 20}, 7),
        "what excludes each other": ({}, {"hairpinMode": True, "promiscMode": True}, 7),
        "a field that is not supported": ({}, {"vlan": 7}, 2),
        "records that cannot be written": ({}, {"dataDir": "/proc/nowhere"}, 5),
        "an IPAM that leads out": ({}, {"ipam": {"type": "../evil"}}, 7),
        "an IPAM with a path": ({}, {"ipam": {"type": "/bin/true"}}, 7),
        "an IPAM that is not there": ({}, {"ipam": {"type": "missing"}}, 7),
        "an IPAM that is not an object": ({}, {"ipam": "host-local"}, 6),
    },
    "ranges": {
        "none": ({}, {"ipam": {"type": "host-local"}}, 7),
        "bits of a host": ({}, ipam(subnet="10.88.0.1/24"), 7),
        "no network": ({}, ipam(subnet="garbage"), 7),
        "a prefix beyond all": ({}, ipam(subnet="10.0.0.0/33"), 7),
        "too small": ({}, ipam(subnet="10.88.0.0/31"), 7),
        "too small for IPv6": ({}, ipam(subnet="fd00::/127"), 7),
        "a start outside": ({}, ipam(rangeStart="10.89.0.1"), 7),
        "an end before the start": ({}, ipam(rangeStart="10.88.0.9", rangeEnd="10.88.0.5"), 7),
        "a gateway outside": ({}, ipam(gateway="10.89.0.1"), 7),
        "both families in one set": ({}, ranges([{"subnet": "10.1.0.0/24"}, {"subnet": "fd00::/64"}]), 7),
        "an empty set": ({}, ranges([]), 7),
        "an overlap in a set": ({}, ranges([{"subnet": "10.1.0.0/24"}, {"subnet": "10.1.0.0/25"}]), 7),
        "an overlap of sets": ({}, ranges([{"subnet": "10.1.0.0/24"}], [{"subnet": "10.1.0.0/25"}]), 7),
        "a route without end": ({}, ipam(routes=[{"dst": "x"}]), 7),
        "an address out of range": ({"CNI_ARGS": "IP=10.99.0.5"}, {}, 7),
        "the gateway": ({"CNI_ARGS": "IP=10.88.0.1"}, {}, 7),
        "the broadcast address": ({"CNI_ARGS": "IP=10.88.0.255"}, {}, 7),
        "another family": ({"CNI_ARGS": "IP=fd00::5"}, {}, 7),
        "a resolv.conf that is not there": ({}, ipam(resolvConf="/nowhere"), 5),
        "an exclusion of everything": ({}, ipam(exclude=["10.0.0.0/8"]), 7),
        "a directory that is not a string": ({}, ipam(dataDir=5), 6),
        "a directory too long": ({}, ipam(dataDir="/x" * 3000), 7),
        "a mirror that is not a flag": ({}, ipam(mirrorHostLocal="yes"), 6),
    },
    "portmap": {
        "no result": ({}, {"type": "portmap", "prevResult": None}, 7),
        "a result that is none": ({}, {"type": "portmap", "prevResult": {"ips": [{"address": "x"}]}}, 7),
    }
    | {
        f"{mapping}": ({}, {"type": "portmap", "runtimeConfig": {"portMappings": [mapping]}}, code)
        for mapping, code in (
            ({"hostPort": 0, "containerPort": 80}, 7),
            ({"hostPort": 70000, "containerPort": 80}, 7),
            ({"hostPort": 80, "containerPort": -1}, 7),
            ({"hostPort": 80, "containerPort": 80, "protocol": "foo"}, 7),
            ({"hostPort": 80, "containerPort": 80, "hostIP": "x"}, 7),
            ({"hostPort": "80", "containerPort": 80}, 6),
        )
    },
}


@pytest.fixture(params=["program", "daemon"])
def way(request):
    return request.param


def reported(host, env, config):
    """Exit code, and what was printed where."""
    base = host.bridge() | {"prevResult": {"cniVersion": "1.1.0", "ips": [{"address": "10.88.0.2/24"}]}}
    if "CHECK" in env.get("CNI_COMMAND", ""):
        del base["prevResult"]
    if isinstance(config, dict):
        data = {"dataDir": str(host.root / "ipam")}
        ipam = config.get("ipam", IPAM)
        config = base | {"ipam": IPAM} | config
        config["ipam"] = data | ipam if isinstance(ipam, dict) else ipam
    plugin = config["type"] if isinstance(config, dict) else "bridge"
    programs = host.begin() if host.way == "daemon" else host.programs
    netns = {"CNI_NETNS": host.namespaces.path("a"), "CNI_PATH": str(programs), "PATH": "/usr/bin:/bin"}
    stdin = config if isinstance(config, bytes) else json.dumps(config).encode()
    return subprocess.run([programs / plugin], input=stdin, env=netns | ADD | env, capture_output=True, check=False)


@pytest.mark.parametrize("what", TABLE)
def test_invalid_input_is_an_error_and_changes_nothing(host, what):
    host.pod("a")
    codes = {}
    for case, (env, config, _) in TABLE[what].items():
        done = reported(host, env, config)
        error = json.loads(done.stdout)
        assert done.returncode == 1, case
        assert set(error) <= {"cniVersion", "code", "msg", "details"}, case
        assert error["cniVersion"], case
        assert error["msg"], case
        assert b"Traceback" not in done.stdout + done.stderr, case
        codes[case] = error["code"]
    assert codes == {case: code for case, (_, _, code) in TABLE[what].items()}
    with KernelNetwork() as here:
        assert [link.name for link in here.links.list()] == ["lo"]
    with KernelNetwork(host.namespaces.path("a")) as there:
        assert [link.name for link in there.links.list()] == ["lo"]
    assert host.left() == {}


@pytest.mark.parametrize(
    ("keys", "env"),
    [
        ({"name": "n" * 190}, {}),
        ({"name": "n" * 300}, {}),
        ({}, {"CNI_CONTAINERID": "c" * 300}),
        ({"name": "n" * 170}, {"CNI_CONTAINERID": "c" * 139, "CNI_IFNAME": "i" * 15}),
        ({}, {"CNI_PATH": "bin:."}),
    ],
    ids=["a long name", "a name that no file can have", "a long id", "ids too long together", "a relative path"],
)
@pytest.mark.parametrize("plugin", ["bridge", "portmap", "bandwidth", "host-local"])
def test_del_succeeds_with_names_that_add_refuses(host, plugin, keys, env):
    config = host.config(plugin, "10.88.0.0/24") | keys
    host.call("DEL", "a", config, "", **env)
    assert host.left() == {}


def test_the_longest_names_can_be_attached_and_are_distinct(host):
    config = host.bridge(name="n" * 170, ipMasq=True)
    host.leases = host.root / "ipam" / config["name"]
    ids = ["c" * 67 + last for last in "ab"]
    netns = host.pod("a"), host.pod("b")
    for id_, path in zip(ids, netns, strict=True):
        host.add(id_, config, CNI_NETNS=path, CNI_IFNAME="i" * 15)
    for path in host.records.glob("bridge/*"):
        path.unlink()
    host.delete(ids[0], config, "", CNI_IFNAME="i" * 15)
    left = host.left()
    assert (len(left["links"]), len(left["elements"])) == (1, 1)
    host.delete(ids[1], config, "", CNI_IFNAME="i" * 15)
    assert host.left() == {}


def test_program_of_the_working_directory_is_never_run(host, tmp_path, refused, monkeypatch):
    host.pod("a")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "mine").write_text(f"#!/bin/sh\ntouch {tmp_path}/was-run\n")
    (programs / "mine").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    config = host.bridge(ipam={"type": "mine"})
    with refused(4, "CNI_PATH 'bin' must be an absolute path"):
        host.add("a", config, CNI_PATH="bin")
    with refused(7, "mine is not in CNI_PATH"):
        host.delete("a", config, CNI_PATH="bin")
    assert not (tmp_path / "was-run").exists()
