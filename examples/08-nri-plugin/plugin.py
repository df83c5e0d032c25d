"""Sets the memory limit of containers from an annotation of their pod, and an environment variable with it."""

import sys

from podwire.nri import Adjustment, Plugin, main, pb

ANNOTATION = "memory.example/mib"


class Memory(Plugin):
    """Sets the memory limit from the annotation."""

    name = "memory"
    index = "20"

    async def run_pod_sandbox(self, pod: pb.PodSandbox) -> None:
        if ANNOTATION in pod.annotations and not pod.annotations[ANNOTATION].isdigit():
            raise ValueError(f"{ANNOTATION}: {pod.annotations[ANNOTATION]!r} is not a number of MiB")

    async def create_container(self, pod: pb.PodSandbox, container: pb.Container) -> Adjustment | None:
        if ANNOTATION not in pod.annotations:
            return None
        mib = int(pod.annotations[ANNOTATION])
        return Adjustment().set_resources(memory_limit=mib << 20).add_env("MEMORY_MIB", str(mib))


if __name__ == "__main__":
    sys.exit(main(Memory()))
