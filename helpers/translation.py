"""What the course says in other languages: catalogues in gettext's form, helpers/translations/<language>/<lesson>.po.

A catalogue holds prose only, a paragraph at a time. A paragraph without a translation, or whose English has changed since, stays English.
"""

from __future__ import annotations

import functools
import os
import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from helpers.errors import CourseError

if TYPE_CHECKING:
    from babel.messages.catalog import Catalog

FOLDER = Path(__file__).with_name("translations")
VARIABLE = "GEMM_LADDER_LANGUAGE"  # of the environment: the language of lessons and questions, such as zh; English without it
ENGLISH = "en"
_TOOLTIP = re.compile(r'\[([^\[\]]+)\]\(glossary\.ipynb#[^\s()]+(?: "[^"]*")?\)')


def languages() -> list[str]:
    """The codes of the languages that have catalogues, without English."""
    return sorted(path.name for path in FOLDER.iterdir() if path.is_dir() and any(path.glob("*.po")))


def translated_catalogues(language: str) -> list[str]:
    """The names of the catalogues in which something is translated into the language: lessons such as "01_naive", and "site"."""
    return sorted(path.stem for path in (FOLDER / language).glob("*.po") if translations(language, path.stem))


def own_name(language: str) -> str:
    """A language's name for itself: 中文 for zh."""
    from babel import Locale

    return Locale.parse(language).display_name or language


def known(language: str) -> str:
    """The code `language` if the course has catalogues of it or if it is English. Raises CourseError otherwise, with those in which
    something is translated."""
    if language not in (ENGLISH, *languages()):
        there = (ENGLISH, *(code for code in languages() if translated_catalogues(code)))
        raise CourseError(f"The course is not in {language!r}. There are: {', '.join(there)}.")
    return language


def chosen() -> str:
    """The reader's language: what the environment says, if there are catalogues of it, else English, which is said."""
    language = os.environ.get(VARIABLE) or ENGLISH
    try:
        return known(language)
    except CourseError as error:
        warnings.warn(f"{VARIABLE}: {error.message} It stays English.", stacklevel=2)
        return ENGLISH


def message_key(text: str) -> str:
    """What a paragraph is found by: its words without the glossary's tooltips, however its lines are broken."""
    return " ".join(_TOOLTIP.sub(r"\1", text).split())


def catalogue_path(language: str, lesson: str) -> Path:
    """Where the catalogue of a lesson, such as "01_naive", lies or would lie."""
    return FOLDER / language / f"{lesson}.po"


def read_catalogue(path: Path, language: str) -> Catalog:
    """The catalogue in `path`, empty if there is none. Raises CourseError for a file that is no catalogue."""
    from babel.messages.catalog import Catalog
    from babel.messages.pofile import PoFileError, read_po

    if not path.is_file():
        return Catalog(locale=language)
    try:
        with path.open("rb") as file:
            return read_po(file, locale=language, charset="utf-8", abort_invalid=True)
    except (PoFileError, UnicodeDecodeError) as error:
        raise CourseError(f"{path} is no catalogue of translations: {error}.") from None


@functools.cache
def translations(language: str, lesson: str) -> dict[str, str]:
    """The translations of a lesson by `message_key`. Outdated ones, which a catalogue marks "fuzzy", are left out."""
    found = read_catalogue(catalogue_path(language, lesson), language)
    return {message_key(str(message.id)): str(message.string) for message in found if message.id and message.string and not message.fuzzy}


def translated(text: str, lesson: str, language: str) -> str:
    """`text` of a lesson in the language, or as it is where there is no translation of just this text."""
    if language == ENGLISH:
        return text
    return translations(language, lesson).get(message_key(text), text)
