"""Plugins of NRI that run beside any container runtime; `logger` is the one to copy."""
