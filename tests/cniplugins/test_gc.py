"""GC: exactly what no valid attachment owns goes, and nothing of anybody else's."""

import json
import threading

import pytest

from podwire.cniplugins.attachments import Attachments
from podwire.cniplugins.skeleton import Call, Limits
from podwire.linux.net.network import KernelNetwork
from podwire.protocols.cni.config import plugin_config
from podwire.protocols.cni.verbs import Invocation
from tests.eventually import eventually

MAPPING = {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}


def valid(*ids, ifname="eth0"):
    return {"cni.dev/valid-attachments": [{"containerID": id_, "ifname": ifname} for id_ in ids]}


@pytest.fixture(params=["in process", "daemon"])
def way(request):
    return request.param


@pytest.fixture
def attached(host):
    """Pods with everything that there is to have; their result by id."""

    def attach(*ids, config=None):
        config = config or host.bridge("10.88.0.0/24", "fd88::/64", ipMasq=True)
        found = {}
        for number, each in enumerate(ids):
            host.pod(each)
            found[each] = host.add(each, config)
            host.add(each, host.portmap(found[each], MAPPING | {"hostPort": 8000 + number}))
        return config, found

    return attach


def collect(host, config, *ids):
    for item in (config, host.portmap({"cniVersion": "1.1.0"})):
        document = {key: value for key, value in item.items() if key not in ("prevResult", "runtimeConfig")}
        assert host.call("GC", "", document | valid(*ids), "") is None


def owners(left):
    return {lease[1:].split("@")[0] for lease in left["leases"] if lease.startswith("@")}


def test_gc_releases_invalid_and_keeps_valid_attachments(host, attached):
    config, results = attached("a", "b", "c")
    with KernelNetwork() as here:
        before = {link.name for link in here.links.list()}
    collect(host, config, "b", "unknown")
    left = host.left()
    assert owners(left) == {"b"}
    assert sorted(left["records"]) == ["net@b@eth0", "net@b@eth0"]
    assert {element.split(" ")[1] for element in left["elements"]} == {"b"}
    with KernelNetwork() as here:
        gone = before - {link.name for link in here.links.list()}
    assert gone == {results["a"]["interfaces"][1]["name"], results["c"]["interfaces"][1]["name"]}
    host.check("b", config, results["b"])
    host.check("b", host.portmap(results["b"], MAPPING | {"hostPort": 8001}), results["b"])
    collect(host, config, "b")
    assert host.left() == left


def test_empty_list_releases_this_network_only(host, attached):
    config, _ = attached("a", "b")
    other = host.bridge("10.99.0.0/24", name="other", bridge="other0", ipMasq=True)
    host.pod("x")
    result = host.add("x", other)
    collect(host, config)
    assert host.left()["records"] == ["other@x@eth0"]
    assert "leases" not in host.left()
    host.check("x", other, result)


@pytest.mark.parametrize(
    ("reported", "code"),
    [
        ({}, 7),
        ({"cni.dev/valid-attachments": "a"}, 6),
        ({"cni.dev/valid-attachments": ["a"]}, 6),
        ({"cni.dev/valid-attachments": [None]}, 6),
        ({"cni.dev/valid-attachments": [{}]}, 7),
        ({"cni.dev/valid-attachments": [{"containerID": "a"}]}, 7),
        ({"cni.dev/valid-attachments": [{"containerID": 5, "ifname": "eth0"}]}, 6),
        ({"cni.dev/valid-attachments": [{"containerID": "../a", "ifname": "eth0"}]}, 7),
    ],
    ids=str,
)
@pytest.mark.parametrize("plugin", ["bridge", "host-local", "portmap", "loopback"])
def test_gc_without_a_valid_list_is_an_error(host, refused, reported, code, plugin):
    host.way = "in process"
    host.pod("a")
    config = host.bridge()
    host.add("a", config)
    left = host.left()
    with refused(code, "cni.dev/valid-attachments"):
        host.call("GC", "", config | {"type": plugin} | reported, "")
    assert host.left() == left


@pytest.mark.parametrize("reported", [{"cni.dev/attachments": []}, {"cni.dev/valid-attachments": None}], ids=str)
def test_older_key_and_null_are_lists(host, reported):
    host.pod("a")
    config = host.bridge()
    host.add("a", config)
    host.call("GC", "", config | reported, "")
    assert host.left() == {}


def test_gc_finds_orphans_by_their_tags(host, attached):
    config, results = attached("a", "b")
    for path in host.records.glob("*/net@*"):
        path.unlink()
    collect(host, config, "b")
    left = host.left()
    assert owners(left) == {"b"}
    assert left["links"] == [results["b"]["interfaces"][1]["name"]]
    assert {element.split(" ")[1] for element in left["elements"]} == {"b"}


def test_gc_ignores_records_in_another_directory(host, attached, tmp_path):
    """Two of ours beside each other in one namespace, with a network of the same name."""
    config, _ = attached("a")
    elsewhere = config | {"dataDir": str(tmp_path / "other"), "ipam": config["ipam"] | {"dataDir": str(tmp_path / "i")}}
    left = host.left()
    host.call("GC", "", elsewhere | valid(), "")
    assert host.left() == left


def test_gc_removes_a_damaged_record_with_its_links(host, attached):
    config, _ = attached("a")
    for path in host.records.glob("*/net@*"):
        path.write_bytes(b"{")
    collect(host, config)
    assert host.left() == {}


