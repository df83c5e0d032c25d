"""Attacks on the isolation of containers: each of them succeeds against a runtime without the fix."""

import asyncio
import os
import stat
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from podwire.linux.cgroups.groups import KernelCgroups
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import InvalidArgument

pytestmark = pytest.mark.usefixtures("cri")

LIBRARIES = dict.fromkeys(["/usr", "/lib", "/lib64", "/etc/ld.so.cache", str(Path(sys.base_prefix).resolve())])
"""Files that the host's Python needs, so that an attack can make any system call from inside a container."""


def with_python(config):
    """Mounts the host's Python into a container."""
    for path in LIBRARIES:
        if Path(path).exists():
            config.mounts.add(host_path=path, container_path=path, readonly=True)
    return config


def call(number, *arguments):
    """Python code that makes a system call and prints its errno; 0 on success."""
    return (
        "import ctypes; libc = ctypes.CDLL(None, use_errno=True); "
        f"r = libc.syscall(*map(ctypes.c_long, {(number, *arguments)})); print(ctypes.get_errno() if r < 0 else 0)"
    )


PYTHON = str(Path(sys.executable).resolve())


async def in_python(cri, id_, code):
    return await cri.said(id_, PYTHON, "-I", "-S", "-c", code)


def log_of(status):
    return Path(status.log_path).read_text()


@pytest.fixture
async def confined(cri):
    """A container with the profile RuntimeDefault."""
    config = with_python(cri.container_config())
    config.linux.security_context.seccomp.profile_type = pb.SecurityProfile.RuntimeDefault
    return await cri.start(await cri.run(), config=config)


SOCKET, FORK, KEYCTL, CLONE, CLONE3, PERSONALITY, IO_URING, UNKNOWN = 41, 57, 250, 56, 435, 135, 425, 1000
FILE_GETATTR = 468
EPERM, ENOSYS = "1\n", "38\n"


@pytest.mark.skipif(sys.platform != "linux" or not Path("/lib64/ld-linux-x86-64.so.2").exists(), reason="needs x86-64")
@pytest.mark.parametrize(
    ("code", "output"),
    [
        pytest.param(call(SOCKET, 40, 1, 0), EPERM, id="a socket to the hypervisor"),
        pytest.param(call(SOCKET, 38, 5, 0), EPERM, id="a socket to the kernel's crypto code"),
        pytest.param(call(SOCKET, 2, 1, 0), "0\n", id="an internet socket"),
        pytest.param(call(SOCKET, 16, 3, 0), "0\n", id="a netlink socket"),
        pytest.param(call(KEYCTL, 0, -3, 0), EPERM, id="the keyring"),
        pytest.param(call(IO_URING, 1, 0), EPERM, id="io_uring"),
        pytest.param(call(CLONE, 0x10000000 | 17, 0, 0, 0, 0), EPERM, id="clone with a user namespace"),
        pytest.param(call(CLONE, 0x60020000 | 17, 0, 0, 0, 0), EPERM, id="clone with several namespaces"),
        pytest.param(call(CLONE3, 0, 0), ENOSYS, id="clone3"),
        pytest.param(call(PERSONALITY, 0xFFFFFFFF), "0\n", id="asking for the personality"),
        pytest.param(call(PERSONALITY, 0x0400000), ENOSYS, id="a personality with READ_IMPLIES_EXEC"),
        pytest.param(call(UNKNOWN), ENOSYS, id="a call that nobody knows"),
        pytest.param(call(FILE_GETATTR, -1, 0, 0, 0, 0), ENOSYS, id="a call of Linux 6.17, newer than the table"),
        pytest.param("import os; p = os.fork(); p or os._exit(0); print(os.waitpid(p, 0)[1])", "0\n", id="fork"),
    ],
)
async def test_runtime_default_allows_only_known_system_calls(cri, confined, code, output):
    assert await in_python(cri, confined, code) == output


async def test_the_first_process_has_the_filter_too(cri):
    config = cri.container_config("grep Seccomp: /proc/self/status")
    config.linux.security_context.seccomp.profile_type = pb.SecurityProfile.RuntimeDefault
    status = await cri.ended(await cri.start(await cri.run(name="filtered"), config=config))
    assert status.exit_code == 0
    assert log_of(status).split()[-2:] == ["Seccomp:", "2"]


