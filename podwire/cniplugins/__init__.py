"""CNI plugins: bridge, host-local, loopback and portmap, as the short-lived programs that runtimes call.

Nothing is imported here: a plugin pays only for what it does.
"""
