"""Requirements of the DRA and registration services for drivers in any language, as cases.

Without a claim only calls are made that a driver must survive: for claims that do not exist, without claims, twice. A
claim that is allocated to devices of the driver (`--claim`) is prepared and unprepared, too.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podwire.inspect.conformance.grpc_calls import call_socket
from podwire.inspect.conformance.report import Cases, Level, NotApplicable, Report, Unmet, run_cases
from podwire.protocols.dra import dra_v1_pb2 as v1
from podwire.protocols.dra import dra_v1beta1_pb2 as v1beta1
from podwire.protocols.dra import methods
from podwire.protocols.grpc_methods import Unary
from podwire.protocols.registration import registration_pb2 as registration
from podwire.protocols.registration.methods import DRA_PLUGIN, GET_INFO
from podwire.transports import grpc_client

SPECIFICATION = "DRA plugin API"
PREPARE, UNPREPARE = ("service DRAPlugin, rpc NodePrepareResources", "service DRAPlugin, rpc NodeUnprepareResources")
REGISTRATION = "service Registration, rpc GetInfo"
_GENERATIONS: dict[str, tuple[Any, Unary[Any, Any], Unary[Any, Any]]] = {
    "v1": (v1, methods.PREPARE_V1, methods.UNPREPARE_V1),
    "v1beta1": (v1beta1, methods.PREPARE_V1BETA1, methods.UNPREPARE_V1BETA1),
}


@dataclass(frozen=True, slots=True)
class ClaimRef:
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Calls one driver, as a kubelet does."""

    socket: Path
    registration: Path | None
    claim: ClaimRef | None
    generation: str
    seconds: float
    runner: asyncio.Runner

    def call(self, socket: Path, method: Unary[Any, Any], request: Any) -> Any:
        """Raises Unmet when the driver does not answer."""

        async def work(client: grpc_client.GrpcClient) -> Any:
            return await client.call(method, request, timeout=self.seconds)

        return call_socket(self.runner, socket, work, self.seconds)

    def prepare(self, *claims: ClaimRef) -> dict[str, Any]:
        messages, method, _ = _GENERATIONS[self.generation]
        request = messages.NodePrepareResourcesRequest(claims=[_message(messages, claim) for claim in claims])
        return dict(self.call(self.socket, method, request).claims)

    def unprepare(self, *claims: ClaimRef) -> dict[str, Any]:
        messages, _, method = _GENERATIONS[self.generation]
        request = messages.NodeUnprepareResourcesRequest(claims=[_message(messages, claim) for claim in claims])
        return dict(self.call(self.socket, method, request).claims)

    def allocated(self) -> ClaimRef:
        if self.claim is None:
            raise NotApplicable("no claim given: --claim NAMESPACE/NAME/UID of one that is allocated and reserved")
        return self.claim


def _message(messages: Any, claim: ClaimRef) -> Any:
    return messages.Claim(namespace=claim.namespace, name=claim.name, uid=claim.uid)


ABSENT = ClaimRef("default", "podwire-no-such-claim", "00000000-0000-4000-8000-000000000000")
ALSO_ABSENT = ClaimRef("default", "podwire-no-such-claim-2", "00000000-0000-4000-8000-000000000001")

case = Cases[Subject]()


@case("GetInfo describes a DRA plugin", REGISTRATION)
def _info(subject: Subject) -> None:
    if subject.registration is None:
        raise NotApplicable("no registration socket given: --registration SOCKET")
    info = subject.call(subject.registration, GET_INFO, registration.InfoRequest())
    if info.type != DRA_PLUGIN:
        raise Unmet(f"type must be {DRA_PLUGIN}, and is {info.type!r}")
    if not info.name or not info.endpoint.startswith("/"):
        raise Unmet(f"name and an absolute endpoint are required: {info.name!r}, {info.endpoint!r}")
    known = {f"{generation}.DRAPlugin" for generation in _GENERATIONS}
    if not known & set(info.supported_versions):
        raise Unmet(f"supported_versions must have one of {', '.join(sorted(known))}: {list(info.supported_versions)}")


@case("a request without claims is answered without claims", PREPARE)
def _empty(subject: Subject) -> None:
    if subject.prepare() or subject.unprepare():
        raise Unmet("the answer has claims that were not asked for")


