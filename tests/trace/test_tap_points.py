"""Tap points: the store, programs, and the side of a connection that records."""

import contextlib
import json
import stat
from pathlib import Path
from typing import Any

import pytest

from podwire.cluster import cni_tap, tracing
from podwire.cluster.store_tap import tapped_store
from podwire.cniplugins.skeleton import Streams, answer
from podwire.interfaces import Hop
from podwire.linux.proc import processes
from podwire.linux.proc.namespaces import KernelNamespaces, visit
from podwire.protocols.cni.verbs import Invocation
from podwire.protocols.storage import Stale
from podwire.runtime.cni.plugins import PluginFailed, Plugins
from podwire.store import MemoryStore
from podwire.trace.participants import KUBELET
from podwire.trace.recorder import Recorder


def arrows(hops):
    return [(hop.caller, hop.callee, hop.method, hop.outcome) for hop in hops]


async def test_a_tapped_store_records_writes_and_passes_calls_on():
    hops, plain = [], MemoryStore()
    store = tapped_store(plain, hops.append, "etcd://127.0.0.1:2379")
    item = await store.create("/registry/pods/a/b", b"{}")
    await store.update("/registry/pods/a/b", b"{}", expected=item.revision)
    with pytest.raises(Stale):
        await store.delete("/registry/pods/a/b", expected=item.revision)
    assert (await store.get("/registry/pods/a/b")) == await plain.get("/registry/pods/a/b")
    assert (await store.list("/registry/")) == await plain.list("/registry/")
    assert (store.revision, store.failure) == (plain.revision, "")
    store.watch("/registry/", after=store.revision).close()
    await store.compact(store.revision)
    await store.close()
    assert arrows(hops) == [
        ("APIServer", "etcd", "create /registry/pods/a/b", ""),
        ("etcd", "APIServer", "create /registry/pods/a/b", "OK"),
        ("APIServer", "etcd", "update /registry/pods/a/b", ""),
        ("etcd", "APIServer", "update /registry/pods/a/b", "OK"),
        ("APIServer", "etcd", "delete /registry/pods/a/b", ""),
        ("etcd", "APIServer", "delete /registry/pods/a/b", "Stale"),
    ]


def plugin(folder: Path, name: str, script: str) -> None:
    folder.chmod(0o755)
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(stat.S_IRWXU)


def test_a_cni_call_is_recorded_with_verb_and_type(tmp_path):
    plugin(tmp_path, "mine", "cat >&2; echo '{\"ips\": []}'")
    hops = []
    plugins = Plugins((tmp_path,), run=tracing.cni_run(hops.append))
    invocation = Invocation("ADD", "c1", "/run/netns/x", "eth0", "K8S_POD_UID=u1")
    assert plugins.call("mine", invocation, {"name": "net"}) == {"ips": []}
    way = ("ContainerRuntime", "CNIPlugin")
    assert arrows(hops) == [(*way, "ADD mine", ""), (*reversed(way), "ADD mine", "OK")]
    asked, done = hops[0].detail["request"], hops[1].detail["response"]
    assert (asked.env["CNI_NETNS"], asked.env["CNI_IFNAME"], asked.stdin) == ("/run/netns/x", "eth0", b'{"name":"net"}')
    assert (done.code, done.stdout, done.stderr) == (0, b'{"ips": []}\n', asked.stdin)


def test_a_failed_cni_call_is_recorded_with_its_exit_code(tmp_path):
    plugin(tmp_path, "mine", 'echo \'{"code": 7, "msg": "no"}\'; exit 1')
    hops = []
    with pytest.raises(PluginFailed):
        Plugins((tmp_path,), run=tracing.cni_run(hops.append)).call("mine", Invocation("DEL", "c1", "", "eth0"), {})
    assert arrows(hops)[1] == ("CNIPlugin", "ContainerRuntime", "DEL mine", "exit 1")


def test_trace_keeps_the_first_check_and_the_first_after_a_failure(tmp_path):
    plugin(tmp_path, "mine", "test ! -e $0.broken")
    hops = []
    plugins = Plugins((tmp_path,), run=tracing.cni_run(hops.append))

    def reported(verb: str) -> int:
        before = len(hops)
        with contextlib.suppress(PluginFailed):
            plugins.call("mine", Invocation(verb, "c1", "/run/netns/x", "eth0"), {})
        return len(hops) - before

    assert [reported("CHECK"), reported("CHECK"), reported("CHECK")] == [2, 0, 0]
    (tmp_path / "mine.broken").touch()
    assert [reported("CHECK"), reported("CHECK")] == [0, 2]
    (tmp_path / "mine.broken").unlink()
    assert [reported("CHECK"), reported("CHECK"), reported("DEL"), reported("CHECK")] == [2, 0, 2, 2]


CNI, BRIDGE = "CNIPlugin", {"cniVersion": "1.0.0", "name": "net", "type": "bridge", "bridge": "pw-joint0"}


