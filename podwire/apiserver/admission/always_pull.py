"""AlwaysPullImages (off by default): every image is pulled with the pod's own credentials, also one that is present.

Without it a pod may run a private image that another pod's credentials have brought to the node.
"""

from collections.abc import Iterator

from podwire.apiserver.admission.chain import WRITES, AdmissionPlugin, Operation
from podwire.kinds.stored import Object
from podwire.protocols.k8sapi.status import not_supported

ALWAYS = "Always"


class AlwaysPullImages(AdmissionPlugin):
    """Sets the pull policy of containers and image volumes."""

    verbs = WRITES
    resources = frozenset({("", "pods")})

    async def admit(self, operation: Operation) -> None:
        if _concerned(operation):
            for _, holder, field in _policies(operation.obj["spec"]):
                holder[field] = ALWAYS

    async def validate(self, operation: Operation) -> None:
        """A policy that another plugin changed back is refused."""
        if not _concerned(operation):
            return
        errors = [
            not_supported(path, holder.get(field, ""), [ALWAYS])
            for path, holder, field in _policies(operation.obj["spec"])
            if holder.get(field) != ALWAYS
        ]
        if errors:
            raise operation.forbidden(", ".join(map(str, errors)))


def _concerned(operation: Operation) -> bool:
    if operation.subresource:
        return False
    if operation.old is None:
        return True
    known = {container.get("image") for container in _containers(operation.old["spec"])}
    return any(container.get("image") not in known for container in _containers(operation.obj["spec"]))


def _containers(spec: Object) -> Iterator[Object]:
    for part in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(part) or ()


def _policies(spec: Object) -> Iterator[tuple[str, Object, str]]:
    """Yields where each pull policy is written: its path, the object and the field."""
    for part in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(part) or ()):
            yield f"spec.{part}[{index}].imagePullPolicy", container, "imagePullPolicy"
    for index, volume in enumerate(spec.get("volumes") or ()):
        if volume.get("image") is not None:
            yield f"spec.volumes[{index}].image.pullPolicy", volume["image"], "pullPolicy"
