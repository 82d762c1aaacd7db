"""The line behind `%%cuda`: what it asks for, or what is wrong with it, and which kernel it means either way."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from IPython.core.error import UsageError
from IPython.core.magic_arguments import MagicArgumentParser
from IPython.utils.process import arg_split

from helpers.errors import cut
from helpers.run import transposes

_EXAMPLE = "Write, for example: %%cuda naive --entry 'gemm<64>' --transb"
_VALUED = ("--entry", "--arch", "-o", "--option")
_LAYOUTS = tuple(f"--{name}" for name in transposes.NAMES)  # options that may have a value
_TRANSPOSED = re.compile(r"--trans[abc](?=$|=)", re.IGNORECASE)  # which BLAS writes in capitals
_HYPHENS = ("-", "–", "—")  # the last two come of copying from a page
_QUOTES = "'\""
_PIECE = re.compile(r"""'[^']*'|"[^"]*"|(?P<comment>(?<!\S)(?:\#|//))|.""", re.DOTALL)


@dataclass(frozen=True)
class MagicLine:
    """name: the word that is the kernel's name, or seems to be meant for it; "" where there is none. arguments: what was asked for; None
    where that is not to be told, and then mistake is a sentence. perhaps: where there is no name, what may have been meant for it and is
    the value of an option."""

    name: str
    arguments: argparse.Namespace | None = None
    mistake: str = ""
    perhaps: str = ""


class Once(argparse.Action):
    """An option with one value: who gives it twice means one of the two, and nobody knows which."""

    def __call__(self, parser, namespace, values, option_string=None):
        given = f"_{self.dest}_given"
        if hasattr(namespace, given):
            parser.error(f"{option_string} is there twice")
        setattr(namespace, given, True)
        setattr(namespace, self.dest, values)


def read(parser: MagicArgumentParser, line: str) -> MagicLine:
    """What the line says. A comment behind it, from # or // on, says nothing."""
    line = _without_comment(line)
    try:
        words = [_TRANSPOSED.sub(lambda found: found[0].lower(), word) for word in arg_split(line)]
    except ValueError as error:  # a quotation mark without its other half
        return MagicLine(_meant(line.split()), mistake=_sentence(line, str(error).lower()))
    said = ""
    for some in dict.fromkeys((tuple(words), tuple(_with_values(words)))):
        try:
            arguments = parser.parse_args(list(some))
        except UsageError as error:
            said = said or str(error).rstrip(".")
        else:
            return MagicLine(arguments.name, arguments)
    option, value = _last_value(words)
    if "are required: name" not in said:
        return MagicLine(_meant(words), mistake=_sentence(line, _explained(parser, words, said)))
    taken = f": {cut(value)} is taken for the value of {option}" if option else ""
    return MagicLine(_meant(words), mistake=_sentence(line, f"the name of the kernel is missing{taken}"), perhaps=value)


def bare(name: str) -> str:
    """The name without what somebody writes around one by mistake: quotes, a comma."""
    return name.strip(f"{_QUOTES},;:.()")


def _without_comment(line: str) -> str:
    comment = next((piece for piece in _PIECE.finditer(line) if piece["comment"]), None)
    return line[: comment.start()] if comment else line


def _with_values(words: Sequence[str]) -> list[str]:
    """The words, with a value for each --transa and --transb that has none: what follows may be the kernel's name."""
    behind = [*words[1:], ""]
    return [f"{word}=T" if word in _LAYOUTS and not _is_letter(after) else word for word, after in zip(words, behind, strict=False)]


def _is_letter(word: str) -> bool:
    return word.strip(_QUOTES).upper() in transposes.LETTERS


def _meant(words: Sequence[str]) -> str:
    """The first word that is neither an option nor the value of one."""
    for before, word in zip(["", *words], words, strict=False):
        valued = before in _VALUED or (before in _LAYOUTS and _is_letter(word))
        if not word.startswith(_HYPHENS) and not valued:
            return word
    return ""


def _last_value(words: Sequence[str]) -> tuple[str, str]:
    """The last option of the line that has a value, and this; two times "" where none has one."""
    for before, word in reversed([*zip(["", *words], words, strict=False)]):
        option, joined, value = word.partition("=")
        if joined and option in _VALUED + _LAYOUTS:
            return option, value
        if before in _VALUED + _LAYOUTS and not word.startswith(_HYPHENS):
            return before, word
    return "", ""


def _explained(parser: MagicArgumentParser, words: Sequence[str], said: str) -> str:
    """What argparse says, in words for people."""
    if "expected one argument" in said:
        option = said.split()[1].rstrip(":").partition("/")[0]
        joined = ", joined by “=” if it begins with a hyphen: -o=-ftz=true" if option == "-o" else ""
        return f"{option} wants a value behind it{joined}"
    unknown = said.removeprefix("unrecognized arguments: ").split()
    if unknown == said.split():  # two options are meant by one word, or one is there twice
        return said
    option = next((word for word in unknown if word.startswith(_HYPHENS)), "")
    if not option:
        spaced = list(words[1 : 1 + len(unknown)]) == unknown
        rule = f"a name is one word, such as {cut('_'.join([words[0], *unknown]))}" if spaced else "quotes go around a value with spaces"
        return f"“{cut(' '.join(unknown))}” belongs to no option, and {rule}"
    known = [name for action in parser._actions for name in action.option_strings if name.startswith("--")]
    asked = option.partition("=")[0].strip("".join(_HYPHENS)).lower()
    alike = difflib.get_close_matches(f"--{asked}", known, 1, 0.7)
    if asked == "transc":
        return f"there is no option {option}"
    return f"there is no option {cut(option)}" + (f": did you mean {alike[0]}?" if alike else f". There are: {', '.join(known)}")


def _sentence(line: str, what: str) -> str:
    how = f"{transposes.C_BY_COLUMNS}." if "--transc" in line.lower() else _EXAMPLE
    return f"{cut(f'%%cuda {line}'.strip())}: {what}{'' if what.endswith('?') else '.'} {how}"
