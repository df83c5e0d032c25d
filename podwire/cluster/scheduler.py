"""Runs the scheduler against any API server, over HTTP; loads nothing of the server's own code."""

import platform
from dataclasses import dataclass
from pathlib import Path

from podwire.cluster import tracing
from podwire.protocols.k8sapi.client_side import Client
from podwire.scheduler import Scheduler
from podwire.trace.participants import API_SERVER, SCHEDULER
from podwire.transports import credentials, http_client
from podwire.transports.clock import SystemClock

USER_AGENT = "podwire-scheduler"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to run a scheduler; the command line's flags."""

    kubeconfig: Path
    context: str = ""


async def run(options: Options) -> None:
    """Work until cancelled; a server that does not answer is asked again. Raises BadKubeconfig."""
    access = credentials.load(options.kubeconfig, context=options.context)
    tap = tracing.api_tap(SCHEDULER)
    async with http_client.connect(access, user_agent=USER_AGENT, tap=tap, callee=API_SERVER) as http:
        await Scheduler(Client(http), SystemClock(), instance=f"default-scheduler-{platform.node()}"[:128]).run()
