"""The whole way of a Kubernetes pod onto its network. The map of the rooms is docs/architecture.md."""

__version__ = "0.1.0"
