"""CNI plugins, as the short-lived programs that runtimes call; `skeleton.py` has the table of them.

Nothing is imported here: a plugin pays only for what it does.
"""
