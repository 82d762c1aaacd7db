"""Host code in a pasted file: recognised and left out, so that any .cu file can be a cell.

NVRTC compiles device code only. Files in the wild mix kernels with `main`, allocations, timers and classes around them.
`parts` finds what a file defines without `__device__` or the like, `first_guess` says what to leave out before the compiler
has seen it, and `revised` what to leave out after the compiler has: an unannotated definition that it refuses is the
host's, unless device code misses it. What is left out is blanked, so every line and column stays where it was.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

_MARKS = {"__global__", "__device__", "__constant__", "__shared__", "__managed__"}
# Kept until the compiler refuses them: what device code may use without a mark of its own.
_KEPT = re.compile(r"\s*(typedef|using|struct|class|union|enum|template|static_assert|const|constexpr|asm|__asm__|friend|namespace)\b")
_TYPE = re.compile(r"\s*(?:template\s*<[^{]*>\s*)?(?:typedef\s+)?(struct|class|union|enum)\b")
_HOST_TOO = re.compile(r"\s*(using\s+[\w:]+::\w+\s*$|template\s+[^<\s])")  # `using ns::run;` and `template void run<8>(int);`
_HOST_TYPE = re.compile(r"\bstd\s*::|\bcu(da|blas|rand|solver|sparse|fft|dnn)[A-Z]\w*_t\b|\bFILE\b")
_BRACKETS = functools.reduce(lambda inner, _: rf"\((?:[^()]|{inner})*\)", range(5), r"\([^()]*\)")  # with others in them
_ATTRIBUTE = re.compile(rf"\b(?:alignas|__\w+__|__declspec|requires)\s*{_BRACKETS}")
_ACCESS = re.compile(r"(public|private|protected)\s*:(?!:)")
_INITIALISERS = re.compile(r"\)[\s\w]*(?<!:):(?!:)")  # of a constructor, behind its parameters
_INVOCATION = re.compile(r"(?!alignas|asm|static_assert|decltype|__\w+__\b)([A-Za-z_]\w*)\s*\(")
_WORD = re.compile(r"[A-Za-z_]\w*")
_RAW = r"(?:(?<=\bR\")|(?<=\b[uUL]R\")|(?<=\bu8R\"))([^\s()\\\"]{0,16})\(.*?\)\1\""  # a raw string behind its first quotation mark
_COMMENTS = re.compile(rf"//[^\n]*|/\*.*?\*/|\"(?:{_RAW}|(?:\\.|[^\"\\\n])*\")|'(?:\\.|[^'\\\n])'", re.S)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.M)
_KEPT_DIRECTIVE = re.compile(r"[ \t]*#[ \t]*(if|ifdef|ifndef|else|elif|endif|define|undef|include)\b")


@dataclass(frozen=True)
class HostPart:
    """An unannotated definition of a file: its names, first and last line (1-based), and offsets in the source.

    likely: it is the host's unless device code mentions it. constexpr: nvcc lets device code use it all the same.
    constructs: the class whose constructor, destructor or assignment it is, else ''. spare: it is the device's, see `spare_parts`.
    file: the header that it stands in, '' for the cell.
    """

    names: tuple[str, ...]
    first: int
    last: int
    start: int
    end: int
    likely: bool = False
    constexpr: bool = False
    constructs: str = ""
    spare: bool = False
    file: str = ""

    @property
    def name(self) -> str:
        return self.names[0] if self.names else ""


@dataclass(frozen=True)
class Declaration:
    """What stands at namespace or class scope: its text's offsets, what comes before its `{` or `;`, and where it stands."""

    start: int
    end: int
    head: str
    is_function: bool  # with its body
    namespace: str = ""  # with its colons: 'outer::inner::'
    owner: str = ""  # the class it is a member of

    @property
    def function_name(self) -> str:
        """The identifier in front of its parameters; '' if it has none."""
        match = re.search(r"([A-Za-z_]\w*)\s*\(", _ATTRIBUTE.sub("", _without_arguments(self.head)))
        return match[1] if match else ""


@dataclass(frozen=True)
class Mistake:
    """What the compiler refuses: where (offset in the source, None for elsewhere) and its sentence."""

    offset: int | None
    message: str


