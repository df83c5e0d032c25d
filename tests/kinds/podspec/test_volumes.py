import pytest

V = "spec.volumes[0]"
MODE = "must be a number between 0 and 0777 (octal), both inclusive"


def volume(**source):
    return {V: {"name": "data", **source}}


def projected(*sources, **fields):
    return {**volume(projected={"sources": list(sources), **fields}), "spec.serviceAccountName": "default"}


def token(seconds=3600, path="token"):
    return {"serviceAccountToken": {"expirationSeconds": seconds, "path": path}}


def ephemeral(**spec):
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
    return volume(ephemeral={"volumeClaimTemplate": {"spec": claim}})


CLAIM = f"{V}.ephemeral.volumeClaimTemplate"

CASES = {
    "no name": ({f"{V}.name": ""}, [f"{V}.name: Required value"]),
    "a dotted name": ({f"{V}.name": "a.b"}, [f'{V}.name: Invalid value: "a.b": must not contain dots']),
    "the same name twice": (
        {"spec.volumes[1]": {"name": "data", "emptyDir": {}}},
        ['spec.volumes[1].name: Duplicate value: "data"'],
    ),
    "no source": ({V: {"name": "data"}}, [f"{V}: Required value: must specify a volume type"]),
    "two sources": (
        volume(hostPath={"path": "/x"}, emptyDir={}),
        [f"{V}.hostPath: Forbidden: may not specify more than 1 volume type"],
    ),
    "three sources": (
        volume(csi={"driver": "x.y"}, configMap={"name": "c"}, secret={"secretName": "s"}),
        [
            f"{V}.configMap: Forbidden: may not specify more than 1 volume type",
            f"{V}.csi: Forbidden: may not specify more than 1 volume type",
        ],
    ),
    "an emptyDir of less than nothing": (
        volume(emptyDir={"sizeLimit": "-1Gi"}),
        [f"{V}.emptyDir.sizeLimit: Forbidden: SizeLimit field must be a valid resource quantity"],
    ),
    "no host path": (volume(hostPath={"path": ""}), [f"{V}.hostPath.path: Required value"]),
    "a host path that climbs": (
        volume(hostPath={"path": "/a/../b"}),
        [f"{V}.hostPath.path: Invalid value: \"/a/../b\": must not contain '..'"],
    ),
    "a host path of an odd type": (
        volume(hostPath={"path": "/a", "type": "Pipe"}),
        [
            (
                f'{V}.hostPath.type: Unsupported value: "Pipe": supported values: "", "BlockDevice", "CharDevice", '
                '"Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"'
            )
        ],
    ),
    "a nameless secret": (volume(secret={}), [f"{V}.secret.secretName: Required value"]),
    "a secret with an odd mode": (
        volume(secret={"secretName": "s", "defaultMode": 0o1000}),
        [f"{V}.secret.defaultMode: Invalid value: 512: {MODE}"],
    ),
    "a nameless config map": (volume(configMap={"name": ""}), [f"{V}.configMap.name: Required value"]),
    "items without key and path": (
        volume(configMap={"name": "c", "items": [{"key": "k", "path": "p"}, {}]}),
        [f"{V}.configMap.items[1].key: Required value", f"{V}.configMap.items[1].path: Required value"],
    ),
    "an item at the root": (
        volume(secret={"secretName": "s", "items": [{"key": "k", "path": "/p", "mode": -1}]}),
        [
            f'{V}.secret.items[0].path: Invalid value: "/p": must be a relative path',
            f"{V}.secret.items[0].mode: Invalid value: -1: {MODE}",
        ],
    ),
    "an item that climbs": (
        volume(secret={"secretName": "s", "items": [{"key": "k", "path": "../p"}]}),
        [f"{V}.secret.items[0].path: Invalid value: \"../p\": must not contain '..'"],
    ),
    "an item in a reserved place": (
        volume(configMap={"name": "c", "items": [{"key": "k", "path": "..data"}]}),
        [f"{V}.configMap.items[0].path: Invalid value: \"..data\": must not start with '..'"],
    ),
    "a claim of no name": (
        volume(persistentVolumeClaim={"claimName": ""}),
        [f"{V}.persistentVolumeClaim.claimName: Required value"],
    ),
    "a downward file of nothing": (
        volume(downwardAPI={"items": [{"path": "x"}]}),
        [f"{V}.downwardAPI: Required value: one of fieldRef and resourceFieldRef is required"],
    ),
    "a downward file of two": (
        volume(
            downwardAPI={
                "items": [
                    {
                        "path": "x",
                        "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"},
                        "resourceFieldRef": {"containerName": "main", "resource": "limits.cpu"},
                    }
                ]
            }
        ),
        [
            (
                f'{V}.downwardAPI: Invalid value: "resource": fieldRef and resourceFieldRef can not be '
                "specified simultaneously"
            )
        ],
    ),
    "a downward file of a field that only variables show": (
        volume(downwardAPI={"items": [{"path": "x", "fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}]}),
        [
            (
                f'{V}.downwardAPI.fieldRef.fieldPath: Unsupported value: "status.podIP": supported values: '
                '"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"'
            )
        ],
    ),
    "a downward file of nobody's resource": (
        volume(downwardAPI={"items": [{"path": "x", "resourceFieldRef": {"resource": "limits.cpu"}}]}),
        [f"{V}.downwardAPI.resourceFieldRef.containerName: Required value"],
    ),
    "a token for too short a time": (
        projected(token(599)),
        [
            (
                f"{V}.projected.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 599: "
                "may not specify a duration less than 10 minutes"
            )
        ],
    ),
    "a token for centuries": (
        projected(token(2**32 + 1)),
        [
            (
                f"{V}.projected.sources[0].serviceAccountToken.expirationSeconds: Invalid value: {2**32 + 1}: "
                "may not specify a duration larger than 2^32 seconds"
            )
        ],
    ),
    "a token without a path": (projected(token(path="")), [f"{V}.projected.path: Required value"]),
    "a token without an account": (
        {**projected(token()), "spec.serviceAccountName": ""},
        [
            (
                f"{V}.projected.sources[0].serviceAccountToken: Forbidden: "
                "must not be specified when serviceAccountName is not set"
            )
        ],
    ),
    "two projections in one": (
        projected({**token(), "secret": {"name": "s"}}),
        [f"{V}.projected.sources[0]: Forbidden: may not specify more than 1 volume type per source"],
    ),
    "two projections onto one file": (
        projected(
            {"secret": {"name": "s", "items": [{"key": "k", "path": "x"}]}},
            {"configMap": {"name": "c", "items": [{"key": "k", "path": "x"}]}},
        ),
        [f'{V}.projected: Invalid value: "c": conflicting duplicate paths'],
    ),
    "a nameless projection": (
        projected({"configMap": {}}, defaultMode=0o2000),
        [
            f"{V}.projected.defaultMode: Invalid value: 1024: {MODE}",
            f"{V}.projected.sources[0].configMap.name: Required value",
        ],
    ),
    "a bundle of nobody": (
        projected({"clusterTrustBundle": {"path": "ca"}}),
        [f"{V}.projected.sources[0].clusterTrustBundle: Required value: either name or signerName must be specified"],
    ),
    "a certificate without files": (
        projected({"podCertificate": {"signerName": "example.com/a", "keyType": "DSA"}}),
        [
            (
                f'{V}.projected.sources[0].podCertificate.keyType: Unsupported value: "DSA": supported values: '
                '"RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"'
            ),
            (
                f"{V}.projected.sources[0].podCertificate: Required value: "
                "specify at least one of credentialBundlePath, keyPath, and certificateChainPath"
            ),
        ],
    ),
    "a certificate of no signer for an hour less": (
        projected(
            {"podCertificate": {"signerName": "a", "keyType": "ED25519", "keyPath": "k", "maxExpirationSeconds": 60}}
        ),
        [
            (
                f'{V}.projected.sources[0].podCertificate.signerName: Invalid value: "a": '
                "must be a fully qualified domain and path of the form 'example.com/signer-name'"
            ),
            (
                f"{V}.projected.sources[0].podCertificate.maxExpirationSeconds: Invalid value: 60: "
                "if provided, maxExpirationSeconds must be >= 3600"
            ),
        ],
    ),
    "a driver without a name": (volume(csi={}), [f"{V}.csi.driver: Required value"]),
    "a driver with a long name": (
        volume(csi={"driver": "a" * 64}),
        [f"{V}.csi.driver: Too long: may not be more than 63 bytes"],
    ),
    "a driver with a nameless secret": (
        volume(csi={"driver": "csi.example.com", "nodePublishSecretRef": {}}),
        [f"{V}.csi.nodePublishSecretRef.name: Required value"],
    ),
    "an ephemeral volume of nothing": (volume(ephemeral={}), [f"{V}.ephemeral.volumeClaimTemplate: Required value"]),
    "an ephemeral volume without size and mode": (
        ephemeral(accessModes=[], resources={}),
        [
            f"{CLAIM}.spec.accessModes: Required value: at least 1 access mode is required",
            f"{CLAIM}.spec.resources[storage]: Required value",
        ],
    ),
    "an ephemeral volume of size zero": (
        ephemeral(resources={"requests": {"storage": "0"}}, volumeMode="Tape"),
        [
            f'{CLAIM}.spec.resources[storage]: Invalid value: "0": must be greater than zero',
            f'{CLAIM}.spec.volumeMode: Unsupported value: "Tape": supported values: "Block", "Filesystem"',
        ],
    ),
    "an ephemeral volume for one pod and all": (
        ephemeral(accessModes=["ReadWriteOncePod", "ReadWriteMany"]),
        [f"{CLAIM}.spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes"],
    ),
    "an ephemeral volume with a name of its own": (
        {**ephemeral(), f"{CLAIM}.metadata": {"name": "mine", "labels": {"a": "b"}}},
        [f"{CLAIM}.metadata.name: Forbidden: cannot be set"],
    ),
    "a claim that an ephemeral volume makes": (
        {**ephemeral(), "spec.volumes[1]": {"name": "x", "persistentVolumeClaim": {"claimName": "web-data"}}},
        [
            (
                'spec.volumes[1].persistentVolumeClaim.claimName: Invalid value: "web-data": '
                "must not reference a PVC that gets created for an ephemeral volume"
            )
        ],
    ),
    "an image volume of nothing": (
        volume(image={"pullPolicy": "Never"}),
        [f"{V}.image.reference: Required value"],
    ),
    "an image volume pulled somehow": (
        volume(image={"reference": "x", "pullPolicy": "Now"}),
        [f'{V}.image.pullPolicy: Unsupported value: "Now": supported values: "Always", "IfNotPresent", "Never"'],
    ),
    "nfs without server": (
        volume(nfs={"path": "srv"}),
        [f"{V}.nfs.server: Required value", f'{V}.nfs.path: Invalid value: "srv": must be an absolute path'],
    ),
    "iscsi of no format": (
        volume(iscsi={"targetPortal": "p", "iqn": "x", "lun": 300}),
        [
            f'{V}.iscsi.iqn: Invalid value: "x": must be valid format starting with iqn, eui, or naa',
            f"{V}.iscsi.lun: Invalid value: 300: must be between 0 and 255, inclusive",
        ],
    ),
    "fibre to nowhere": (
        volume(fc={}),
        [f"{V}.fc.targetWWNs: Required value: must specify either targetWWNs or wwids, but not both"],
    ),
    "a flex volume with reserved options": (
        volume(flexVolume={"driver": "x/y", "options": {"kubernetes.io/a": "b"}}),
        [
            (
                f'{V}.flexVolume.options[kubernetes.io/a]: Invalid value: "kubernetes.io/a": '
                "kubernetes.io and k8s.io namespaces are reserved"
            )
        ],
    ),
    "a managed disk elsewhere": (
        volume(azureDisk={"diskName": "d", "diskURI": "https://x", "kind": "Managed"}),
        [
            (
                f'{V}.azureDisk.diskURI: Unsupported value: "https://x": supported values: "/subscriptions/{{sub-id}}'
                '/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"'
            )
        ],
    ),
    "storage systems without what they need": (
        {
            "spec.volumes": [
                {"name": "a", "gcePersistentDisk": {"partition": 256}},
                {"name": "b", "rbd": {"monitors": ["m"]}},
                {"name": "c", "glusterfs": {"endpoints": "e"}},
                {"name": "d", "cinder": {"volumeID": "v", "secretRef": {}}},
                {"name": "e", "flocker": {"datasetName": "a/b"}},
                {"name": "f", "quobyte": {"registry": "host", "volume": "v"}},
                {"name": "g", "storageos": {"volumeName": "A"}},
                {"name": "h", "gitRepo": {"directory": "/x"}},
            ]
        },
        [
            "spec.volumes[0].gcePersistentDisk.pdName: Required value",
            "spec.volumes[0].gcePersistentDisk.partition: Invalid value: 256: must be between 1 and 255, inclusive",
            "spec.volumes[1].rbd.image: Required value",
            "spec.volumes[2].glusterfs.path: Required value",
            "spec.volumes[3].cinder.secretRef.name: Required value",
            "spec.volumes[4].flocker.datasetName: Invalid value: \"a/b\": must not contain '/'",
            (
                'spec.volumes[5].quobyte.registry: Invalid value: "host": '
                "must be a host:port pair or multiple pairs separated by commas"
            ),
            (
                'spec.volumes[6].storageos.volumeName: Invalid value: "A": a lowercase RFC 1123 label must '
                "consist of lower "
                "case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. "
                "'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
            ),
            "spec.volumes[7].gitRepo.repository: Required value",
            'spec.volumes[7].gitRepo.directory: Invalid value: "/x": must be a relative path',
        ],
    ),
}


@pytest.mark.parametrize(("changes", "expected"), CASES.values(), ids=CASES)
def test_invalid_volumes_are_rejected(changes, expected, errors_of):
    assert errors_of(changes) == expected


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(volume(emptyDir={"medium": "Memory", "sizeLimit": "64Mi"}), id="memory"),
        pytest.param(volume(hostPath={"path": "/var/run", "type": ""}), id="a host path of any type"),
        pytest.param(volume(secret={"secretName": "s", "defaultMode": 0o400, "optional": True}), id="a secret"),
        pytest.param(volume(csi={"driver": "Secrets-Store.csi.k8s.io"}), id="a driver in capitals"),
        pytest.param(ephemeral(storageClassName=""), id="an ephemeral volume of no class"),
        pytest.param(volume(image={"reference": "registry/x:1", "pullPolicy": "IfNotPresent"}), id="an image"),
        pytest.param(
            volume(iscsi={"targetPortal": "10.0.0.1", "iqn": "iqn.2015-02.example.com:test", "lun": 0}), id="iscsi"
        ),
        pytest.param(volume(nfs={"server": "nas", "path": "/srv"}), id="nfs"),
        pytest.param(projected(token(600), {"downwardAPI": {}}), id="a token for ten minutes"),
        pytest.param(
            projected({"clusterTrustBundle": {"signerName": "example.com/a", "path": "ca", "labelSelector": {}}}),
            id="a bundle of a signer",
        ),
        pytest.param(
            projected(
                {"podCertificate": {"signerName": "example.com/a.b", "keyType": "ED25519", "credentialBundlePath": "c"}}
            ),
            id="a certificate",
        ),
    ],
)
def test_valid_volumes_are_accepted(changes, errors_of):
    assert errors_of(changes) == []
