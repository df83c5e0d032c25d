"""Return values of hooks: the adjustment of a container that is being created, and updates of existing ones."""

from collections.abc import Iterable, Iterator
from typing import Literal, Self, Unpack

from podwire.nri.resources import Resources, fill, set_optional
from podwire.protocols.nri import nri_pb2 as pb


class Updates:
    """Returned by hooks, or sent unasked by `Plugin.update_containers`. Calls may be chained."""

    def __init__(self, messages: Iterable[pb.ContainerUpdate] = ()) -> None:
        self.messages = list(messages)

    def set(self, container_id: str, *, ignore_failure: bool = False, **resources: Unpack[Resources]) -> Self:
        """Sets resources of a container, such as `cpu_shares=512`; may be called repeatedly for one container.

        With `ignore_failure`, a failure of this update does not fail the whole request.
        """
        update = next((message for message in self.messages if message.container_id == container_id), None)
        if update is None:
            update = pb.ContainerUpdate(container_id=container_id)
            self.messages.append(update)
        update.ignore_failure = ignore_failure
        fill(update.linux.resources, resources)
        return self

    def __iter__(self) -> Iterator[pb.ContainerUpdate]:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)


Stage = Literal["prestart", "create_runtime", "create_container", "start_container", "poststart", "poststop"]


