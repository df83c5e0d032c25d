"""A model of pods, addresses, devices and claims, with the rules that hold whatever is killed. Pure.

The model knows what the API server acknowledged. It compares that with what the API server answers later:

| rule                                                                                | checked            |
|-------------------------------------------------------------------------------------|--------------------|
| an acknowledged pod exists with its UID until its deletion is acknowledged          | with every list    |
| a pod whose deletion was acknowledged does not exist again with its UID             | with every list    |
| two pods that are neither over nor being deleted have no address in common          | with every list    |
| two claims have no device in common                                                 | with every list    |
| a pod is Running, a deleted one is gone, soon after the faults are over             | when it is quiet   |
| the addresses of a node are those of its pods; there are no leftovers               | when it is quiet   |
| drivers publish the devices that they published at first, unless a claim has them   | when it is quiet   |

A request without an answer may have been carried out or not; it is repeated until there is an answer.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

Object = dict[str, Any]
OVER = ("Succeeded", "Failed")
NODE_REASONS = ("Evicted", "OutOf", "NodePorts", "Preempting", "Terminated", "NodeShutdown", "NodeAffinity")


class Wish(Enum):
    """The last request of the client."""

    ASKED = auto()
    """Created; no answer."""
    CREATED = auto()
    """Created; acknowledged."""
    DELETED = auto()
    """Deletion was asked for: it may still exist."""


@dataclass(slots=True)
class ModelPod:
    name: str
    wish: Wish = Wish.ASKED
    uid: str = ""
    driver: str = ""
    """Of the device that it claims."""
    was_seen_gone: bool = False


class Model:
    """The pods of one run."""

    def __init__(self) -> None:
        self._pods: dict[str, ModelPod] = {}

    def asked(self, name: str, driver: str = "") -> None:
        self._pods[name] = ModelPod(name, driver=driver)

    def created(self, name: str, uid: str) -> None:
        pod = self._pods[name]
        pod.uid = uid
        if pod.wish is Wish.ASKED:
            pod.wish = Wish.CREATED

    def refused(self, name: str) -> None:
        """The server answered that it did not create the pod."""
        del self._pods[name]

    def deleting(self, name: str) -> None:
        """Before the request is sent: it may be carried out, also without an answer."""
        self._pods[name].wish = Wish.DELETED

    def alive(self) -> list[str]:
        """Returns the pods that are to exist, in order of their creation."""
        return [pod.name for pod in self._pods.values() if pod.wish is not Wish.DELETED]

    def acknowledged(self) -> list[str]:
        """Returns the pods that exist and may be deleted; a request for another one may still be on its way."""
        return [pod.name for pod in self._pods.values() if pod.wish is Wish.CREATED]

    def claimants(self, driver: str) -> int:
        """Returns how many pods may have a device of a driver."""
        return sum(pod.driver == driver and not pod.was_seen_gone for pod in self._pods.values())

    def doomed(self) -> list[str]:
        """Returns the pods that are to be gone and are not known to be."""
        return [pod.name for pod in self._pods.values() if pod.wish is Wish.DELETED and not pod.was_seen_gone]

    def observe(
        self, pods: Iterable[Object], claims: Iterable[Object] = (), *, known: Collection[str] | None = None
    ) -> list[str]:
        """Compares a list of the API server with the model; returns what is wrong.

        `known` are the pods that were acknowledged before the list was asked for: a pod that was created meanwhile
        need not be in it. None: all of them.
        """
        listed = {pod["metadata"]["name"]: pod for pod in pods}
        return [
            *self._lost(listed, self._pods if known is None else known),
            *shared("address", _addresses(listed.values())),
            *shared("device", _devices(claims)),
        ]

    def _lost(self, listed: dict[str, Object], known: Collection[str]) -> Iterator[str]:
        for pod in [*self._pods.values()]:
            found = listed.get(pod.name)
            uid = found["metadata"]["uid"] if found else ""
            if pod.wish is Wish.CREATED and uid != pod.uid and pod.name in known:
                yield f"pod {pod.name} was acknowledged with uid {pod.uid}, and is {f'now {uid}' if uid else 'lost'}"
            elif pod.wish is Wish.ASKED and found:  # it was carried out, without an answer
                self.created(pod.name, uid)
            elif pod.wish is Wish.DELETED and not found:
                pod.was_seen_gone = True
            elif pod.wish is Wish.DELETED and pod.was_seen_gone:
                yield f"pod {pod.name} was deleted and gone, and is there again with uid {uid}"

    def unfinished(
        self, pods: Iterable[Object], claims: Iterable[Object] = (), *, under_pressure: bool = False
    ) -> list[str]:
        """Returns what is not yet as it should be once all faults are over.

        A node that was short of disk accepts no pods for some minutes: then they may wait for it.
        """
        listed = {pod["metadata"]["name"]: pod for pod in pods}
        waiting = []
        for name in self.alive():
            pod = listed.get(name)
            if is_running(pod) or _is_over_by_its_node(pod):
                continue
            if not (under_pressure and pod is not None and not pod["spec"].get("nodeName")):
                waiting.append(f"pod {name} is {_state(pod)} and should be Running")
        waiting += [f"pod {name} was deleted and is still there" for name in self.doomed() if name in listed]
        uids = {pod["metadata"]["uid"] for pod in listed.values()}
        for claim in claims:
            users = {user["uid"] for user in claim.get("status", {}).get("reservedFor") or ()}
            owners = {owner["uid"] for owner in claim["metadata"].get("ownerReferences") or ()}
            if stale := (users | owners) - uids:
                waiting.append(f"claim {claim['metadata']['name']} belongs to {', '.join(stale)}, which is gone")
        return waiting


def addresses(pods: Iterable[Object]) -> set[str]:
    """Returns the addresses that pods have or had."""
    return {ip["ip"] for pod in pods for ip in pod.get("status", {}).get("podIPs") or ()}


def allocated_devices(claims: Iterable[Object]) -> set[str]:
    """Returns the devices of claims, as `driver/pool/device`."""
    return {device for device, _ in _devices(claims)}


def is_running(pod: Object | None) -> bool:
    status = (pod or {}).get("status", {})
    ready = any(
        condition["type"] == "Ready" and condition["status"] == "True" for condition in status.get("conditions") or ()
    )
    return ready and status.get("phase") == "Running" and bool(status.get("podIP"))


def _is_over_by_its_node(pod: Object | None) -> bool:
    """Whether the kubelet ended or rejected the pod, which it may do while the disk is full."""
    status = (pod or {}).get("status", {})
    return status.get("phase") == "Failed" and str(status.get("reason", "")).startswith(NODE_REASONS)


def _state(pod: Object | None) -> str:
    if pod is None:
        return "missing"
    status = pod.get("status", {})
    waiting = [
        container["state"]["waiting"].get("reason", "")
        for container in status.get("containerStatuses") or ()
        if "waiting" in container.get("state", {})
    ]
    return " ".join(filter(None, (status.get("phase", "without a phase"), status.get("reason", ""), *waiting)))


def _addresses(pods: Iterable[Object]) -> Iterator[tuple[str, str]]:
    for pod in pods:
        status = pod.get("status", {})
        if status.get("phase") not in OVER and "deletionTimestamp" not in pod["metadata"]:
            for ip in status.get("podIPs") or ():
                yield ip["ip"], f"pod {pod['metadata']['name']}"


def _devices(claims: Iterable[Object]) -> Iterator[tuple[str, str]]:
    for claim in claims:
        allocation = claim.get("status", {}).get("allocation") or {}
        for result in allocation.get("devices", {}).get("results") or ():
            if not result.get("adminAccess"):
                name = f"{result['driver']}/{result['pool']}/{result['device']}"
                yield name, f"claim {claim['metadata']['name']}"


def shared(what: str, uses: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yields what has more than one user."""
    users: dict[str, list[str]] = defaultdict(list)
    for name, user in uses:
        users[name].append(user)
    for name, names in users.items():
        if len(names) > 1:
            yield f"{what} {name} is used by {' and '.join(names)}"
