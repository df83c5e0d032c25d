"""Ensures that the image of a container is on the node: asks the runtime, and has it pull the image if necessary."""

import asyncio
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from podwire.interfaces import Clock
from podwire.kubelet.config.fields import quoted
from podwire.kubelet.images.credentials import BadSecret, Credential, credentials
from podwire.kubelet.images.names import BadImageName, default_policy, image_name, with_tag
from podwire.kubelet.images.node_credentials import NodeCredentials
from podwire.kubelet.images.pulled_images import PulledImages
from podwire.kubelet.ports import Cri
from podwire.objects.containers import Container
from podwire.objects.pods import Pod
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.cri import methods
from podwire.protocols.grpc_status import NotFound, RpcError
from podwire.protocols.k8sapi.client_side.events import NORMAL, WARNING
from podwire.protocols.k8sapi.watch import Object
from podwire.tasks.uncancelled import thread_to_completion

RecordEvent = Callable[[Pod, Container, str, str, str], None]
"""Records an event about a container: type, reason, message."""

PULL_FAILED, BACK_OFF, NEVER = "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull"
_CRI_ERRORS = {
    "RegistryUnavailable": "the registry is unavailable",
    "SignatureValidationFailed": "the signature validation failed",
}
BAD_NAME, INSPECT_FAILED = "InvalidImageName", "ImageInspectError"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageLimits:
    """Timeouts and pauses in seconds."""

    status: float = 120.0
    """For ImageStatus."""
    backoff: tuple[float, float] = (10.0, 300.0)
    """Between two failed pulls of an image for the same pod: first and longest; doubled each time. A failure is
    forgotten after twice the longest."""
    look: float = 10.0
    """Until the runtime is asked again for an image that may have been imported meanwhile: no event reports that."""
    tell: float = 2.0
    """How long a container shows ErrImagePull before it shows ImagePullBackOff."""


