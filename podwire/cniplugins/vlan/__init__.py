"""The CNI plugin vlan; `plugin.py` has it."""
