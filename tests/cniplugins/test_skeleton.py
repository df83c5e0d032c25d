"""How plugins are called and say no, as any runtime meets them."""

import json
import socket
import subprocess
import time
from pathlib import Path

import pytest

from podwire.cniplugins import skeleton
from podwire.cniplugins.daemon.server import Daemon, Limits
from podwire.cniplugins.install import install

VERSIONS = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]
PLUGINS = ["bridge", "host-local", "loopback", "portmap"]
ENVIRONMENT = {
    "CNI_COMMAND": "ADD",
    "CNI_CONTAINERID": "c1",
    "CNI_NETNS": "/proc/self/ns/net",
    "CNI_IFNAME": "eth0",
    "CNI_PATH": "/nowhere",
}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Programs that have a daemon."""
    directory = tmp_path_factory.mktemp("served")
    install(str(directory), socket=str(directory / "cni.sock"))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(directory / "cni.sock"))
        listener.listen()
        daemon = Daemon(listener, Limits(threads=2))
        daemon.start()
        yield directory
        daemon.stop()


@pytest.fixture(params=["program", "daemon"])
def programs(request, programs, served):
    return programs if request.param == "program" else served


@pytest.fixture
def run(programs, tmp_path):
    """Run a plugin; its exit code, what it printed, and what it wrote to standard error."""

    def call(plugin, env, stdin=b"", **options):
        done = subprocess.run(
            [programs / plugin], input=stdin, env=env, capture_output=True, timeout=30, check=False, **options
        )
        return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr

    return call


@pytest.fixture
def config(tmp_path):
    ipam = {"type": "host-local", "dataDir": str(tmp_path / "ipam"), "subnet": "10.1.0.0/24"}
    return {"cniVersion": "1.1.0", "name": "net", "type": "bridge", "dataDir": str(tmp_path / "records"), "ipam": ipam}


@pytest.mark.parametrize("plugin", PLUGINS)
def test_version_reads_no_stdin(programs, plugin):
    process = subprocess.Popen(
        [programs / plugin], env={"CNI_COMMAND": "VERSION"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert json.loads(process.stdout.read()) == {"cniVersion": "1.1.0", "supportedVersions": VERSIONS}
    process.communicate()
    assert process.returncode == 0


def test_missing_command_prints_what_the_plugin_is(run):
    code, printed, stderr = run("bridge", {})
    assert (code, printed) == (0, None)
    assert b"podwire bridge" in stderr


@pytest.mark.parametrize("command", ["FOO", "add", ""])
def test_unknown_command_is_an_error(run, command):
    code, reported, stderr = run("bridge", {"CNI_COMMAND": command})
    assert (code, reported["code"], reported["cniVersion"], stderr) == (1, 4, "1.1.0", b"")
    assert "CNI_COMMAND" in reported["msg"]


@pytest.mark.parametrize("command", ["GC", "STATUS"])
def test_gc_and_status_need_version_1_1_0(run, config, command):
    old = json.dumps(config | {"cniVersion": "1.0.0", "cni.dev/valid-attachments": []}).encode()
    assert run("bridge", ENVIRONMENT | {"CNI_COMMAND": command}, old)[1]["code"] == 1


def test_check_needs_version_0_4_0(run, config):
    old = json.dumps(config | {"cniVersion": "0.3.1"}).encode()
    assert run("bridge", ENVIRONMENT | {"CNI_COMMAND": "CHECK"}, old)[1]["code"] == 1


def test_all_missing_variables_are_named(run):
    result = run("bridge", {"CNI_COMMAND": "ADD"}, b"{}")[1]
    assert result["code"] == 4
    assert all(name in result["msg"] for name in ("CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"))


@pytest.mark.parametrize("id_", ["../../etc/x", "a/b", ".x", "-x", "a b", "a;b", "a\nb", "ü"])
@pytest.mark.parametrize("command", ["ADD", "DEL"])
def test_container_id_with_a_path_is_an_error(run, config, id_, command, tmp_path):
    result = run("bridge", ENVIRONMENT | {"CNI_CONTAINERID": id_, "CNI_COMMAND": command}, json.dumps(config).encode())[
        1
    ]
    assert result["code"] == 4
    assert result["msg"] == "invalid characters in containerID"
    assert "CNI_CONTAINERID" in result["details"]
    assert [path.name for path in tmp_path.iterdir()] == []


@pytest.mark.parametrize("ifname", ["a" * 16, "eth/0", "eth:0", "e 0", ".", "..", "eth%d"])
def test_invalid_interface_name_is_an_error(run, config, ifname):
    result = run("bridge", ENVIRONMENT | {"CNI_IFNAME": ifname}, json.dumps(config).encode())[1]
    assert (result["code"], "CNI_IFNAME" in result["details"]) == (4, True)
    assert result["msg"].startswith("interface name ")


@pytest.mark.parametrize("stdin", [b"", b"{", b"[]", b"42", b"null", b"\x00\x01", b"\xef\xbb\xbf{}", b'{"a": NaN}'])
def test_configuration_must_be_an_object(run, stdin):
    assert run("bridge", ENVIRONMENT, stdin)[1]["code"] == 6


@pytest.mark.parametrize(("name", "code"), [(None, 7), ("", 7), ("../x", 7), ("a/b", 7), (".x", 7), (5, 6)], ids=str)
def test_network_needs_a_valid_name(run, config, name, code, tmp_path):
    assert run("host-local", ENVIRONMENT, json.dumps(config | {"name": name}).encode())[1]["code"] == code
    assert [path.name for path in tmp_path.iterdir()] == []


@pytest.mark.parametrize(("version", "code"), [("9.9.9", 1), ("0.0.1", 1), ("abc", 1), (1.1, 6)], ids=str)
def test_unknown_version_is_an_error(run, config, version, code):
    configuration = run("bridge", ENVIRONMENT, json.dumps(config | {"cniVersion": version}).encode())[1]
    assert configuration["code"] == code
    assert code != 1 or "1.1.0" in configuration["details"]


def test_namespace_of_the_host_is_an_error(run, config, tmp_path):
    assert run("bridge", ENVIRONMENT, json.dumps(config).encode())[1]["code"] == 8
    assert [path.name for path in tmp_path.iterdir()] == []


def test_unknown_keys_are_ignored(run, config, tmp_path):
    big = config | {f"key{number}": "x" * 1000 for number in range(1000)}
    result = run("host-local", ENVIRONMENT, json.dumps(big).encode())[1]
    assert result["ips"] == [{"address": "10.1.0.2/24", "gateway": "10.1.0.1"}]


@pytest.mark.parametrize(
    ("args", "fine"),
    [
        ("FOO", False),
        ("A=B=C", False),
        ("FOO=1", False),
        ("IgnoreUnknown=maybe", False),
        ("IgnoreUnknown=1;FOO=1", True),
        ("IgnoreUnknown=1;K8S_POD_NAMESPACE=a;K8S_POD_NAME=b;K8S_POD_INFRA_CONTAINER_ID=c;K8S_POD_UID=d", True),
    ],
)
def test_unknown_cni_args_need_ignore_unknown(run, config, args, fine):
    code, reported, _ = run("host-local", ENVIRONMENT | {"CNI_ARGS": args}, json.dumps(config).encode())
    assert code == (0 if fine else 1)
    assert fine or (reported["code"], "CNI_ARGS" in reported["details"], reported["msg"][:6]) == (4, True, "ARGS: ")


def test_plugin_works_without_home_path_and_directory(programs, config, tmp_path):
    cwd = tmp_path / "cwd"
    cwd.mkdir()
    done = subprocess.run(
        ["/bin/sh", "-c", 'cd "$1" && rmdir "$1" && exec "$2"', "sh", cwd, programs / "host-local"],
        input=json.dumps(config).encode(),
        env=ENVIRONMENT,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("closed", ["1", "2", "1 2"])
def test_closed_stdout_and_stderr_are_survived(programs, config, closed):
    closing = " ".join(f"{word}>&-" for word in closed.split())
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$1" {closing}', "sh", programs / "host-local"],
        input=json.dumps(config).encode(),
        env=ENVIRONMENT,
        check=False,
    )
    assert done.returncode == 0


def test_unwritable_state_directory_is_code_5(run, config):
    config["ipam"]["dataDir"] = "/proc/nowhere"
    code, reported, stderr = run("host-local", ENVIRONMENT, json.dumps(config).encode())
    assert (code, reported["code"], stderr) == (1, 5, b"")


@pytest.mark.parametrize("module", ["podwire.cniplugins.skeleton", *skeleton.PLUGINS.values()])
def test_plugin_imports_nothing_heavy(module):
    code = f"import sys; sys.path.append(sys.argv[1]); import {module}; print(*sys.modules)"
    here = Path(__file__).parents[2]
    finished = subprocess.run(["/usr/bin/python3", "-IS", "-c", code, here], capture_output=True, text=True, check=True)
    heavy = {"asyncio", "logging", "argparse", "dataclasses", "inspect", "pathlib", "subprocess", "hashlib"}
    heavy |= {"aiohttp", "google", "grpc", "msgspec", "uvloop", "yaml"}
    assert heavy & set(finished.stdout.split()) == set()


def test_loopback_is_set_up_checked_and_set_down(host, refused):
    pod = host.pod("a")
    config = {"cniVersion": "1.1.0", "name": "lo", "type": "loopback"}
    result = host.add("a", config)
    assert result["interfaces"] == [{"name": "lo", "mac": "00:00:00:00:00:00", "sandbox": pod, "mtu": 65536}]
    assert [address["address"] for address in result["ips"]] == ["127.0.0.1/8", "::1/128"]
    host.check("a", config, result)
    assert host.add("a", config | {"prevResult": {"cniVersion": "1.1.0", "ips": [{"address": "10.0.0.1/8"}]}})[
        "ips"
    ] == [{"address": "10.0.0.1/8"}]
    host.delete("a", config)
    with refused(101, "down"):
        host.check("a", config, result)
    host.delete("a", config, "")
    host.namespaces.remove("a")
    host.delete("a", config)


def test_plugin_answers_in_a_fraction_of_a_second(run):
    times = []
    for _ in range(5):
        started = time.monotonic()
        run("bridge", {"CNI_COMMAND": "VERSION"})
        times.append(time.monotonic() - started)
    assert min(times) < 0.5
