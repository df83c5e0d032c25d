"""Runs the credential plugin of a kubeconfig: a child process that prints an ExecCredential."""

import asyncio
import contextlib
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process

from podwire.protocols.k8sapi.client_side import NoCredentials
from podwire.protocols.k8sapi.exec_credential import (
    EXEC_INFO,
    MAX_ANSWER,
    BadCredential,
    Credential,
    ExecPlugin,
    InteractiveMode,
    exec_info,
    read_credential,
)
from podwire.protocols.k8sapi.kubeconfig import Access
from podwire.tasks.uncancelled import to_completion
from podwire.transports.credentials import pem_text

PLUGIN_SECONDS = 300.0
"""A plugin may ask a person to log in, with a browser and a telephone."""


async def run_plugin(access: Access, plugin: ExecPlugin, *, seconds: float = PLUGIN_SECONDS) -> Credential:
    """Returns new credentials. The program inherits stderr and, where it may ask, a terminal as stdin.

    Raises NoCredentials and, for an unreadable CA file, BadKubeconfig.
    """
    interactive = _interactive(plugin)
    cluster = access.cluster_info(pem_text(access.ca, "certificate-authority"))
    variables = {**dict(plugin.env), EXEC_INFO: exec_info(plugin, interactive=interactive, cluster=cluster)}
    starting = asyncio.create_task(
        asyncio.create_subprocess_exec(
            plugin.command,
            *plugin.args,
            stdin=None if interactive else DEVNULL,
            stdout=PIPE,
            env={**os.environ, **variables},
            limit=MAX_ANSWER,
        )
    )
    try:
        # A loop that is cancelled while it starts a process leaves it: the caller ends it once it has started.
        process = await to_completion(starting)
    except asyncio.CancelledError:
        if starting.exception() is None:
            await _end(starting.result())
        raise
    except FileNotFoundError:
        hint = f"\n\n{plugin.install_hint}" if plugin.install_hint else ""
        raise NoCredentials(f"exec: executable {plugin.command} not found{hint}") from None
    except (OSError, ValueError) as error:
        raise NoCredentials(f"exec: executable {plugin.command} cannot be started: {error}") from error
    try:
        async with asyncio.timeout(seconds):
            output = await _output(process)
            code = await process.wait()
    except TimeoutError:
        raise NoCredentials(f"exec: executable {plugin.command} did not end within {seconds:g} s") from None
    finally:
        await _end(process)
    if len(output) > MAX_ANSWER:
        raise NoCredentials(f"exec plugin {plugin.command}: printed more than {MAX_ANSWER} bytes")
    if code:
        raise NoCredentials(f"exec: executable {plugin.command} failed with exit code {code}")
    try:
        return read_credential(plugin, output)
    except BadCredential as error:
        raise NoCredentials(f"exec plugin {plugin.command}: {error}") from None


def _interactive(plugin: ExecPlugin) -> bool:
    if plugin.interactive_mode is InteractiveMode.NEVER:
        return False
    try:
        terminal = sys.stdin is not None and sys.stdin.isatty()
    except ValueError:  # closed
        terminal = False
    if plugin.interactive_mode is InteractiveMode.ALWAYS and not terminal:
        raise NoCredentials(
            f"exec plugin {plugin.command} cannot support interactive mode: standard input is not a terminal"
        )
    return terminal


async def _end(process: Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()
    process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001 - a grandchild may keep the pipe open


async def _output(process: Process) -> bytes:
    """Reads to the end; a program that prints more than it may is killed."""
    output = b""
    if process.stdout is not None:
        while len(output) <= MAX_ANSWER and (data := await process.stdout.read(65536)):
            output += data
        if len(output) > MAX_ANSWER:
            process.kill()
    return output
