"""`podwire cni`: installs CNI plugins, runs their daemon, shows attachments, address pools and the guard of ports."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from podwire.cli import cni_calls, cni_test
from podwire.cli.main import UserError
from podwire.cli.options import (
    add_component_prefix,
    add_logging,
    add_output,
    add_root,
    go_seconds,
    run_until_stopped,
    seconds,
)
from podwire.cluster import cni_daemon, dhcp_daemon
from podwire.cluster.daemons import tune_memory
from podwire.cniplugins.attachments import DATA
from podwire.cniplugins.daemon.server import Limits
from podwire.cniplugins.dead_attachments import release_dead
from podwire.cniplugins.handover import hand_over
from podwire.cniplugins.install import HELPERS, SOCKET, Foreign, OtherDaemon, WithoutForwarder, install
from podwire.cniplugins.overview import Pool, Unreadable, attached, guard, pools
from podwire.durable.files import write_durably
from podwire.ipam.dhcp.lease_keeper import REGAIN
from podwire.ipam.dhcp.request import SOCKET as DHCP_SOCKET
from podwire.linux.errors import LinuxError
from podwire.linux.fs.regular_files import read_head
from podwire.linux.nft.iptables import host_variant
from podwire.linux.nft.port_guard import COUNTERS
from podwire.protocols.cni.config import parse_list
from podwire.protocols.cni.errors import CniError
from podwire.runtime.cni.check_results import CHECKS, LatestCheck, load_results
from podwire.transports.unix_sockets import CannotListen

DIRECTORY = Path("/opt/cni/bin")
CONF = "/etc/cni/net.d"
LONGEST_NETWORK = 1 << 20


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    _configure_install(verbs)
    serving = verbs.add_parser("daemon", help="Run the daemon that does their work, 20 times faster")
    serving.add_argument("--socket", type=Path, help=f"socket to listen on (default: PREFIX{SOCKET})")
    add_component_prefix(serving)
    serving.add_argument(
        "--any-mounts",
        action="store_true",
        help="serve callers of other mount namespaces: for a pod that has the host's directories under their own paths",
    )
    serving.add_argument(
        "--grace",
        type=seconds,
        default=Limits().grace,
        metavar="SECONDS",
        help="time for running calls after a signal (default: %(default)g)",
    )
    add_logging(serving)
    _add_dhcp_daemon(verbs)
    listing = verbs.add_parser("list", help="List attachments of this host, and whether their owners are alive")
    listing.description = "List attachments of this host, whether their owners are alive, and the last result of CHECK."
    listing.add_argument("--data-dir", default=DATA, metavar="DIR", help=f"directory of the records (default: {DATA})")
    counting = verbs.add_parser("pools", help="List address pools: leased and free addresses")
    counting.add_argument(
        "--conf-dir", default=CONF, metavar="DIR", help=f"directory of network configurations (default: {CONF})"
    )
    releasing = verbs.add_parser("release-dead", help="Release attachments whose namespace has ended, by their records")
    releasing.description = (
        "Release attachments whose namespace has ended: rules, links and addresses, by their records alone. "
        "For a node that runs other plugins again; otherwise a runtime's DEL and GC do it."
    )
    handing = verbs.add_parser("hand-over", help="Hand running attachments over to the reference plugins")
    handing.description = (
        "Hand all attachments over to the reference plugins, after these were installed again: rules become those "
        "that they would have made, links and leases lose podwire's marks, records are removed. Pods run on, with "
        "their host ports. Attachments whose link no longer exists are released. Can be repeated."
    )
    handing.add_argument(
        "--iptables", choices=("nft", "legacy"), help="variant of iptables (default: that of the host's iptables)"
    )
    for verb in (releasing, handing):
        verb.add_argument("--data-dir", default=DATA, metavar="DIR", help=f"directory of the records (default: {DATA})")
        verb.add_argument(
            "--bin-dir", type=Path, default=DIRECTORY, metavar="DIR", help="IPAM plugins (default: %(default)s)"
        )
    guarding = verbs.add_parser("guard", help="Show what the guard of bridge ports dropped")
    guarding.description = "Show how many ports of bridges are guarded on this host, and what the guard dropped."
    for verb in (listing, counting, guarding):
        add_output(verb)
    cni_calls.configure(verbs)
    cni_test.configure(verbs)


def _configure_install(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    installing = verbs.add_parser("install", help="Install our plugins into a directory")
    installing.add_argument("directory", type=Path, nargs="?", default=DIRECTORY, metavar="DIR")
    installing.add_argument("--force", action="store_true", help="overwrite programs that are not ours")
    installing.add_argument(
        "--socket", type=Path, default=Path(SOCKET), help=f"socket of their daemon (default: {SOCKET})"
    )
    installing.add_argument(
        "--no-helper",
        action="store_true",
        help="without a daemon, start an interpreter for each call (default: a helper, which ends after a minute)",
    )
    installing.add_argument(
        "--daemon-only",
        action="store_true",
        help="without a daemon, calls fail and runtimes retry them: for hosts whose daemon is a pod",
    )
    installing.add_argument(
        "--network", type=Path, metavar="FILE", help="install this network configuration, too, as --network-file"
    )
    removing = verbs.add_parser("uninstall", help="Remove our plugins from a directory")
    removing.description = "Remove our plugins, and a network configuration, from a host. Programs of others stay."
    removing.add_argument("directory", type=Path, nargs="?", default=DIRECTORY, metavar="DIR")
    removing.add_argument(
        "--socket", type=Path, default=Path(SOCKET), help=f"socket of their daemon (default: {SOCKET})"
    )
    add_root(removing)
    for verb in (installing, removing):
        verb.add_argument("--network-file", type=Path, metavar="PATH", help="path of the network configuration")


def _add_dhcp_daemon(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    leasing = verbs.add_parser("dhcp-daemon", help="Run the daemon of the IPAM plugin dhcp, which renews leases")
    leasing.description = (
        "Run the daemon of the IPAM plugin dhcp: it acquires leases for pods and renews them. Leases survive it, in a "
        "directory beside the socket. A socket that systemd passes is used instead. `dhcp daemon`, with the installed "
        "plugin and the flags of the reference plugin, is the same."
    )
    leasing.add_argument(
        "--socket",
        "-socketpath",
        type=Path,
        default=Path(DHCP_SOCKET),
        metavar="SOCKET",
        help=f"socket to listen on (default: {DHCP_SOCKET})",
    )
    leasing.add_argument("--pidfile", "-pidfile", type=Path, metavar="FILE", help="file for the id of the process")
    leasing.add_argument(
        "--timeout",
        "-timeout",
        type=go_seconds,
        default=dhcp_daemon.ACQUIRE,
        metavar="SECONDS",
        help="time for servers to grant a lease to a new pod (default: %(default)g)",
    )
    leasing.add_argument(
        "--retry",
        type=seconds,
        default=REGAIN,
        metavar="SECONDS",
        help="time between attempts to get a lease again that was lost (default: %(default)g)",
    )
    add_logging(leasing)


def run(arguments: argparse.Namespace) -> int:
    if arguments.verb in cni_calls.VERBS:
        return cni_calls.run(arguments)
    verbs = {
        "install": _install,
        "uninstall": _uninstall,
        "daemon": _daemon,
        "dhcp-daemon": _dhcp_daemon,
        "list": _list,
        "pools": _pools,
        "guard": _guard,
        "release-dead": _release_dead,
        "hand-over": _hand_over,
        "test": cni_test.run,
    }
    return verbs[arguments.verb](arguments)


def _install(arguments: argparse.Namespace) -> int:
    try:
        socket = arguments.socket.absolute()
        helpers = None if arguments.no_helper else str(socket.parent / HELPERS)
        network = _network(arguments)
        paths = install(
            str(arguments.directory),
            force=arguments.force,
            socket=str(socket),
            helpers=helpers,
            daemon_only=arguments.daemon_only,
        )
        if network is not None:  # last: a runtime calls the plugins as soon as it sees the file
            arguments.network_file.parent.mkdir(parents=True, exist_ok=True)
            write_durably(arguments.network_file, network, mode=0o644)
            paths.append(str(arguments.network_file))
    except Foreign as error:
        raise UserError(f"{error}: not ours; nothing was changed; use --force to overwrite") from error
    except (OSError, ValueError, WithoutForwarder) as error:
        raise UserError(str(error)) from error
    for path in paths:
        print(path)
    return 0


def _network(arguments: argparse.Namespace) -> bytes | None:
    """Returns the network configuration after validation, so that errors are reported before anything is changed."""
    if (arguments.network is None) != (arguments.network_file is None):
        raise UserError("--network FILE and --network-file PATH belong together")
    if arguments.network is None:
        return None
    data = read_head(arguments.network, LONGEST_NETWORK, follow=True)
    try:
        parse_list(data, str(arguments.network))
    except CniError as error:
        raise UserError(str(error)) from error
    return data


def _uninstall(arguments: argparse.Namespace) -> int:
    from podwire.cluster.removal import remove_cni_plugins  # noqa: PLC0415 - the daemon needs nothing of it

    try:
        removed = remove_cni_plugins(
            root=arguments.root,
            directory=arguments.directory.absolute(),
            socket=arguments.socket.absolute(),
            network=arguments.network_file and arguments.network_file.absolute(),
        )
    except (LinuxError, OSError, OtherDaemon) as error:
        raise UserError(str(error)) from error
    for path in removed:
        print(path)
    return 0


def _daemon(arguments: argparse.Namespace) -> int:
    socket = arguments.socket or arguments.prefix / SOCKET.lstrip("/")
    try:
        options = cni_daemon.Options(socket=socket, grace=arguments.grace, any_mounts=arguments.any_mounts)
        return run_until_stopped(_serve(options), arguments)
    except (OSError, CannotListen) as error:
        raise UserError(str(error)) from error


def _dhcp_daemon(arguments: argparse.Namespace) -> int:
    options = dhcp_daemon.Options(
        socket=arguments.socket, timeout=arguments.timeout, retry=arguments.retry, pidfile=arguments.pidfile
    )
    try:
        return run_until_stopped(_serve_dhcp(options), arguments)
    except (OSError, CannotListen) as error:
        raise UserError(str(error)) from error


def _list(arguments: argparse.Namespace) -> int:
    try:
        attachments = attached(arguments.data_dir)
        checks = load_results(Path(arguments.data_dir).absolute().parent / CHECKS)
    except OSError as error:
        raise UserError(str(error)) from error
    if arguments.output == "json":
        print(
            json.dumps(
                [
                    attachment._asdict() | {"check": _check(checks.get(attachment.container_id))}
                    for attachment in attachments
                ],
                indent=2,
            )
        )
        return 0
    rows = [
        (
            *(
                attachment.network,
                attachment.container_id,
                attachment.ifname,
                ",".join(attachment.ips),
                _age(attachment.since),
                _yes(attachment.alive),
            ),
            _checked(checks.get(attachment.container_id)),
        )
        for attachment in attachments
    ]
    _print_table(("NETWORK", "CONTAINER", "INTERFACE", "IPS", "AGE", "ALIVE", "CHECK"), rows)
    return 0


def _release_dead(arguments: argparse.Namespace) -> int:
    data, path = str(Path(arguments.data_dir).absolute()), str(arguments.bin_dir.absolute())
    try:
        for attachment in release_dead(data, path, lambda line: print(line, file=sys.stderr)):
            print(f"released {attachment.network} {attachment.container_id} {attachment.ifname}")
    except (CniError, LinuxError, OSError) as error:
        raise UserError(str(error)) from error
    return 0


def _hand_over(arguments: argparse.Namespace) -> int:
    data, path = str(Path(arguments.data_dir).absolute()), str(arguments.bin_dir.absolute())
    try:
        variant = arguments.iptables or host_variant()
        for done in hand_over(data, path, variant, lambda line: print(line, file=sys.stderr)):
            attachment, action = done.attachment, "handed over" if done.is_handed_over else "released"
            print(f"{action} {attachment.network} {attachment.container_id} {attachment.ifname}")
    except (CniError, LinuxError, OSError) as error:
        raise UserError(str(error)) from error
    return 0


def _check(latest: LatestCheck | None) -> Any:
    return json.loads(latest.report()) if latest is not None else None


def _checked(latest: LatestCheck | None) -> str:
    if latest is None:
        return "-"
    result = latest.result
    return "ok" if result.ok else f"failed {_age(result.since)}: {result.message}"


def _pools(arguments: argparse.Namespace) -> int:
    try:
        entries = list(pools(arguments.conf_dir))
    except OSError as error:
        raise UserError(str(error)) from error
    pools_ = [pool for pool in entries if isinstance(pool, Pool)]
    wrong = [error for error in entries if isinstance(error, Unreadable)]
    for bad in wrong:
        print(f"podwire: {bad.path}: {bad.reason}", file=sys.stderr)
    if arguments.output == "json":
        print(json.dumps([_pool(pool) for pool in pools_], indent=2))
    else:
        rows = [
            (pool.network, pool.ranges, str(pool.used), str(pool.free), str(pool.dead), _oldest(pool))
            for pool in pools_
        ]
        _print_table(("NETWORK", "RANGES", "USED", "FREE", "DEAD", "OLDEST"), rows)
    return 1 if wrong else 0


def _guard(arguments: argparse.Namespace) -> int:
    try:
        state = guard()
    except OSError as error:
        raise UserError(str(error)) from error
    if arguments.output == "json":
        counters = {name: counter._asdict() for name, counter in state.dropped.items()}
        print(json.dumps({"guarded": state.ports, "unguarded": state.unguarded, "dropped": counters}, indent=2))
        return 0
    print(f"guarded ports: {state.ports}, not guarded: {state.unguarded}")
    if not state.dropped:
        print("no rules: no port of a bridge was guarded on this host, or nft is missing")
        return 0
    rows = [(COUNTERS[name], str(counter.packets), str(counter.bytes)) for name, counter in state.dropped.items()]
    _print_table(("DROPPED", "PACKETS", "BYTES"), rows)
    return 0


def _pool(pool: Pool) -> dict[str, Any]:
    oldest = pool.oldest
    held = (
        None if oldest is None else {"containerID": oldest.owner[0], "ifname": oldest.owner[1], "since": oldest.since}
    )
    return {**pool._asdict(), "oldest": held}


def _oldest(pool: Pool) -> str:
    return "" if pool.oldest is None else f"{pool.oldest.owner} {_age(pool.oldest.since)}"


def _age(since: float) -> str:
    """In the largest unit that leaves a number."""
    seconds = max(0, int(time.time() - since))
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def _yes(right: bool) -> str:
    return "yes" if right else "no"


def _print_table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in (head, *rows):
        print("  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())


async def _serve(options: cni_daemon.Options) -> None:
    tune_memory()
    await cni_daemon.run(options)


async def _serve_dhcp(options: dhcp_daemon.Options) -> None:
    tune_memory()
    await dhcp_daemon.run(options)
