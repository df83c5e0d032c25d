"""The live page as a component of `podwire up --ui`: its link stays the same while the cluster runs."""

import asyncio
import contextlib
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from podwire.cluster.tracing import CollectorOptions
from podwire.cluster.up import status_file
from podwire.cluster.up.child import Component, Ready
from podwire.cluster.up.layout import Layout
from podwire.cluster.up.preparation import Prepared
from podwire.durable.files import replace_file
from podwire.protocols.k8sapi.kubeconfig import BadKubeconfig
from podwire.transports import credentials
from podwire.web.access import TOKEN
from podwire.web.server import Options, new_token, serving

NAME = "ui"


def ui_component(prepared: Prepared) -> list[Component]:
    layout = prepared.layout

    async def work(ready: Ready) -> None:
        port, token = _previous(_file(layout))
        options = Options(
            access=credentials.load(layout.kubeconfig),
            traces=CollectorOptions.below(layout.prefix).directory,
            layout=layout,
            cluster=f"cluster below {layout.prefix}",
            port=port,
            token=token or new_token(),
        )
        async with contextlib.AsyncExitStack() as stack:
            try:
                served = await stack.enter_async_context(serving(options))
            except OSError:
                if not port:
                    raise
                served = await stack.enter_async_context(serving(replace(options, port=0)))  # the port is taken by now
            replace_file(_file(layout), served.link.encode())
            ready()
            await asyncio.Event().wait()

    return [Component(name=NAME, work=work, needs=("apiserver",), troubles=(OSError, BadKubeconfig))]


def link_of(layout: Layout) -> str:
    """Returns the link of the page that a cluster serves; empty if it serves none."""
    status = status_file.read(layout)
    entries = [entry for entry in (status.components if status is not None else ()) if entry.name == NAME]
    if not entries or not _file(layout).exists():
        return ""
    return _file(layout).read_text(encoding="utf-8")


def _file(layout: Layout) -> Path:
    """Returns the path of the link, which only root may read: it has the token."""
    return layout.run / "ui.link"


def _previous(file: Path) -> tuple[int, str]:
    """Returns port and token of the page before it was restarted, so that open tabs connect again."""
    try:
        link = urlsplit(file.read_text(encoding="utf-8"))
        return link.port or 0, parse_qs(link.query)[TOKEN][0]
    except (OSError, KeyError, ValueError):
        return 0, ""