async def test_a_localhost_profile_is_applied(cri, shared):
    profile = shared.prefix / "no-mkdir.json"
    profile.write_text(
        '{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", '
        '"errnoRet": 30, "comment": "Read-only file system"}]}'
    )
    config = cri.container_config("mkdir /tmp-of-mine; touch /fine")
    seccomp = config.linux.security_context.seccomp
    seccomp.profile_type, seccomp.localhost_ref = pb.SecurityProfile.Localhost, str(profile)
    status = await cri.ended(await cri.start(await cri.run(name="localhost"), config=config))
    assert status.exit_code == 0
    assert "Read-only file system" in log_of(status)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(None, "No such file", id="missing"),
        pytest.param("{", "not a seccomp profile", id="not JSON"),
        pytest.param("{}", "defaultAction", id="without a default action"),
        pytest.param('{"defaultAction": "ALLOW"}', "defaultAction", id="an unknown action"),
        pytest.param('{"defaultAction": "SCMP_ACT_ALLOW", "archMap": []}', "archMap", id="docker's format"),
        pytest.param(
            '{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{"names": ["mount"], "action": "SCMP_ACT_ALLOW", '
            '"includes": {"caps": ["CAP_SYS_ADMIN"]}}]}',
            "includes",
            id="a condition that OCI does not have",
        ),
        pytest.param("[" * 100_000, "not a seccomp profile", id="deep"),
        pytest.param(" " * (1024 * 1024 + 1), "larger than", id="large"),
    ],
)
async def test_a_localhost_profile_that_is_missing_or_invalid_is_refused(cri, shared, content, words):
    profile = shared.prefix / "bad.json"
    profile.unlink(missing_ok=True)
    if content is not None:
        profile.write_text(content)
    config = cri.container_config()
    seccomp = config.linux.security_context.seccomp
    seccomp.profile_type, seccomp.localhost_ref = pb.SecurityProfile.Localhost, str(profile)
    pod = await cri.run()
    error = await cri.refused("CreateContainer", pod_sandbox_id=pod.id, config=config, sandbox_config=pod.config)
    assert isinstance(error, InvalidArgument)
    assert "seccomp.localhost_ref" in str(error)
    assert words in str(error)


async def test_other_users_of_the_host_cannot_read_what_a_pod_has(cri, shared):
    config = cri.container_config(envs=[pb.KeyValue(key="PASSWORD", value=b"secret")])
    await cri.start(await cri.run(), config=config)
    readable = []
    for top in (shared.state, shared.prefix / "run"):
        readable += [path for path in top.rglob("config.json") if stat.S_IMODE(path.stat().st_mode) & 0o077]
        readable += [path for path in top.rglob("record.json") if stat.S_IMODE(path.stat().st_mode) & 0o077]
    assert readable == []
    for name in ("run/podwire/shm", "run/nri", "var/lib/podwire/runtime/containers"):
        assert stat.S_IMODE((shared.prefix / name).stat().st_mode) == 0o700, name


@pytest.fixture
def disk(tmp_path):
    """A disk of the host, with something on it."""
    image = tmp_path / "disk"
    image.write_bytes(b"secret of the host".ljust(4096))
    made = subprocess.run(["losetup", "--find", "--show", image], capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"no loop device: {made.stderr}")
    device = Path(made.stdout.strip())
    yield device
    subprocess.run(["losetup", "--detach", device], check=True)


async def test_a_container_with_mknod_cannot_read_a_disk_of_the_host(cri, disk):
    number = disk.stat().st_rdev
    config = cri.container_config()
    config.linux.security_context.capabilities.add_capabilities.append("MKNOD")
    id_ = await cri.start(await cri.run(), config=config)
    done = await cri.exec(id_, f"mknod /disk b {os.major(number)} {os.minor(number)} && head -c 18 /disk")
    assert b"Operation not permitted" in done.stderr, done
    assert done.stdout == b""


async def test_every_container_has_the_usual_devices(cri):
    id_ = await cri.start(await cri.run())
    code = "echo x > /dev/null; head -c 3 /dev/zero /dev/random /dev/urandom | wc -c; : > /dev/full && echo full"
    assert (await cri.exec(id_, code)).exit_code == 0


@pytest.mark.skipif(not Path("/dev/fuse").is_char_device(), reason="the host has no /dev/fuse")
@pytest.mark.parametrize("access", ["r", "rw", "rwm"])
async def test_a_device_has_exactly_the_access_of_its_request(cri, access):
    """/dev/fuse is a device that no container has by itself, and that opens without side effects."""
    config = with_python(cri.container_config())
    config.devices.add(host_path="/dev/fuse", container_path="/dev/given", permissions=access)
    id_ = await cri.start(await cri.run(), config=config)
    opened = (
        "import os\n"
        "for flag in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):\n"
        "  try: os.close(os.open('/dev/given', flag)); print('yes', end=' ')\n"
        "  except PermissionError: print('no', end=' ')\n"
    )
    assert (await in_python(cri, id_, opened)).split() == (["yes", "no", "no"] if access == "r" else ["yes"] * 3)


