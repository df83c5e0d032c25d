"""One container: its record, its configuration and its locks."""

import asyncio
import hashlib
import signal
from dataclasses import dataclass, field

from podwire.linux.cgroups.values import Limits
from podwire.protocols.cri import cri_pb2 as pb
from podwire.runtime.containers.shim import Exited
from podwire.runtime.cri.resources import limits_of
from podwire.runtime.records import ContainerRecord


@dataclass(slots=True)
class Container:
    """One container. Calls that change it hold its lock."""

    record: ContainerRecord
    config: pb.ContainerConfig
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    exited: asyncio.Event = field(default_factory=asyncio.Event)
    stop_reported: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when NRI plugins know that it has exited."""

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def running(self) -> bool:
        return self.record.state == "running"

    def was_created_by(self, config: pb.ContainerConfig) -> bool:
        """Whether a CreateContainer with this configuration is a repetition of its own."""
        if self.record.fingerprint:
            return self.record.fingerprint == fingerprint(config)
        return self.config == config

    @property
    def limits(self) -> Limits:
        """Its resource limits."""
        return self.record.limits or limits_of(self.config.linux.resources)


def fingerprint(config: pb.ContainerConfig) -> str:
    """Returns the same text for equal configurations, and does not show what is in them."""
    return hashlib.blake2s(config.SerializeToString(deterministic=True)).hexdigest()


def without_secrets(config: pb.ContainerConfig) -> pb.ContainerConfig:
    """Returns a copy to keep and to record: without variables, and without the arguments in which they are expanded."""
    copy = pb.ContainerConfig()
    copy.CopyFrom(config)
    for name in ("envs", "command", "args"):
        copy.ClearField(name)
    return copy


LONGEST_SIGNAL = 20
"""Letters of the name of a signal; images are untrusted."""


def exit_reason(exited: Exited, *, oom: bool) -> str:
    """Returns CRI's reason of an exit, as containerd has them."""
    if not exited.known:
        return "Unknown"
    if oom and exited.code == 137:
        return "OOMKilled"
    return "Completed" if exited.code == 0 else "Error"


def stop_signal(config: pb.ContainerConfig, image_signal: str = "") -> int:
    """Returns the signal that stops a container: its own (by CRI's own numbers), its image's, or TERM."""
    name = pb.Signal.Name(config.stop_signal).replace("PLUS", "+").replace("MINUS", "-")  # CRI's SIGRTMINPLUS3
    chosen = name if config.stop_signal else image_signal
    return signal_number(chosen) or signal.SIGTERM


def signal_number(name: str) -> int:
    """Returns the number of a signal by name (`SIGTERM`, `TERM`, `15`, `SIGRTMIN+3`); 0 when there is none."""
    text = name.upper().removeprefix("SIG")
    if len(text) > LONGEST_SIGNAL or not text.isascii():
        return 0
    if text.isdecimal():
        return int(text) if 0 < int(text) <= signal.SIGRTMAX else 0
    base, sign, offset = text.partition("+") if "+" in text else text.partition("-")
    if base in ("RTMIN", "RTMAX"):
        step = int(offset) if offset.isdecimal() else 0
        chosen = signal.SIGRTMIN + step if base == "RTMIN" else signal.SIGRTMAX - step
        return chosen if signal.SIGRTMIN <= chosen <= signal.SIGRTMAX else 0
    value = getattr(signal, f"SIG{text}", None)
    return int(value) if isinstance(value, signal.Signals) and not sign else 0
