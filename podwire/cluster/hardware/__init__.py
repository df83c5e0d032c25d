"""Hardware that a node does not have: network cards, virtual functions and GPUs of a profile, as links and as files."""
