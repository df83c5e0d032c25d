"""Probes and lifecycle hooks of a container: one handler each, with ranges for the numbers."""

from collections.abc import Callable, Sequence

from podwire.kinds.field_checks import Choice, Errors, Object, named, non_negative, port_or_name
from podwire.objects import names
from podwire.protocols.k8sapi.status import forbidden, invalid, required

_SCHEMES = Choice(("HTTP", "HTTPS"))
_COUNTS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
_REAL_TIME = (
    "SIGRTMIN",
    *(f"SIGRTMIN+{number}" for number in range(1, 16)),
    *(f"SIGRTMAX-{number}" for number in range(14, 0, -1)),
    "SIGRTMAX",
)
_CLASSIC = (
    "ABRT ALRM BUS CHLD CLD CONT FPE HUP ILL INT IO IOT KILL PIPE POLL PROF PWR QUIT SEGV STKFLT STOP SYS TERM TRAP "
    "TSTP TTIN TTOU URG USR1 USR2 VTALRM WINCH XCPU XFSZ"
)
_SIGNALS = {
    "linux": Choice(tuple(sorted([*(f"SIG{word}" for word in _CLASSIC.split()), *_REAL_TIME]))),
    "windows": Choice(("SIGKILL", "SIGTERM")),
}

Handler = Callable[[Object, str, int | None, Errors], None]


def _exec(action: Object, path: str, _grace: int | None, errors: Errors) -> None:
    if not action.get("command"):
        errors.append(required(f"{path}.command"))


def _http_get(action: Object, path: str, _grace: int | None, errors: Errors) -> None:
    if not action.get("path"):
        errors.append(required(f"{path}.path"))
    port_or_name(action.get("port", 0), f"{path}.port", errors)
    _SCHEMES.check(action.get("scheme", ""), f"{path}.scheme", errors)
    for header in action.get("httpHeaders") or ():
        named(names.http_header_name, header.get("name", ""), f"{path}.httpHeaders", errors)


def _port(action: Object, path: str, _grace: int | None, errors: Errors) -> None:
    port_or_name(action.get("port", 0), f"{path}.port", errors)


def _sleep(action: Object, path: str, grace: int | None, errors: Errors) -> None:
    seconds = action.get("seconds", 0)
    if grace is not None and not 0 <= seconds <= grace:
        detail = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
        errors.append(invalid(path, seconds, detail))


_PROBE_HANDLERS: Sequence[tuple[str, Handler]] = (
    ("exec", _exec),
    ("httpGet", _http_get),
    ("tcpSocket", _port),
    ("grpc", _port),
)
_HOOK_HANDLERS: Sequence[tuple[str, Handler]] = (*_PROBE_HANDLERS[:3], ("sleep", _sleep))


def probes(container: Object, grace: int | None, path: str, errors: Errors) -> None:
    """All three probes of a container that may have them."""
    if (probe := container.get("livenessProbe")) is not None:
        _probe(probe, grace, f"{path}.livenessProbe", errors)
        _one_success(probe, f"{path}.livenessProbe", errors)
    if (probe := container.get("readinessProbe")) is not None:
        _probe(probe, grace, f"{path}.readinessProbe", errors)
        if (seconds := probe.get("terminationGracePeriodSeconds")) is not None:
            place = f"{path}.readinessProbe.terminationGracePeriodSeconds"
            errors.append(invalid(place, seconds, "must not be set for readinessProbes"))
    if (probe := container.get("startupProbe")) is not None:
        _probe(probe, grace, f"{path}.startupProbe", errors)
        _one_success(probe, f"{path}.startupProbe", errors)


def _probe(probe: Object, grace: int | None, path: str, errors: Errors) -> None:
    _handler(probe, _PROBE_HANDLERS, grace, path, errors)
    for count in _COUNTS:
        if probe.get(count, 0) < 0:
            non_negative(probe[count], f"{path}.{count}", errors)
    seconds = probe.get("terminationGracePeriodSeconds")
    if seconds is not None and seconds <= 0:
        errors.append(invalid(f"{path}.terminationGracePeriodSeconds", seconds, "must be greater than 0"))


def _one_success(probe: Object, path: str, errors: Errors) -> None:
    threshold = probe.get("successThreshold", 0)
    if threshold != 1:
        errors.append(invalid(f"{path}.successThreshold", threshold, "must be 1"))


def _handler(
    holder: Object, handlers: Sequence[tuple[str, Handler]], grace: int | None, path: str, errors: Errors
) -> None:
    handled = False
    for name, check in handlers:
        action = holder.get(name)
        if action is None:
            continue
        if handled:
            errors.append(forbidden(f"{path}.{name}", "may not specify more than 1 handler type"))
        else:
            handled = True
            check(action, f"{path}.{name}", grace, errors)
    if not handled:
        errors.append(required(path, "must specify a handler type"))


def lifecycle(hooks: Object, grace: int | None, os: str | None, path: str, errors: Errors) -> None:
    for name in ("postStart", "preStop"):
        if (hook := hooks.get(name)) is not None:
            _handler(hook, _HOOK_HANDLERS, grace, f"{path}.{name}", errors)
    if (signal := hooks.get("stopSignal")) is not None:
        if os is None:
            detail = "may not be set for containers with empty `spec.os.name`"
            errors.append(forbidden(f"{path}.stopSignal", detail))
        elif os in _SIGNALS:
            _SIGNALS[os].check(signal, f"{path}.stopSignal", errors)