def tap_points(netns: Path, folder: Path, verb: str, ipam: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """The hops that are recorded while the daemon answers, in a namespace that stands for the host."""
    hops: list[Hop] = []
    config = json.dumps({**BRIDGE, "dataDir": str(folder), "ipam": ipam}).encode()
    environ = {
        "CNI_COMMAND": verb, "CNI_CONTAINERID": "c1", "CNI_NETNS": str(netns), "CNI_IFNAME": "eth0",
        "CNI_PATH": "/none",
    }  # fmt: skip
    answer = cni_tap.tapped_answer(hops.append)
    answer("bridge", Streams(environ, lambda: config, lambda _: None, lambda _: None))
    return arrows(hops)


def test_a_plugin_asks_its_ipam_and_does_the_rest_itself(tmp_path):
    namespaces = KernelNamespaces(tmp_path / "netns")
    host, pod = namespaces.create("host"), namespaces.create("pod")
    ipam = {"type": "host-local", "subnet": "10.9.0.0/24", "dataDir": str(tmp_path / "ipam")}
    try:
        with visit(host.path):
            added, deleted = (tap_points(pod.path, tmp_path / "state", verb, ipam) for verb in ("ADD", "DEL"))
    finally:
        namespaces.remove("pod")
        namespaces.remove("host")
    assert added == [
        (CNI, "IPAM", "ADD host-local", ""),
        ("IPAM", CNI, "ADD host-local", "OK"),
        (CNI, CNI, "configure pod networking", ""),
        (CNI, CNI, "configure pod networking", "OK"),
    ]
    assert deleted == [
        (CNI, CNI, "clean up pod networking", ""),
        (CNI, CNI, "clean up pod networking", "OK"),
        (CNI, "IPAM", "DEL host-local", ""),
        ("IPAM", CNI, "DEL host-local", "OK"),
    ]


def test_a_failed_ipam_call_is_recorded(tmp_path):
    namespaces = KernelNamespaces(tmp_path / "netns")
    host, pod = namespaces.create("host"), namespaces.create("pod")
    ipam = {"type": "host-local", "subnet": "10.9.0.0/30", "dataDir": str(tmp_path / "ipam"),
            "rangeStart": "10.9.0.1", "rangeEnd": "10.9.0.1"}  # fmt: skip
    try:
        with visit(host.path):
            result = tap_points(pod.path, tmp_path / "state", "ADD", ipam)
    finally:
        namespaces.remove("pod")
        namespaces.remove("host")
    assert result[:2] == [(CNI, "IPAM", "ADD host-local", ""), ("IPAM", CNI, "ADD host-local", "CniError")]
    assert {item[2] for item in result[2:]} == {"DEL host-local"}


def test_a_plugin_without_an_ipam_or_a_tap_is_not_watched(tmp_path):
    assert cni_tap.tapped_answer(None) is answer
    assert tap_points(tmp_path / "nowhere", tmp_path, "ADD", {}) == []


@pytest.mark.parametrize(
    ("argv", "method"),
    [
        (["shim", "run", "--id", "c1", "--", "/bin/true", "--root", "/x", "run", "--detach", "c1"], "true run"),
        (["/bin/true"], "true "),
    ],
)
def test_a_container_is_started_by_the_runtime_itself(argv, method):
    hops = []

    def run(argv, *, env, stdin=b"", **limits):
        return processes.run(["/bin/true"], env=env, stdin=stdin, **limits)

    watched = tracing.tapped_run(run, tracing.Tapped(hops.append, caller="a", callee="a"), tracing._oci_call)
    watched(argv, env={}, deadline=20.0)
    assert [hop.method for hop in hops] == [method, method]


def test_nothing_is_wrapped_without_a_tap():
    assert tracing.cni_run(None) is tracing.oci_run(None) is processes.run


@pytest.mark.parametrize(
    ("variables", "tap", "api", "cri"),
    [
        ({}, False, False, False),
        ({tracing.API_SIDE: "client", tracing.CRI_SIDE: "runtime"}, False, False, False),
        ({tracing.VARIABLE: "/x"}, True, False, False),
        ({tracing.VARIABLE: "/x", tracing.API_SIDE: "client"}, True, True, False),
        ({tracing.VARIABLE: "/x", tracing.CRI_SIDE: "runtime"}, True, False, True),
    ],
    ids=["nobody listens", "still nobody", "our cluster", "a foreign API server", "a foreign kubelet"],
)
def test_the_environment_decides_which_side_records(variables, tap, api, cri, monkeypatch):
    for entry in (tracing.VARIABLE, tracing.API_SIDE, tracing.CRI_SIDE):
        monkeypatch.delenv(entry, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    result = [tracing.tap(KUBELET), tracing.api_tap(KUBELET), tracing.cri_tap()]
    assert [isinstance(item, Recorder) for item in result] == [tap, api, cri]
