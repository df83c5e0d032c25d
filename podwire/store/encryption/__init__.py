"""Encryption at rest: values are encrypted on their way to the disk or to etcd, and decrypted on their way back."""

from podwire.store.encryption.config import read_encryption_configuration
from podwire.store.encryption.providers import PLAIN, Encryption

__all__ = ["PLAIN", "Encryption", "read_encryption_configuration"]
