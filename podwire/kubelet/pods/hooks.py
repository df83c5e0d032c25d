"""Lifecycle hooks of containers: postStart and preStop."""

import asyncio
from collections.abc import Sequence

from podwire.kubelet.probes import ProbeFailed, Prober, ProbeUnknown
from podwire.kubelet.probes.targets import HOOK_AGENT, headers_of, url_of
from podwire.objects.containers import Container, Hook, HttpGet
from podwire.objects.pods import Pod

FAILED_POST_START = ("FailedPostStartHook", "PostStartHook failed")
FAILED_PRE_STOP = ("FailedPreStopHook", "PreStopHook failed")
"""Reason and message of the events. They do not include the output of a hook: it may contain secrets."""


class HookFailed(Exception):
    """The message names the hook and the cause; it is for logs only."""


async def run_hook(
    hook: Hook,
    pod: Pod,
    container: Container,
    container_id: str,
    ips: Sequence[str],
    prober: Prober,
    timeout: float | None = None,  # noqa: ASYNC109 - part of the error message
) -> None:
    """Run a hook, within `timeout` seconds if given. Raises HookFailed."""
    suffix = f'for Container "{container.name}" in Pod "{pod.name}_{pod.namespace}({pod.uid})" failed - error:'
    try:
        async with asyncio.timeout(timeout):
            if hook.exec is not None:
                await _exec(hook.exec.command, container_id, suffix, prober, timeout)
            elif hook.http_get is not None:
                await _http(hook.http_get, container, ips, suffix, prober)
            elif hook.sleep is not None:
                await asyncio.sleep(hook.sleep.seconds)
            elif hook.tcp_socket is not None:
                raise HookFailed(f"TCP lifecycle hook {suffix} tcpSocket is deprecated and not supported")
            else:
                raise HookFailed(f"Lifecycle hook {suffix} missing handler")
    except TimeoutError as error:
        if hook.sleep is not None:
            message = (
                f"Sleep lifecycle hook ({hook.sleep.seconds}) {suffix} container terminated before sleep hook finished"
            )
        else:
            message = f"Lifecycle hook {suffix} not finished within {timeout:g} s"
        raise HookFailed(message) from error


async def _exec(command: Sequence[str], container_id: str, suffix: str, prober: Prober, seconds: float | None) -> None:
    prefix = f"Exec lifecycle hook ([{' '.join(command)}]) {suffix}"
    try:
        done = await prober.exec(container_id, command, seconds)
    except (ProbeFailed, ProbeUnknown) as error:
        raise HookFailed(f'{prefix} {error}, message: ""') from error
    if done.code != 0:
        words = " ".join(command)
        raise HookFailed(f"{prefix} command '{words}' exited with {done.code}: , message: \"{done.output}\"")


async def _http(get: HttpGet, container: Container, ips: Sequence[str], suffix: str, prober: Prober) -> None:
    """Any answer counts, whatever its status code: the container was notified."""
    try:
        await prober.http(url_of(get, container, ips), headers_of(get, HOOK_AGENT), None)
    except (ProbeFailed, ProbeUnknown) as error:
        raise HookFailed(f"HTTP lifecycle hook ({get.path}) {suffix} {error}") from error
