"""The volumes of pods: emptyDir, hostPath, configMap, secret, downwardAPI, projected. Others are refused by name."""

from podwire.kubelet.volumes.errors import NotReady
from podwire.kubelet.volumes.volumes import Volumes

__all__ = ["NotReady", "Volumes"]
