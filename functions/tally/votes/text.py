"""The rules for text that people send: one normal form, no invisible trouble, lengths in UTF-8 bytes."""

import unicodedata

from tally.errors import InvalidInput


def clean(value: str, what: str, most: int, least: int = 1) -> str:
    """Return `value` in NFC; raise InvalidInput unless it is `least` to `most` bytes of well-formed text.

    Control characters, lone surrogates and white space at either end are refused, never mended: two clients that mend
    differently would make two ballots of one voter.
    """
    if value.isascii() and value.isprintable():
        size = len(value)
    else:
        value, size = _normalised(value, what)
    if not least <= size <= most:
        raise InvalidInput(f"{what} has {size} bytes: want {least} to {most}", code="bad-length")
    if value != value.strip():
        raise InvalidInput(f"{what} begins or ends with white space", code="bad-text")
    return value


def identity(value: str, what: str, most: int, least: int = 1) -> str:
    """Clean text that makes a ballot; characters that Unicode has not assigned, as this Python knows it, are refused.

    A later Unicode may give them another normal form: instances of two versions would make two ballots of one voter.
    """
    value = clean(value, what, most, least)
    if not value.isascii():
        for character in value:
            if unicodedata.category(character) == "Cn":
                raise InvalidInput(f"{what} holds U+{ord(character):04X}, which is no character yet", code="bad-text")
    return value


def _normalised(value: str, what: str) -> tuple[str, int]:
    try:
        value = unicodedata.normalize("NFC", value)
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidInput(f"{what} holds a lone surrogate", code="bad-text") from None
    for character in value:
        if unicodedata.category(character) == "Cc":
            raise InvalidInput(f"{what} holds the control character U+{ord(character):04X}", code="bad-text")
    return value, size