def strip_comments(source: str) -> str:
    """Blank out comments and the contents of strings, keeping every line break and column."""
    return _COMMENTS.sub(lambda match: re.sub(r"\\(?!\n)|[^\n\\]", " ", match[0]), source)  # a macro goes on behind its last backslash


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def without(source: str, parts: Iterable[HostPart]) -> str:
    """`source` with `parts` blanked, but for their #if, #define and #include lines, which hold for the rest of the file."""
    code = strip_comments(source)  # a raw string can hold lines like these
    for part in parts:
        inside, position, kept = source[part.start : part.end], 0, []
        for directive in _DIRECTIVE.finditer(code[part.start : part.end]):
            if _KEPT_DIRECTIVE.match(directive[0]):
                kept += [_blank(inside[position : directive.start()]), inside[directive.start() : directive.end()]]
                position = directive.end()
        source = source[: part.start] + "".join(kept) + _blank(inside[position:]) + source[part.end :]
    return source


def parts(source: str) -> tuple[HostPart, ...]:
    """Every definition without `__global__`, `__device__` or the like (or a macro that stands for one), in order.

    Members of classes come after the class. Source whose braces do not match has none: the compiler shall say so.
    """
    text, device_macros = structure(source)
    found = []
    for item in declarations(text):
        head, body = item.head, text[item.start : item.end]
        words = set(_WORD.findall(head))
        is_class = not item.is_function and _TYPE.match(head)
        if (
            head.startswith("static_assert")
            or device_mark(body if is_class else head, device_macros)
            or (item.owner and not item.is_function)
        ):
            continue
        names = _declared_names(body, head, item.is_function)
        found.append(
            HostPart(
                names, text.count("\n", 0, item.start) + 1, text.count("\n", 0, item.end) + 1, item.start, item.end,
                likely=bool(names) and not item.owner and _is_likely(item, words),
                constexpr=bool(words & {"constexpr", "consteval"}),
                constructs=item.owner if item.owner in names or names[:1] == ("operator=",) else "",
            )
        )  # fmt: skip
    return tuple(found)


def spare_parts(source: str, host: Iterable[HostPart], entry: str) -> tuple[HostPart, ...]:
    """The device's definitions that kernel `entry` does without: other kernels, and what neither it nor what stays with it mentions.

    host: what the source's host code is. An operator is called without its name, and constants at file level are for who launches.
    """
    text, macros = structure(source)
    found = []
    for item in declarations(text):
        head, body = item.head, text[item.start : item.end]
        words, names = set(_WORD.findall(head)), _declared_names(body, head, item.is_function)
        is_class = not item.is_function and _TYPE.match(head)
        if (
            item.owner or _invoked(head + "\nx") or not names or names[0].startswith("operator")
            or not device_mark(body if is_class else head, macros)
            or (not item.is_function and "(" not in head and words & {"extern", "constexpr", "const"})
            or (device_mark(head, macros, "__global__") and _may_be(item, words, entry))
        ):  # fmt: skip
            continue
        first, last = (text.count("\n", 0, place) + 1 for place in (item.start, item.end))
        found.append(HostPart(names, first, last, item.start, item.end, spare=True))
    directives = " ".join(match[0] for match in _DIRECTIVE.finditer(strip_comments(source)))
    kept = set(_WORD.findall(without(text, [*host, *found]))) | set(_WORD.findall(directives))
    while staying := [part for part in found if kept.intersection(part.names)]:
        found = [part for part in found if part not in staying]
        for part in staying:
            kept.update(_WORD.findall(text[part.start : part.end]))
    return tuple(found)


def _may_be(item: Declaration, words: set[str], entry: str) -> bool:
    """Is a kernel's declaration that of `entry`, with or without its namespaces, or one whose name is not clear?"""
    plain = entry.split("::")[-1]
    return plain in words and (item.function_name != plain or f"::{item.namespace}{plain}".endswith(f"::{entry.removeprefix('::')}"))


def device_mark(text: str, device_macros: Mapping[str, str], mark: str = "") -> bool:
    """Is there a `__device__` or the like (or only `mark`) in `text`, or a macro that stands for it?"""
    words = set(_WORD.findall(text))
    return bool(words & ({mark} if mark else _MARKS)) or any(mark in text for macro, text in device_macros.items() if macro in words)


