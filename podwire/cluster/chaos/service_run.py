"""Services and a counter during a run: requests to the API server, and requests to Services from every node."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from podwire.cluster.chaos import manifests
from podwire.cluster.chaos.calls import Limits, until_answered
from podwire.cluster.chaos.history import History
from podwire.cluster.chaos.manifests import CONFIG_MAPS, COUNTER, ENDPOINTS, SERVICES
from podwire.cluster.chaos.plan import MOST_SERVICES, Step
from podwire.cluster.chaos.service_model import GROUPS, CounterModel, Request, ServiceModel
from podwire.linux.errors import LinuxError
from podwire.protocols.k8sapi.client_side import Client, ClientError, Scope
from podwire.protocols.k8sapi.status import ApiError
from podwire.transports import netns_client

ANSWER_SECONDS = 2.0
NO_ANSWER_SECONDS = 0.5
"""For requests that nobody must answer."""
LONGEST_ANSWER = 4096


class ServiceRun:
    """`namespaces` returns the network namespaces of the nodes by name."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        history: History,
        limits: Limits,
        namespaces: Callable[[], Mapping[str, str]],
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._history = history
        self._limits = limits
        self._namespaces = namespaces
        self._model = ServiceModel()
        self._counter = CounterModel()
        self._writing = asyncio.Lock()
        self._number = 0

    async def set_up(self) -> None:
        create = partial(self._client.create, manifests.counter(self._namespace))
        await until_answered(self._limits, create)

    async def tear_down(self) -> None:
        for name in self._model.alive():
            await self._delete(name)

    async def carry_out(self, step: Step) -> None:
        if step.action == "write":
            await self._write()
        elif step.action == "create-service" and len(self._model.alive()) < MOST_SERVICES:
            await self._create()
        elif step.action == "delete-service" and (names := self._model.acknowledged()):
            await self._delete(names[int(step.pick * len(names))])

    def quiet(self) -> None:
        self._model.quiet()

    async def observe(self) -> list[str]:
        """Compares Services and the counter with the model; nothing without an answer."""
        known, acknowledged = frozenset(self._model.acknowledged()), self._counter.acknowledged
        try:
            services = (await self._client.list(SERVICES, Scope(namespace=self._namespace))).items
            counter = await self._client.get(CONFIG_MAPS, COUNTER, self._namespace)
        except (ApiError, ClientError):
            return []
        return [
            *self._model.observe(services, known),
            *self._counter.observe(int(counter["data"]["value"]), acknowledged),
        ]

    async def unfinished(self, pods: list[Any]) -> list[str]:
        """Returns what is not yet right once all faults are over. Raises ApiError, ClientError."""
        slices = (await self._client.list(ENDPOINTS, Scope(namespace=self._namespace))).items
        if wrong := self._model.unfinished(slices, pods):
            return wrong
        checks = [
            self._check(request, node, netns)
            for node, netns in self._namespaces().items()
            for request in self._model.requests(pods)
        ]
        return [wrong for wrong in await asyncio.gather(*checks) if wrong]

    async def _check(self, request: Request, node: str, netns: str) -> str:
        seconds = ANSWER_SECONDS if request.names else NO_ANSWER_SECONDS
        return request.problem(node, await _ask(netns, request.address, request.port, seconds))

    async def _create(self) -> None:
        self._number += 1
        name, group = f"service-{self._number}", str(self._number % GROUPS)
        self._model.asked(name, group)
        service = manifests.service(name, self._namespace, group)
        created = await until_answered(self._limits, lambda: self._client.create(service))
        if created is None:  # it exists: an earlier request was carried out
            created = await until_answered(self._limits, lambda: self._client.get(SERVICES, name, self._namespace))
        self._model.created(name, created)
        self._history.add(f"created {name} with address {created['spec']['clusterIP']}", name)

    async def _delete(self, name: str) -> None:
        self._model.deleting(name)
        self._history.add(f"deletes {name}", name)
        await until_answered(self._limits, lambda: self._client.delete(SERVICES, name, self._namespace))

    async def _write(self) -> None:
        """Increases the counter; the resourceVersion prevents that a late copy of an older request overwrites it."""
        async with self._writing:
            self._counter.sent += 1
            value = self._counter.sent
            while True:
                counter = await until_answered(
                    self._limits, lambda: self._client.get(CONFIG_MAPS, COUNTER, self._namespace)
                )
                if counter is None or int(counter["data"]["value"]) >= value:
                    break
                changed = {**counter, "data": {"value": str(value)}}
                if await until_answered(self._limits, partial(self._client.replace, changed)) is not None:
                    break
            self._counter.acknowledged = value
            self._history.add(f"wrote {value} to {COUNTER}", COUNTER)


async def _ask(netns: str, address: str, port: int, seconds: float) -> str:
    """Returns the last line of an answer by HTTP; '' without an answer."""
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await netns_client.connect_address(netns, address, port)
            try:
                writer.write(b"GET / HTTP/1.0\r\n\r\n")
                answer = await reader.read(LONGEST_ANSWER)
                while more := await reader.read(LONGEST_ANSWER - len(answer)):
                    answer += more
            finally:
                writer.close()
    except (OSError, LinuxError, TimeoutError):
        return ""
    return answer.decode("utf-8", "replace").strip().rpartition("\n")[2].strip()
