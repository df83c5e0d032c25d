"""Containerfiles: text to steps."""

import pytest

from podwire.protocols.containerfile import (
    BadContainerfile,
    Copy,
    MakeDirectory,
    Platform,
    Run,
    parse,
    plan_build,
    source_image,
)

HERE = Platform("linux", "amd64")


def plan(text, base=None, **arguments):
    return plan_build(parse(text), base or {}, arguments, HERE)


def test_comments_continued_lines_and_directives_are_read():
    text = "# syntax=docker/dockerfile:1\n# escape=`\nFROM a\n\nRUN one `\n  # a comment\n\n  two\n"
    instructions = parse(text)
    assert [(instruction.line, instruction.name, instruction.text) for instruction in instructions] == [
        (3, "FROM", "a"),
        (5, "RUN", "one   two"),
    ]


def test_from_takes_arguments_and_their_defaults():
    text = "ARG TAG=1\nFROM example.test/${REPO:-app}:$TAG AS final"
    assert source_image(parse(text), {}, HERE) == "example.test/app:1"
    assert source_image(parse(text), {"TAG": "2"}, HERE) == "example.test/app:2"
    assert source_image(parse("FROM app-$TARGETARCH"), {}, HERE) == "app-amd64"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("A=1 B=\"two words\" C='$A'", {"A": "1", "B": "two words", "C": "$A"}),
        ("A=$HOME/x", {"A": "/root/x"}),
        ("A=${HOME}x B=${NO:-default}", {"A": "/rootx", "B": "default"}),
        ('A="${NO:-def ault}" B=${HOME:+set} C=${NO:+set}', {"A": "def ault", "B": "set", "C": ""}),
        (r"A=a\ b B=\$HOME", {"A": "a b", "B": "$HOME"}),
        ("A the rest of it", {"A": "the rest of it"}),
        ("A=new B=$A", {"A": "new", "B": ""}),
    ],
)
def test_variables_quotes_and_escapes_of_env(words, expected):
    variables = plan(f"FROM a\nENV {words}", {"Env": ["HOME=/root", "PATH=/bin"]}).settings["Env"]
    assert dict(variable.split("=", 1) for variable in variables) == {"HOME": "/root", "PATH": "/bin", **expected}