def device_functions(source: str) -> list[Declaration]:
    """The functions of a source that run on the device; their places are also those in the text of `structure`."""
    text, macros = structure(source)
    return [item for item in declarations(text) if item.is_function and device_mark(item.head, macros)]


def _is_likely(item: Declaration, words: set[str]) -> bool:
    if _invoked(item.head + "\nx"):  # what a macro makes is for the compiler to say
        return False
    if item.is_function and "constexpr" not in words:
        return True
    return bool(not _KEPT.match(item.head) or _HOST_TOO.match(item.head) or _HOST_TYPE.search(item.head))


def first_guess(source: str, found: tuple[HostPart, ...]) -> frozenset[HostPart]:
    """What to leave out before the compiler is asked: likely host code whose names device code does not mention.

    A helper function that only lacks its `__device__` stays, and the compiler says so.
    """
    text, _ = structure(source)
    out = {part for part in found if part.likely}
    words = set(_WORD.findall(without(text, out)))
    while staying := {part for part in out if words.intersection(part.names)}:
        out -= staying
        for part in staying:
            words.update(_WORD.findall(text[part.start : part.end]))
    return frozenset(out)


def revised(
    source: str, found: tuple[HostPart, ...], out: frozenset[HostPart], needed: frozenset[HostPart], mistakes: list[Mistake]
) -> tuple[frozenset[HostPart], frozenset[HostPart]]:
    """(out, needed) after the compiler refused the source without `out`; unchanged if its mistakes are the device's.

    needed: parts that device code missed; they stay whatever becomes of them.
    """
    refused, missed, elsewhere = set(), set(), False
    for mistake in mistakes:
        inside = [part for part in found if mistake.offset is not None and part.start <= mistake.offset < part.end and part not in needed]
        part = min(inside, key=lambda item: item.end - item.start, default=None)
        if part is not None and part not in out:
            refused.add(part)
            continue
        elsewhere = True
        quoted = set(re.findall(r'"([^"]*)"', mistake.message))
        words = {word for text in quoted for word in _WORD.findall(text)} | {f"operator{text}" for text in quoted}
        missed |= {item for item in out if words.intersection(item.names)}
    if missed:
        return out - missed, needed | missed
    text, _ = structure(source)
    device = without(text, found)
    constructed = {part for part in refused if part.constructs and _constructs(device, part.constructs)}
    # A `using namespace` or the like goes last, when nothing else is wrong: what misses it could not name it.
    named = {part for part in refused if part.names}
    return out | ((named or (frozenset() if elsewhere else refused)) - constructed), needed | constructed


def _constructs(text: str, name: str) -> bool:
    """Does `text` make an object of class `name`, rather than take one as a parameter or by pointer?"""
    return bool(re.search(rf"(?<!struct )(?<!class )(?<!~)\b{name}\b\s*(?:<[^<>;]*>\s*)?(?:\w+\s*(?:[;{{=\[]|\([^)]*\)\s*;)|[({{>])", text))


# ------------------------------------------------------------------------------------------------- the structure of a file


@functools.lru_cache(maxsize=4)
def structure(source: str) -> tuple[str, dict[str, str]]:
    """`source` for reading its braces: comments, strings and preprocessor lines blanked, one branch of an #if that splits
    a block; and the macros that stand for `__device__` and its like, with what they are."""
    macros: dict[str, str] = {}
    text = _one_branch(strip_comments(source))

    def directive(match):
        define = re.match(r"[ \t]*#[ \t]*define[ \t]+(\w+)", match[0])
        if define and device_mark(match[0], macros):
            macros[define[1]] = match[0] + "".join(text for macro, text in macros.items() if macro in match[0])
        return _blank(match[0])

    return _DIRECTIVE.sub(directive, text).replace("\\\n", " \n"), macros


