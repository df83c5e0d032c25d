"""Runs the scheduler against any API server, over HTTP; imports nothing of the API server."""

import logging
import platform
from dataclasses import dataclass, field, replace
from pathlib import Path

from podwire.cluster import tracing
from podwire.protocols.k8sapi.client_side import Client
from podwire.scheduler import Limits, Profile, Scheduler
from podwire.scheduler.profiles import DEFAULT
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
    profiles: tuple[Profile, ...] = (DEFAULT,)
    limits: Limits = field(default_factory=Limits)
    warnings: tuple[str, ...] = ()
    """Settings of a configuration file that have no effect."""


def configured(options: Options, path: Path) -> Options:
    """Returns options with the profiles of a KubeSchedulerConfiguration. Raises OSError, ValueError."""
    from podwire.scheduler import configuration  # noqa: PLC0415 - YAML is loaded where a file is configured

    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"has more than {MOST_BYTES} bytes")
    config = configuration.read(data, path)
    return replace(options, profiles=config.profiles, limits=config.limits, warnings=config.warnings)


async def run(options: Options) -> None:
    """Works until cancelled; a server that does not answer is retried. Raises BadKubeconfig."""
    for warning in options.warnings:
        log.warning("scheduler setting is ignored", extra={"setting": warning})
    access = credentials.load(options.kubeconfig, context=options.context)
    tap = tracing.api_tap(SCHEDULER)
    async with http_client.connect(access, user_agent=USER_AGENT, tap=tap, callee=API_SERVER) as http:
        api, instance = Client(http), f"default-scheduler-{platform.node()}"[:128]
        await Scheduler(api, SystemClock(), instance=instance, profiles=options.profiles, limits=options.limits).run()