async def test_a_privileged_container_has_all_devices(cri, disk):
    config = cri.container_config()
    config.linux.security_context.privileged = True
    id_ = await cri.start(await cri.run(), config=config)
    assert await cri.said(id_, f"head -c 18 {disk}") == "secret of the host"


@pytest.fixture
def nested(own):
    """A directory of the host with another mount below it, in the namespace of a runtime of its own."""
    top = own.prefix / "nested"
    (top / "below").mkdir(parents=True)
    own.space.output("mount", "-t", "tmpfs", "nested", top / "below")
    own.start()
    return top


async def test_a_recursive_read_only_mount_has_no_writable_mount_below(own, nested, kubelet_of):
    async with kubelet_of(own) as cri:
        features = [handler.features for handler in (await cri("Status")).runtime_handlers]
        assert all(feature.recursive_read_only_mounts for feature in features)
        config = cri.container_config()
        config.mounts.add(host_path=str(nested), container_path="/plain", readonly=True)
        config.mounts.add(host_path=str(nested), container_path="/all", readonly=True, recursive_read_only=True)
        id_ = await cri.start(await cri.run(), config=config)
        assert (await cri.exec(id_, "touch /plain/below/x")).exit_code == 0
        assert b"Read-only file system" in (await cri.exec(id_, "touch /all/below/x")).stderr


@pytest.mark.parametrize(
    ("propagation", "required"),
    [(pb.PROPAGATION_BIDIRECTIONAL, "a shared"), (pb.PROPAGATION_HOST_TO_CONTAINER, "a shared or slave")],
)
async def test_propagation_through_a_private_mount_is_refused(own, nested, kubelet_of, propagation, required):
    own.space.output("mount", "--make-private", nested / "below")
    async with kubelet_of(own) as cri:
        config = cri.container_config()
        config.mounts.add(host_path=str(nested / "below"), container_path="/x", propagation=propagation)
        pod = await cri.run()
        error = await cri.refused("CreateContainer", pod_sandbox_id=pod.id, config=config, sandbox_config=pod.config)
        assert f"mounts[0].propagation: {nested}/below is mounted on" in str(error)
        assert f"which is not {required} mount" in str(error)
        own.space.output("mount", "--make-shared", nested / "below")
        await cri.create(pod, config)


@pytest.mark.skipif(Path("/sys/kernel/security/apparmor").exists(), reason="this kernel has AppArmor")
@pytest.mark.parametrize(
    "security",
    [
        pytest.param({"apparmor": {"profile_type": pb.SecurityProfile.RuntimeDefault}}, id="the default"),
        pytest.param({"apparmor_profile": "localhost/podwire-default"}, id="by the deprecated field"),
    ],
)
async def test_an_apparmor_profile_is_refused_by_a_kernel_without_apparmor(cri, security):
    config = cri.container_config()
    config.linux.security_context.MergeFrom(pb.LinuxContainerSecurityContext(**security))
    pod = await cri.run()
    error = await cri.refused("CreateContainer", pod_sandbox_id=pod.id, config=config, sandbox_config=pod.config)
    assert isinstance(error, InvalidArgument)
    assert "profile 'podwire-default' cannot be enforced: this kernel has no AppArmor" in str(error)


async def test_a_local_user_without_its_token_cannot_use_a_stream(cri):
    id_ = await cri.start(await cri.run())
    url = urlsplit((await cri("Exec", container_id=id_, cmd=["sh"], stdin=True, stdout=True)).url)
    directory, _, token = url.path.rpartition("/")
    assert url.hostname == "127.0.0.1"
    assert len(token) >= 22  # 128 bits
    for path in (directory, f"{directory}/", f"{directory}/{'A' * len(token)}", "/"):
        assert await answer(cri, url.port, path) == 404
    assert await answer(cri, url.port, url.path) == 400  # the right one, without an upgrade: it is used now
    assert await answer(cri, url.port, url.path) == 404


async def answer(cri, port, path):
    """The status of a GET, from the network of the runtime."""
    code = f"import http.client; client = http.client.HTTPConnection('127.0.0.1', {port}, timeout=10)\n"
    code += f"client.request('GET', {path!r}); print(client.getresponse().status)"
    words = cri.runtime.space.command(PYTHON, "-I", "-c", code)
    done = await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.parametrize(
    ("unified", "limit"), [({}, "16384"), ({"pids.max": "100"}, "100"), ({"pids.max": "max"}, "max")]
)
async def test_a_container_has_a_limit_of_processes(cri, shared, unified, limit):
    config = cri.container_config()
    config.linux.resources.unified.update(unified)
    id_ = await cri.start(await cri.run(), config=config)
    group = next(group for group in shared.groups() if group.endswith(id_))
    files = [f"{tree.mount}/{group}/pids.max" for tree in KernelCgroups().trees if "pids" in tree.controllers]
    if not files:
        pytest.skip("no hierarchy has the pids controller")
    assert [read(file) for file in files] == [limit]


