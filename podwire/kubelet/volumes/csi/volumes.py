"""Stages, publishes, expands, unpublishes and unstages CSI volumes. The package's docstring has the paths.

Set-up (`set_up`)                                     Removal (`tear_down`)
1. the CSIDriver says what the driver needs           1. NodeUnpublishVolume
2. its VolumeAttachment is attached, if it needs one  2. if no other pod has the volume: NodeUnstageVolume, and the
3. the pod's file is written                             volume's file is removed
4. the volume's file is written, NodeStageVolume      3. the pod's file is removed
5. NodePublishVolume; fsGroup; NodeExpandVolume

A pod is not removed before its volume is unstaged: a controller may detach the volume as soon as no pod has it.

3 to 5 and the removal hold a lock by driver and handle. Whether another pod has a volume is asked of the files, not of
memory: the file of step 3 keeps the volume staged, whichever kubelet wrote it.
"""

import asyncio
import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podwire.kubelet.volumes import ownership
from podwire.kubelet.volumes.contents import secret_data
from podwire.kubelet.volumes.csi import expansion, volume_data
from podwire.kubelet.volumes.csi.drivers import CsiDrivers, CsiLimits, NotRegistered, described, is_final
from podwire.kubelet.volumes.csi.sources import (
    PERSISTENT,
    TOKENS,
    Capability,
    CsiSource,
    SecretName,
    attachment_name,
    kubelet_applies_group,
    pod_info,
    volume_capability,
)
from podwire.kubelet.volumes.csi.volume_data import GLOBAL, MOUNT, CsiPaths, VolumeData
from podwire.kubelet.volumes.errors import MountFailed, VolumeError
from podwire.kubelet.volumes.paths import VolumePaths
from podwire.kubelet.volumes.ports import Mounts
from podwire.kubelet.volumes.tokens import Tokens
from podwire.kubelet.volumes.volume_claims import CLAIMS, VOLUMES
from podwire.objects.pods import Pod
from podwire.objects.quantity import parse
from podwire.objects.volumes import TokenSource
from podwire.protocols.csi import csi_pb2 as pb
from podwire.protocols.csi import methods
from podwire.protocols.grpc_status import FailedPrecondition, RpcError
from podwire.protocols.k8sapi.client_side import Client, ClientError
from podwire.protocols.k8sapi.client_side.events import NORMAL, WARNING
from podwire.protocols.k8sapi.client_side.recorder import Recorder
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.tasks.backoff import Pauses
from podwire.tasks.keyed_locks import KeyedLocks
from podwire.tasks.uncancelled import thread_to_completion

log = logging.getLogger(__name__)

DRIVERS = Kind(group="storage.k8s.io", version="v1", resource="csidrivers", kind="CSIDriver", namespaced=False)
ATTACHMENTS = Kind(
    group="storage.k8s.io", version="v1", resource="volumeattachments", kind="VolumeAttachment", namespaced=False
)
SECRETS = Kind(group="", version="v1", resource="secrets", kind="Secret")
DEVICE, SET_UP = "MountVolume.MountDevice failed", "MountVolume.SetUp failed"
_UNSTAGE_BACKOFF = (1.0, 60.0)
_DEFAULT_EXPIRATION = 3600


@dataclass(frozen=True, slots=True)
class _Published:
    """A volume of a pod, to publish again or to expand it."""

    pod: Pod
    source: CsiSource
    republish: bool


