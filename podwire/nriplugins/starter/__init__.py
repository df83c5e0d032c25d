"""The files that `podwire nri new` writes: a plugin, its test, its README; templates are in this directory."""

from podwire.nriplugins.starter.files import BadStarter, files, write

__all__ = ["BadStarter", "files", "write"]
