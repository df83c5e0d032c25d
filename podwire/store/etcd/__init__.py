"""The store in an etcd cluster, over etcd's gRPC API."""

from podwire.store.etcd.store import EtcdStore

__all__ = ["EtcdStore"]
