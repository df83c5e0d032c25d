"""VolumeBinding, VolumeRestrictions, NodeVolumeLimits and VolumeZone: where a pod with claims can run."""