def _one_branch(text: str) -> str:
    """Blank what `#if 0` hides, and the later branches of an #if whose first one leaves a brace open."""
    lines = text.split("\n")
    stack: list[tuple[int, int, bool]] = []  # where the #if is, where its first branch ends, is it `#if 0`
    for match in re.finditer(r"^[ \t]*#[ \t]*(if|ifdef|ifndef|else|elif|endif)\b[ \t]*(.*)", text, re.M):
        number = text.count("\n", 0, match.start())
        if match[1].startswith("if"):
            stack.append((number, 0, match[1] == "if" and match[2].strip() == "0"))
        elif stack:
            begin, end, never = stack[-1]
            if not end:
                stack[-1] = (begin, end := number, never)
                if never:
                    lines[begin + 1 : number] = ["" for _ in range(begin + 1, number)]
            if match[1] == "endif":
                stack.pop()
                first = "".join(line for line in lines[begin + 1 : end] if not line.lstrip().startswith("#"))
                if end < number and first.count("{") != first.count("}"):
                    lines[end + 1 : number] = ["" for _ in range(end + 1, number)]
    kept = [line or _blank(original) for line, original in zip(lines, text.split("\n"), strict=True)]
    return "\n".join(kept)


def declarations(text: str) -> Iterator[Declaration]:
    """What stands at namespace and at class scope in `text`, as `structure` gives it. Nothing if the braces do not match."""
    found, unreadable = _read(text)
    yield from found if unreadable is None else ()


def unreadable_from(source: str) -> int | None:
    """The line of `source` from which on its declarations cannot be told apart, so that none of them is left out; None if they can."""
    text, _ = structure(source)
    _, place = _read(text)
    return None if place is None else text.count("\n", 0, place) + 1


def end_of_body(source: str, line: int, column: int) -> int:
    """The last line of the body that begins behind a place of `source`; the source's last line if nothing closes it."""
    text, _ = structure(source)
    start = sum(len(above) + 1 for above in text.split("\n")[: line - 1]) + column
    opening = text.find("{", start)
    close = _matching(text, opening) if opening >= 0 else None
    return text.count("\n", 0, len(text) if close is None else close) + 1


@functools.lru_cache(maxsize=4)
def _read(text: str) -> tuple[tuple[Declaration, ...], int | None]:
    """The declarations of `text`, and the offset at which its braces no longer match: None if they do."""
    found: list[Declaration] = []
    scopes: list[tuple[str, str, int]] = []  # the open namespaces (name, '') and classes ('', name), and where they open
    position = 0
    while match := re.compile(r"\S").search(text, position):
        start = match.start()
        if text[start] in ";}":
            if text[start] == "}":
                if not scopes:
                    return (), start
                scopes.pop()
            position = start + 1
            continue
        if label := _ACCESS.match(text, start):
            position = label.end()
            continue
        stop = _end_of_head(text, start)
        if stop is None:
            return (), start
        head = text[start:stop]
        namespace, owner = "".join(f"{name}::" for name, _, _ in scopes if name), scopes[-1][1] if scopes else ""
        if opened := re.match(r"(?:inline\s+)?(?:namespace\b\s*([\w:]*)|extern\s*$)", head) if text[stop] == "{" else None:
            scopes.append((opened[1] or "", "", stop))
            position = stop + 1
            continue
        close = _matching(text, stop) if text[stop] == "{" else stop
        if close is None:
            return (), stop
        is_function, end = False, close + 1
        is_type = _is_type(head)
        if invoked := _invoked(head):  # a macro's invocation without a semicolon
            head, end = head[:invoked], start + invoked
        elif text[stop] == "{":
            is_function = "(" in head and not is_type and not _assigned(head)
            if not is_function:  # a type or an initialiser goes on to its semicolon
                semicolon = text.find(";", close)
                end = len(text) if semicolon < 0 else semicolon + 1
        found.append(Declaration(start, end, head, is_function, namespace, owner))
        position = end
        if not invoked and text[stop] == "{" and is_type and (kind := _TYPE.match(head)) and kind[1] in ("struct", "class"):
            # Its members come next; what follows its brace is no declaration of its own.
            scopes.append(("", _type_name(head), stop))
            position = stop + 1
            text = text[: close + 1] + _blank(text[close + 1 : end]) + text[end:]
    return ((), scopes[-1][2]) if scopes else (tuple(found), None)


