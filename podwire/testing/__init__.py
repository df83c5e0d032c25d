"""The test kit for authors of plugins: clusters for tests, assertions on traces, and a pytest plugin with fixtures."""

from podwire.testing.cluster import CommandFailed, Node, TestCluster
from podwire.testing.trace import Call, Trace

__all__ = ["Call", "CommandFailed", "Node", "TestCluster", "Trace"]