def test_failure_of_gc_does_not_stop_the_rest(host, attached, refused):
    config, _ = attached("a", "b")
    record = json.loads((host.records / "bridge" / "net@a@eth0").read_bytes())
    ipam = record["config"]["ipam"] | {"type": "missing"}
    (host.records / "bridge" / "net@a@eth0").write_text(
        json.dumps(record | {"config": record["config"] | {"ipam": ipam}})
    )
    with refused(7, "missing is not in CNI_PATH"):
        host.call("GC", "", config | valid(), "")
    left = host.left()
    assert left["records"].count("net@b@eth0") == 1, "the port map's"
    assert "links" not in left
    assert "leases" not in left


def test_gc_skips_attachments_that_are_being_added(host, attached):
    config, _ = attached("a", "b")
    request = plugin_config(json.dumps(config).encode())
    adding = Call(Invocation("ADD", "a", ifname="eth0"), request)
    with Attachments(request, "bridge").lock(adding):
        host.call("GC", "", config | valid(), "")
        assert owners(host.left()) == {"a"}
    host.call("GC", "", config | valid(), "")
    assert "leases" not in host.left()


@pytest.mark.parametrize("kind", ["bridge", "portmap"])
def test_lock_timeout_is_code_11(host, refused, kind):
    host.limits = Limits(lock=0.2)
    config = host.bridge(type=kind)
    request = plugin_config(json.dumps(config).encode())
    with (
        Attachments(request, kind).lock(Call(Invocation("ADD", "a", ifname="eth0"), request)),
        refused(11, "takes more than"),
    ):
        host.delete("a", config, "")
    host.delete("a", config, "")


def test_stale_gc_spares_pods_that_were_added_since(host, tmp_path):
    """Nobody keeps it from going on while the next runtime attaches pods, which its list does not have."""
    gate = tmp_path / "gate"
    for name in ("dead", "new"):
        host.pod(name)
    config = host.bridge()
    host.add("dead", config)
    collecting = host.run("GC", "dead", config | valid(), PODWIRE_FAILPOINTS=f"cni.bridge-released=hold({gate})")
    eventually((tmp_path / "gate.held").exists)
    result = host.add("new", config)
    gate.touch()
    assert collecting.communicate(timeout=60) == (b"", b"")
    host.check("new", config, result)
    host.delete("new", config)
    assert host.left() == {}


def test_concurrent_gcs_adds_and_dels_do_no_harm(host):
    host.way = "daemon"
    host.begin()
    config = host.bridge("10.88.0.0/24", ipMasq=True)
    for name in ("old", *(f"n{number}" for number in range(6))):
        host.pod(name)
    results = {"old": host.add("old", config)}
    failed = []

    def work(number):
        try:
            host.delete(f"n{number}", config)
            results[f"n{number}"] = host.add(f"n{number}", config)
        except Exception as error:  # noqa: BLE001 - reported by the test
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    known = ["old", *(f"n{number}" for number in range(6))]
    for _ in range(5):
        host.call("GC", "", config | valid(*known), "")
    for thread in threads:
        thread.join()
    assert failed == []
    for each, result in results.items():
        host.check(each, config, result)


RECORDER = """#!/bin/sh
[ "$CNI_COMMAND" = ADD ] && echo '{"cniVersion":"1.1.0","ips":[{"address":"10.7.0.5/24"}]}'
printf '%s %s ' "$CNI_COMMAND" "$CNI_CONTAINERID" >>"$(dirname "$0")/said"
cat >>"$(dirname "$0")/said"; echo >>"$(dirname "$0")/said"
[ "$CNI_COMMAND" = STATUS ] && { echo '{"cniVersion":"1.1.0","code":50,"msg":"all gone"}'; exit 1; }
exit 0
"""


def test_gc_is_delegated_to_a_foreign_ipam_plugin(host, refused, tmp_path):
    programs = tmp_path / "path"
    programs.mkdir()
    (programs / "recorder").write_text(RECORDER)
    (programs / "recorder").chmod(0o700)
    host.programs, host.way = programs, "in process"
    config = host.bridge() | {"ipam": {"type": "recorder", "extra": 1}}
    host.pod("a")
    host.add("a", config)
    sent = config | valid("a")
    host.call("GC", "", sent, "")
    said = (programs / "said").read_text().splitlines()
    assert [item.split()[0] for item in said] == ["ADD", "GC"]
    assert json.loads(said[1].removeprefix("GC ")) == sent
    with refused(50, "all gone"):
        host.call("STATUS", "", config, "")
    host.call("GC", "", config | valid(), "")
    said = [line.split()[:2] for line in (programs / "said").read_text().splitlines()[3:]]
    assert said[0] == ["DEL", "a"]
    assert said[1][0] == "GC"


def test_add_and_check_refuse_a_record_of_a_newer_version_and_del_releases_by_tags(host, refused, attached):
    config, results = attached("a")
    [path] = host.records.glob("bridge/net@*")
    newer = json.dumps(json.loads(path.read_text()) | {"format": 99})
    path.write_text(newer)
    with refused(5, "written by a newer podwire"):
        host.call("ADD", "a", config)
    with refused(5, "written by a newer podwire"):
        host.check("a", config, results["a"])
    host.call("GC", "", config | valid("a"), "")
    assert path.read_text() == newer
    host.delete("a", host.portmap(results["a"]))
    host.delete("a", config)
    assert host.left() == {}
