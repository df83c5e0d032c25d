"""The CNI plugin ipvlan; `plugin.py` has it."""
