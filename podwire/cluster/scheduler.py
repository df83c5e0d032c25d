"""Runs the scheduler against any API server, over HTTP; imports nothing of the API server."""

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
    """Options of a scheduler, as on the command line."""

    kubeconfig: Path
    context: str = ""


async def run(options: Options) -> None:
    """Works until cancelled; a server that does not answer is retried. Raises BadKubeconfig."""
    access = credentials.load(options.kubeconfig, context=options.context)
    tap = tracing.api_tap(SCHEDULER)
    async with http_client.connect(access, user_agent=USER_AGENT, tap=tap, callee=API_SERVER) as http:
        await Scheduler(Client(http), SystemClock(), instance=f"default-scheduler-{platform.node()}"[:128]).run()
