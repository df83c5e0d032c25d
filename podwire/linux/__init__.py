"""System calls and netlink: the only package that has them. Synchronous, light to import, without podwire's concepts.

Nothing is imported here, so that a program pays only for the modules that it imports: daemons call them in worker
threads, short-lived programs directly.
"""
