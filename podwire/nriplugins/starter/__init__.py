"""What `podwire nri new` writes: a plugin, its test, its page. The texts lie beside this file."""

from podwire.nriplugins.starter.files import BadStarter, files, write

__all__ = ["BadStarter", "files", "write"]