class CsiVolumes:
    def __init__(
        self,
        api: Client,
        drivers: CsiDrivers,
        paths: VolumePaths,
        mounts: Mounts,
        tokens: Tokens,
        recorder: Recorder,
        node_name: str,
        limits: CsiLimits,
    ) -> None:
        self._api = api
        self._drivers = drivers
        self._paths = CsiPaths(paths)
        self._mounts = mounts
        self._tokens = tokens
        self._recorder = recorder
        self._node_name = node_name
        self._limits = limits
        self._locks = KeyedLocks()
        self._staged: set[str] = set()
        """Keys of volumes that this kubelet has staged."""
        self._published: dict[str, dict[str, _Published]] = {}
        """By the uid of the pod and the name of the volume."""
        self._leftovers = asyncio.Event()
        self._leftovers.set()
        self._any_published = asyncio.Event()

    def driver_registered(self, _name: str) -> None:
        self._leftovers.set()

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._drivers.run(), name="CSI drivers")
            group.create_task(self._unstage_leftovers(), name="staged CSI volumes without a pod")
            group.create_task(self._keep_up(), name="published CSI volumes")

    async def set_up(self, pod: Pod, source: CsiSource, *, running: bool = False) -> None:
        """Publish a volume for a pod. Of a pod that was running before this kubelet was, a volume that is published is
        left as it is. Raises MountFailed."""
        spec = await self._driver_spec(source)
        directory = self._paths.published(pod.uid, source.name).parent
        if not running or not await asyncio.to_thread(_is_published, directory):
            context = await self._publish_context(source, spec) if source.persistent else {}
            data = VolumeData(source.driver, source.handle, source.mode)
            async with self._locks.hold(data.key):
                capabilities = await self._capabilities(source)
                _check_mode(source, spec)
                content = self._content(source)
                await _in_thread(source, volume_data.write, directory, content)
                if (
                    source.persistent
                    and Capability.STAGE_UNSTAGE_VOLUME in capabilities
                    and data.key not in self._staged
                ):
                    await self._stage(pod, source, data, context, capabilities)
                await self._publish(pod, source, spec, context, capabilities)
                if source.persistent and Capability.EXPAND_VOLUME in capabilities:
                    await self._expand(pod, source, capabilities, during_mount=True)
        published = _Published(pod, source, bool((spec or {}).get("requiresRepublish")))
        self._published.setdefault(pod.uid, {})[source.name] = published
        self._any_published.set()

    def has_volumes(self, uid: str) -> bool:
        return uid in self._published or self._paths.pod(uid).is_dir()

    async def tear_down(self, uid: str) -> None:
        """Unpublish all volumes of a pod, including those of a killed kubelet. Raises OSError; others are done then."""
        self._published.pop(uid, None)
        if not self._published:
            self._any_published.clear()
        failure: OSError | None = None
        for directory in await asyncio.to_thread(self._paths.published_volumes, uid):
            try:
                await self._tear_down(directory)
            except OSError as error:
                failure = error
        if failure is not None:
            raise failure

    async def statistics(self, uid: str) -> dict[str, pb.NodeGetVolumeStatsResponse]:
        """Reports of drivers about the volumes of a pod, by the name of the volume; those that fail are missing."""
        usages = {}
        for name, published in list(self._published.get(uid, {}).items()):
            source, path = published.source, self._paths.published(uid, name)
            request = pb.NodeGetVolumeStatsRequest(volume_id=source.handle, volume_path=str(path))
            with suppress(RpcError, NotRegistered):
                if Capability.GET_VOLUME_STATS in await self._drivers.capabilities(source.driver):
                    usages[name] = await self._drivers.call(
                        source.driver, methods.GET_VOLUME_STATS, request, seconds=self._limits.statistics
                    )
        return usages

    # Set-up

    async def _driver_spec(self, source: CsiSource) -> Mapping[str, Any] | None:
        """The spec of the CSIDriver; None if there is none, which is allowed for persistent volumes."""
        try:
            return (await self._api.get(DRIVERS, source.driver)).get("spec") or {}
        except ApiError as error:
            if error.code == 404:
                return None
            raise _failed(SET_UP, source, f"failed to get CSIDriver {source.driver}: {error}") from error
        except ClientError as error:
            raise _failed(SET_UP, source, f"failed to get CSIDriver {source.driver}: {error}") from error

    async def _publish_context(self, source: CsiSource, spec: Mapping[str, Any] | None) -> dict[str, str]:
        """Metadata of the attachment; empty for drivers that need none. Raises MountFailed until it is attached."""
        if spec is not None and spec.get("attachRequired") is False:
            return {}
        operation, name = "MountVolume.WaitForAttach failed", attachment_name(*_ids(source), self._node_name)
        hint = f"set attachRequired: false in the CSIDriver {source.driver} if it needs no attachment"
        try:
            attachment = await self._api.get(ATTACHMENTS, name)
        except (ApiError, ClientError) as error:
            reason = f"volume {source.handle} has GET error for volume attachment {name}: {error} ({hint})"
            raise _failed(operation, source, reason) from error
        if attachment["metadata"].get("deletionTimestamp"):
            raise _failed(operation, source, "volume attachment is being deleted")
        status = attachment.get("status") or {}
        if status.get("attached"):
            return dict(status.get("attachmentMetadata") or {})
        if status.get("attachError"):
            raise _failed(operation, source, status["attachError"].get("message", ""))
        raise _failed(
            operation, source, f"volume {source.handle} is not attached for volume attachment {name} ({hint})"
        )

    async def _capabilities(self, source: CsiSource) -> frozenset[int]:
        try:
            return await self._drivers.capabilities(source.driver)
        except NotRegistered as error:
            if source.persistent:
                words = "attacher.MountDevice failed to create newCsiDriverClient"
                raise _failed(DEVICE, source, f"kubernetes.io/csi: {words}: {error}") from error
            words = "mounter.SetUpAt failed to get CSI client"
            raise _failed(SET_UP, source, f"kubernetes.io/csi: {words}: {error}") from error
        except RpcError as error:
            raise _failed(DEVICE if source.persistent else SET_UP, source, described(error)) from error

    def _content(self, source: CsiSource) -> dict[str, str]:
        return {
            "specVolID": source.name,
            "volumeHandle": source.handle,
            "driverName": source.driver,
            "nodeName": self._node_name,
            "volumeLifecycleMode": source.mode,
            "attachmentID": attachment_name(*_ids(source), self._node_name),
        }

    async def _stage(
        self, pod: Pod, source: CsiSource, data: VolumeData, context: Mapping[str, str], capabilities: frozenset[int]
    ) -> None:
        target = self._paths.staging(data)
        secrets = await self._secret(source, source.stage_secret, DEVICE, "NodeStageSecretRef")
        request = pb.NodeStageVolumeRequest(
            volume_id=source.handle,
            publish_context=context,
            staging_target_path=str(target),
            volume_capability=volume_capability(source, capabilities, pod.spec.security_context.fs_group),
            secrets=secrets,
            volume_context=source.attributes,
        )
        content = {"volumeHandle": source.handle, "driverName": source.driver}
        await _in_thread(source, volume_data.write, target.parent, content)
        await _in_thread(source, _make_directory, target)
        try:
            await self._drivers.call(source.driver, methods.STAGE_VOLUME, request)
        except (RpcError, NotRegistered) as error:
            if isinstance(error, RpcError) and is_final(error):
                await self._forget(target.parent, GLOBAL)
                await self._forget(self._paths.published(pod.uid, source.name).parent, MOUNT)
            reason = described(error) if isinstance(error, RpcError) else str(error)
            raise _failed(DEVICE, source, reason) from error
        self._staged.add(data.key)

    async def _publish(
        self,
        pod: Pod,
        source: CsiSource,
        spec: Mapping[str, Any] | None,
        context: Mapping[str, str],
        capabilities: frozenset[int],
        *,
        again: bool = False,
    ) -> None:
        """`again`: the pod uses the volume already, so a failure must not remove it."""
        spec = spec or {}
        target, security = self._paths.published(pod.uid, source.name), pod.spec.security_context
        secrets = await self._secret(source, source.publish_secret, SET_UP, "NodePublishSecretRef")
        attributes = dict(source.attributes)
        if spec.get("podInfoOnMount"):
            attributes |= pod_info(pod, source)
        tokens = await self._token_attributes(pod, source, spec)
        if spec.get("serviceAccountTokenInSecrets"):
            secrets |= tokens
        else:
            attributes |= tokens
        request = pb.NodePublishVolumeRequest(
            volume_id=source.handle,
            publish_context=context,
            target_path=str(target),
            volume_capability=volume_capability(source, capabilities, security.fs_group),
            readonly=source.read_only,
            secrets=secrets,
            volume_context=attributes,
        )
        if source.persistent and Capability.STAGE_UNSTAGE_VOLUME in capabilities:
            request.staging_target_path = str(self._paths.staging(VolumeData(*_ids(source))))
        try:
            await self._drivers.call(source.driver, methods.PUBLISH_VOLUME, request)
        except (RpcError, NotRegistered) as error:
            staged = f"{source.driver}^{source.handle}" in self._staged  # is unstaged with the pod, by its file
            if isinstance(error, RpcError) and is_final(error) and not again and not staged:
                await self._forget(target.parent, MOUNT)
            reason = described(error) if isinstance(error, RpcError) else str(error)
            raise _failed(SET_UP, source, reason) from error
        policy = spec.get("fsGroupPolicy") or "ReadWriteOnceWithFSType"
        if security.fs_group is not None and not again and kubelet_applies_group(source, policy, capabilities):
            mismatch = security.fs_group_change_policy == "OnRootMismatch"
            try:
                await asyncio.to_thread(ownership.change, target, security.fs_group, on_root_mismatch=mismatch)
            except OSError as error:
                raise _failed(SET_UP, source, f"applyFSGroup failed for vol {source.handle}: {error}") from error

    async def _secret(self, source: CsiSource, secret: SecretName | None, operation: str, field: str) -> dict[str, str]:
        if secret is None:
            return {}
        try:
            data = secret_data(await self._api.get(SECRETS, secret.name, secret.namespace))
            return {key: value.decode() for key, value in data.items()}
        except (ApiError, ClientError, VolumeError, UnicodeDecodeError) as error:
            reason = f"fetching {field} {secret.namespace}/{secret.name} failed: {error}"
            raise _failed(operation, source, reason) from error

    async def _token_attributes(self, pod: Pod, source: CsiSource, spec: Mapping[str, Any]) -> dict[str, str]:
        """Tokens of the pod's service account for the audiences that the CSIDriver names."""
        tokens = {}
        for request in spec.get("tokenRequests") or ():
            audience = request.get("audience") or ""
            seconds = request.get("expirationSeconds") or _DEFAULT_EXPIRATION
            try:
                token, expiration = await self._tokens.get_status(
                    pod, TokenSource(path="", audience=audience, expiration_seconds=seconds)
                )
            except VolumeError as error:
                words = "kubernetes.io/csi: mounter.SetUpAt failed to get service accoount token attributes"
                raise _failed(SET_UP, source, f"{words}: {error}") from error
            tokens[audience] = {"token": token, "expirationTimestamp": expiration}
        return {TOKENS: json.dumps(tokens, separators=(",", ":"))} if tokens else {}

    async def _forget(self, directory: Path, mount: str) -> None:
        """After a call that failed for good; what cannot be removed is undone with the pod."""
        try:
            await thread_to_completion(volume_data.remove, directory, mount)
        except OSError as error:
            log.info("cannot remove directory of CSI volume", extra={"path": str(directory), "error": str(error)})

    # Volumes in use

    async def _keep_up(self) -> None:
        """Publish again what its driver wants published again, and expand what has become larger."""
        while True:
            await self._any_published.wait()
            await asyncio.sleep(self._limits.republish)
            every = [published for volumes in self._published.values() for published in volumes.values()]
            results = await asyncio.gather(*map(self._keep_up_one, every), return_exceptions=True)
            for published, result in zip(every, results, strict=True):
                if isinstance(result, MountFailed):
                    self._recorder.tell(published.pod, WARNING, "FailedMount", str(result))
                elif isinstance(result, Exception):  # one volume must not end the work for all others
                    log.error("cannot keep up CSI volume", extra={"volume": published.source.name}, exc_info=result)

    async def _keep_up_one(self, published: _Published) -> None:
        pod, source = published.pod, published.source
        if not published.republish and not source.persistent:
            return
        async with self._locks.hold(f"{source.driver}^{source.handle}"):
            if source.name not in self._published.get(pod.uid, {}) or source.driver not in self._drivers:
                return
            capabilities = await self._capabilities(source)
            if published.republish:
                spec = await self._driver_spec(source)
                context = await self._publish_context(source, spec) if source.persistent else {}
                await self._publish(pod, source, spec, context, capabilities, again=True)
            if source.persistent and Capability.EXPAND_VOLUME in capabilities:
                await self._expand(pod, source, capabilities, during_mount=False)

    async def _expand(self, pod: Pod, source: CsiSource, capabilities: frozenset[int], *, during_mount: bool) -> None:
        """NodeExpandVolume if the volume is larger than the claim's status shows. A driver that cannot expand a volume
        in use does not keep the pod from starting."""
        bound = source.bound
        if bound is None:
            return
        operation = "MountVolume.Setup failed while expanding volume" if during_mount else "NodeExpandVolume failed"
        meta = bound.claim["metadata"]
        try:
            claim = await self._api.get(CLAIMS, meta["name"], meta["namespace"])
            size = expansion.new_size(claim, await self._api.get(VOLUMES, source.name))
            if not size:
                return
            if source.read_only:
                reason = (
                    f'MountVolume.NodeExpandVolume failed for volume "{source.name}" requested read-only file system'
                )
                self._recorder.tell(pod, WARNING, "FileSystemResizeFailed", reason)
                return
            request = pb.NodeExpandVolumeRequest(
                volume_id=source.handle,
                volume_path=str(self._paths.published(pod.uid, source.name)),
                capacity_range=pb.CapacityRange(required_bytes=parse(size).value()),
                volume_capability=volume_capability(source, capabilities, None),
                secrets=await self._secret(source, source.expand_secret, operation, "NodeExpandSecretRef"),
            )
            if Capability.STAGE_UNSTAGE_VOLUME in capabilities:
                request.staging_target_path = str(self._paths.staging(VolumeData(*_ids(source))))
            await self._drivers.call(source.driver, methods.EXPAND_VOLUME, request)
            patch = expansion.expanded(claim, size)
            await self._api.patch(CLAIMS, meta["name"], patch, meta["namespace"], subresource="status")
        except FailedPrecondition as error:
            log.info("CSI driver cannot expand volume in use", extra={"volume": source.name, "error": str(error)})
            return
        except (ApiError, ClientError, NotRegistered, RpcError) as error:
            text = described(error) if isinstance(error, RpcError) else str(error)
            reason = f"Expander.NodeExpand failed to expand the volume : {text}"
            raise _failed(operation, source, reason) from error
        message = f'MountVolume.NodeExpandVolume succeeded for volume "{source.name}" {self._node_name}'
        self._recorder.tell(pod, NORMAL, "FileSystemResizeSuccessful", message)

    # Removal

    async def _tear_down(self, directory: Path) -> None:
        """Raises OSError."""
        data = await asyncio.to_thread(volume_data.read, directory)
        if data is None:
            log.warning("removing CSI volume of unknown driver", extra={"path": str(directory)})
            await thread_to_completion(self._unmount, directory / MOUNT)
            await thread_to_completion(volume_data.remove, directory, MOUNT)
            return
        async with self._locks.hold(data.key):
            request = pb.NodeUnpublishVolumeRequest(volume_id=data.handle, target_path=str(directory / MOUNT))
            failed = f'UnmountVolume.TearDown failed for volume "{directory.name}" : kubernetes.io/csi: '
            try:
                await self._drivers.call(data.driver, methods.UNPUBLISH_VOLUME, request)
            except NotRegistered as error:
                raise OSError(f"{failed}Unmounter.TearDownAt failed to get CSI client: {error}") from error
            except RpcError as error:
                raise OSError(f"{failed}Unmounter.TearDownAt failed: {described(error)}") from error
            if data.mode in ("", PERSISTENT):
                failed = f'UnmountDevice failed for volume "{directory.name}" : kubernetes.io/csi: '
                try:
                    await self._unstage_unless_used(data, besides=directory)
                except NotRegistered as error:
                    raise OSError(
                        f"{failed}attacher.UnmountDevice failed to create newCsiDriverClient: {error}"
                    ) from error
                except RpcError as error:
                    raise OSError(f"{failed}attacher.UnmountDevice failed: {described(error)}") from error
            await thread_to_completion(volume_data.remove, directory, MOUNT)

    def _unmount(self, target: Path) -> None:
        while self._mounts.is_mounted(target):
            self._mounts.unmount(target, lazily=True)

    async def _unstage_unless_used(self, data: VolumeData, besides: Path | None = None) -> None:
        """Called with the volume's lock; `besides` is the directory of the pod that ends. Raises NotRegistered,
        RpcError, OSError."""
        target = self._paths.staging(data)
        if await asyncio.to_thread(volume_data.read, target.parent) is None:
            return
        if await asyncio.to_thread(lambda: any(path != besides for path in self._paths.users(data))):
            return
        if Capability.STAGE_UNSTAGE_VOLUME in await self._drivers.capabilities(data.driver):
            request = pb.NodeUnstageVolumeRequest(volume_id=data.handle, staging_target_path=str(target))
            await self._drivers.call(data.driver, methods.UNSTAGE_VOLUME, request)
        self._staged.discard(data.key)
        await thread_to_completion(volume_data.remove, target.parent, GLOBAL)

    async def _unstage_leftovers(self) -> None:
        """Unstage what no pod has: at the start, when a driver registers, and after a failure."""
        pauses = Pauses(*_UNSTAGE_BACKOFF)
        while True:
            await self._leftovers.wait()
            self._leftovers.clear()
            failed = False
            for _, data in await asyncio.to_thread(lambda: list(self._paths.staged_volumes())):
                if data.driver not in self._drivers:
                    continue  # its registration sets the event
                try:
                    async with self._locks.hold(data.key):
                        await self._unstage_unless_used(data)
                except (NotRegistered, RpcError, OSError) as error:
                    log.warning("cannot unstage CSI volume", extra={"driver": data.driver, "error": str(error)})
                    failed = True
            if failed:
                self._leftovers.set()
                await asyncio.sleep(pauses.next())
            else:
                pauses.reset()


