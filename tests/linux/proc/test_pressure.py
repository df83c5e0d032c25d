"""Memory pressure of the machine is an event that a loop can wait for."""

import select

import pytest

from podwire.linux import errors
from podwire.linux.proc.pressure import MemoryPressure


def test_a_trigger_can_be_watched():
    try:
        pressure = MemoryPressure()
    except errors.Unsupported as error:
        pytest.skip(f"this kernel has no pressure stall information: {error}")
    with select.epoll() as loop:
        loop.register(pressure.fileno(), select.EPOLLIN)
        loop.poll(0)
    pressure.read()
    pressure.close()


def test_a_kernel_without_pressure_information_is_unsupported(tmp_path):
    with pytest.raises(errors.Unsupported):
        MemoryPressure(str(tmp_path / "missing"))
