"""A small CSI driver, as a process: every volume is a directory below STATE, staged and published by bind mounts.

    python -m tests.csi_driver --name dir.csi.example --kubelet ROOT --state STATE --node node-1

Its sockets are ROOT/plugins/NAME/csi.sock and ROOT/plugins_registry/NAME-reg.sock. It keeps to the specification: all
calls are idempotent. Every call is a line of JSON in STATE/calls. STATE/faults makes calls fail or hang:
{"NodePublishVolume": {"code": 13, "message": "no", "times": 2}} or {"NodeStageVolume": {"hang": true}}.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
from pathlib import Path

from google.protobuf.json_format import MessageToDict

from podwire.linux.errors import NoSuchMount
from podwire.linux.fs.mounts import KernelMounts
from podwire.protocols import grpc_status
from podwire.protocols.csi import csi_pb2 as pb
from podwire.protocols.csi import methods
from podwire.protocols.registration import methods as registration
from podwire.protocols.registration import registration_pb2
from podwire.transports import grpc_server

Capability = pb.NodeServiceCapability.RPC


class DirectoryDriver:
    def __init__(self, options):
        self.options = options
        self.state = Path(options.state)
        self.mounts = KernelMounts()

    def handlers(self):
        table = {
            "NodeGetInfo": self.get_info,
            "NodeGetCapabilities": self.get_capabilities,
            "NodeStageVolume": self.stage_volume,
            "NodeUnstageVolume": self.unstage_volume,
            "NodePublishVolume": self.publish_volume,
            "NodeUnpublishVolume": self.unpublish_volume,
            "NodeGetVolumeStats": self.get_volume_stats,
            "NodeExpandVolume": self.expand_volume,
        }
        return {name: self._observed(name, handler) for name, handler in table.items()}

    def _observed(self, name, handler):
        async def observed(request):
            with (self.state / "calls").open("a") as calls:
                calls.write(
                    json.dumps({"call": name, **MessageToDict(request, preserving_proto_field_name=True)}) + "\n"
                )
            await self._fail(name)
            return await asyncio.to_thread(handler, request)

        return observed

    async def _fail(self, name):
        path = self.state / "faults"
        faults = json.loads(path.read_text()) if path.exists() else {}
        fault = faults.get(name)
        if fault is None:
            return
        if fault.get("hang"):
            await asyncio.Event().wait()
        fault["times"] = fault.get("times", 1) - 1
        if fault["times"] < 0:
            return
        path.write_text(json.dumps(faults))
        raise grpc_status.from_code(fault["code"], fault.get("message", "made to fail"))

    def get_info(self, _request):
        topology = pb.Topology(segments={f"topology.{self.options.name}/node": self.options.node})
        return pb.NodeGetInfoResponse(
            node_id=f"id-of-{self.options.node}",
            max_volumes_per_node=self.options.max_volumes,
            accessible_topology=topology,
        )

    def get_capabilities(self, _request):
        types = [Capability.Type.Value(name) for name in self.options.capabilities.split(",") if name]
        rpcs = [pb.NodeServiceCapability(rpc=Capability(type=type_)) for type_ in types]
        return pb.NodeGetCapabilitiesResponse(capabilities=rpcs)

    def _volume(self, request):
        path = self.state / "volumes" / request.volume_id
        path.mkdir(parents=True, exist_ok=True)
        return path

    def stage_volume(self, request):
        if not self.mounts.is_mounted(request.staging_target_path):
            self.mounts.bind(self._volume(request), request.staging_target_path)
        return pb.NodeStageVolumeResponse()

    def unstage_volume(self, request):
        self._unmount(request.staging_target_path)
        return pb.NodeUnstageVolumeResponse()

    def publish_volume(self, request):
        target = Path(request.target_path)
        if not self.mounts.is_mounted(target):
            target.mkdir(exist_ok=True)
            source = request.staging_target_path or self._volume(request)
            if request.staging_target_path and not self.mounts.is_mounted(source):
                raise grpc_status.FailedPrecondition(f"{request.volume_id} is not staged")
            self.mounts.bind(source, target, read_only=request.readonly)
        if not request.readonly:
            for key, value in request.volume_context.items():
                (target / f"context-{key.replace('/', '_')}").write_text(value)
        return pb.NodePublishVolumeResponse()

    def unpublish_volume(self, request):
        self._unmount(request.target_path)
        with contextlib.suppress(FileNotFoundError):
            Path(request.target_path).rmdir()
        return pb.NodeUnpublishVolumeResponse()

    def get_volume_stats(self, request):
        used = sum(path.stat().st_size for path in Path(request.volume_path).iterdir())
        usage = pb.VolumeUsage(available=1000, total=1000 + used, used=used, unit=pb.VolumeUsage.BYTES)
        return pb.NodeGetVolumeStatsResponse(usage=[usage])

    def expand_volume(self, request):
        (Path(request.volume_path) / "size").write_text(str(request.capacity_range.required_bytes))
        return pb.NodeExpandVolumeResponse(capacity_bytes=request.capacity_range.required_bytes)

    def _unmount(self, path):
        with contextlib.suppress(NoSuchMount, FileNotFoundError):
            while self.mounts.is_mounted(path):
                self.mounts.unmount(path)


async def run(options):
    root, state, name = Path(options.kubelet), Path(options.state), options.name
    endpoint, registry = root / "plugins" / name / "csi.sock", root / "plugins_registry" / f"{name}-reg.sock"
    for directory in (endpoint.parent, registry.parent, state):
        directory.mkdir(parents=True, exist_ok=True)
    for path in (endpoint, registry):
        path.unlink(missing_ok=True)
    info = registration_pb2.PluginInfo(
        type=registration.CSI_PLUGIN, name=name, endpoint=str(endpoint), supported_versions=[options.version]
    )

    async def get_info(_request):
        return info

    async def notify(request):
        with (state / "calls").open("a") as calls:
            calls.write(
                json.dumps({"call": "registered", "ok": request.plugin_registered, "error": request.error}) + "\n"
            )
        return registration_pb2.RegistrationStatusResponse()

    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    driver = await grpc_server.serve(endpoint, methods.ALL, DirectoryDriver(options).handlers())
    handlers = {"GetInfo": get_info, "NotifyRegistrationStatus": notify}
    registered = await grpc_server.serve(registry, registration.ALL, handlers)
    await ended.wait()
    for server, path in ((registered, registry), (driver, endpoint)):
        await server.close(0.5)
        path.unlink(missing_ok=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", default="dir.csi.example")
    parser.add_argument("--kubelet", required=True)
    parser.add_argument("--state", required=True)
    parser.add_argument("--node", default=os.uname().nodename)
    parser.add_argument("--version", default="1.0.0")
    parser.add_argument("--max-volumes", type=int, default=8)
    parser.add_argument("--capabilities", default="STAGE_UNSTAGE_VOLUME,GET_VOLUME_STATS,EXPAND_VOLUME")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
