"""The CNI plugin macvlan; `plugin.py` has it."""