class Adjustment:
    """Returned by `create_container`. Calls may be chained.

    A value that another plugin has set can only be changed by removing it first: `remove_env("A").add_env("A", "1")`.
    Otherwise the container is not created, and the error names both plugins.
    """

    def __init__(self, message: pb.ContainerAdjustment | None = None) -> None:
        self.message = pb.ContainerAdjustment() if message is None else message
        self.others = Updates()
        """Updates of other containers at the same time."""

    # All containers.

    def add_annotation(self, key: str, value: str) -> Self:
        self.message.annotations[key] = value
        return self

    def remove_annotation(self, key: str) -> Self:
        return self.add_annotation(f"-{key}", "")

    def add_mount(
        self, destination: str, source: str, *, kind: str = "bind", options: Iterable[str] = ("rbind",)
    ) -> Self:
        self.message.mounts.add(destination=destination, source=source, type=kind, options=options)
        return self

    def remove_mount(self, destination: str) -> Self:
        self.message.mounts.add(destination=f"-{destination}")
        return self

    def add_env(self, name: str, value: str) -> Self:
        self.message.env.add(key=name, value=value)
        return self

    def remove_env(self, name: str) -> Self:
        return self.add_env(f"-{name}", "")

    def set_args(self, args: Iterable[str], *, replace: bool = False) -> Self:
        """The command line; `replace` overrides another plugin's."""
        self.message.args[:] = [*([""] if replace else []), *args]
        return self

    def add_hook(
        self, stage: Stage, path: str, *, args: Iterable[str] = (), env: Iterable[str] = (), timeout: int | None = None
    ) -> Self:
        """A program that the OCI runtime runs; `args` begin with its own name, `timeout` is in seconds."""
        hook = pb.Hook(path=path, args=args, env=env)
        if timeout is not None:
            hook.timeout.value = timeout
        getattr(self.message.hooks, stage).append(hook)
        return self

    def add_rlimit(self, kind: str, *, hard: int, soft: int | None = None) -> Self:
        """`kind` such as RLIMIT_NOFILE; without `soft` both are the same."""
        self.message.rlimits.add(type=kind, hard=hard, soft=hard if soft is None else soft)
        return self

    def add_cdi_device(self, *names: str) -> Self:
        """Fully qualified: vendor.com/class=name. They can only be added."""
        for name in names:
            self.message.CDI_devices.add(name=name)
        return self

    # Linux containers.

    def add_device(
        self,
        path: str,
        *,
        kind: str = "c",
        major: int,
        minor: int,
        file_mode: int | None = None,
        uid: int | None = None,
        gid: int | None = None,
    ) -> Self:
        """A device node; runtimes also let the container use it."""
        device = self.message.linux.devices.add(path=path, type=kind, major=major, minor=minor)
        for field, value in (("file_mode", file_mode), ("uid", uid), ("gid", gid)):
            if value is not None:
                set_optional(getattr(device, field), value)
        return self

    def remove_device(self, path: str) -> Self:
        self.message.linux.devices.add(path=f"-{path}")
        return self

    def add_device_rule(
        self, *, allow: bool, kind: str = "a", major: int | None = None, minor: int | None = None, access: str = "rwm"
    ) -> Self:
        """Adds a rule of the devices cgroup; None means any."""
        rule = self.message.linux.resources.devices.add(allow=allow, type=kind, access=access)
        for field, value in (("major", major), ("minor", minor)):
            if value is not None:
                set_optional(getattr(rule, field), value)
        return self

    def add_net_device(self, host_name: str, name: str = "") -> Self:
        """Move a link of the host into the container's network, there called `name` or as before."""
        self.message.linux.net_devices[host_name].name = name or host_name
        return self

    def remove_net_device(self, host_name: str) -> Self:
        self.message.linux.net_devices[f"-{host_name}"].SetInParent()
        return self

    def add_sysctl(self, key: str, value: str) -> Self:
        self.message.linux.sysctl[key] = value
        return self

    def remove_sysctl(self, key: str) -> Self:
        return self.add_sysctl(f"-{key}", "")

    def add_namespace(self, kind: str, path: str = "") -> Self:
        """`kind` such as network or ipc; without a path the container gets one of its own."""
        self.message.linux.namespaces.add(type=kind, path=path)
        return self

    def remove_namespace(self, kind: str) -> Self:
        return self.add_namespace(f"-{kind}")

    def set_resources(self, **resources: Unpack[Resources]) -> Self:
        """Such as `memory_limit=1 << 30, cpu_cpus="0-3"`."""
        fill(self.message.linux.resources, resources)
        return self

    def set_cgroups_path(self, path: str) -> Self:
        self.message.linux.cgroups_path = path
        return self

    def set_oom_score_adj(self, value: int) -> Self:
        set_optional(self.message.linux.oom_score_adj, value)
        return self

    def set_io_priority(self, kind: str, priority: int) -> Self:
        """`kind` such as IOPRIO_CLASS_BE."""
        self.message.linux.io_priority.priority = priority
        setattr(self.message.linux.io_priority, "class", pb.IOPrioClass.Value(kind))  # a word that Python keeps
        return self

    def set_seccomp_policy(self, policy: pb.LinuxSeccomp) -> Self:
        self.message.linux.seccomp_policy.CopyFrom(policy)
        return self

    def set_scheduler(self, scheduler: pb.LinuxScheduler) -> Self:
        self.message.linux.scheduler.CopyFrom(scheduler)
        return self

    def set_memory_policy(self, mode: str, nodes: str = "", *, flags: Iterable[str] = ()) -> Self:
        """`mode` such as MPOL_BIND, flags such as MPOL_F_STATIC_NODES."""
        self.message.linux.memory_policy.CopyFrom(pb.LinuxMemoryPolicy(mode=mode, nodes=nodes, flags=flags))
        return self

    def set_rdt(
        self,
        *,
        clos_id: str | None = None,
        schemata: Iterable[str] | None = None,
        enable_monitoring: bool | None = None,
    ) -> Self:
        rdt = self.message.linux.rdt
        if clos_id is not None:
            set_optional(rdt.clos_id, clos_id)
        if schemata is not None:
            rdt.schemata.SetInParent()
            rdt.schemata.value[:] = schemata
        if enable_monitoring is not None:
            set_optional(rdt.enable_monitoring, enable_monitoring)
        return self

    def remove_rdt(self) -> Self:
        self.message.linux.rdt.remove = True
        return self
