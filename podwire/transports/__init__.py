"""The only sockets and child processes of the house."""
