"""The store that keeps everything in etcd, over its own gRPC API."""

from podwire.store.etcd.store import EtcdStore

__all__ = ["EtcdStore"]
