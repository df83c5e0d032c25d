"""Volumes of pods: emptyDir, hostPath, configMap, secret, downwardAPI, projected. Other types are rejected."""

from podwire.kubelet.volumes.errors import VolumesNotReady
from podwire.kubelet.volumes.manager import VolumeManager

__all__ = ["VolumeManager", "VolumesNotReady"]