def _ids(source: CsiSource) -> tuple[str, str]:
    return source.driver, source.handle


def _failed(operation: str, source: CsiSource, reason: object) -> MountFailed:
    return MountFailed(operation, source.name, reason)


def _check_mode(source: CsiSource, spec: Mapping[str, Any] | None) -> None:
    words = "kubernetes.io/csi: mounter.SetupAt failed to check volume lifecycle mode: volume mode"
    unsupported = f'{words} "{source.mode}" not supported by driver {source.driver}'
    if spec is None:
        if not source.persistent:
            raise _failed(SET_UP, source, f"{unsupported} (no CSIDriver object)")
        return
    modes = spec.get("volumeLifecycleModes") or [PERSISTENT]
    if source.mode not in modes:
        supported = " ".join(f'"{mode}"' for mode in modes)
        raise _failed(SET_UP, source, f"{unsupported} (only supports [{supported}])")


def _is_published(directory: Path) -> bool:
    return volume_data.read(directory) is not None and (directory / MOUNT).exists()


def _make_directory(path: Path) -> None:
    path.mkdir(0o750, exist_ok=True)


async def _in_thread(source: CsiSource, function: Any, *arguments: Any) -> None:
    try:
        await thread_to_completion(function, *arguments)
    except OSError as error:
        raise _failed(SET_UP, source, f"failed to save volume info data: {error}") from error
