"""Exec, attach and port-forward: the streaming server, and sessions over WebSocket or SPDY."""
