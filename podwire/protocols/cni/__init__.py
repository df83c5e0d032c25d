"""The Container Network Interface, 0.1.0 to 1.1.0: errors, versions, results, verbs, configurations, arguments.

Both sides use these modules: the runtime that calls plugins, and the plugins. Plugins live for
milliseconds, so nothing is imported here, and the files import only what the standard library has at hand.
"""
