"""Errors of opening a store."""

from podwire.protocols.storage import StorageError


class CannotOpen(StorageError):
    """The store cannot be opened; names the store and the cause."""


class BadUrl(ValueError):
    """A store's URL is invalid; says what is wrong with it."""
