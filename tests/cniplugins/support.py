"""A host of its own for every test that asks for one: a thread with network and mount namespaces that end with it."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address, ip_interface
from pathlib import Path

from podwire.cniplugins.daemon.server import BACKLOG, Daemon, Limits
from podwire.cniplugins.install import install
from podwire.cniplugins.pod_link import wait_until_resolvable
from podwire.cniplugins.skeleton import Limits as CallLimits
from podwire.cniplugins.skeleton import Streams, answer
from podwire.linux import errors as linux
from podwire.linux import syscalls
from podwire.linux.net.network import KernelNetwork
from podwire.linux.net.sysctls import KernelSysctls
from podwire.linux.nft.table import KernelElements
from podwire.linux.proc.namespaces import KernelNamespaces, in_thread, visit
from podwire.linux.values import Link, Veth
from tests.eventually import eventually

PATIENCE = 60.0
MS_REC_PRIVATE = 16384 | 1 << 18
SETS = {
    "inet": [
        f"{name}{family}"
        for name in ("masquerade", "hairpin", "ports", "ports_at", "forward", "policed", "inside")
        for family in (4, 6)
    ],
    "bridge": ["guards", "macs", "addresses4", "addresses6", "targets6", "isolated4", "isolated6"],
}


def on_own_host(work: Callable[[], None]) -> None:
    """Do it in a thread with network and mount namespaces that end with it."""

    def run() -> None:
        syscalls.unshare(syscalls.NEWNET | syscalls.NEWNS)
        syscalls.mount(None, "/", None, MS_REC_PRIVATE, None)
        with KernelNetwork() as network:
            network.links.change("lo", up=True)
        work()

    in_thread(run)


class Refused(Exception):
    """A plugin's error object."""

    def __init__(self, error: dict) -> None:
        super().__init__(f"{error['msg']} ({error['details']})" if error.get("details") else error["msg"])
        self.error, self.code = error, error["code"]


