"""Stop signals: CRI numbers them in a way of its own."""

import signal

from podwire.protocols.cri import cri_pb2 as pb


def stop_signal(config: pb.ContainerConfig, image_signal: str = "") -> int:
    """Returns the signal that stops a container: its own, its image's, or TERM."""
    name = pb.Signal.Name(config.stop_signal).replace("PLUS", "+").replace("MINUS", "-")  # CRI's SIGRTMINPLUS3
    chosen = name if config.stop_signal else image_signal
    return number(chosen) or signal.SIGTERM


def number(name: str) -> int:
    """Returns the number of a signal by name (`SIGTERM`, `TERM`, `15`, `SIGRTMIN+3`); 0 when there is none."""
    text = name.upper().removeprefix("SIG")
    if text.isdigit():
        return int(text) if 0 < int(text) <= signal.SIGRTMAX else 0
    base, sign, offset = text.partition("+") if "+" in text else text.partition("-")
    if base in ("RTMIN", "RTMAX"):
        step = int(offset) if offset.isdigit() else 0
        return signal.SIGRTMIN + step if base == "RTMIN" else signal.SIGRTMAX - step
    value = getattr(signal, f"SIG{text}", None)
    return int(value) if isinstance(value, signal.Signals) and not sign else 0
