"""VolumeRestrictions, NodeVolumeLimits and VolumeZone. Pure; words are upstream's."""

from collections import Counter
from collections.abc import Mapping

from podwire.objects import persistent_volumes as storage
from podwire.scheduler.framework import NodeFilter, Reasons, Rejected, Unresolvable
from podwire.scheduler.pod_info import PodInfo
from podwire.scheduler.snapshot import NodeInfo, Snapshot
from podwire.scheduler.volumes.cache import Object, VolumeCache
from podwire.scheduler.volumes.volume_binding import NOT_LISTED, Unusable, usable_claims

IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
EXCEEDED = "node(s) exceed max volume count"
NO_ZONE = "node(s) had no available volume zone"

_ZONE, _REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
_CURRENT = {
    "failure-domain.beta.kubernetes.io/zone": _ZONE,
    "failure-domain.beta.kubernetes.io/region": _REGION,
    _ZONE: _ZONE,
    _REGION: _REGION,
}
"""The labels of zones and regions, and what they are called now."""


def single_pod_filter(pod: PodInfo, snapshot: Snapshot) -> NodeFilter | Rejected | None:
    """VolumeRestrictions: a claim with the access mode ReadWriteOncePod has one pod in the whole cluster."""
    if not pod.claims:
        return None
    if not snapshot.volumes.known:
        return Rejected(NOT_LISTED, quiet=True)
    try:
        claims = usable_claims(pod, snapshot.volumes)
    except Unusable as error:
        return Rejected(str(error))
    single = {claim["metadata"]["name"] for claim in claims if _is_single(claim)}
    if not single:
        return None
    in_use = any(
        other.pod.namespace == pod.pod.namespace and single & {name for name, _ephemeral in other.claims}
        for node in snapshot.nodes
        for other in node.pods.values()
        if other.claims and other.pod.uid != pod.pod.uid
    )
    return (lambda _node: (IN_USE,)) if in_use else None


def _is_single(claim: Object) -> bool:
    return storage.SINGLE_POD in (claim["spec"].get("accessModes") or ())


def limits_filter(pod: PodInfo, snapshot: Snapshot) -> NodeFilter | None:
    """NodeVolumeLimits: a node has at most so many volumes of a CSI driver as its CSINode allows."""
    cache = snapshot.volumes
    if not pod.claims or not cache.csi_nodes:
        return None
    wanted = _csi_volumes(pod, cache)
    if not wanted:
        return None

    def check_node(info: NodeInfo) -> Reasons:
        limits = cache.limits(info.name)
        if not limits:
            return ()
        attached: dict[str, str] = {}
        for other in info.pods.values():
            if other.claims:
                attached |= _csi_volumes(other, cache)
        counts = Counter(attached.values())
        more = Counter(driver for handle, driver in wanted.items() if handle not in attached)
        exceeded = any(
            counts[driver] + more[driver] > limits.get(driver, counts[driver] + more[driver]) for driver in more
        )
        return (EXCEEDED,) if exceeded else ()

    return check_node


def _csi_volumes(pod: PodInfo, cache: VolumeCache) -> Mapping[str, str]:
    """Returns the CSI volumes of a pod by a name of their own, with their drivers; also those to be provisioned."""
    found: dict[str, str] = {}
    for name, _ephemeral in pod.claims:
        claim = cache.claim((pod.pod.namespace, name))
        if claim is None:
            continue
        volume = cache.volumes.get(claim["spec"].get("volumeName") or "")
        source = (volume["spec"].get("csi") or {}) if volume is not None else {}
        if source:
            found[f"{source.get('driver')}/{source.get('volumeHandle')}"] = source.get("driver", "")
        elif volume is None and (class_ := cache.classes.get(storage.class_of_claim(claim))) is not None:
            driver = class_.get("provisioner") or ""
            found[f"{driver}/{pod.pod.namespace}/{name}"] = driver
    return found


def zone_filter(pod: PodInfo, snapshot: Snapshot) -> NodeFilter | None:
    """VolumeZone: a volume with the label of a zone or region is used there. VolumeBinding has rejected bad claims."""
    required = [
        (key, frozenset(value.split("__")))
        for volume in _bound_volumes(pod, snapshot.volumes)
        for key, value in (volume["metadata"].get("labels") or {}).items()
        if key in _CURRENT
    ]
    if not required:
        return None

    def check_node(info: NodeInfo) -> Reasons:
        labels = info.labels
        if not any(key in labels for key in _CURRENT):
            return ()
        fits = all(labels.get(key, labels.get(_CURRENT[key])) in values for key, values in required)
        return () if fits else Unresolvable((NO_ZONE,))

    return check_node


def _bound_volumes(pod: PodInfo, cache: VolumeCache) -> list[Object]:
    claims = [cache.claim((pod.pod.namespace, name)) for name, _ephemeral in pod.claims]
    names = [claim["spec"].get("volumeName") or "" for claim in claims if claim is not None]
    return [cache.volumes[name] for name in names if name in cache.volumes]