@case("a claim that does not exist is an error of that claim", PREPARE)
def _absent(subject: Subject) -> None:
    answer = subject.prepare(ABSENT)
    if set(answer) != {ABSENT.uid}:
        raise Unmet(f"the answer must have the UID {ABSENT.uid}, and has {', '.join(answer) or 'nothing'}")
    if not answer[ABSENT.uid].error:
        raise Unmet("preparing succeeded, although the claim does not exist")


@case("each claim of a request has its own answer", PREPARE)
def _each(subject: Subject) -> None:
    answer = subject.prepare(ABSENT, ALSO_ABSENT)
    if set(answer) != {ABSENT.uid, ALSO_ABSENT.uid}:
        raise Unmet(f"two claims were asked for, and the answer has {len(answer)}")


@case("unpreparing a claim that was never prepared succeeds", UNPREPARE)
def _never(subject: Subject) -> None:
    for _ in range(2):
        answer = subject.unprepare(ABSENT)
        if set(answer) != {ABSENT.uid}:
            raise Unmet(f"the answer must have the UID {ABSENT.uid}, and has {', '.join(answer) or 'nothing'}")
        if answer[ABSENT.uid].error:
            raise Unmet(f"the kubelet repeats it for ever: {answer[ABSENT.uid].error}")


@case("preparing is idempotent, and returns the same devices", PREPARE)
def _idempotent(subject: Subject) -> None:
    claim = subject.allocated()
    first, second = (subject.prepare(claim)[claim.uid] for _ in range(2))
    for answer in (first, second):
        if answer.error:
            raise Unmet(f"preparing failed: {answer.error}")
    if list(first.devices) != list(second.devices):
        raise Unmet("the second answer has other devices than the first")


@case("prepared devices have a pool, a name and valid CDI ids", PREPARE)
def _devices(subject: Subject) -> None:
    claim = subject.allocated()
    answer = subject.prepare(claim)[claim.uid]
    if answer.error or not answer.devices:
        raise Unmet(f"no devices were prepared: {answer.error or 'the list is empty'}")
    for device in answer.devices:
        if not device.pool_name or not device.device_name:
            raise Unmet(f"a device has no pool or no name: {device}")
        for cdi in device.cdi_device_ids:
            kind, separator, name = cdi.partition("=")
            if not separator or "/" not in kind or not name:
                raise Unmet(f"{cdi!r} is not a CDI device such as vendor.com/class=name")


@case("a mistaken claim beside a good one does not spoil it", PREPARE)
def _beside(subject: Subject) -> None:
    claim = subject.allocated()
    answer = subject.prepare(ABSENT, claim)
    if claim.uid not in answer or answer[claim.uid].error:
        raise Unmet("the good claim has no devices")
    if not answer[ABSENT.uid].error:
        raise Unmet("the mistaken claim has no error")


@case("a claim with another UID is refused", PREPARE)
def _other_uid(subject: Subject) -> None:
    claim = subject.allocated()
    other = ClaimRef(claim.namespace, claim.name, ABSENT.uid)
    if not subject.prepare(other)[other.uid].error:
        raise Unmet("the claim was prepared for a UID that it does not have: it may be an older one of that name")


@case("unpreparing is idempotent", UNPREPARE)
def _unprepare(subject: Subject) -> None:
    claim = subject.allocated()
    for _ in range(2):
        if error := subject.unprepare(claim)[claim.uid].error:
            raise Unmet(f"unpreparing failed: {error}")


@case("ten calls at once are all answered", PREPARE, Level.MUST)
def _parallel(subject: Subject) -> None:
    messages, method, _ = _GENERATIONS[subject.generation]
    request = messages.NodePrepareResourcesRequest(claims=[_message(messages, ABSENT)])

    async def all_(client: grpc_client.GrpcClient) -> None:
        await asyncio.gather(*(client.call(method, request, timeout=subject.seconds) for _ in range(10)))

    call_socket(subject.runner, subject.socket, all_, subject.seconds)


def run_dra_cases(subject: Subject, shown: Callable[[str], None]) -> Report:
    report = Report(subject.socket.name, f"{SPECIFICATION} {subject.generation}")
    run_cases(report, case.all, subject, shown)
    return report
