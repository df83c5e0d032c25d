"""`podwire restore`: writes a backup into the store of an API server that is stopped."""

import argparse
import asyncio
import json
from pathlib import Path

from podwire.cli.backup import FAILURES, add_store, encryption_of
from podwire.cli.main import UserError
from podwire.cli.options import add_output, add_prefix
from podwire.cluster import backup
from podwire.cluster.up import state
from podwire.cluster.up.layout import layout_of
from podwire.linux.fs.trust import make_directory
from podwire.protocols.backup import BadBackup
from podwire.store.snapshot import BUMP


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="the backup")
    target = parser.add_argument_group("store to write (default: that of the cluster of --prefix, which is stopped)")
    add_prefix(target)
    add_store(target, "data directory of an API server; it is made if it does not exist")
    parser.add_argument("--replace", action="store_true", help="keep the present database beside the restored one")
    parser.add_argument(
        "--bump-revision",
        type=_count,
        default=BUMP,
        metavar="N",
        help="resourceVersions to skip, so that none is used again that clients have seen since the backup; 0 only to "
        "move a store to which nothing was written since (default: %(default)s)",
    )
    add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    try:
        url, directory = _target(arguments)
        restored = asyncio.run(
            backup.restore(
                arguments.file,
                url=url,
                directory=directory,
                encryption=encryption_of(arguments),
                bump=arguments.bump_revision,
                replace=arguments.replace,
            )
        )
    except BadBackup as error:
        raise UserError(f"{arguments.file}: {error}; nothing was restored") from error
    except FAILURES as error:
        raise UserError(str(error)) from error
    where = url or str(directory)
    if arguments.output == "json":
        replaced = str(restored.replaced) if restored.replaced else None
        facts = {"store": where, "revision": restored.revision, "objects": restored.objects, "replaced": replaced}
        print(json.dumps(facts, indent=2))
        return 0
    print(f"restored {restored.objects} objects into {where}, at revision {restored.revision}")
    if restored.replaced:
        print(f"the database that was there is kept in {restored.replaced}")
    return 0


def _target(arguments: argparse.Namespace) -> tuple[str | None, Path]:
    """Returns the URL of the store, and the directory of one in a file."""
    if arguments.store and arguments.store.partition("://")[0] not in ("etcd", "sqlite"):
        raise UserError(f"--store {arguments.store}: must be etcd://HOST:PORT, or --data-dir for a file")
    if arguments.data_dir is None and arguments.store is None:
        layout = layout_of(arguments.prefix)
        if (known := state.load(layout.record)) is None:
            raise UserError(f"no cluster below {arguments.prefix}; see --data-dir and --store")
        return known.store or None, layout.state / "apiserver/store"
    if arguments.data_dir is None:
        if not arguments.store.startswith("etcd"):
            raise UserError("--store sqlite:// needs --data-dir")
        return arguments.store, Path()
    make_directory(arguments.data_dir, 0o700)
    make_directory(arguments.data_dir / "store", 0o700, no_links_below=arguments.data_dir)
    return arguments.store, arguments.data_dir / "store"


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 on")
    return int(text)
