"""Events about containers, with the field path that `kubectl describe` shows."""

from podwire.objects.containers import Container
from podwire.objects.pods import Pod
from podwire.protocols.k8sapi.client_side.recorder import Recorder


class ContainerEvents:
    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def record(self, pod: Pod, container: Container, type_: str, reason: str, message: str) -> None:
        self._recorder.tell(pod, type_, reason, message, field_path=field_path(pod, container))


def field_path(pod: Pod, container: Container) -> str:
    """The position of a container in its pod as `involvedObject.fieldPath` has it: `spec.containers{app}`; empty for
    one without a name, which stands for the pod."""
    if not container.name:
        return ""
    lists = (("containers", pod.spec.containers), ("initContainers", pod.spec.init_containers))
    name = next((name for name, members in lists if container in members), "ephemeralContainers")
    return f"spec.{name}{{{container.name}}}"