def _is_type(head: str) -> bool:
    return bool(_TYPE.match(head)) and "(" not in _ATTRIBUTE.sub("", head).split(":")[0]


def _invoked(head: str) -> int:
    """How long the macro invocation is that `head` begins with, if another declaration follows it; else 0."""
    match = _INVOCATION.match(head)
    if not match:
        return 0
    depth = 0
    for position in range(match.end() - 1, len(head)):
        depth += {"(": 1, ")": -1}.get(head[position], 0)
        if depth == 0:
            return position + 1 if re.match(r"[ \t]*\n\s*[A-Za-z_]", head[position + 1 :]) else 0
    return 0


def _end_of_head(text: str, start: int) -> int | None:
    """Where the declaration's first `;` or `{` outside parentheses is, other than the braces of member initialisers."""
    depth, behind = 0, start
    for match in re.compile(r"[(){};]").finditer(text, start):
        character = match[0]
        if match.start() < behind:
            continue
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0 and character == "{" and _initialises_member(text[start : match.start()]):
            close = _matching(text, match.start())
            if close is None:
                return None
            behind = close + 1
        elif depth == 0 and character in ";{":
            return match.start()
        elif depth == 0 and character == "}":
            return None
    return None


def _initialises_member(head: str) -> bool:
    """Does a brace behind `head` give a member its value, as in `Timer() : start{} {}`, so that it begins no body?"""
    return bool(re.search(r"[\w>]\s*\Z", head) and _INITIALISERS.search(head)) and not _is_type(head)


def _matching(text: str, opening: int) -> int | None:
    depth = 0
    for match in re.compile(r"[{}]").finditer(text, opening):
        depth += 1 if match[0] == "{" else -1
        if depth == 0:
            return match.start()
    return None


def _without_arguments(head: str) -> str:
    """`head` without template parameters and arguments."""
    while (shorter := re.sub(r"<[^<>]*>", " ", head)) != head:
        head = shorter
    return head


def _assigned(head: str) -> bool:
    """Is there an `=` of an initialiser, outside parentheses and template arguments?"""
    bare = head
    while (shorter := re.sub(r"\([^()]*\)", "", bare)) != bare:  # from within: a default value may have some of its own
        bare = shorter
    return bool(re.search(r"(?<![=!<>])=(?!=)", _without_arguments(bare))) and "operator" not in head


def _type_name(head: str) -> str:
    words = _WORD.findall(re.split(r":(?!:)", _ATTRIBUTE.sub("", _without_arguments(head)))[0])
    named = [
        word for word in words if word not in ("template", "typedef", "struct", "class", "union", "enum", "final", "__align__", "alignas")
    ]
    return named[-1] if named else "?"


def _declared_names(text: str, head: str, is_function: bool) -> tuple[str, ...]:
    """The identifiers that a declaration declares, `operator…` included; () if it has none of the simple kinds."""
    bare = _without_arguments(head).strip()
    operator = re.search(r"\boperator\s*(\(\s*\)|[^\s\w(]+|\w[\w\s*]*)", head)
    if operator:
        return (f"operator{''.join(operator[1].split())}",)
    if bare.startswith("using"):
        match = re.match(r"using\s+(?!namespace)(?:[\w:]+::)?(\w+)", bare)
        return (match[1],) if match else ()
    if is_function or "(" in bare.split("=")[0]:
        match = re.search(r"([A-Za-z_]\w*)\s*\(", _ATTRIBUTE.sub("", bare))
        return (match[1],) if match else ()
    names: list[str] = []
    if _TYPE.match(head) and "{" in text:
        names.append(_type_name(head))
        bare = text[text.rindex("}") + 1 :].rstrip("; \n")
        if re.match(r"\s*(template|typedef)?[^{]*\benum\b", head):
            names += _WORD.findall(text[text.index("{") : text.rindex("}")])
    bare = re.sub(r"\{[^{}]*\}|\[[^\[\]]*\]|\([^()]*\)", " ", bare)
    for declarator in bare.split(","):
        words = _WORD.findall(declarator.split("=")[0])
        names += words[-1:]
    return tuple(dict.fromkeys(names))
