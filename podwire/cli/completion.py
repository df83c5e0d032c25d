"""`podwire completion`: prints completions for shells, generated from the parser."""

import argparse
import shlex
from collections.abc import Iterator

from podwire.cli.command_tree import CommandNode, Option, read_tree
from podwire.cli.main import whole_parser
from podwire.cluster.up.named_clusters import DIRECTORY

EPILOG = """\
examples:
  source <(podwire completion bash)          # in ~/.bashrc
  podwire completion bash > /etc/bash_completion.d/podwire
  podwire completion zsh > "${fpath[1]}/_podwire"
  podwire completion fish > ~/.config/fish/completions/podwire.fish
"""
PATHS = ("DIR", "FILE", "PATH", "ARCHIVE", "DIRECTORY", "SOCKET")
NAMES = f"$(ls {DIRECTORY} 2>/dev/null)"
CLUSTER = "CLUSTER"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), metavar="SHELL", help="bash, zsh or fish")


def run(arguments: argparse.Namespace) -> int:
    tree = read_tree(whole_parser())
    print({"bash": bash, "zsh": zsh, "fish": fish}[arguments.shell](tree), end="")
    return 0


def _key(node: CommandNode) -> str:
    """Returns the words after `podwire`, each with a space before it, as the scripts collect them."""
    return "".join(f" {word}" for word in node.words[1:])


def _values(node: CommandNode) -> Iterator[tuple[str, str]]:
    """Yields patterns of `KEY,FLAG`, and the words that complete the flag's value; empty for files."""
    for option in node.options:
        if option.value:
            words = NAMES if option.value == CLUSTER else " ".join(option.choices)
            for flag in option.flags:
                yield f"'{_key(node)},{flag}'", words


def bash(tree: CommandNode) -> str:
    """Returns a script for bash; flags that take a value complete its choices, clusters or files."""
    nodes = list(tree.walk())
    lines = ["# bash completion of podwire; made by `podwire completion bash`", "_podwire() {"]
    lines += ['    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} at="" number words=""']
    lines += [
        "    for ((number = 1; number < COMP_CWORD; number++)); do",
        '        case "$at ${COMP_WORDS[number]}" in',
    ]
    lines += [f"            {'|'.join(repr(_key(node)) for node in nodes[1:])})"]
    lines += ['                at+=" ${COMP_WORDS[number]}" ;;', "        esac", "    done"]
    lines += ["    COMPREPLY=()", '    case "$at,$before" in']
    for node in nodes:
        for pattern, words in _values(node):
            reply = (
                f'COMPREPLY=($(compgen -W "{words}" -- "$word"))' if words else 'COMPREPLY=($(compgen -f -- "$word"))'
            )
            lines.append(f"        {pattern}) {reply}; return ;;")
    lines += ["    esac", '    case "$at" in']
    for node in nodes:
        words = " ".join([*(verb.words[-1] for verb in node.verbs), *_flags(node), *_choices(node)])
        lines.append(f"        '{_key(node)}') words='{words}' ;;")
    lines += ["    esac", '    COMPREPLY=($(compgen -W "$words" -- "$word"))']
    lines += ['    [[ ${#COMPREPLY[@]} -gt 0 || $word == -* ]] || COMPREPLY=($(compgen -f -- "$word"))']
    return "\n".join([*lines, "}", "complete -o filenames -F _podwire podwire", ""])


def zsh(tree: CommandNode) -> str:
    """Returns a script for zsh, with the summaries of commands and flags."""
    nodes = list(tree.walk())
    lines = ["#compdef podwire", "# zsh completion of podwire; made by `podwire completion zsh`", "_podwire() {"]
    lines += [
        '    local at="" number',
        "    local -a entries",
        "    for ((number = 2; number < CURRENT; number++)); do",
    ]
    lines += ['        case "$at ${words[number]}" in']
    lines += [f"            ({'|'.join(repr(_key(node)) for node in nodes[1:])})"]
    lines += ['                at+=" ${words[number]}" ;;', "        esac", "    done"]
    lines += ['    case "$at,${words[CURRENT-1]}" in']
    for node in nodes:
        for pattern, words in _values(node):
            lines.append(f"        ({pattern}) {f'compadd -- {words}' if words else '_files'}; return ;;")
    lines += ["    esac", '    case "$at" in']
    for node in nodes:
        entries = [(verb.words[-1], verb.summary) for verb in node.verbs]
        entries += [(flag, option.summary) for option in node.options for flag in option.flags]
        entries += [(choice, "") for choice in _choices(node)]
        joined = " ".join(_zsh_entry(word, summary) for word, summary in entries)
        lines.append(f"        ('{_key(node)}') entries=({joined}) ;;")
    lines += [
        "    esac",
        "    _describe -o podwire entries || _files",
        "}",
        'if [[ "$funcstack[1]" == _podwire ]]; then',
    ]
    return "\n".join([*lines, '    _podwire "$@"', "else", "    compdef _podwire podwire", "fi", ""])


def _zsh_entry(word: str, summary: str) -> str:
    return shlex.quote(f"{word.replace(':', chr(92) + ':')}:{summary}" if summary else word.replace(":", "\\:"))


def fish(tree: CommandNode) -> str:
    """Returns a script for fish, with the summaries of commands and flags."""
    nodes = list(tree.walk())
    keys = " ".join(f"'{_key(node)}'" for node in nodes[1:])
    lines = ["# fish completion of podwire; made by `podwire completion fish`", "function __podwire_at"]
    lines += [
        '    set -l at ""',
        "    for word in (commandline -opc)[2..-1]",
        f'        if contains -- "$at $word" {keys}',
    ]
    lines += ['            set at "$at $word"', "        end", "    end", '    test "$at" = "$argv[1]"', "end"]
    lines += ["complete -c podwire -f"]
    for node in nodes:
        begin = f"complete -c podwire -n '__podwire_at \"{_key(node)}\"'"
        for verb in node.verbs:
            lines.append(f"{begin} -a {verb.words[-1]} -d {shlex.quote(verb.summary)}")
        lines += [f"{begin} -a {choice}" for choice in _choices(node)]
        lines += [
            f"{begin}{_fish_option(option)} -d {shlex.quote(option.summary)}" for option in node.options if option.flags
        ]
        if any(not option.flags and not option.choices for option in node.options):
            lines.append(f"{begin} -F")
    return "\n".join([*lines, ""])


def _fish_option(option: Option) -> str:
    text = "".join(f" -l {flag[2:]}" if flag.startswith("--") else f" -s {flag[1:]}" for flag in option.flags)
    if not option.value:
        return text
    if option.value == CLUSTER:
        return f"{text} -x -a '(ls {DIRECTORY} 2>/dev/null)'"
    return f"{text} -x -a '{' '.join(option.choices)}'" if option.choices else f"{text} -r -F"


def _flags(node: CommandNode) -> list[str]:
    return [flag for option in node.options for flag in option.flags]


def _choices(node: CommandNode) -> list[str]:
    """Returns the choices of positional arguments."""
    return [choice for option in node.options if not option.flags for choice in option.choices]
