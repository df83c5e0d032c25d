"""Plugins that announce themselves by a socket in a directory, each kind with its own handler."""

from podwire.kubelet.plugins.registry import Announced, Handler, PluginRegistry, Refused

__all__ = ["Announced", "Handler", "PluginRegistry", "Refused"]
