"""What can go wrong before a store is open."""

from podwire.protocols.storage import StorageError


class CannotOpen(StorageError):
    """The store cannot be opened; says which and why."""


class BadUrl(ValueError):
    """A store's URL that cannot be read; says what is wrong with it."""
