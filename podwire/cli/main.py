"""`podwire`: reads the command line and hands over."""


def main() -> int:
    return 2
