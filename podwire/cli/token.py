"""`podwire token`: bootstrap tokens, by which machines join a cluster."""

import argparse
import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from podwire.cli.main import UserError
from podwire.cli.options import add_output, add_prefix, https_server
from podwire.cluster.join import tokens
from podwire.cluster.up.layout import BadPrefix, layout_of
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.bootstrap_tokens import (
    NAME_PREFIX,
    NODES_GROUP,
    USAGES,
    BadToken,
    Token,
    TokenRecord,
    secret_of,
)
from podwire.protocols.k8sapi.client_side import Client, ClientError
from podwire.protocols.k8sapi.kubeconfig import Access, BadKubeconfig
from podwire.protocols.k8sapi.status import ApiError
from podwire.transports import credentials, http_client

T = TypeVar("T")

UNITS = {"s": 1, "m": 60, "h": 3600}
EPILOG = """\
examples:
  podwire token create                       print the command that joins a machine
  podwire token create --ttl 0 -o json       a token that does not expire
  podwire token list
  podwire token delete abcdef
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    creating = verbs.add_parser("create", help="Create a token, and print the command that joins a machine")
    creating.add_argument("token", nargs="?", metavar="TOKEN", help="the token itself (default: a random one)")
    creating.add_argument(
        "--ttl", type=_ttl, default="24h", metavar="DURATION", help="its lifetime; 0 for ever (default: 24h)"
    )
    creating.add_argument("--description", default="", metavar="TEXT", help="what it is for")
    creating.add_argument(
        "--groups",
        default=NODES_GROUP,
        metavar="GROUP[,…]",
        help="groups of machines that use it (default: %(default)s)",
    )
    creating.add_argument(
        "--usages", default=",".join(USAGES), metavar="USAGE[,…]", help="what it is good for (default: %(default)s)"
    )
    creating.add_argument(
        "--server",
        type=https_server,
        metavar="URL",
        help="address of the API server for other machines, if the cluster has none published (default: that of the "
        "kubeconfig)",
    )
    listing = verbs.add_parser("list", help="List the tokens")
    deleting = verbs.add_parser("delete", help="Delete tokens: they are refused at once")
    deleting.add_argument("tokens", nargs="+", metavar="TOKEN", help="a token, or its first six characters")
    for verb in (creating, listing, deleting):
        add_prefix(verb)
        verb.add_argument("--kubeconfig", type=Path, metavar="FILE", help="of any cluster instead")
        add_output(verb)


def _ttl(text: str) -> float:
    if text == "0":
        return 0.0
    if not re.fullmatch(r"(\d{1,9}[hms])+", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 24h or 1h30m, or 0")
    return float(sum(int(number) * UNITS[unit] for number, unit in re.findall(r"(\d+)([hms])", text)))


def run(arguments: argparse.Namespace) -> int:
    try:
        access = credentials.load(arguments.kubeconfig or layout_of(arguments.prefix).kubeconfig)
        return _VERBS[arguments.verb](arguments, access)
    except (ApiError, BadKubeconfig, BadPrefix, BadToken, ClientError, OSError) as error:
        raise UserError(str(error)) from error


def _call(access: Access, work: Callable[[Client], Awaitable[T]]) -> T:
    async def connected() -> T:
        async with http_client.connect(access, user_agent="podwire-token") as http:
            return await work(Client(http))

    return asyncio.run(connected())


def _create(arguments: argparse.Namespace, access: Access) -> int:
    record = TokenRecord(
        token=Token.parse(arguments.token) if arguments.token else Token.random(),
        usages=tuple(usage for usage in arguments.usages.split(",") if usage),
        groups=tuple(group for group in arguments.groups.split(",") if group),
        description=arguments.description,
        expires=time.time() + arguments.ttl if arguments.ttl else None,
    )
    secret_of(record)  # a bad group or usage is reported before anything is created
    ca = credentials.pem_text(access.ca, "certificate-authority")
    invitation = _call(access, lambda api: tokens.create(api, record, arguments.server or access.server, ca))
    if arguments.output == "json":
        facts = {"token": invitation.token, "server": invitation.server, "caCertHashes": list(invitation.hashes)}
        print(json.dumps({**facts, "expires": _expiry(record), "command": invitation.command}, indent=2))
        return 0
    print(invitation.command)
    return 0


def _expiry(record: TokenRecord) -> str:
    return rfc3339(record.expires) if record.expires is not None else ""


def _list(arguments: argparse.Namespace, access: Access) -> int:
    records = _call(access, tokens.listed)
    if arguments.output == "json":
        rows = [
            {
                "token": str(record.token),
                "expires": _expiry(record),
                "usages": list(record.usages),
                "groups": list(record.groups),
                "description": record.description,
            }
            for record in records
        ]
        print(json.dumps(rows, indent=2))
        return 0
    print(f"{'TOKEN':24} {'EXPIRES':21} {'USAGES':23} {'GROUPS':43} DESCRIPTION")
    for record in records:
        usages, groups = ",".join(record.usages), ",".join(record.groups)
        row = f"{record.token!s:24} {_expiry(record) or 'never':21} {usages:23} {groups:43} {record.description}"
        print(row.rstrip())
    return 0


def _delete(arguments: argparse.Namespace, access: Access) -> int:
    for text in arguments.tokens:
        name = text.partition(".")[0]
        if not re.fullmatch("[a-z0-9]{6}", name):
            raise UserError(f"{text!r} is neither a token nor the first six characters of one")
        _call(access, partial(tokens.delete, name=f"{NAME_PREFIX}{name}"))
        if arguments.output != "json":
            print(f"token {name} is deleted")
    return 0


_VERBS = {"create": _create, "list": _list, "delete": _delete}
