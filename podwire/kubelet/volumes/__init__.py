"""The volumes of pods: emptyDir, hostPath, configMap, secret, downwardAPI, projected. Others are refused by name."""

from podwire.kubelet.volumes.errors import VolumesNotReady
from podwire.kubelet.volumes.manager import VolumeManager

__all__ = ["VolumeManager", "VolumesNotReady"]
