"""podwire-shim where there is no C compiler: the same command line, files and socket as `shim/podwire-shim.c`.

`shim/README.md` is the contract of both, and `tests/shim` runs every test on both. Only the standard library is used.
The C program says more often why something is done as it is.
"""
