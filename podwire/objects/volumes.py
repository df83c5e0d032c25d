"""A volume of a pod, with the fields that components decide on."""

from typing import Any

from msgspec import field

from podwire.objects.containers import FieldRef, Part, ResourceFieldRef


class KeyToPath(Part, frozen=True, kw_only=True):
    key: str
    path: str
    mode: int | None = None


class EmptyDir(Part, frozen=True, kw_only=True):
    medium: str = ""
    size_limit: str | int | float | None = None


class HostPath(Part, frozen=True, kw_only=True):
    path: str
    type: str = ""


class ConfigMapSource(Part, frozen=True, kw_only=True):
    """Also inside a projected volume, where it has no mode of its own."""

    name: str = ""
    items: tuple[KeyToPath, ...] = ()
    default_mode: int | None = None
    optional: bool | None = None


class SecretSource(Part, frozen=True, kw_only=True):
    secret_name: str = ""
    items: tuple[KeyToPath, ...] = ()
    default_mode: int | None = None
    optional: bool | None = None


class DownwardFile(Part, frozen=True, kw_only=True):
    path: str
    field_ref: FieldRef | None = None
    resource_field_ref: ResourceFieldRef | None = None
    mode: int | None = None


class DownwardApi(Part, frozen=True, kw_only=True):
    items: tuple[DownwardFile, ...] = ()
    default_mode: int | None = None


class TokenSource(Part, frozen=True, kw_only=True):
    path: str
    audience: str = ""
    expiration_seconds: int = 3600


class Projection(Part, frozen=True, kw_only=True):
    """One source of a projected volume; exactly one of these is there."""

    config_map: ConfigMapSource | None = None
    secret: ConfigMapSource | None = None
    downward_api: DownwardApi | None = field(default=None, name="downwardAPI")
    service_account_token: TokenSource | None = None
    cluster_trust_bundle: dict[str, Any] | None = None


class Projected(Part, frozen=True, kw_only=True):
    sources: tuple[Projection, ...] = ()
    default_mode: int | None = None


class Volume(Part, frozen=True, kw_only=True):
    """Exactly one source is there; one of a type that is rarer still shows as none of these."""

    name: str
    empty_dir: EmptyDir | None = None
    host_path: HostPath | None = None
    config_map: ConfigMapSource | None = None
    secret: SecretSource | None = None
    downward_api: DownwardApi | None = field(default=None, name="downwardAPI")
    projected: Projected | None = None
    persistent_volume_claim: dict[str, Any] | None = None
    csi: dict[str, Any] | None = None
    ephemeral: dict[str, Any] | None = None
    image: dict[str, Any] | None = None
    nfs: dict[str, Any] | None = None
    iscsi: dict[str, Any] | None = None
    """From persistentVolumeClaim on: so that they can be refused by their names."""
