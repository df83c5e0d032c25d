"""The kernel: the only place with system calls and netlink. Synchronous, light to import, knows nothing of ours.

Nothing is imported here, so that a program pays only for the files it asks for: daemons call them in worker threads,
short-lived programs directly. `ports.py` says what a room can be handed.
"""
