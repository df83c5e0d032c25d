"""What a container asked to be done after its start and before its stop."""

import asyncio
from collections.abc import Sequence

from podwire.kubelet.probes import ProbeFailed, Prober, ProbeUnknown
from podwire.kubelet.probes.targets import HOOK_AGENT, headers_of, url_of
from podwire.objects.containers import Container, Hook, HttpGet
from podwire.objects.pods import Pod

FAILED_POST_START = ("FailedPostStartHook", "PostStartHook failed")
FAILED_PRE_STOP = ("FailedPreStopHook", "PreStopHook failed")
"""Reason and message of the events. They do not repeat what a hook said: it may know secrets."""


class HookFailed(Exception):
    """The sentence tells which hook and why; it is for logs, an event's is above."""


async def run_hook(
    hook: Hook,
    pod: Pod,
    container: Container,
    container_id: str,
    ips: Sequence[str],
    prober: Prober,
    timeout: float | None = None,  # noqa: ASYNC109 - told in the words of the failure
) -> None:
    """Do what a hook says, within `timeout` seconds if given. Raises HookFailed."""
    where = f'for Container "{container.name}" in Pod "{pod.name}_{pod.namespace}({pod.uid})" failed - error:'
    try:
        async with asyncio.timeout(timeout):
            if hook.exec is not None:
                await _exec(hook.exec.command, container_id, where, prober, timeout)
            elif hook.http_get is not None:
                await _http(hook.http_get, container, ips, where, prober)
            elif hook.sleep is not None:
                await asyncio.sleep(hook.sleep.seconds)
            elif hook.tcp_socket is not None:
                raise HookFailed(f"TCP lifecycle hook {where} tcpSocket is deprecated and not supported")
            else:
                raise HookFailed(f"Lifecycle hook {where} missing handler")
    except TimeoutError as error:
        if hook.sleep is not None:
            why = f"Sleep lifecycle hook ({hook.sleep.seconds}) {where} container terminated before sleep hook finished"
        else:
            why = f"Lifecycle hook {where} not finished within {timeout:g} s"
        raise HookFailed(why) from error


async def _exec(command: Sequence[str], container_id: str, where: str, prober: Prober, seconds: float | None) -> None:
    told = f"Exec lifecycle hook ([{' '.join(command)}]) {where}"
    try:
        done = await prober.exec(container_id, command, seconds)
    except (ProbeFailed, ProbeUnknown) as error:
        raise HookFailed(f'{told} {error}, message: ""') from error
    if done.code != 0:
        words = " ".join(command)
        raise HookFailed(f"{told} command '{words}' exited with {done.code}: , message: \"{done.output}\"")


async def _http(get: HttpGet, container: Container, ips: Sequence[str], where: str, prober: Prober) -> None:
    """Any answer will do, whatever its status: the container was told."""
    try:
        await prober.http(url_of(get, container, ips), headers_of(get, HOOK_AGENT), None)
    except (ProbeFailed, ProbeUnknown) as error:
        raise HookFailed(f"HTTP lifecycle hook ({get.path}) {where} {error}") from error