def test_an_argument_after_from_takes_the_one_before_and_env_wins_in_a_command():
    text = "ARG V=1\nFROM a\nARG V\nARG W=two X\nENV W=env\nRUN x"
    [*_, run] = plan(text, {}, X="given").steps
    assert run == Run(
        6, "RUN x", ("/bin/sh", "-c", "x"),
        ("V=1", "W=env", "X=given", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"), "/", "",
    )  # fmt: skip


def test_arguments_that_nobody_asks_for_are_named():
    assert plan("FROM a\nARG X", {}, X="1", Y="2").unused == ("Y",)


def test_settings_are_those_of_the_base_and_of_the_file():
    base = {"Cmd": ["sh"], "Entrypoint": ["/init"], "Labels": {"a": "1"}, "Env": ["PATH=/bin"], "User": "root"}
    text = (
        'FROM a\nLABEL b=2 "c d"=3\nEXPOSE 80 53/udp 90-91\nVOLUME ["/data"]\nUSER 1000:1000\nSTOPSIGNAL SIGINT\n'
        'WORKDIR /srv\nWORKDIR app\nENTRYPOINT ["/app"]\n'
    )
    assert plan(text, base).settings == {
        "Entrypoint": ["/app"],  # and no Cmd: that was for the other entrypoint
        "Env": ["PATH=/bin"],
        "ExposedPorts": {"53/udp": {}, "80/tcp": {}, "90/tcp": {}, "91/tcp": {}},
        "Labels": {"a": "1", "b": "2", "c d": "3"},
        "StopSignal": "SIGINT",
        "User": "1000:1000",
        "Volumes": {"/data": {}},
        "WorkingDir": "/srv/app",
    }
    assert plan("FROM a\nCMD x y", base).settings["Cmd"] == ["/bin/sh", "-c", "x y"]
    assert plan('FROM a\nSHELL ["/bin/bash", "-ec"]\nCMD x', base).settings["Cmd"] == ["/bin/bash", "-ec", "x"]


def test_copy_has_sources_a_destination_an_owner_and_a_mode():
    text = 'FROM a\nWORKDIR /srv\nARG WHO=www\nCOPY --chown=$WHO:33 --chmod=640 a \'b c\' ./to/\nADD ["x y", "/z"]'
    directory, _arg, copied, added = plan(text).steps
    assert directory == MakeDirectory(2, "WORKDIR /srv", "/srv")
    assert copied == Copy(4, copied.text, ("a", "b c"), "/srv/to", True, "www:33", 0o640)
    assert added == Copy(5, added.text, ("x y",), "/z", False, unpacks=True)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "has no FROM"),
        ("RUN x", 1, "stands before FROM"),
        ("FROM a\nFROM b", 2, "several stages are not supported"),
        ("FROM a b", 1, "needs one image"),
        ("FROM --platform=linux/arm64 a", 1, "--platform is not supported"),
        ("FROM a\n\nFETCH x", 3, "unknown instruction 'FETCH'"),
        ("FROM a\n!", 2, "is not an instruction"),
        ("FROM a\nHEALTHCHECK NONE", 2, "Kubernetes has probes"),
        ("FROM a\nONBUILD RUN x", 2, "is not supported"),
        ("FROM a\nMAINTAINER me", 2, "use LABEL"),
        ("FROM a\nRUN --mount=type=cache,target=/x y", 2, "--mount is not supported"),
        ("FROM a\nRUN <<EOF\nx\nEOF", 2, "here-documents"),
        ("FROM a\nRUN", 2, "has nothing after it"),
        ("FROM a\nCOPY x", 2, "needs a source and a destination"),
        ("FROM a\nCOPY --from=b x /y", 2, "--from is not supported"),
        ("FROM a\nCOPY --chmod=u+x x /y", 2, "not an octal mode"),
        ("FROM a\nCOPY x y /z", 2, "end with /"),
        ("FROM a\nADD https://example.test/x /x", 2, "downloads are not supported"),
        ("FROM a\nADD --checksum=x y /z", 2, "--checksum is not supported"),
        ("FROM a\nENV A", 2, "has no value"),
        ("FROM a\nENV A=1 B", 2, "'B' is not NAME=VALUE"),
        ("FROM a\nENV A='x", 2, "is not closed"),
        ("FROM a\nENV A=${B", 2, "is not closed"),
        ("FROM a\nENV A=${B%%x}", 2, "supported are"),
        ('FROM a\nARG V\nENV A="${V:?must be given}"', 3, "V: must be given"),
        ("FROM a\nARG 1=2", 2, "is not a name"),
        ("FROM a\nEXPOSE http", 2, "is not a port"),
        ("FROM a\nEXPOSE 70000", 2, "is not a port"),
        ("FROM a\nSTOPSIGNAL 'kill it'", 2, "is not a signal"),
        ("FROM a\nSHELL /bin/sh", 2, "must be words"),
        ("# escape=x\nFROM a", 1, "neither"),
        ("FROM a\nENV A=" + "${A:-" * 40 + "}" * 40, 2, "nested"),
    ],
)
def test_a_line_that_cannot_be_built_is_named(text, line, words):
    with pytest.raises(BadContainerfile, match=f"^{line}: .*{words}"):
        plan(text)


def test_a_bomb_of_variables_is_refused():
    lines = ["FROM a", "ENV A0=" + "x" * 1000, *(f"ENV A{n + 1}=" + f"$A{n}" * 50 for n in range(6))]
    with pytest.raises(BadContainerfile, match="expands to more than"):
        plan("\n".join(lines))
