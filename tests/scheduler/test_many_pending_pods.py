"""Thousands of pending pods: which requests the scheduler sends, counted by an API that is played."""

import asyncio
import contextlib
import json
import logging

import pytest

from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.client_side.http import Reply
from podwire.scheduler import Limits, Scheduler
from podwire.transports.clock import SystemClock
from tests.eventually import eventually_async
from tests.scheduler.conftest import node_object, pod_object

PODS, SLOTS = 10_000, 110
JSON = {"content-type": "application/json"}


class Stream:
    """A watch that delivers frames as they are put."""

    status, headers = 200, JSON

    def __init__(self):
        self.frames = asyncio.Queue()

    def put(self, type_, object_):
        self.frames.put_nowait(json.dumps({"type": type_, "object": object_}).encode() + b"\n")

    async def read(self):
        return await self.frames.get()

    def close(self):
        """Nothing is open."""


class PlayedApi:
    """Lists, watches, bindings and patches of pods and nodes; each write takes a moment."""

    def __init__(self, count):
        self.version = 1
        self.pods = {name: self.stamped(pod_object(name)) for name in (f"p{number}" for number in range(count))}
        self.streams = {}
        self.bound, self.patches, self.conflicts, self.at_last_binding = [], [], 0, 0
        self.patching = self.most_patching = 0

    def stamped(self, object_):
        self.version += 1
        return {**object_, "metadata": {**object_["metadata"], "resourceVersion": str(self.version)}}

    def add_node(self):
        self.streams["/api/v1/nodes", ""].put("ADDED", self.stamped(node_object("n1")))

    async def request(self, method, path, *, query=(), body=b"", **_rest):
        if method == "GET":
            pending = dict(query).get("fieldSelector") == "spec.nodeName="
            items = list(self.pods.values()) if path == "/api/v1/pods" and pending else []
            listed = {"kind": "List", "metadata": {"resourceVersion": str(self.version)}, "items": items}
            return Reply(200, JSON, json.dumps(listed).encode())
        if path.endswith("/events"):
            return Reply(201, JSON, body)
        name = path.split("/")[6]
        return await (self.bind(name) if path.endswith("/binding") else self.patch(name, json.loads(body)))

    async def bind(self, name):
        await asyncio.sleep(0.001)
        pod = self.pods.pop(name)
        self.bound.append(name)
        self.at_last_binding = len(self.patches)
        bound = self.stamped({**pod, "spec": {**pod["spec"], "nodeName": "n1"}})
        self.streams["/api/v1/pods", "spec.nodeName="].put("DELETED", bound)
        self.streams["/api/v1/pods", "spec.nodeName!="].put("ADDED", bound)
        return Reply(201, JSON, b"{}")

    async def patch(self, name, patch):
        self.patching += 1
        self.most_patching = max(self.patching, self.most_patching)
        await asyncio.sleep(0.001)
        self.patching -= 1
        self.patches.append(name)
        pod = self.pods.get(name)
        if pod is None or pod["metadata"]["resourceVersion"] != patch["metadata"]["resourceVersion"]:
            self.conflicts += 1
            return Reply(409, JSON, b'{"kind": "Status", "code": 409, "reason": "Conflict"}')
        self.pods[name] = self.stamped({**pod, "status": patch["status"]})
        self.streams["/api/v1/pods", "spec.nodeName="].put("MODIFIED", self.pods[name])
        return Reply(200, JSON, json.dumps(self.pods[name]).encode())

    async def stream(self, _method, path, *, query=(), **_rest):
        stream = self.streams[path, dict(query).get("fieldSelector", "")] = Stream()
        return stream


@contextlib.asynccontextmanager
async def scheduling(api):
    task = asyncio.create_task(Scheduler(Client(api), SystemClock()).run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.mark.timeout(300)
async def test_a_node_for_some_of_ten_thousand_pods_is_filled_before_the_others_are_reported(caplog):
    caplog.set_level(logging.INFO, "podwire.scheduler")
    api = PlayedApi(PODS)
    async with scheduling(api):
        await eventually_async(lambda: api.patches, within=120)
        before = len(api.patches)
        api.add_node()
        await eventually_async(lambda: len(api.bound) == SLOTS, within=120)
        assert api.at_last_binding - before < 2 * SLOTS
        await eventually_async(lambda: all("status" in pod for pod in api.pods.values()), within=240)
    assert len(api.bound) == SLOTS
    assert api.most_patching <= Limits().concurrent_reports
    assert len(api.patches) < 1.5 * PODS
    assert api.conflicts < SLOTS
    lines = [record for record in caplog.records if record.message != "pod was bound"]
    assert len(lines) < 500
