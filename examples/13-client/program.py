"""Runs a pod and talks to it: apply, watch, exec, port-forward, log, delete."""

# ruff: noqa: T201 - prints for people

import asyncio

from podwire.client import Api, ApiError, Deleted, Reason, connect

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "greeter", "labels": {"app": "greeter"}},
    "spec": {
        "terminationGracePeriodSeconds": 1,
        "containers": [
            {
                "name": "app",
                "image": "podwire.local/busybox:latest",
                "imagePullPolicy": "IfNotPresent",
                "command": [
                    "sh",
                    "-c",
                    "echo ready to greet; mkdir /www; echo hello >/www/index.html; httpd -f -h /www",
                ],
                "readinessProbe": {"tcpSocket": {"port": 80}, "periodSeconds": 1},
            }
        ],
    },
}


async def ready(api: Api, name: str) -> None:
    """Returns when a pod is Ready."""
    async with await api.informer("v1", "Pod", fields=f"metadata.name={name}") as pods:
        async for _ in pods:
            for pod in pods.objects.values():
                conditions = pod.get("status", {}).get("conditions", [])
                if any(each["type"] == "Ready" and each["status"] == "True" for each in conditions):
                    return


async def gone(api: Api, name: str) -> None:
    async with await api.informer("v1", "Pod", fields=f"metadata.name={name}") as pods:
        await api.delete("v1", "Pod", name)
        async for change in pods:
            if isinstance(change, Deleted):
                return


async def main() -> None:
    async with connect() as api:
        pod = await api.apply(POD, field_manager="example")
        print("applied", pod["metadata"]["name"], "in", pod["metadata"]["namespace"])
        async with asyncio.timeout(60):
            await ready(api, "greeter")

        result = await api.run("greeter", ["tr", "a-z", "A-Z"], stdin=b"shout\n")
        print("exec:", result.stdout.decode().strip(), "- exit code", result.exit_code)

        async with api.port_forward("greeter", 80) as stream:
            await stream.write(b"GET / HTTP/1.0\r\n\r\n")
            answer = b""
            while data := await stream.read():
                answer += data
        print("port 80:", answer.splitlines()[-1].decode())

        log = b"".join([data async for data in api.log("greeter")])
        print("log:", log.decode().strip())

        async with asyncio.timeout(60):
            await gone(api, "greeter")
        try:
            await api.get("v1", "Pod", "greeter")
        except ApiError as error:
            if error.reason is not Reason.NOT_FOUND:
                raise
            print("deleted:", error)


asyncio.run(main())
