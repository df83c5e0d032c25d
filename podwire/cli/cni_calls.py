"""`podwire cni add`, `del`, `check`, `gc`, `status` and `version`: ask the plugins of a network, as a runtime does."""

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
    "add": "attach a network namespace to a network, and print the result",
    "del": "detach it again, also when the namespace or the configuration is gone",
    "check": "whether what was attached is still as it was made",
    "gc": "give back what belongs to nobody that is attached (cniVersion 1.1.0 and newer)",
    "status": "whether a network takes more (cniVersion 1.1.0 and newer)",
    "version": "which versions the plugins of a network support",
}
_ATTACHING = ("add", "del", "check")


def configure(verbs: "Verbs") -> None:
    for verb, summary in VERBS.items():
        parser = verbs.add_parser(verb, help=summary, description=summary)
        parser.add_argument("network", metavar="NETWORK", help="the name in its configuration")
        if verb in _ATTACHING:
            _configure_target(parser, verb)
        if verb == "gc":
            parser.add_argument(
                "--valid", action="append", default=[], type=_attachment, metavar="ID/IFNAME",
                help="stays, as does what podwire remembers; may be given again",
            )  # fmt: skip
        parser.add_argument(
            "--conf-dir", type=Path, default=CONF, metavar="DIR", help=f"where networks are configured ({CONF})"
        )
        parser.add_argument(
            "--bin-dir", type=Path, action="append", metavar="DIR",
            help=f"where plugins are; may be given again (CNI_PATH, else {BIN})",
        )  # fmt: skip
        parser.add_argument(
            "--state-dir", type=Path, default=STATE, metavar="DIR", help=f"where attachments are remembered ({STATE})"
        )
        parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="json for errors, too")
        parser.add_argument(
            "--timings", action="store_true", help="tell on standard error where the time went, step by step"
        )


def _configure_target(parser: argparse.ArgumentParser, verb: str) -> None:
    optional: dict[str, Any] = {} if verb == "add" else {"nargs": "?", "default": ""}
    parser.add_argument("netns", metavar="NETNS", help="the path of the namespace, such as /run/netns/a", **optional)
    parser.add_argument("--container-id", metavar="ID", help="whose it is (made from the path)")
    parser.add_argument("--ifname", default="eth0", metavar="NAME", help="the interface inside (eth0)")
    parser.add_argument("--args", default="", metavar="KEY=VALUE;…", help="CNI_ARGS")
    parser.add_argument(
        "--capabilities", type=_object, default={}, metavar="JSON", help="values for plugins that declare them, by name"
    )


def run(arguments: argparse.Namespace) -> int:
    logs.set_up(level="warning", form="text")
    timings = Timings() if arguments.timings else None
    try:
        _VERBS[arguments.verb](_tool(arguments, timings), arguments)
    except (PluginFailed, CniError, OSError) as error:
        if arguments.output == "json":
            print(json.dumps(_told(error), indent=2))
        raise UserError(_line(error)) from error
    finally:
        if timings is not None:
            _print_timings(timings, arguments.output)
    return 0


def _print_timings(timings: Timings, output: str) -> None:
    """Beside what is printed, also of a call that failed."""
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
            bin_dirs=tuple(arguments.bin_dir or path or [BIN]),
            state=arguments.state_dir,
        ),
        run_program if timings is None else timings.run,
    )


def _target(arguments: argparse.Namespace) -> Target:
    if not arguments.netns and not arguments.container_id:
        raise UserError("NETNS or --container-id must say what is meant")
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
        print(f"{kind}: {', '.join(versions_)}{'' if version in versions_ else f' (and not {version})'}")


_VERBS = {
    "add": _add,
    "del": lambda tool, arguments: tool.delete(_target(arguments)),
    "check": lambda tool, arguments: tool.check(_target(arguments)),
    "gc": lambda tool, arguments: tool.gc(arguments.valid),
    "status": lambda tool, _arguments: tool.status(),
    "version": _version,
}


def _line(error: Exception) -> str:
    """A plugin's code is in its sentence; one of ours is put before it."""
    told = f"code {int(error.code)}: {error}" if isinstance(error, CniError) else str(error)
    return " ".join(told.split())


def _told(error: Exception) -> dict[str, Any]:
    """As the specification's error."""
    refusal = error.cni_error if isinstance(error, PluginFailed) else error
    told = refusal if isinstance(refusal, CniError) else CniError(0, str(error))
    return encode(told, versions.LATEST) | ({"plugin": error.plugin} if isinstance(error, PluginFailed) else {})


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"no JSON: {error}") from error
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError("no JSON object")
    return value


def _attachment(text: str) -> tuple[str, str]:
    id_, _, ifname = text.partition("/")
    if not id_ or not ifname:
        raise argparse.ArgumentTypeError(f"{text!r} is no ID/IFNAME")
    return id_, ifname
