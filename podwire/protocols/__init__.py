"""Wire protocols: messages, tables, client side and server side of each; no sockets, no event loop."""
