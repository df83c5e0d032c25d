"""A container of a pod, with the fields that components decide on; msgspec decodes it from the API's JSON."""

from typing import Any

from msgspec import Struct, field

Quantities = dict[str, str | int | float]
IntOrString = int | str


class Part(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Base of API types: fields by their JSON names; fields that no component decides on are left out."""


class KeyRef(Part, frozen=True, kw_only=True):
    """A key of a ConfigMap or a Secret."""

    name: str = ""
    key: str = ""
    optional: bool | None = None


class FieldRef(Part, frozen=True, kw_only=True):
    field_path: str


class ResourceFieldRef(Part, frozen=True, kw_only=True):
    resource: str
    container_name: str = ""
    divisor: str | int | float | None = None


class EnvSource(Part, frozen=True, kw_only=True):
    field_ref: FieldRef | None = None
    resource_field_ref: ResourceFieldRef | None = None
    config_map_key_ref: KeyRef | None = None
    secret_key_ref: KeyRef | None = None


class EnvVar(Part, frozen=True, kw_only=True):
    name: str
    value: str = ""
    value_from: EnvSource | None = None


class Ref(Part, frozen=True, kw_only=True):
    """A ConfigMap or a Secret as a whole."""

    name: str = ""
    optional: bool | None = None


class EnvFrom(Part, frozen=True, kw_only=True):
    prefix: str = ""
    config_map_ref: Ref | None = None
    secret_ref: Ref | None = None


class Port(Part, frozen=True, kw_only=True):
    container_port: int
    host_port: int = 0
    host_ip: str = field(default="", name="hostIP")
    name: str = ""
    protocol: str = "TCP"


class VolumeMount(Part, frozen=True, kw_only=True):
    name: str
    mount_path: str
    read_only: bool = False
    recursive_read_only: str = ""
    sub_path: str = ""
    sub_path_expr: str = ""
    mount_propagation: str = ""


class VolumeDevice(Part, frozen=True, kw_only=True):
    """A block device in a container."""

    name: str
    device_path: str


class Requests(Part, frozen=True, kw_only=True):
    """Resource requests and limits of a container."""

    requests: Quantities = {}
    limits: Quantities = {}
    claims: tuple[dict[str, Any], ...] = ()


class ResizePolicy(Part, frozen=True, kw_only=True):
    resource_name: str
    restart_policy: str = "NotRequired"


class Capabilities(Part, frozen=True, kw_only=True):
    add: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()


class Profile(Part, frozen=True, kw_only=True):
    """Seccomp or AppArmor."""

    type: str
    localhost_profile: str = ""


class SecurityContext(Part, frozen=True, kw_only=True):
    privileged: bool | None = None
    capabilities: Capabilities | None = None
    run_as_user: int | None = None
    run_as_group: int | None = None
    run_as_non_root: bool | None = None
    read_only_root_filesystem: bool | None = None
    allow_privilege_escalation: bool | None = None
    proc_mount: str = ""
    seccomp_profile: Profile | None = None
    app_armor_profile: Profile | None = None


class ExecAction(Part, frozen=True, kw_only=True):
    command: tuple[str, ...] = ()


class HttpHeader(Part, frozen=True, kw_only=True):
    name: str
    value: str = ""


class HttpGet(Part, frozen=True, kw_only=True):
    port: IntOrString
    path: str = "/"
    host: str = ""
    scheme: str = "HTTP"
    http_headers: tuple[HttpHeader, ...] = ()


class TcpSocket(Part, frozen=True, kw_only=True):
    port: IntOrString
    host: str = ""


class GrpcAction(Part, frozen=True, kw_only=True):
    port: int
    service: str | None = None


class SleepAction(Part, frozen=True, kw_only=True):
    seconds: int = 0


class Probe(Part, frozen=True, kw_only=True):
    exec: ExecAction | None = None
    http_get: HttpGet | None = None
    tcp_socket: TcpSocket | None = None
    grpc: GrpcAction | None = None
    initial_delay_seconds: int = 0
    timeout_seconds: int = 1
    period_seconds: int = 10
    success_threshold: int = 1
    failure_threshold: int = 3
    termination_grace_period_seconds: int | None = None


class Hook(Part, frozen=True, kw_only=True):
    """A lifecycle hook: after a container's start, or before its stop."""

    exec: ExecAction | None = None
    http_get: HttpGet | None = None
    tcp_socket: TcpSocket | None = None
    sleep: SleepAction | None = None


class Lifecycle(Part, frozen=True, kw_only=True):
    post_start: Hook | None = None
    pre_stop: Hook | None = None
    stop_signal: str = ""


class ExitCodes(Part, frozen=True, kw_only=True):
    operator: str = "In"
    values: tuple[int, ...] = ()


class RestartRule(Part, frozen=True, kw_only=True):
    action: str = ""
    exit_codes: ExitCodes | None = None

    def restarts(self, exit_code: int) -> bool:
        """Whether it restarts a container that ended with this code."""
        if self.action != "Restart" or self.exit_codes is None:
            return False
        return (exit_code in self.exit_codes.values) == (self.exit_codes.operator == "In")


class Container(Part, frozen=True, kw_only=True):
    """An app, init or ephemeral container."""

    name: str
    image: str = ""
    image_pull_policy: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str = ""
    ports: tuple[Port, ...] = ()
    env: tuple[EnvVar, ...] = ()
    env_from: tuple[EnvFrom, ...] = ()
    resources: Requests = Requests()
    resize_policy: tuple[ResizePolicy, ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()
    volume_devices: tuple[VolumeDevice, ...] = ()
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    startup_probe: Probe | None = None
    lifecycle: Lifecycle | None = None
    restart_policy: str = ""
    """Overrides the pod's; Always makes an init container a sidecar."""
    restart_policy_rules: tuple[RestartRule, ...] = ()
    termination_message_path: str = "/dev/termination-log"
    termination_message_policy: str = "File"
    security_context: SecurityContext = SecurityContext()
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False
    target_container_name: str = ""
    """Of an ephemeral container only: the container whose processes it sees."""

    @property
    def sidecar(self) -> bool:
        return self.restart_policy == "Always"
