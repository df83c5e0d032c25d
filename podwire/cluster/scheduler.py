"""Runs the scheduler against any API server, over HTTP; imports nothing of the API server."""

import logging
import platform
from dataclasses import dataclass, field
from pathlib import Path

from podwire.cluster import tracing
from podwire.protocols.k8sapi.client_side import Client
from podwire.scheduler import Scheduler
from podwire.scheduler.profiles import Configuration
from podwire.trace.participants import API_SERVER, SCHEDULER
from podwire.transports import credentials, http_client
from podwire.transports.clock import SystemClock

log = logging.getLogger("podwire.scheduler")

USER_AGENT = "podwire-scheduler"
MOST_BYTES = 1024 * 1024
"""A larger configuration file is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of a scheduler, as on the command line."""

    kubeconfig: Path
    context: str = ""
    configuration: Configuration = field(default_factory=Configuration)


def read_configuration(path: Path) -> Configuration:
    """Reads a KubeSchedulerConfiguration. Raises OSError, ValueError."""
    from podwire.scheduler import configuration  # noqa: PLC0415 - YAML is loaded where a file is configured

    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"has more than {MOST_BYTES} bytes")
    return configuration.read(data, path)


async def run(options: Options) -> None:
    """Works until cancelled; a server that does not answer is retried. Raises BadKubeconfig."""
    configuration = options.configuration
    for warning in configuration.warnings:
        log.warning("scheduler setting is ignored", extra={"setting": warning})
    access = credentials.load(options.kubeconfig, context=options.context)
    tap = tracing.api_tap(SCHEDULER)
    async with http_client.connect(access, user_agent=USER_AGENT, tap=tap, callee=API_SERVER) as http:
        api, instance = Client(http), f"default-scheduler-{platform.node()}"[:128]
        await Scheduler(
            api, SystemClock(), instance=instance, profiles=configuration.profiles, limits=configuration.limits
        ).run()
