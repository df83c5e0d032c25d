"""Volumes on storage systems that the API still knows by name. Most only need some fields to be there."""

import re
from collections.abc import Callable, Mapping

from podwire.kinds.field_checks import Choice, Errors, Object, descending, named, within
from podwire.objects import names
from podwire.protocols.k8sapi.status import FieldError, Problem, invalid, required

Source = Callable[[Object, str, Errors], None]

_CACHING_MODES = Choice(("None", "ReadOnly", "ReadWrite"))
_DISK_KINDS = Choice(("Dedicated", "Managed", "Shared"))
_MANAGED_DISK = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
_BLOB_DISK = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
_ISCSI_NAMES = {
    "iqn": re.compile(r"iqn\.\d{4}-\d{2}\.([A-Za-z0-9.-]+)(:[^,;*&$|\s]+)"),
    "eui": re.compile(r"eui.[A-Za-z0-9]{16}"),
    "naa": re.compile(r"naa.[A-Za-z0-9]{32}"),
}
_ISCSI_NAME_LENGTH = 64
_TENANT_LENGTH = 64
_HOST_PORT = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*):[^:\[\]]*")


def _needs(*fields: str) -> Source:
    """Returns the check that these fields are not empty."""

    def check(source: Object, path: str, errors: Errors) -> None:
        for field in fields:
            if not source.get(field):
                errors.append(required(f"{path}.{field}"))

    return check


def _disk(field: str) -> Source:
    needs = _needs(field)

    def check(source: Object, path: str, errors: Errors) -> None:
        needs(source, path, errors)
        partition = source.get("partition", 0)
        if not 0 <= partition <= 255:
            errors.append(invalid(f"{path}.partition", partition, names.between(1, 255)))

    return check


def _secret_ref(source: Object, path: str, errors: Errors) -> None:
    if (ref := source.get("secretRef")) is not None and not ref.get("name"):
        errors.append(required(f"{path}.secretRef.name"))


def _git_repo(source: Object, path: str, errors: Errors) -> None:
    _needs("repository")(source, path, errors)
    descending(source.get("directory", ""), f"{path}.directory", errors)


def _nfs(source: Object, path: str, errors: Errors) -> None:
    _needs("server", "path")(source, path, errors)
    export = source.get("path", "")
    if not export.startswith("/"):
        errors.append(invalid(f"{path}.path", export, "must be an absolute path"))


def _iscsi(source: Object, path: str, errors: Errors) -> None:
    _needs("targetPortal", "iqn")(source, path, errors)
    if iqn := source.get("iqn"):
        _qualified(iqn, f"{path}.iqn", errors)
    within(source.get("lun", 0), 0, 255, f"{path}.lun", errors)
    if (source.get("chapAuthDiscovery") or source.get("chapAuthSession")) and source.get("secretRef") is None:
        errors.append(required(f"{path}.secretRef"))
    if (initiator := source.get("initiatorName")) is not None:
        _qualified(initiator, f"{path}.initiatorname", errors)


def _qualified(name: str, path: str, errors: Errors) -> None:
    form = _ISCSI_NAMES.get(name[:3])
    if form is None:
        errors.append(invalid(path, name, "must be valid format starting with iqn, eui, or naa"))
    elif not form.fullmatch(name):
        errors.append(invalid(path, name, "must be valid format"))


def iscsi_name(source: Object, volume: str, path: str, errors: Errors) -> None:
    """The volume's name becomes part of an interface name on the node."""
    portal = source.get("targetPortal", "")
    if source.get("initiatorName") is not None and len(f"{volume}:{portal}") > _ISCSI_NAME_LENGTH:
        detail = (
            "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters "
            "if iscsi.initiatorName is specified."
        )
        errors.append(invalid(path, volume, detail))


def _flocker(source: Object, path: str, errors: Errors) -> None:
    name, uuid = source.get("datasetName", ""), source.get("datasetUUID", "")
    if not name and not uuid:
        errors.append(required(path, "one of datasetName and datasetUUID is required"))
    if name and uuid:
        detail = "datasetName and datasetUUID can not be specified simultaneously"
        errors.append(invalid(path, "resource", detail))
    if "/" in name:
        errors.append(invalid(f"{path}.datasetName", name, "must not contain '/'"))


