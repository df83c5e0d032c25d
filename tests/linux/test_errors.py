"""Errors: named for what is wrong, with the errno and what was tried."""

import errno
import pickle

import pytest

from podwire.linux import errors
from podwire.linux.errors import LinuxError, from_errno, from_oserror


def classes(kind=LinuxError):
    for item in kind.__subclasses__():
        yield item
        yield from classes(item)


def test_the_tree_in_the_docstring_is_the_tree():
    ours = [
        class_ for class_ in classes() if class_.__module__.startswith("podwire.linux")
    ]  # other packages may have more
    assert [our.__name__ for our in ours if our.__name__ not in errors.__doc__] == []


@pytest.mark.parametrize(
    ("number", "names", "kind"),
    [
        pytest.param(
            errno.EEXIST, {errno.EEXIST: errors.LinkExists}, errors.LinkExists, id="as the operation names it"
        ),
        pytest.param(errno.EPERM, {errno.EEXIST: errors.LinkExists}, errors.NotPermitted, id="as all do"),
        pytest.param(errno.EDOM, None, errors.Refused, id="any other"),
    ],
)
def test_an_errno_gets_its_name(number, names, kind):
    error = from_errno(number, "do this", "for that", names)
    assert type(error) is kind
    assert (error.errno, error.operation, error.detail) == (number, "do this", "for that")
    assert str(error).startswith("do this: ")
    assert str(error).endswith(" (for that)")


def test_errors_are_os_errors_and_survive_pickling():
    error = errors.NoSuchLink(errno.ENODEV, "find link eth0")
    assert isinstance(error, OSError)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (errors.NoSuchLink, "find link eth0: No such device")


def test_a_named_error_keeps_its_name():
    error = errors.NoSuchLink(errno.ENODEV, "find link eth0")
    assert from_oserror(error, "something else") is error
    assert type(from_oserror(FileNotFoundError(errno.ENOENT, "x", "/path"), "open")) is errors.Missing
    assert (
        str(from_oserror(FileNotFoundError(errno.ENOENT, "x", "/path"), "open"))
        == "open: No such file or directory (/path)"
    )


def test_nothing_here_is_the_name_of_a_builtin():
    import builtins

    assert [class_.__name__ for class_ in classes() if hasattr(builtins, class_.__name__)] == []
