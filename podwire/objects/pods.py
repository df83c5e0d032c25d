"""A Pod, with the fields that components decide on. `read(object)` parses one; statuses are written as plain
objects."""

from collections.abc import Mapping
from typing import Any

import msgspec

from podwire.objects.containers import Container, Part, Profile, Quantities
from podwire.objects.volumes import Volume


class OwnerReference(Part, frozen=True, kw_only=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class Metadata(Part, frozen=True, kw_only=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()


class Namespaced(Part, frozen=True, kw_only=True):
    """An object that has a namespace."""

    metadata: Metadata

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def namespace(self) -> str:
        return self.metadata.namespace

    @property
    def uid(self) -> str:
        return self.metadata.uid

    @property
    def ref(self) -> str:
        """NAMESPACE/NAME, as people and logs say it."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def deleting(self) -> bool:
        return self.metadata.deletion_timestamp is not None


class Sysctl(Part, frozen=True, kw_only=True):
    name: str
    value: str


class PodSecurityContext(Part, frozen=True, kw_only=True):
    run_as_user: int | None = None
    run_as_group: int | None = None
    run_as_non_root: bool | None = None
    supplemental_groups: tuple[int, ...] = ()
    supplemental_groups_policy: str = ""
    fs_group: int | None = None
    fs_group_change_policy: str = ""
    sysctls: tuple[Sysctl, ...] = ()
    seccomp_profile: Profile | None = None
    app_armor_profile: Profile | None = None


class Toleration(Part, frozen=True, kw_only=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class HostAlias(Part, frozen=True, kw_only=True):
    ip: str
    hostnames: tuple[str, ...] = ()


class DnsOption(Part, frozen=True, kw_only=True):
    name: str = ""
    value: str | None = None


class DnsConfig(Part, frozen=True, kw_only=True):
    nameservers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[DnsOption, ...] = ()


class Named(Part, frozen=True, kw_only=True):
    name: str = ""


class ReadinessGate(Part, frozen=True, kw_only=True):
    condition_type: str


class SpreadConstraint(Part, frozen=True, kw_only=True):
    max_skew: int
    topology_key: str
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: dict[str, Any] | None = None
    min_domains: int | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: tuple[str, ...] = ()


class PodSpec(Part, frozen=True, kw_only=True):
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    ephemeral_containers: tuple[Container, ...] = ()
    volumes: tuple[Volume, ...] = ()
    node_name: str = ""
    node_selector: dict[str, str] = {}
    affinity: dict[str, Any] | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[SpreadConstraint, ...] = ()
    scheduler_name: str = "default-scheduler"
    scheduling_gates: tuple[Named, ...] = ()
    priority: int = 0
    preemption_policy: str = "PreemptLowerPriority"
    restart_policy: str = "Always"
    termination_grace_period_seconds: int = 30
    active_deadline_seconds: int | None = None
    dns_policy: str = "ClusterFirst"
    dns_config: DnsConfig | None = None
    service_account_name: str = ""
    enable_service_links: bool = True
    os: Named | None = None
    host_network: bool = False
    host_pid: bool = msgspec.field(default=False, name="hostPID")
    host_ipc: bool = msgspec.field(default=False, name="hostIPC")
    host_users: bool = True
    share_process_namespace: bool = False
    hostname: str = ""
    subdomain: str = ""
    set_hostname_as_fqdn: bool = msgspec.field(default=False, name="setHostnameAsFQDN")
    host_aliases: tuple[HostAlias, ...] = ()
    image_pull_secrets: tuple[Named, ...] = ()
    readiness_gates: tuple[ReadinessGate, ...] = ()
    runtime_class_name: str = ""
    overhead: Quantities = {}
    security_context: PodSecurityContext = PodSecurityContext()
    resource_claims: tuple[dict[str, Any], ...] = ()

    @property
    def every_container(self) -> tuple[Container, ...]:
        return (*self.init_containers, *self.containers, *self.ephemeral_containers)


class PodStatus(Part, frozen=True, kw_only=True):
    """The status of a pod. Container statuses and conditions are plain objects."""

    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    nominated_node_name: str = ""
    start_time: str | None = None
    qos_class: str = ""
    conditions: tuple[dict[str, Any], ...] = ()
    init_container_statuses: tuple[dict[str, Any], ...] = ()
    container_statuses: tuple[dict[str, Any], ...] = ()
    resource_claim_statuses: tuple[dict[str, Any], ...] = ()
    extended_resource_claim_status: dict[str, Any] | None = None


class Pod(Namespaced, frozen=True, kw_only=True):
    spec: PodSpec
    status: PodStatus = PodStatus()

    @property
    def static(self) -> bool:
        """Whether it comes from a file of its node. The API has a mirror of it, with another uid."""
        return self.metadata.annotations.get("kubernetes.io/config.source", "api") != "api"

    @property
    def finished(self) -> bool:
        """Nothing of it will run again."""
        return self.status.phase in ("Succeeded", "Failed")


def read(object_: Mapping[str, Any]) -> Pod:
    """Raises msgspec.ValidationError, which names the field, for what no API server should hold."""
    return msgspec.convert(object_, Pod)
