"""`podwire backup`: saves the state of the API, and verifies backups."""

import argparse
import asyncio
import json
import time
from pathlib import Path

from podwire.cli.main import UserError
from podwire.cli.options import add_output, add_prefix
from podwire.cluster import backup
from podwire.cluster.up import state
from podwire.cluster.up.layout import BadPrefix, layout_of
from podwire.protocols.backup import BadBackup
from podwire.protocols.k8sapi.client_side import ClientError
from podwire.protocols.k8sapi.kubeconfig import BadKubeconfig
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.settings import BadConfig
from podwire.protocols.storage import StorageError
from podwire.store import BadUrl, CannotOpen
from podwire.store.encryption import PLAIN, Encryption
from podwire.transports import credentials

FAILURES = (ApiError, ClientError, BadKubeconfig, BadConfig, BadPrefix, BadUrl, CannotOpen, StorageError, OSError)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="the backup")
    parser.add_argument("--verify", action="store_true", help="only check a backup, and show its contents")
    source = parser.add_argument_group("state to save (default: the running cluster of --prefix)")
    add_prefix(source)
    source.add_argument("--kubeconfig", type=Path, metavar="FILE", help="of any running podwire API server")
    add_store(source, "a stopped API server's data directory")
    add_output(parser)


def add_store(parser: argparse._ArgumentGroup, directory: str) -> None:
    """Adds the options that name a store without an API server."""
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help=directory)
    parser.add_argument("--store", metavar="URL", help="etcd://HOST:PORT[,…][?OPTIONS], as of the API server")
    parser.add_argument(
        "--encryption-provider-config", type=Path, metavar="FILE", help="EncryptionConfiguration of the API server"
    )


def run(arguments: argparse.Namespace) -> int:
    path: Path = arguments.file
    try:
        if not arguments.verify and path.exists():
            raise UserError(f"{path} exists; a backup is never overwritten")
        contents = backup.verify(path) if arguments.verify else asyncio.run(_save(arguments, path))
    except BadBackup as error:
        raise UserError(f"{path}: {error}" if arguments.verify else f"the backup was not saved: {error}") from error
    except FAILURES as error:
        raise UserError(str(error)) from error
    header = contents.header
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(header.created))
    if arguments.output == "json":
        facts = {"file": str(path), "revision": header.revision, "created": when, "store": header.store}
        print(json.dumps({**facts, "objects": contents.entries, "kinds": dict(contents.kinds)}, indent=2))
        return 0
    print(f"{path}: {contents.entries} objects at revision {header.revision}, saved {when} from {header.store}, intact")
    if arguments.verify:
        for kind, number in sorted(contents.kinds.items()):
            print(f"  {number:6} {kind}")
    return 0


async def _save(arguments: argparse.Namespace, path: Path) -> backup.Contents:
    if arguments.data_dir or arguments.store:
        directory = (arguments.data_dir or Path()) / "store"
        if not arguments.store and not (directory / "store.db").exists():
            raise UserError(f"{directory} has no store of an API server")
        return await backup.save_at_rest(arguments.store, directory, encryption_of(arguments), path)
    kubeconfig = arguments.kubeconfig
    if kubeconfig is None:
        layout = layout_of(arguments.prefix)
        if not state.exists(layout.record):
            raise UserError(f"no cluster below {arguments.prefix}; see --kubeconfig, --data-dir and --store")
        kubeconfig = layout.kubeconfig
    return await backup.save_online(credentials.load(kubeconfig), path)


def encryption_of(arguments: argparse.Namespace) -> Encryption:
    path = arguments.encryption_provider_config
    return PLAIN if path is None else backup.read_encryption(path)