class Host:
    """Directories and configurations of a host, and ways to call plugins on it."""

    def __init__(self, root: Path, programs: Path, way: str) -> None:
        self.root, self.programs, self.way = root, programs, way
        self.namespaces = KernelNamespaces(root / "netns")
        self.leases, self.records = root / "ipam" / "net", root / "records"
        self.limits = CallLimits()
        self.daemon: Daemon | None = None
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)

    def begin(self) -> Path:
        """The programs of a daemon, which is started by the first who asks: its threads are on the host of the test."""
        programs = self.root / "forwarding"
        if self.daemon is None:
            self.daemon = Daemon(self.listener, Limits(threads=8))
            self.listener.bind(str(self.root / "cni.sock"))
            self.listener.listen(BACKLOG)
            self.daemon.start()
            install(str(programs), socket=str(self.root / "cni.sock"))
        return programs

    @contextmanager
    def daemon_process(self, *flags: str, **env: str) -> Iterator[subprocess.Popen]:
        """The command, on the host of the test; programs that are run meanwhile are its own."""
        install(str(self.root / "forwarding"), socket=str(self.root / "cni.sock"))
        before, self.programs = self.programs, self.root / "forwarding"
        argv = [sys.executable, "-m", "podwire.cli.main", "cni", "daemon", "--socket", self.root / "cni.sock"]
        argv += flags
        with subprocess.Popen(argv, env=os.environ | env) as process:
            try:
                eventually(lambda: process.poll() is not None or (self.root / "cni.sock").exists())
                yield process
            finally:
                self.programs = before
                process.terminate()
                try:
                    process.wait(PATIENCE)
                finally:
                    process.kill()  # one that does not end fails its test, and keeps no other

    def end(self) -> None:
        if self.daemon is not None:
            self.daemon.stop()
        self.listener.close()

    def pod(self, name: str) -> str:
        return self.namespaces.create(name).path

    def config(self, plugin: str, *subnets: str, **keys) -> dict:
        """A plugin's configuration with addresses of host-local."""
        ipam = {
            "type": "host-local",
            "dataDir": str(self.root / "ipam"),
            "ranges": [[{"subnet": subnet}] for subnet in subnets],
        }
        config = {"cniVersion": "1.1.0", "name": "net", "type": plugin, "dataDir": str(self.records), "ipam": ipam}
        return config | keys

    def bridge(self, *subnets: str, **keys) -> dict:
        """A configuration of bridge; without subnets 10.88.0.0/24."""
        return self.config("bridge", *(subnets or ("10.88.0.0/24",)), **{"isDefaultGateway": True} | keys)

    def portmap(self, previous: dict, *mappings: dict, **keys) -> dict:
        config = {"cniVersion": "1.1.0", "name": "net", "type": "portmap", "dataDir": str(self.records)}
        return config | {"prevResult": previous, "runtimeConfig": {"portMappings": list(mappings)}} | keys

    def environment(self, verb: str, id_: str, netns: str | None = None, **env: str) -> dict[str, str]:
        variables = {"CNI_COMMAND": verb, "CNI_CONTAINERID": id_, "CNI_IFNAME": "eth0", "CNI_PATH": str(self.programs)}
        path = self.namespaces.path(id_) if netns is None else netns
        return variables | {"CNI_NETNS": path, "PATH": os.environ["PATH"]} | env

    def call(self, verb: str, id_: str, config: dict | bytes, netns: str | None = None, **env: str) -> dict | None:
        """The object that was printed; raises Refused."""
        stdin = config if isinstance(config, bytes) else json.dumps(config).encode()
        kind = env.pop("plugin", None) or config["type"]
        return self.call_with(self.environment(verb, id_, netns, **env), kind, stdin)

    def call_with(self, environment: dict[str, str], kind: str, stdin: bytes) -> dict | None:
        if self.way == "in process":
            written: list[bytes] = []
            code = answer(kind, Streams(environment, lambda: stdin, written.append, print, limits=self.limits))
            stdout = b"".join(written)
        else:
            program = (self.begin() if self.way == "daemon" else self.programs) / kind
            done = subprocess.run([program], input=stdin, env=environment, capture_output=True, check=False)
            code, stdout = done.returncode, done.stdout
        printed = json.loads(stdout) if stdout else None
        if code:
            raise Refused(printed)
        return printed

    def add(self, id_: str, config: dict, **env: str) -> dict:
        result = self.call("ADD", id_, config, **env)
        assert result is not None
        return result

    def check(self, id_: str, config: dict, previous: dict, **env: str) -> None:
        assert self.call("CHECK", id_, config | {"prevResult": previous}, **env) is None

    def delete(self, id_: str, config: dict, netns: str | None = None, **env: str) -> None:
        assert self.call("DEL", id_, config, netns, **env) is None

    def run(self, verb: str, id_: str, config: dict, **env: str) -> subprocess.Popen:
        """The program, started."""
        process = subprocess.Popen(
            [self.programs / config["type"]],
            env=self.environment(verb, id_, None, **env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        process.stdin.write(json.dumps(config).encode())
        process.stdin.close()
        process.stdin = None
        return process

    def died(self, verb: str, config: dict, point: str, action: str = "kill") -> tuple[int, bytes, bytes]:
        """The program for the pod "a", with a failpoint: its exit code, and what it said."""
        process = self.run(verb, "a", config, PODWIRE_FAILPOINTS=f"{point}={action}")
        stdout, stderr = process.communicate(timeout=PATIENCE)
        return process.returncode, stdout, stderr

    @staticmethod
    def links(netns: str | None = None) -> dict[str, Link]:
        """By name."""
        with KernelNetwork(netns) as network:
            return {link.name: link for link in network.links.list()}

    def left(self) -> dict[str, list[str]]:
        """Resources that plugins made and did not remove; the bridge may stay."""
        with KernelNetwork() as network:
            links = [link.name for link in network.links.list() if link.kind != "bridge" and link.alias]
        leases = [path.name for path in self.leases.iterdir()] if self.leases.exists() else []
        leases = [lease for lease in leases if lease != "lock" and not lease.startswith("last_reserved_ip")]
        records = [path.name for path in self.records.glob("*/*")]
        leftovers = {"links": links, "leases": leases, "records": records, "elements": elements()}
        return {key: value for key, value in leftovers.items() if value}

    @contextmanager
    def outside(self) -> Iterator[str]:
        """A neighbour of the host that knows nothing of pods: 192.0.2.2, the host being 192.0.2.1."""
        path = self.pod("outside")
        for netns in (None, path):
            KernelSysctls(netns).write("net.ipv6.conf.default.accept_dad", "0")
        with KernelNetwork() as here, KernelNetwork(path) as there:
            here.links.add(Veth("wan", "wan", peer_netns=path, up=True))
            here.addresses.add(here.links.get("wan").ifindex, ip_interface("192.0.2.1/24"))
            here.addresses.add(here.links.get("wan").ifindex, ip_interface("2001:db8::1/64"))
            index = there.links.get("wan").ifindex
            there.links.change(index, up=True)
            there.addresses.add(index, ip_interface("192.0.2.2/24"))
            there.addresses.add(index, ip_interface("2001:db8::2/64"))
            while any(address.tentative for ends in (here, there) for address in ends.addresses.list()):
                time.sleep(0.001)
            while {here.links.get("wan").state, there.links.get("wan").state} != {"up"}:
                time.sleep(0.001)
        wait_until_resolvable(None, "wan", [ip_address("2001:db8::1")], PATIENCE)
        wait_until_resolvable(path, "wan", [ip_address("2001:db8::2")], PATIENCE)
        yield path


def elements() -> list[str]:
    """The comments of all nft elements of ours."""
    table = KernelElements()
    comments = []
    try:
        for family, names in SETS.items():
            for name in names:
                with suppress(linux.Missing):
                    comments += [element.comment for element in table.of(family).list(name)]
    finally:
        table.close()
    return comments


@contextmanager
def serving(netns: str | None, port: int, family: int = 4, kind: int = socket.SOCK_STREAM) -> Iterator[socket.socket]:
    """A socket that listens in a namespace."""
    with visit(netns or "/proc/thread-self/ns/net"):
        listening = socket.socket(socket.AF_INET if family == 4 else socket.AF_INET6, kind)
    with listening:
        if family == 6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("0.0.0.0" if family == 4 else "::", port))
        if kind == socket.SOCK_STREAM:
            listening.listen()
        listening.settimeout(5)
        yield listening


def seen(server: socket.socket, netns: str | None, address: str, port: int) -> str | None:
    """Connect from a namespace: as whom the server sees us, None when nobody answers.

    The first packet must arrive: TCP would send it again only after a second.
    """
    with visit(netns or "/proc/thread-self/ns/net"):
        client = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    with client:
        client.settimeout(0.9)
        try:
            client.connect((address, port))
        except OSError:
            return None
        accepted, (peer, *_) = server.accept()
        accepted.close()
        return peer
