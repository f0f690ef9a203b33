"""Listings in pages: `?limit=…&cursor=…`, the cursor as the page before gave it out."""

from base64 import b64decode, urlsafe_b64encode
from urllib.parse import parse_qsl

from tally.errors import InvalidInput


def wanted(query: bytes, most: int) -> tuple[int, bytes | None]:
    """Return limit (`most` unless given) and cursor of a query string. Raises InvalidInput."""
    try:
        given = dict(parse_qsl(query.decode("ascii"), keep_blank_values=True, strict_parsing=bool(query)))
        limit = int(given.pop("limit", most))
        cursor = given.pop("cursor", None)
        decoded = None if cursor is None else b64decode(cursor, altchars=b"-_", validate=True)
    except ValueError as error:
        raise InvalidInput(f"the query is malformed: {error}", code="bad-query") from error
    if given:
        raise InvalidInput(f"the query has the unknown field {min(given)!r}", code="bad-query")
    if not 1 <= limit <= most:
        raise InvalidInput(f"limit is {limit}: want 1 to {most}", code="bad-query")
    return limit, decoded


def following(cursor: bytes | None) -> str | None:
    """Return a cursor as it is given out; None at the end."""
    return None if cursor is None else urlsafe_b64encode(cursor).decode()
