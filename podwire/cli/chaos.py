"""`podwire chaos`: random faults against a cluster, checked against a model."""

import argparse
import asyncio
import ipaddress
import os
import random

from podwire.cli.main import UserError
from podwire.cli.options import add_prefix, seconds
from podwire.cluster.chaos.calls import Violation
from podwire.cluster.chaos.faults import Faults, NotStarted, own_cluster
from podwire.cluster.chaos.history import History
from podwire.cluster.chaos.plan import DEFAULT, SUMMARIES, Fault
from podwire.cluster.chaos.run import Options, Result
from podwire.cluster.chaos.run import run as play
from podwire.cluster.up.layout import BadPrefix, Layout, layout_of
from podwire.cluster.up.slot_claims import SlotClaims
from podwire.cluster.up.state import BrokenState
from podwire.cluster.up.status import status
from podwire.durable.records import NewerFormat
from podwire.inspect import cluster_leftovers
from podwire.inspect.leakcheck import Leftover, lasting, leaks
from podwire.linux.errors import LinuxError
from podwire.protocols.k8sapi.kubeconfig import BadKubeconfig

LARGEST_SEED = 10**9

EPILOG = "\n".join(
    [
        "faults:",
        *(
            f"  {fault:9} {summary}{'' if fault in DEFAULT else ' (only if named)'}"
            for fault, summary in SUMMARIES.items()
        ),
        "",
        "Kills components of the cluster: do not run it against one that somebody needs.",
        "",
        "examples:",
        "  podwire chaos --prefix /srv/chaos                       a cluster of its own, for a minute",
        "  podwire chaos --prefix /srv/chaos --seed 7 --only kill  the same faults as before, kills only",
        "  podwire chaos --prefix /srv/chaos --minutes 60 --nodes 2  for an hour, on two nodes",
        "  podwire chaos --prefix /srv/chaos --disk 128            on a small disk, which is filled now and then",
        "  podwire chaos --prefix /srv/chaos --hardware two-numa   with pods that claim simulated GPUs",
        "  podwire chaos --prefix /srv/chaos --hardware two-numa --network-driver   with claims for cards, too",
    ]
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    add_prefix(parser, "directory of the cluster; if none runs there, one is started and removed again", required=True)
    parser.add_argument("--seed", type=_seed, metavar="N", help="repeat the steps of an earlier run (default: random)")
    lengths = parser.add_mutually_exclusive_group()
    lengths.add_argument(
        "--duration", type=seconds, default=60.0, metavar="SECONDS", help="of all rounds (default: %(default)g)"
    )
    lengths.add_argument("--minutes", type=_minutes, dest="duration", metavar="N", help="the same in minutes")
    parser.add_argument(
        "--only",
        type=_faults,
        default=DEFAULT,
        metavar="FAULT[,…]",
        help="the faults to carry out (default: see below)",
    )
    parser.add_argument("--verbose", action="store_true", help="print every step as it happens")
    own = parser.add_argument_group("a cluster of its own")
    own.add_argument("--nodes", type=int, default=1, metavar="N", help="number of nodes (default: %(default)s)")
    own.add_argument("--hardware", metavar="PROFILE", help="simulated hardware, as for `podwire up`")
    own.add_argument(
        "--network-driver", action="store_true", help="with `podwire network-driver`: pods claim simulated cards, too"
    )
    own.add_argument(
        "--disk", type=_mib, default=0, metavar="MIB", help="a file system in memory for its state (default: none)"
    )


def run(arguments: argparse.Namespace) -> int:
    if os.geteuid() != 0:
        raise UserError("needs root, as `podwire up` does")
    seed = random.randrange(LARGEST_SEED) if arguments.seed is None else arguments.seed
    history = History(_print if arguments.verbose else lambda _line: None)
    print(f"seed {seed}", flush=True)
    try:
        layout = layout_of(arguments.prefix)
        result = asyncio.run(_run(arguments, layout, seed, history))
    except Violation as violation:
        print("\n".join(["last events:", *history.lines(str(violation)), "", f"VIOLATION: {violation}"]))
        words = "" if tuple(arguments.only) == DEFAULT else f" --only {','.join(arguments.only)}"
        print(f"repeat with --seed {seed} --duration {arguments.duration:g}{words}; logs are below {layout.logs}")
        return 1
    except (BadPrefix, BrokenState, NewerFormat, BadKubeconfig, NotStarted, LinuxError, OSError) as error:
        raise UserError(str(error)) from error
    print(f"no violation: {result.rounds} rounds, {result.pods} pods, {result.faults} faults")
    return 0


async def _run(arguments: argparse.Namespace, layout: Layout, seed: int, history: History) -> Result:
    if (state := status(layout).state) == "up":
        return await _play(arguments, layout, seed, history, Faults(layout, history))
    if state != "absent":
        raise UserError(f"the cluster below {layout.prefix} is {state}; start it, or remove it with `podwire down`")
    up = ["up", "--detach", "--prefix", str(layout.prefix), "--nodes", str(arguments.nodes)]
    up += ["--hardware", arguments.hardware] if arguments.hardware else []
    up += ["--network-driver"] if arguments.network_driver else []
    async with own_cluster(layout, up, arguments.disk):
        return await _play(arguments, layout, seed, history, Faults(layout, history, up))


async def _play(arguments: argparse.Namespace, layout: Layout, seed: int, history: History, faults: Faults) -> Result:
    unavailable = {fault: reason for fault in arguments.only if (reason := faults.available(fault))}
    for fault, reason in unavailable.items():
        print(f"without {fault}: {reason}", flush=True)
    options = Options(
        seed=seed,
        duration=arguments.duration,
        faults=[fault for fault in arguments.only if fault not in unavailable],
        kubeconfig=layout.kubeconfig,
        leases=lambda: _leases(layout),
        leftovers=lambda: _leftovers(layout),
    )
    return await play(options, faults, history)


def _leases(layout: Layout) -> set[str]:
    """Returns the leased addresses of all nodes."""
    directories = [layout.home(node).state / "cni/networks/podwire" for node in layout.nodes()]
    names = {path.name for directory in directories if directory.is_dir() for path in directory.iterdir()}
    return {name for name in names if _is_address(name)}


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _leftovers(layout: Layout) -> list[str]:
    def look() -> list[Leftover]:
        return leaks(cluster_leftovers.find_resources(layout, SlotClaims()), cluster_leftovers.owners(layout))

    found = look()
    return [f"leftover: {kind} {name}" for kind, name, _ in (lasting(found, look()) if found else ())]


def _print(line: str) -> None:
    print(line, flush=True)


def _seed(text: str) -> int:
    if not text.isdecimal() or int(text) >= LARGEST_SEED:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to {LARGEST_SEED - 1}")
    return int(text)


def _minutes(text: str) -> float:
    return 60.0 * seconds(text)


def _mib(text: str) -> int:
    if not text.isdecimal() or not 48 <= int(text) <= 1024:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 48 to 1024")
    return int(text)


def _faults(text: str) -> tuple[Fault, ...]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in list(Fault)]
    if unknown or not names:
        raise argparse.ArgumentTypeError(f"{text!r}: expected one or several of {', '.join(Fault)}")
    return tuple(dict.fromkeys(map(Fault, names)))
