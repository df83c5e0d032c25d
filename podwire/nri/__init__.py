"""NRI for Python, both chairs: `Plugin` is the plugin's, `host` is the runtime's."""
