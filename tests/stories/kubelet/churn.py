"""Creates pods and deletes each after a delay, without the time that a kubectl takes to start.

`python -m tests.stories.kubelet.churn KUBECONFIG POD-JSON GRACE DELAY-MS…`: one pod after the other. Prints their uids.
"""

import asyncio
import json
import sys
from pathlib import Path

from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.client_side import Client
from podwire.transports import credentials, http_client

PODS = BUILTIN.of_kind("v1", "Pod")


async def main(kubeconfig: str, template: str, grace: str, *delays: str) -> None:
    assert PODS is not None
    async with http_client.connect(credentials.load(Path(kubeconfig)), user_agent="churn") as http:
        api = Client(http)
        for number, delay in enumerate(delays):
            pod = json.loads(template)
            pod["metadata"] |= {"name": f"{pod['metadata']['name']}-{number}", "namespace": "default"}
            made = await api.create(pod)
            sys.stdout.write(f"{made['metadata']['uid']}\n")
            await asyncio.sleep(int(delay) / 1000)
            await api.delete(PODS, pod["metadata"]["name"], "default", grace_seconds=int(grace))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