def read(path):
    return Path(path).read_text().strip()


async def test_a_container_reads_its_own_limits_and_no_other_cgroup(cri):
    config = cri.container_config()
    config.linux.resources.memory_limit_in_bytes = 64 << 20
    id_ = await cri.start(await cri.run(), config=config)
    old, new = "/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory.max"
    assert await cri.said(id_, "sh", "-c", f"cat {old} 2>/dev/null || cat {new}") == f"{64 << 20}\n"
    groups = "find /sys/fs/cgroup -mindepth 2 -type d | grep -c pod; true"
    assert await cri.said(id_, "sh", "-c", groups) == "0\n"
    write = f"file={old}; test -e $file || file={new}; echo 1000000 >$file && echo written; true"
    assert await cri.said(id_, "sh", "-c", f"({write}) 2>/dev/null") == ""


def pids_files(group):
    return [Path(tree.mount, group, "pids.max") for tree in KernelCgroups().trees if "pids" in tree.controllers]


async def test_the_containers_of_a_pod_share_its_limit_of_processes(own, kubelet_of):
    own.start()
    async with kubelet_of(own) as cri:
        resources = pb.LinuxContainerResources(cpu_shares=77, unified={"pids.max": "40"})
        pod = await cri.run(linux=pb.LinuxPodSandboxConfig(resources=resources))
        first, second = await cri.start(pod, name="first"), await cri.start(pod, name="second")
        group = f"{own.options.cgroup_parent}/pod-{pod.id}"
        assert sorted(own.groups()) == sorted([group, f"{group}/{first}", f"{group}/{second}"])
        if not (files := pids_files(group)):
            pytest.skip("no hierarchy has the pids controller")
        assert [read(file) for file in files] == ["40"]
        fill = "i=0; while [ $i -lt 25 ]; do sleep 60 & i=$((i+1)); done; echo all"
        assert (await cri.exec(first, fill)).stdout == b"all\n"
        assert b"can't fork" in (await cri.exec(second, fill)).stderr
        more = pb.LinuxContainerResources(unified={"pids.max": "90"})
        await cri("UpdatePodSandboxResources", pod_sandbox_id=pod.id, resources=more)
        assert [read(file) for file in files] == ["90"]
        pid = await cri.pid(first)
        enter_inner_group(f"{group}/{first}", pid)
        own.restart()
        assert await cri.pid(first) == pid
        assert (await cri.status(first)).state == pb.CONTAINER_RUNNING
        assert own.leakcheck() == (0, [])
        await cri("StopPodSandbox", pod_sandbox_id=pod.id)
        assert own.groups() == []
        await cri.remove(pod)
        error = await cri.refused("RunPodSandbox", config=cri.pod_config(linux=_with_pids("many")))
        assert "pids.max" in str(error)
    assert own.stop() == 0
    assert own.leaks() == []


def enter_inner_group(group, pid):
    """As a container does that has its cgroups mounted."""
    inner = Path(KernelCgroups().trees[0].mount, group, "inner")
    inner.mkdir()
    (inner / "cgroup.procs").write_text(str(pid))


def _with_pids(text):
    return pb.LinuxPodSandboxConfig(resources=pb.LinuxContainerResources(unified={"pids.max": text}))


async def test_a_fork_bomb_ends_at_the_limit(cri):
    config = cri.container_config()
    config.linux.resources.unified["pids.max"] = "50"
    id_ = await cri.start(await cri.run(), config=config)
    done = await cri.exec(id_, "i=0; while [ $i -lt 100 ]; do sleep 20 & i=$((i+1)); done; echo all")
    assert b"can't fork" in done.stderr, done
    assert (await cri.status(id_)).state == pb.CONTAINER_RUNNING


async def test_a_user_without_privileges_pings_and_listens_on_port_80(cri):
    """Both need no capability in a pod of its own: containerd sets the same."""
    config = with_python(cri.container_config())
    config.linux.security_context.run_as_user.value = 1234
    id_ = await cri.start(await cri.run(), config=config)
    icmp = "socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)"
    code = f"import socket; {icmp}; socket.create_server(('127.0.0.1', 80)); print('done')"
    assert await cri.said(id_, PYTHON, "-I", "-c", code) == "done\n"
