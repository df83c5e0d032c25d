"""A kernel in a process's own memory, for tests that need no data path: the same ports, the same answers.

One suite of tests holds it to the real one. It forwards no packet and proves nothing about one that does.
"""

from podwire.linux.memory.kernel import MemoryKernel

__all__ = ["MemoryKernel"]
