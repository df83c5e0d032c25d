"""The node's links as devices: which ones, with which attributes, and whether they are healthy."""
