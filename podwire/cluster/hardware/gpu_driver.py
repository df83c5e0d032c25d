"""The DRA driver of the simulated GPUs: publishes them, and answers a kubelet that prepares claims.

There is nothing to prepare, so it has no state: the claim says which GPUs it has.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from podwire.cluster.hardware.gpus import DRIVER, KIND, Gpu, Refused, allocated_gpus, cdi_spec, gpus, slice_spec
from podwire.cluster.hardware.pci_functions import functions
from podwire.cluster.hardware.profile import Profile
from podwire.durable.files import write_durably
from podwire.protocols.dra import dra_v1_pb2, dra_v1beta1_pb2
from podwire.protocols.dra import methods as dra
from podwire.protocols.grpc_methods import Handler, Method
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.client_side import Client, ClientError, Scope
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.registration import methods as registration
from podwire.protocols.registration import registration_pb2 as pb
from podwire.transports import credentials, grpc_server, http_client

_log = logging.getLogger("podwire.hardware")

RETRY_SECONDS = 0.5
"""Delay before publishing is retried."""
TABLE: tuple[Method, ...] = (*dra.PLUGIN_V1, *dra.PLUGIN_V1BETA1)
CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": DRIVER},
    "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]},
}


def _builtin(api_version: str, kind: str) -> Kind:
    found = BUILTIN.of_kind(api_version, kind)
    if found is None:
        raise LookupError(f"{api_version} {kind}")
    return found


NODES, SLICES = _builtin("v1", "Node"), _builtin("resource.k8s.io/v1", "ResourceSlice")
CLAIMS = _builtin("resource.k8s.io/v1", "ResourceClaim")


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    kubelet: Path = Path("/var/lib/kubelet")
    cdi: Path = Path("/var/run/cdi")


async def drive(profile: Profile, node: str, kubeconfig: Path, paths: Paths | None = None) -> None:
    """Works until cancelled. Raises BadKubeconfig, CannotListen."""
    access = credentials.load(kubeconfig)
    async with http_client.connect(access, user_agent="podwire-gpu-driver") as http:
        await GpuDriver(Client(http), node, gpus(node, functions(profile)), paths or Paths()).run()


class GpuDriver:
    def __init__(self, client: Client, node: str, found: Sequence[Gpu], paths: Paths) -> None:
        self._client, self._node, self._gpus, self._paths = client, node, found, paths
        self._changed = asyncio.Event()
        self._last_error = ""

    async def run(self) -> None:
        """Works until cancelled. 1. The CDI file.  2. The sockets, the registration socket last.  3. The slice, kept
        published."""
        await asyncio.to_thread(self._write_cdi_file)
        plugin, registry = self._paths.kubelet / "plugins" / DRIVER, self._paths.kubelet / "plugins_registry"
        for directory in (plugin, registry):
            directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        async with contextlib.AsyncExitStack() as stack:
            for path, table, handlers in (
                (plugin / "dra.sock", TABLE, dict(self._answers())),
                (registry / f"{DRIVER}-reg.sock", registration.ALL, self._registration(plugin / "dra.sock")),
            ):
                server = await grpc_server.serve(path, table, handlers)
                stack.push_async_callback(server.close, 0.5)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._follow(NODES, f"metadata.name={self._node}"), name="node")
                tasks.create_task(
                    self._follow(SLICES, f"spec.driver={DRIVER},spec.nodeName={self._node}"), name="slices"
                )
                tasks.create_task(self._keep_published(), name="publish")

    def _write_cdi_file(self) -> None:
        self._paths.cdi.mkdir(mode=0o755, parents=True, exist_ok=True)
        write_durably(self._paths.cdi / f"{DRIVER}.json", json.dumps(cdi_spec(self._gpus), indent=1).encode(), 0o644)

    # Publishing.

    async def _follow(self, kind: Kind, selector: str) -> None:
        """Nodes change all the time: only a new or deleted one matters."""
        async with self._client.informer(kind, Scope(field_selector=selector)) as informer:
            seen = ""
            async for change in informer:
                uid = str(getattr(change, "object", {}).get("metadata", {}).get("uid", ""))
                if kind is SLICES or uid != seen:
                    seen = uid
                    self._changed.set()

    async def _keep_published(self) -> None:
        """Kubelets delete the slices of their node when they start; ours is published again."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._publish()
                self._last_error = ""
            except (ApiError, ClientError) as error:
                if str(error) != self._last_error:
                    _log.info("cannot publish GPUs yet", extra={"error": str(error)})
                self._last_error = str(error)
                asyncio.get_running_loop().call_later(RETRY_SECONDS, self._changed.set)

    async def _publish(self) -> None:
        with _unless(409):
            await self._client.create(CLASS)
        node = await self._client.get(NODES, self._node)
        owner = {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": node["metadata"]["uid"]}
        meta: dict[str, Any] = {"name": f"{self._node}-{DRIVER}", "ownerReferences": [owner]}
        slice_ = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": meta}
        try:
            published = await self._client.get(SLICES, meta["name"])
        except ApiError as error:
            if error.code != 404:
                raise
            await self._client.create({**slice_, "spec": slice_spec(self._node, self._gpus)})
            _log.info("published simulated GPUs", extra={"gpus": len(self._gpus)})
            return
        generation = int(published["spec"]["pool"].get("generation", 0))
        if published["spec"] != slice_spec(self._node, self._gpus, generation):
            meta["resourceVersion"] = published["metadata"]["resourceVersion"]
            await self._client.replace({**slice_, "spec": slice_spec(self._node, self._gpus, generation + 1)})

    # Calls of the kubelet.

    def _registration(self, endpoint: Path) -> Mapping[str, Handler]:
        async def get_info(_request: pb.InfoRequest) -> pb.PluginInfo:
            return pb.PluginInfo(
                type=registration.DRA_PLUGIN,
                name=DRIVER,
                endpoint=str(endpoint),
                supported_versions=[dra.V1, dra.V1BETA1],
            )

        async def notify(request: pb.RegistrationStatus) -> pb.RegistrationStatusResponse:
            if request.plugin_registered:
                self._changed.set()
            else:
                _log.error("kubelet rejected GPU driver", extra={"error": request.error})
            return pb.RegistrationStatusResponse()

        return {registration.GET_INFO.name: get_info, registration.NOTIFY_REGISTRATION_STATUS.name: notify}

    def _answers(self) -> Iterator[tuple[str, Handler]]:
        for methods, messages in ((dra.PLUGIN_V1, dra_v1_pb2), (dra.PLUGIN_V1BETA1, dra_v1beta1_pb2)):
            prepare, unprepare = methods
            yield prepare.path, self._prepares(messages)
            yield unprepare.path, _unprepares(messages)

    def _prepares(self, messages: ModuleType) -> Handler:
        async def prepare(request: Any) -> Any:
            response = messages.NodePrepareResourcesResponse()
            for claim in request.claims:
                answer = response.claims[claim.uid]
                try:
                    found = await self._client.get(CLAIMS, claim.name, claim.namespace)
                    for allocated in allocated_gpus(found, claim.uid, self._node, self._gpus):
                        cdi = [f"{KIND}={allocated.device}"]
                        answer.devices.add(
                            request_names=[allocated.request],
                            pool_name=self._node,
                            device_name=allocated.device,
                            cdi_device_ids=cdi,
                        )
                except (Refused, ApiError, ClientError) as error:
                    answer.error = str(error)
            return response

        return prepare


def _unprepares(messages: ModuleType) -> Handler:
    async def unprepare(request: Any) -> Any:
        response = messages.NodeUnprepareResourcesResponse()
        for claim in request.claims:
            response.claims[claim.uid].error = ""
        return response

    return unprepare


@contextlib.contextmanager
def _unless(code: int) -> Iterator[None]:
    try:
        yield
    except ApiError as error:
        if error.code != code:
            raise
