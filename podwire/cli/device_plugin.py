"""`podwire device-plugin`: offers network devices as extended resources to any kubelet."""

import argparse
from pathlib import Path

from podwire.cli.conformance import add_format, finish, printer, socket_of
from podwire.cli.main import UserError
from podwire.cli.options import add_logging, add_root, address, run_until_stopped, seconds
from podwire.cluster.daemons import tune_memory
from podwire.cluster.device_plugin import Options
from podwire.cluster.device_plugin import run as offer
from podwire.cluster.removal import InUse, remove_device_plugin
from podwire.deviceplugin import Config, load
from podwire.durable.records import NewerFormat
from podwire.linux.errors import LinuxError
from podwire.protocols.settings import BadConfig

_KUBELET = Path("/var/lib/kubelet")

EPILOG = """\
The file has `pools`, each with a name and one of:
  links of the host
    interfaces: {names: [ens*], drivers: [...], pciAddresses: [...],
                 numaNodes: [...]}
  links that are created
    make: {kind: veth|macvlan|tap, parent: LINK, count: N}
  device files
    files: {paths: [/dev/net/tun], count: N}
A pod requests them in `resources.limits`: net.podwire.dev/POOL.
See docs/device-plugin.md.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    parser.add_argument("--config", type=Path, metavar="FILE", help="YAML file with the pools of devices")
    parser.add_argument("--check", action="store_true", help="only validate the file")
    parser.add_argument(
        "--remove", action="store_true", help="remove everything that the plugin left on this node, and exit"
    )
    where = parser.add_argument_group("paths")
    add_root(where)
    for flag, default, summary in (
        ("--kubelet-dir", _KUBELET, "directory of the kubelet"),
        ("--state-dir", Path("/var/lib/podwire/device-plugin"), "state of devices before pods got them"),
        ("--cdi-dir", Path("/var/run/cdi"), "CDI files, for pools with cdi: true"),
        ("--sysfs", Path("/sys"), "sysfs, for drivers, PCI addresses and NUMA nodes"),
    ):
        where.add_argument(flag, type=Path, default=default, metavar="DIR", help=f"{summary} (default: {default})")
    parser.add_argument(
        "--listen",
        type=address,
        metavar="ADDRESS:PORT",
        help="serve /metrics, /healthz and /readyz here (default: not at all)",
    )
    add_logging(parser)
    parser.set_defaults(usage_error=parser.error)
    verbs = parser.add_subparsers(dest="verb", metavar="[test]")
    testing = verbs.add_parser("test", help="Test a plugin, in any language, against the device plugin API")
    testing.description = "Call a device plugin as a kubelet does, and check its answers. It need not be registered."
    testing.add_argument("socket", type=Path, metavar="SOCKET", help="of its service DevicePlugin")
    testing.add_argument(
        "--timeout", type=seconds, default=10.0, metavar="SECONDS", help="for one call (default: %(default)g)"
    )
    add_format(testing)


def _test(arguments: argparse.Namespace) -> int:
    from podwire.inspect.conformance.device_plugin import (  # noqa: PLC0415 - the plugin itself does not need it
        run_device_plugin_cases,
    )

    shown = printer(arguments.output)
    report = run_device_plugin_cases(socket_of(arguments.socket), arguments.timeout, shown)
    return finish(report, arguments.output)


def run(arguments: argparse.Namespace) -> int:
    if arguments.verb == "test":
        return _test(arguments)
    if arguments.remove:
        return _remove(arguments)
    if arguments.config is None:
        arguments.usage_error("the following arguments are required: --config")
    config = _loaded(arguments.config)
    if arguments.check:
        for pool in config.pools:
            print(pool.resource)
        return 0
    host, port = arguments.listen or ("127.0.0.1", None)
    options = Options(
        config=config,
        state=arguments.state_dir,
        device_plugins=arguments.kubelet_dir / "device-plugins",
        pod_resources=arguments.kubelet_dir / "pod-resources/kubelet.sock",
        cdi=arguments.cdi_dir,
        sysfs=arguments.sysfs,
        address=host,
        port=port,
    )
    return run_until_stopped(_work(options), arguments)


def _remove(arguments: argparse.Namespace) -> int:
    state, cdi = (arguments.root / path.relative_to("/") for path in (arguments.state_dir, arguments.cdi_dir))
    try:
        for path in remove_device_plugin(state=state, cdi=cdi):
            print(path)
    except (InUse, LinuxError, NewerFormat, OSError) as error:
        raise UserError(str(error)) from error
    return 0


def _loaded(path: Path) -> Config:
    try:
        return load(path)
    except BadConfig as error:
        raise UserError(f"{path}: {error}") from error
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error


async def _work(options: Options) -> None:
    tune_memory()
    try:
        await offer(options)
    except OSError as error:  # the state directory, or netlink
        raise UserError(str(error)) from error
