"""Page tokens: opaque, bound to the list they continue, valid for a while."""

import base64
import binascii
import json

from emulator.cloud_tasks import limits
from emulator.cloud_tasks.errors import invalid
from tally.tasks.entry import HOUR


def token(scope: str, after: str, now: int) -> str:
    return base64.urlsafe_b64encode(json.dumps([scope, after, now]).encode()).decode()


def after(page_token: str, scope: str, now: int) -> str:
    """Return where to go on, "" for the first page. Raises ApiError: not a token of this list, or too old."""
    if not page_token:
        return ""
    try:
        found, position, made = json.loads(base64.urlsafe_b64decode(page_token.encode()))
    except (binascii.Error, ValueError, TypeError, UnicodeError):
        raise invalid(f"Page token {page_token[:100]!r} is not valid") from None
    if found != scope:
        raise invalid("Page token belongs to another list or filter")
    if now - made > limits.PAGE_TOKEN_LIFETIME:
        raise invalid(f"Page token is older than {limits.PAGE_TOKEN_LIFETIME // HOUR} hours")
    return str(position)


def size(asked: int, most: int) -> int:
    if asked < 0:
        raise invalid(f"page_size {asked} must not be negative")
    return min(asked or most, most)
