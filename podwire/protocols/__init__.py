"""Conversations as tables with two chairs each; no sockets, no event loop."""
