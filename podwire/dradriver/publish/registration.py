"""The registration socket, by which kubelets find the driver."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from podwire.dradriver.names import DRIVER
from podwire.protocols.dra.methods import HEALTH_V1, HEALTH_V1ALPHA1, V1, V1BETA1
from podwire.protocols.grpc_methods import Handler
from podwire.protocols.registration import methods
from podwire.protocols.registration import registration_pb2 as pb

_log = logging.getLogger("podwire.dradriver")

VERSIONS = (V1, V1BETA1, HEALTH_V1, HEALTH_V1ALPHA1)
"""Kubelets use the first of these that they support."""


class Registration:
    def __init__(self, endpoint: Path, registered: Callable[[], None]) -> None:
        """`registered` is called whenever a kubelet registers the driver: one that starts deletes the node's slices."""
        self._endpoint, self._registered = endpoint, registered
        self.refusal = "no kubelet has asked yet"
        """Why no kubelet works with this driver; empty when one does."""

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return {
            methods.GET_INFO.name: self._get_info,
            methods.NOTIFY_REGISTRATION_STATUS.name: self._notify_registration_status,
        }

    async def _get_info(self, _request: pb.InfoRequest) -> pb.PluginInfo:
        return pb.PluginInfo(
            type=methods.DRA_PLUGIN, name=DRIVER, endpoint=str(self._endpoint), supported_versions=VERSIONS
        )

    async def _notify_registration_status(self, request: pb.RegistrationStatus) -> pb.RegistrationStatusResponse:
        if request.plugin_registered:
            self.refusal = ""
            _log.info("kubelet registered the driver", extra={"driver": DRIVER})
            self._registered()
        else:
            self.refusal = request.error or "the kubelet gave no reason"
            _log.error("kubelet rejected the driver", extra={"error": self.refusal})
        return pb.RegistrationStatusResponse()