def _cinder(source: Object, path: str, errors: Errors) -> None:
    _needs("volumeID")(source, path, errors)
    _secret_ref(source, path, errors)


def _quobyte(source: Object, path: str, errors: Errors) -> None:
    registry, pairs = source.get("registry", ""), "must be a host:port pair or multiple pairs separated by commas"
    if not registry:
        errors.append(required(f"{path}.registry", pairs))
    elif len(source.get("tenant", "")) > _TENANT_LENGTH:
        detail = "must be a UUID and may not exceed a length of 64 characters"
        errors.append(required(f"{path}.tenant", detail))
    elif not all(map(_HOST_PORT.fullmatch, registry.split(","))):
        errors.append(invalid(f"{path}.registry", registry, pairs))
    _needs("volume")(source, path, errors)


def _fc(source: Object, path: str, errors: Errors) -> None:
    targets, wwids, lun = source.get("targetWWNs"), source.get("wwids"), source.get("lun")
    if not targets and not wwids:
        detail = "must specify either targetWWNs or wwids, but not both"
        errors.append(required(f"{path}.targetWWNs", detail))
    if targets and wwids:
        detail = "targetWWNs and wwids can not be specified simultaneously"
        errors.append(invalid(f"{path}.targetWWNs", targets, detail))
    if targets and lun is None:
        errors.append(required(f"{path}.lun", "lun is required if targetWWNs is specified"))
    elif targets and lun is not None:
        within(lun, 0, 255, f"{path}.lun", errors)


def _flex_volume(source: Object, path: str, errors: Errors) -> None:
    _needs("driver")(source, path, errors)
    for option in source.get("options") or ():
        domain = "." + option.partition("/")[0].lower()
        if domain.endswith((".kubernetes.io", ".k8s.io")):
            detail = "kubernetes.io and k8s.io namespaces are reserved"
            errors.append(invalid(f"{path}.options[{option}]", option, detail))


def _azure_disk(source: Object, path: str, errors: Errors) -> None:
    _needs("diskName", "diskURI")(source, path, errors)
    kind, uri = source.get("kind"), source.get("diskURI", "")
    if (mode := source.get("cachingMode")) is not None:
        _CACHING_MODES.check(mode, f"{path}.cachingMode", errors)
    if kind is None:
        return
    _DISK_KINDS.check(kind, f"{path}.kind", errors)
    start, form = ("/subscriptions/", _MANAGED_DISK) if kind == "Managed" else ("https://", _BLOB_DISK)
    if not uri.startswith(start):
        errors.append(FieldError(Problem.NOT_SUPPORTED, f"{path}.diskURI", uri, f'supported values: "{form}"'))


def _storage_os(source: Object, path: str, errors: Errors) -> None:
    _needs("volumeName")(source, path, errors)
    for field in ("volumeName", "volumeNamespace"):
        if name := source.get(field):
            named(names.dns_label, name, f"{path}.{field}", errors)
    _secret_ref(source, path, errors)


STORAGE_SOURCES: Mapping[str, Source] = {
    "gitRepo": _git_repo,
    "gcePersistentDisk": _disk("pdName"),
    "awsElasticBlockStore": _disk("volumeID"),
    "nfs": _nfs,
    "iscsi": _iscsi,
    "glusterfs": _needs("endpoints", "path"),
    "flocker": _flocker,
    "rbd": _needs("monitors", "image"),
    "cinder": _cinder,
    "cephfs": _needs("monitors"),
    "quobyte": _quobyte,
    "fc": _fc,
    "flexVolume": _flex_volume,
    "azureFile": _needs("secretName", "shareName"),
    "vsphereVolume": _needs("volumePath"),
    "photonPersistentDisk": _needs("pdID"),
    "portworxVolume": _needs("volumeID"),
    "azureDisk": _azure_disk,
    "storageos": _storage_os,
    "scaleIO": _needs("gateway", "system", "volumeName"),
}
