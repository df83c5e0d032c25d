"""`podwire up`: a cluster on this machine."""

import argparse
import os
from pathlib import Path

from podwire.cli.main import UserError
from podwire.cli.progress import progress
from podwire.cli.runtime import add_checking, checking
from podwire.cluster.hardware.profile import BadProfile
from podwire.cluster.hardware.profile_yaml import load
from podwire.cluster.up import launch, state, status_file
from podwire.cluster.up.layout import BadPrefix, Layout, layout_of
from podwire.cluster.up.node_namespaces import NotBuilt
from podwire.cluster.up.preparation import Prepared, Refused, UpOptions
from podwire.cluster.up.slot_claims import NoSlot, SlotClaims
from podwire.cluster.up.state import BrokenState, NewerState
from podwire.cluster.up.stop import StillThere
from podwire.cluster.up.supervisor import Event
from podwire.dradriver.config import Config as NetworkDriver
from podwire.dradriver.config import load as load_network_driver
from podwire.protocols.settings import BadConfig
from podwire.runtime.images.build import ROOT_REFERENCE
from podwire.trace.otlp_endpoint import BadEndpoint, endpoint

PLUGINS = Path("/var/lib/podwire/cni/bin")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--detach", action="store_true", help="return when all nodes are ready; go on in the background"
    )
    parser.add_argument(
        "--prefix", type=Path, default=Path("/"), metavar="DIR", help="the directory below which everything is kept (/)"
    )
    parser.add_argument("--store", metavar="URL", help="sqlite://, memory:// or etcd://HOST:PORT[,…] (sqlite://)")
    parser.add_argument(
        "--runtime", type=_runtime, metavar="RUNTIME", help="podwire, or unix:///… of a CRI runtime that runs (podwire)"
    )
    parser.add_argument("--nodes", type=int, metavar="N", help="how many nodes, 1 to 16 (as many as there are, or 1)")
    add_checking(parser)
    parser.add_argument(
        "--otlp", type=_endpoint, metavar="URL", help="send the trace to a collector of OpenTelemetry, too"
    )
    parser.add_argument(
        "--hardware",
        metavar="PROFILE",
        help="simulated network cards and GPUs: a YAML file, or a name that `podwire hardware profiles` lists",
    )
    parser.add_argument(
        "--network-driver",
        nargs="?",
        const="",
        metavar="FILE",
        help="run `podwire network-driver` on the node, with its YAML file if one is given",
    )


def run(arguments: argparse.Namespace) -> int:
    if os.geteuid() != 0:
        raise UserError("needs root, for namespaces, links and mounts; try `sudo podwire up`")
    try:
        wanted = UpOptions(
            runtime=arguments.runtime,
            store=arguments.store,
            nodes=arguments.nodes,
            otlp=arguments.otlp or "",
            hardware=load(arguments.hardware) if arguments.hardware else None,
            checking=checking(arguments),
            network_driver=_network_driver(arguments.network_driver),
        )
        layout = layout_of(arguments.prefix)
        if launch.make_room(layout, wanted):
            print("stopped, to be started with more nodes; pods go on", flush=True)
        with launch.held(layout, wanted, SlotClaims()) as (prepared, lock):
            _tell_place(prepared)
            return _detached(prepared, lock) if arguments.detach else _attached(prepared, lock)
    except status_file.PrefixLocked as error:
        return _already(layout, error)
    except BadConfig as error:
        raise UserError(f"--network-driver: {error}") from error
    except BadProfile as error:
        raise UserError(f"--hardware: {error}") from error
    except (BadPrefix, NoSlot, NotBuilt, Refused, StillThere, BrokenState, NewerState, OSError) as error:
        raise UserError(str(error)) from error


def _network_driver(file: str | None) -> NetworkDriver | None:
    """Raises BadConfig, OSError."""
    if not file:
        return None if file is None else NetworkDriver()
    return load_network_driver(Path(file))


def _runtime(text: str) -> str:
    if text != "podwire" and not text.startswith("unix:///"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither podwire nor unix:///…")
    return text


def _endpoint(text: str) -> str:
    try:
        return endpoint(text)
    except BadEndpoint as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _already(layout: Layout, held: status_file.PrefixLocked) -> int:
    told = status_file.read(layout)
    if told is None or not told.up or told.pid != held.pid:
        raise UserError(f"{held}; wait for it, or `podwire down{_flag(layout)}`") from held
    print(f"it is up already, by process {held.pid}")
    _tell_next(layout)
    return 0


def _attached(prepared: Prepared, lock: int) -> int:
    lines = progress(prepared.layout, launch.names(prepared))

    def report(event: Event) -> None:
        lines(event)
        if not event.component and event.what == "up":
            _tell_next(prepared.layout)
            print("Ctrl-C stops it and keeps its state", flush=True)

    if not launch.supervise(prepared, lock, report):
        return 1
    print(f"stopped; its state is kept: `podwire up{_flag(prepared.layout)}` goes on,", flush=True)
    print(f"`podwire down{_flag(prepared.layout)}` removes everything")
    return 0


def _detached(prepared: Prepared, lock: int) -> int:
    lines = progress(prepared.layout, launch.names(prepared))
    up = False
    for event in launch.detach(prepared, lock):
        lines(event)
        up = up or (not event.component and event.what == "up")
    if not up:
        return 1
    _tell_next(prepared.layout)
    return 0


def _tell_place(prepared: Prepared) -> None:
    layout, slot = prepared.layout, prepared.slot
    for owner in prepared.owners:
        print(f"the host has {owner}", flush=True)
    names = [node.name for node in prepared.nodes]
    if len(names) > 1:
        where = f"nodes {names[0]} to {names[-1]} in namespaces of their own"
    else:
        where = f"node {names[0]} {'in namespaces of its own' if prepared.own else 'on the host itself'}"
    print(f"cluster below {layout.prefix}, slot {slot.number}: {where}", flush=True)


def _tell_next(layout: Layout) -> None:
    known = state.load(layout.record)
    print(f"kubeconfig  {layout.kubeconfig}")
    if known is not None and known.runtime == "podwire":
        print(f"image       {ROOT_REFERENCE}")
    elif known is not None:
        print(f"runtime     {known.runtime}, which finds networks in /etc/cni/net.d and plugins in {PLUGINS}")
    print(f"next        kubectl --kubeconfig {layout.kubeconfig} get nodes", flush=True)


def _flag(layout: Layout) -> str:
    return "" if layout.is_default else f" --prefix {layout.prefix}"
