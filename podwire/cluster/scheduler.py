"""Runs the scheduler against any API server, over HTTP; imports nothing of the API server."""

import asyncio
import logging
import platform
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

from podwire.cluster import component_endpoints, tracing
from podwire.cluster.client_metrics import MeteredHttp, host_of
from podwire.cluster.component_endpoints import Endpoint
from podwire.controllers.leader_election import Election, LeaderElector, LostLease, identity_of
from podwire.protocols.k8sapi.client_side import Client, ClientError
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.prometheus import Metrics
from podwire.scheduler import Scheduler
from podwire.scheduler.kinds import PODS
from podwire.scheduler.profiles import Configuration
from podwire.trace.participants import API_SERVER, SCHEDULER
from podwire.transports import credentials, http_client
from podwire.transports.clock import SystemClock

log = logging.getLogger("podwire.scheduler")

USER_AGENT = "podwire-scheduler"
LEASE = "kube-scheduler"
MOST_BYTES = 1024 * 1024
"""A larger configuration file is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of a scheduler, as on the command line."""

    kubeconfig: Path
    context: str = ""
    configuration: Configuration = field(default_factory=Configuration)
    endpoint: Endpoint | None = None
    """Where /metrics is served; None: nowhere."""
    leader_elect: bool = False
    """Whether it schedules only while it holds the lease of kube-scheduler."""


def read_configuration(path: Path) -> Configuration:
    """Reads a KubeSchedulerConfiguration. Raises OSError, ValueError."""
    from podwire.scheduler import configuration  # noqa: PLC0415 - YAML is loaded where a file is configured

    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"has more than {MOST_BYTES} bytes")
    return configuration.read(data, path)


async def run(options: Options) -> None:
    """Works until cancelled; a server that does not answer is retried. Raises BadKubeconfig, ApiError."""
    configuration = options.configuration
    for warning in configuration.warnings:
        log.warning("scheduler setting is ignored", extra={"setting": warning})
    access = credentials.load(options.kubeconfig, context=options.context)
    tap = tracing.api_tap(SCHEDULER)
    metrics, clock, instance = Metrics(), SystemClock(), f"default-scheduler-{platform.node()}"[:128]
    endpoint = options.endpoint and replace(options.endpoint, client_ca=access.ca)
    async with (
        http_client.connect(access, user_agent=USER_AGENT, tap=tap, callee=API_SERVER) as http,
        component_endpoints.serving(endpoint, Client(http), metrics, clock),
    ):
        api = Client(MeteredHttp(http, metrics, host_of(access.server)))

        def scheduler() -> Scheduler:
            return Scheduler(
                api,
                clock,
                instance=instance,
                profiles=configuration.profiles,
                limits=configuration.limits,
                metrics=metrics,
            )

        if options.leader_elect:
            await _check_server(api)
            identity = identity_of(platform.node(), str(uuid.uuid4()))
            await lead(LeaderElector(api, clock, Election(identity=identity, name=LEASE)), lambda: scheduler().run())
        else:
            await scheduler().run()


async def _check_server(api: Client) -> None:
    """Raises ApiError where pods are not served: there, an election would wait for a lease for ever."""
    try:
        await api.page(PODS, limit=1)
    except ClientError as error:
        log.info("API server does not answer yet", extra={"error": str(error)})
    except ApiError as error:
        if error.code == HTTPStatus.NOT_FOUND:
            raise


async def lead(elector: LeaderElector, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Works whenever the lease is held, until cancelled; all that was known is read anew after it was lost."""
    while True:
        await elector.acquire()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(work())
                tasks.create_task(elector.hold())
        except* LostLease as lost:
            log.warning("scheduler stopped leading", extra={"error": str(lost.exceptions[0])})
        finally:
            await elector.release()
