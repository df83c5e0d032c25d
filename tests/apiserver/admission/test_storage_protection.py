"""StorageObjectInUseProtection: new claims and volumes have their finalizer, once."""

import pytest

VOLUME = {
    "metadata": {"name": "disk"},
    "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/srv/x"}},
}
CLAIM = {
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


@pytest.mark.parametrize(
    ("path", "body", "finalizer"),
    [
        ("/api/v1/persistentvolumes", VOLUME, "kubernetes.io/pv-protection"),
        ("/api/v1/namespaces/default/persistentvolumeclaims", CLAIM, "kubernetes.io/pvc-protection"),
    ],
)
async def test_a_new_object_is_protected_once(api, path, body, finalizer):
    made = await api.post(path, body)
    assert made.body["metadata"]["finalizers"] == [finalizer]
    given = {**body["metadata"], "name": "other", "finalizers": ["example.com/own", finalizer]}
    again = await api.post(path, {**body, "metadata": given})
    assert again.body["metadata"]["finalizers"] == ["example.com/own", finalizer]
