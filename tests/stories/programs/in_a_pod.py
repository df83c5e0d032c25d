"""Runs in a pod: says who it is, lists, creates and watches ConfigMaps, and tries what its service account may not."""

# ruff: noqa: T201 - its log is its result

import asyncio
from collections.abc import Awaitable
from typing import Any

from podwire.client import Added, Api, ApiError, Synced, connect

MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "by-the-pod"}, "data": {"from": "inside"}}
REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}


async def watch(api: Api) -> None:
    """Creates a ConfigMap once the watch has begun, and returns when somebody else has created another."""
    async with await api.informer("v1", "ConfigMap") as maps:
        synced = False
        async for change in maps:
            match change:
                case Synced() if not synced:
                    synced = True
                    await api.create(MAP)
                    print("watching", flush=True)
                case Added({"metadata": {"name": "stop"}, "data": {"from": origin}}):
                    print("added stop from", origin)
                    return
                case Added({"metadata": {"name": name}}) if synced:
                    print("added", name)


async def names(api: Api, kind: str, namespace: str | None = None) -> list[str]:
    return sorted([item["metadata"]["name"] async for item in api.list("v1", kind, namespace)])


async def attempt(what: str, call: Awaitable[Any]) -> None:
    try:
        print(f"{what}: {await call}")
    except ApiError as error:
        print(f"{what}: {error.code} {error.reason}")


async def main() -> None:
    async with connect() as api, asyncio.timeout(60):
        review = await api.create(REVIEW)
        print(review["status"]["userInfo"]["username"], "in", api.namespace)
        print("listed", ", ".join(await names(api, "ConfigMap")))
        await watch(api)
        elsewhere = {**MAP, "metadata": {"name": "by-the-pod", "namespace": "default"}}
        await attempt("list secrets", names(api, "Secret"))
        await attempt("get configmap", api.get("v1", "ConfigMap", "stop"))
        await attempt("delete configmap", api.delete("v1", "ConfigMap", "stop"))
        await attempt("list configmaps of default", names(api, "ConfigMap", "default"))
        await attempt("create configmap in default", api.create(elsewhere))


asyncio.run(main())
