"""Modules that a command loads: a daemon pays for each of them with memory, and a short command with time."""

import subprocess
import sys

import pytest

OTHERS = (
    "apiserver",
    "controllers",
    "deviceplugin",
    "dns",
    "dradriver",
    "kinds",
    "kubelet",
    "proxy",
    "scheduler",
    "store",
)


@pytest.mark.parametrize("module", ["podwire.cli.cni", "podwire.cli.options"])
def test_a_command_loads_no_component_that_it_does_not_run(module):
    script = (
        f"import sys, {module}; print(*{{name.split('.')[1] for name in sys.modules if name.startswith('podwire.')}})"
    )
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert set(loaded) & set(OTHERS) == set()
