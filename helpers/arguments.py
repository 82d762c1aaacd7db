"""What a reader gives to a call, before it is taken for what the call wants."""

from __future__ import annotations

import functools
import inspect
import numbers
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from .errors import LaunchError, plural

_Call = TypeVar("_Call", bound=Callable[..., Any])
LISTENERS: list[Callable[[Any], None]] = []  # are told what each call of a reader's gives back, and not what those of the course's own do
_PACKAGE = __name__.partition(".")[0]


def is_whole(value: Any) -> bool:
    """Is it a whole number, of Python or NumPy? A truth value is none."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def listed(value: Any) -> tuple[Any, ...] | None:
    """What a list or the like holds; None for what is none: a number, a text, a dictionary."""
    if isinstance(value, str | bytes | Mapping):
        return None
    try:
        items = iter(value)
    except TypeError:
        return None
    return tuple(items)


def explained(function: _Call) -> _Call:
    """A call of a lesson: given an option that it has not, or not what it needs, it raises LaunchError and names what there is."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def called(*given: Any, **options: Any) -> Any:
        try:
            signature.bind(*given, **options)
        except TypeError as error:
            raise LaunchError(_mistake(function.__name__, signature, given, options) or f"{function.__name__}: {error}.") from None
        result = function(*given, **options)
        if LISTENERS and sys._getframe(1).f_globals.get("__name__", "").partition(".")[0] != _PACKAGE:
            for listener in LISTENERS:
                listener(result)
        return result

    return cast(_Call, called)


def _mistake(name: str, signature: inspect.Signature, given: tuple[Any, ...], options: Mapping[str, Any]) -> str:
    """What is wrong with a call, as sentences; "" where nothing is found."""
    parameters = [parameter for parameter in signature.parameters.values() if parameter.name != "self"]
    kinds = {parameter.kind for parameter in parameters}
    names = [parameter.name for parameter in parameters if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)]
    placed = [parameter.name for parameter in parameters if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
    count = len(given) - ("self" in signature.parameters)
    unknown = [option for option in options if option not in names]
    if unknown and inspect.Parameter.VAR_KEYWORD not in kinds:
        return f"{name} has no option {unknown[0]}. " + (f"It has: {', '.join(names)}." if names else f"It has none: {name}().")
    if count > len(placed) and inspect.Parameter.VAR_POSITIONAL not in kinds:
        most = f"It takes at most {len(placed)}: {', '.join(placed)}." if placed else f"It takes none: {name}()."
        return f"{name} was given {plural(count, 'thing')} without a name. {most}"
    if twice := [option for option in placed[:count] if option in options]:
        return f"{name} was given {twice[0]} twice, by its place and by its name. Leave one of them out."
    needed = [parameter.name for parameter in parameters if parameter.name in names and parameter.default is parameter.empty]
    if missing := [item for item in needed if item not in placed[:count] and item not in options]:
        return f"{name} was not given {', '.join(missing)}. Write: {name}({', '.join(needed)}). All that it takes: {', '.join(names)}."
    return ""
