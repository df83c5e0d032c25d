"""`podwire cni add|del|check|gc|status|version`: calls the plugins of a network, as a runtime does."""

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podwire import logs
from podwire.cli.main import UserError
from podwire.inspect.cni_timings import Timings, rows
from podwire.inspect.cni_tool import BIN, CONF, STATE, Options, Target, Tool, id_of
from podwire.linux.proc.processes import run as run_program
from podwire.protocols.cni import versions
from podwire.protocols.cni.errors import CniError, encode
from podwire.runtime.cni.plugins import PluginFailed

if TYPE_CHECKING:
    Verbs = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - the only name that its type has

VERBS = {
    "add": "Attach a network namespace to a network, and print the result",
    "del": "Detach it again, also without the namespace or the configuration",
    "check": "Check that an attachment is unchanged",
    "gc": "Release resources of attachments that no longer exist (cniVersion 1.1.0)",
    "status": "Check that a network accepts attachments (cniVersion 1.1.0)",
    "version": "Print the versions that the plugins of a network support",
}
_ATTACHING = ("add", "del", "check")


def configure(verbs: "Verbs") -> None:
    for verb, summary in VERBS.items():
        parser = verbs.add_parser(verb, help=summary, description=summary)
        parser.add_argument("network", metavar="NETWORK", help="name of the network in its configuration")
        if verb in _ATTACHING:
            _configure_target(parser, verb)
        if verb == "gc":
            parser.add_argument(
                "--valid", action="append", default=[], type=_attachment, metavar="ID/IFNAME",
                help="keep this attachment, besides those that podwire recorded; repeatable",
            )  # fmt: skip
        parser.add_argument(
            "--conf-dir",
            type=Path,
            default=CONF,
            metavar="DIR",
            help=f"directory of network configurations (default: {CONF})",
        )
        parser.add_argument(
            "--bin-dir", type=Path, action="append", metavar="DIR",
            help=f"directory of plugins; repeatable (default: $CNI_PATH, else {BIN})",
        )  # fmt: skip
        parser.add_argument(
            "--state-dir",
            type=Path,
            default=STATE,
            metavar="DIR",
            help=f"directory of attachment records (default: {STATE})",
        )
        parser.add_argument(
            "-o",
            "--output",
            choices=("text", "json"),
            default="text",
            help="json: errors are JSON, too (default: %(default)s)",
        )
        parser.add_argument("--timings", action="store_true", help="print the time of each step to standard error")


def _configure_target(parser: argparse.ArgumentParser, verb: str) -> None:
    optional: dict[str, Any] = {} if verb == "add" else {"nargs": "?", "default": ""}
    parser.add_argument("netns", metavar="NETNS", help="path of the namespace, such as /run/netns/a", **optional)
    parser.add_argument("--container-id", metavar="ID", help="CNI_CONTAINERID (default: derived from the path)")
    parser.add_argument("--ifname", default="eth0", metavar="NAME", help="name of the interface inside (default: eth0)")
    parser.add_argument("--args", default="", metavar="KEY=VALUE;…", help="CNI_ARGS")
    parser.add_argument("--capabilities", type=_object, default={}, metavar="JSON", help="capability arguments by name")


def run(arguments: argparse.Namespace) -> int:
    logs.set_up(level="warning", form="text")
    timings = Timings() if arguments.timings else None
    try:
        _VERBS[arguments.verb](_tool(arguments, timings), arguments)
    except (PluginFailed, CniError, OSError) as error:
        if arguments.output == "json":
            print(json.dumps(_error_json(error), indent=2))
        raise UserError(_line(error)) from error
    finally:
        if timings is not None:
            _print_timings(timings, arguments.output)
    return 0


def _print_timings(timings: Timings, output: str) -> None:
    """Printed besides the result, also for a failed call."""
    if output == "json":
        print(json.dumps([asdict(step) for step in timings.steps], indent=2), file=sys.stderr)
        return
    for plugin, verb, step, times, ms in rows(timings.steps):
        print(f"{plugin:12} {verb:8} {step:10} {times:>5} {ms:>8}", file=sys.stderr)


def _tool(arguments: argparse.Namespace, timings: Timings | None) -> Tool:
    path = [Path(part) for part in os.environ.get("CNI_PATH", "").split(":") if part]
    return Tool(
        Options(
            network=arguments.network,
            conf_dir=arguments.conf_dir,
            bin_dirs=tuple(directory.absolute() for directory in arguments.bin_dir or path or [BIN]),
            state=arguments.state_dir,
        ),
        run_program if timings is None else timings.run,
    )


def _target(arguments: argparse.Namespace) -> Target:
    if not arguments.netns and not arguments.container_id:
        raise UserError("NETNS or --container-id is required")
    return Target(
        id=arguments.container_id or id_of(arguments.netns),
        ifname=arguments.ifname,
        netns=str(Path(arguments.netns).absolute()) if arguments.netns else "",
        args=arguments.args,
        capabilities=arguments.capabilities,
    )


def _add(tool: Tool, arguments: argparse.Namespace) -> None:
    print(json.dumps(tool.add(_target(arguments)), indent=2))


def _version(tool: Tool, arguments: argparse.Namespace) -> None:
    version, supported = tool.versions()
    if arguments.output == "json":
        print(json.dumps({"cniVersion": version, "plugins": supported}, indent=2))
        return
    print(f"network {arguments.network}: {version}")
    for kind, versions_ in supported.items():
        print(f"{kind}: {', '.join(versions_)}{'' if version in versions_ else f' (not {version})'}")


_VERBS = {
    "add": _add,
    "del": lambda tool, arguments: tool.delete(_target(arguments)),
    "check": lambda tool, arguments: tool.check(_target(arguments)),
    "gc": lambda tool, arguments: tool.gc(arguments.valid),
    "status": lambda tool, _arguments: tool.status(),
    "version": _version,
}


def _line(error: Exception) -> str:
    """Returns the error in one line. An error of a plugin contains its code; for ours, the code is added."""
    text = f"code {int(error.code)}: {error}" if isinstance(error, CniError) else str(error)
    return " ".join(text.split())


def _error_json(error: Exception) -> dict[str, Any]:
    """Returns the error in the format of the specification."""
    refusal = error.cni_error if isinstance(error, PluginFailed) else error
    cni_error = refusal if isinstance(refusal, CniError) else CniError(0, str(error))
    return encode(cni_error, versions.LATEST) | ({"plugin": error.plugin} if isinstance(error, PluginFailed) else {})


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError("must be a JSON object")
    return value


def _attachment(text: str) -> tuple[str, str]:
    id_, _, ifname = text.partition("/")
    if not id_ or not ifname:
        raise argparse.ArgumentTypeError(f"{text!r} is not ID/IFNAME")
    return id_, ifname
