"""`python -m benchmarks.client_program CLIENT KUBECONFIG NAMESPACE PODS`: one client, which lists and watches pods.

Does one round for each line of its input, and prints the seconds: all pods listed, then all of them received again
as the first events of a watch.
"""

# ruff: noqa: PLC0415 - a process imports the one client that it measures

import asyncio
import gc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Round = Callable[[], tuple[int, int]]
"""Lists and watches; returns how many pods each gave."""


@contextmanager
def podwire(kubeconfig: str, namespace: str, pods: int) -> Iterator[Round]:
    import uvloop

    from podwire.client import Api, connect

    async def round_(api: Api) -> tuple[int, int]:
        listed = len([pod["metadata"]["name"] async for pod in api.list("v1", "Pod", namespace)])
        watched = 0
        async for event in api.watch("v1", "Pod", namespace):
            watched += bool(event.object["metadata"]["name"])
            if watched == pods:
                break
        return listed, watched

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        connection = connect(kubeconfig)
        api = runner.run(connection.__aenter__())
        yield lambda: runner.run(round_(api))
        runner.run(connection.__aexit__(None, None, None))


@contextmanager
def kubernetes(kubeconfig: str, namespace: str, pods: int) -> Iterator[Round]:
    import urllib3
    from kubernetes import client, config, watch

    urllib3.disable_warnings()
    api = client.CoreV1Api(config.new_client_from_config(kubeconfig))

    def round_() -> tuple[int, int]:
        listed = len([pod.metadata.name for pod in api.list_namespaced_pod(namespace).items])
        watching, watched = watch.Watch(), 0
        for event in watching.stream(api.list_namespaced_pod, namespace):
            watched += bool(event["object"].metadata.name)
            if watched == pods:
                watching.stop()
        return listed, watched

    yield round_


@contextmanager
def kr8s(kubeconfig: str, namespace: str, pods: int) -> Iterator[Round]:
    import kr8s.asyncio

    async def round_() -> tuple[int, int]:
        api = await kr8s.asyncio.api(kubeconfig=kubeconfig)
        listed = len([pod.name async for pod in api.get("pods", namespace=namespace)])
        watched = 0
        async for _, pod in api.watch("pods", namespace=namespace):
            watched += bool(pod.name)
            if watched == pods:
                break
        return listed, watched

    with asyncio.Runner() as runner:
        yield lambda: runner.run(round_())


@contextmanager
def lightkube(kubeconfig: str, namespace: str, pods: int) -> Iterator[Round]:
    import lightkube
    from lightkube.resources.core_v1 import Pod

    client = lightkube.Client(lightkube.KubeConfig.from_file(kubeconfig))

    def round_() -> tuple[int, int]:
        listed = len([pod.metadata.name for pod in client.list(Pod, namespace=namespace)])
        watched = 0
        for _, pod in client.watch(Pod, namespace=namespace):
            watched += bool(pod.metadata.name)
            if watched == pods:
                break
        return listed, watched

    yield round_


CLIENTS = {"podwire.client": podwire, "kubernetes": kubernetes, "kr8s": kr8s, "lightkube": lightkube}


def main() -> None:
    name, kubeconfig, namespace, pods = sys.argv[1:]
    with CLIENTS[name](kubeconfig, namespace, int(pods)) as round_:
        for _ in sys.stdin:
            gc.collect()
            begin = time.perf_counter()
            counts = round_()
            seconds = time.perf_counter() - begin
            if counts != (int(pods), int(pods)):
                sys.exit(f"{name}: listed and watched {counts} pods, not {pods}")
            sys.stdout.write(f"{seconds}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