class ImageError(Exception):
    """The image is not available; `reason` and the text are for the container's status.

    `retry_at` is the monotonic time of the next attempt; None: only after a change of the pod.
    """

    def __init__(self, reason: str, message: str, retry_at: float | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry_at = retry_at


_Outcome = tuple[pb.Image, float, int] | RpcError
"""Result of a pull: the image, the seconds it took and which login was accepted, or an error."""


@dataclass(frozen=True, slots=True)
class _Failure:
    message: str
    at: float
    pause: float

    @property
    def until(self) -> float:
        return self.at + self.pause


@dataclass(slots=True)
class _SharedPull:
    """One pull for all concurrent requests for the same image: those that waited share the result.

    It has no task of its own: if the request that pulls is cancelled, the next one pulls.
    """

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0
    done: int = 0
    outcome: _Outcome = field(default_factory=lambda: NotFound("not tried"))


class ImagePuller:
    def __init__(
        self,
        cri: Cri,
        clock: Clock,
        record: RecordEvent,
        limits: ImageLimits | None = None,
        *,
        node_credentials: NodeCredentials | None = None,
        pulled: PulledImages | None = None,
    ) -> None:
        """Without `pulled`, a present image is for every pod."""
        self._limits = limits or ImageLimits()
        self._pulled = pulled
        self._node_credentials = node_credentials or NodeCredentials()
        self._cri = cri
        self._clock = clock
        self._record = record
        self._failures: dict[tuple[str, str], _Failure] = {}
        """By the pod's uid and the image."""
        self._pulls: dict[tuple[str, bytes], _SharedPull] = {}

    async def ensure(self, pod: Pod, container: Container, *, pull_secrets: Sequence[Object] = ()) -> pb.Image:
        """The image as the runtime has it. Raises ImageError; its event is recorded."""
        try:
            return await self._ensure(pod, container, pull_secrets)
        except ImageError as error:
            self._record(pod, container, WARNING, "Failed", f"Error: {error.reason}")
            raise

    async def _ensure(self, pod: Pod, container: Container, pull_secrets: Sequence[Object]) -> pb.Image:
        try:
            asked = with_tag(container.image)
            policy = container.image_pull_policy or default_policy(container.image)
        except BadImageName as error:
            shown = quoted(container.image)
            message = f"Failed to apply default image tag {shown}: couldn't parse image name {shown}: {error}"
            self._record(pod, container, WARNING, "InspectFailed", message)
            raise ImageError(BAD_NAME, message) from error
        present = None if policy == "Always" else await self._find(pod, container, asked)
        if present is not None and self._may_use(asked, container, present, pull_secrets):
            message = f"Container image {quoted(container.image)} already present on machine"
            if self._pulled is not None:
                message += " and can be accessed by the pod"
            self._record(pod, container, NORMAL, "Pulled", message)
            return present
        if policy == "Never":
            message = f"Container image {quoted(container.image)} is not present with pull policy of Never"
            self._record(pod, container, WARNING, NEVER, message)
            raise ImageError(NEVER, message, self._clock.monotonic() + self._limits.look)
        self._wait_if_failed(pod, container, look=policy != "Always")
        return await self._pull(pod, container, asked, pull_secrets)

    def _may_use(self, asked: str, container: Container, present: pb.Image, pull_secrets: Sequence[Object]) -> bool:
        if self._pulled is None:
            return True
        repository = image_name(container.image).repository
        try:
            secrets = [
                credential.secret
                for credential in credentials(repository, pull_secrets)
                if credential.secret is not None
            ]
        except BadSecret:
            secrets = []
        return self._pulled.may_use(asked, repository, present.id, secrets)

    async def _find(self, pod: Pod, container: Container, asked: str) -> pb.Image | None:
        try:
            return await self._status(asked)
        except RpcError as error:
            message = f"Failed to inspect image {quoted(container.image)}: {error}"
            self._record(pod, container, WARNING, "InspectFailed", message)
            raise ImageError(INSPECT_FAILED, message, self._clock.monotonic() + self._limits.look) from error

    async def _status(self, asked: str) -> pb.Image | None:
        request = pb.ImageStatusRequest(image=pb.ImageSpec(image=asked))
        answer = await self._cri.call(methods.IMAGE_STATUS, request, timeout=self._limits.status)
        return answer.image if answer.HasField("image") else None

    def _wait_if_failed(self, pod: Pod, container: Container, *, look: bool) -> None:
        """Raises ImageError during the back-off; with `look`, the runtime is asked meanwhile for an imported image."""
        failure, now = self._failures.get((pod.uid, container.image)), self._clock.monotonic()
        if failure is None or now >= failure.until:
            return
        message = f"Back-off pulling image {quoted(container.image)}"
        self._record(pod, container, NORMAL, "BackOff", message)
        retry_at = min(failure.until, now + self._limits.look) if look else failure.until
        raise ImageError(BACK_OFF, f"{message}: {failure.message}", retry_at)

    async def _pull(self, pod: Pod, container: Container, asked: str, secrets: Sequence[Object]) -> pb.Image:
        shown = quoted(container.image)
        self._record(pod, container, NORMAL, "Pulling", f"Pulling image {shown}")
        started = self._clock.monotonic()
        try:
            repository = image_name(container.image).repository
            of_node = [Credential(auth) for auth in await self._node_credentials(repository)]
            logins = [*credentials(repository, secrets), *of_node]
            image, took = await self._pull_and_note(pod, asked, repository, logins)
        except (RpcError, BadSecret, OSError) as error:
            self._record(pod, container, WARNING, "Failed", f"Failed to pull image {shown}: {error}")
            reason, message = _explained(container.image, str(error))
            raise ImageError(reason, message, self._failed(pod, container, f"{reason}: {message}")) from error
        self._failures.pop((pod.uid, container.image), None)
        waited = _duration(self._clock.monotonic() - started)
        self._record(
            pod, container, NORMAL, "Pulled",
            f"Successfully pulled image {shown} in {_duration(took)} ({waited} including waiting). "
            f"Image size: {image.size} bytes.",
        )  # fmt: skip
        return image

    async def _pull_and_note(
        self, pod: Pod, asked: str, repository: str, logins: Sequence[Credential]
    ) -> tuple[pb.Image, float]:
        """Pulls an image, and records with which login. Returns it and the seconds. Raises RpcError, OSError."""
        auths = [login.auth for login in logins]
        if self._pulled is None:
            return (await self._pull_together(pod, asked, auths))[:2]
        await thread_to_completion(self._pulled.begin, asked)
        end = functools.partial(self._pulled.failed, asked)
        try:
            image, took, accepted = await self._pull_together(pod, asked, auths)
            secret = logins[accepted].secret if logins else None
            end = functools.partial(self._pulled.succeeded, asked, repository, image.id, secret)
        finally:
            await thread_to_completion(end)
        return image, took

    async def _pull_together(
        self, pod: Pod, asked: str, logins: Sequence[pb.AuthConfig]
    ) -> tuple[pb.Image, float, int]:
        """The image, the seconds that pulling it took, and which login was accepted. Raises RpcError.

        Shared only between requests with the same credentials: a pod must not get an image that it could not pull.
        """
        key = asked, b"".join(login.SerializeToString() for login in logins)
        turn = self._pulls.setdefault(key, _SharedPull())
        before = turn.done
        turn.waiting += 1
        try:
            async with turn.lock:
                if turn.done == before:
                    turn.outcome = await self._tried(pod, asked, logins)
                    turn.done += 1
                outcome = turn.outcome
        finally:
            turn.waiting -= 1
            if not turn.waiting:
                self._pulls.pop(key, None)
        if isinstance(outcome, RpcError):
            raise type(outcome)(*outcome.args)
        return outcome

    async def _tried(self, pod: Pod, asked: str, logins: Sequence[pb.AuthConfig]) -> _Outcome:
        """Tries each login; without any, an anonymous pull."""
        started, refusals = self._clock.monotonic(), []
        spec = pb.ImageSpec(image=asked, annotations=pod.metadata.annotations)
        for number, login in enumerate(logins or (None,)):
            request = pb.PullImageRequest(image=spec, auth=login)
            try:
                answer = await self._cri.call(methods.PULL_IMAGE, request, timeout=None)
                image = await self._status(answer.image_ref)
            except RpcError as error:
                refusals.append(error)
                continue
            if image is None:
                return NotFound(f"the image {quoted(asked)} was pulled, and is gone again")
            return image, self._clock.monotonic() - started, number
        return refusals[0] if len(refusals) == 1 else type(refusals[0])(f"[{', '.join(map(str, refusals))}]")

    def _failed(self, pod: Pod, container: Container, message: str) -> float:
        """Remember the failure, and forget old ones; returns the time of the next attempt."""
        now, (first, longest) = self._clock.monotonic(), self._limits.backoff
        self._failures = {key: failure for key, failure in self._failures.items() if now - failure.at <= 2 * longest}
        key = pod.uid, container.image
        before = self._failures.get(key)
        pause = first if before is None else min(2 * before.pause, longest)
        self._failures[key] = _Failure(message, now, pause)
        return now + self._limits.tell


def _explained(image: str, error: str) -> tuple[str, str]:
    """Returns the reason and the message of a failed pull; two of CRI's errors have a reason of their own."""
    for name, cause in _CRI_ERRORS.items():
        if error.startswith(name):
            return name, f"image pull failed for {image} because {cause}{error.removeprefix(name)}"
    return PULL_FAILED, error


def _duration(seconds: float) -> str:
    """A duration as Go prints it, in milliseconds: 0s, 120ms, 1.5s, 2m3s, 1h0m0s."""
    milli = int(seconds * 1000)
    if milli == 0 or milli >= 1000:
        minutes, milli = divmod(milli, 60_000)
        hours, minutes = divmod(minutes, 60)
        text = f"{milli / 1000:.3f}".rstrip("0").rstrip(".") + "s"
        return f"{hours}h{minutes}m{text}" if hours else f"{minutes}m{text}" if minutes else text
    return f"{milli}ms"
