"""A poll's live records as a file that others can read: JSON lines or CSV, by the file's ending. Pure text.

The first line of JSON lines is the certificate; the records follow, sorted by ballot. CSV has the records alone, and
its certificate beside it in FILE.json.
"""

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec
import numpy as np

from tally.errors import InvalidInput
from tally.votes.certificate import Certificate
from tally.votes.records import INSTANT_LIMIT, OPTION_BITS, Records, ranks

_COLUMNS = ["ballot", "option", "accepted_at"]
# One spelling a ballot: read as a number, capitals or an underscore would make a second ballot of the same one.
_BALLOT = re.compile("[0-9a-f]{32}")
_TEXT_BYTES = (1 << 16) - 1


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One record: ballot id in hexadecimal, option id, µs since 1970."""

    ballot: str
    option: str
    accepted_at: int


def write(path: Path, certificate: Certificate, records: Records) -> None:
    """Write the export; a .csv path makes CSV with the certificate beside it, any other JSON lines."""
    if path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file)
            rows.writerow(_COLUMNS)
            rows.writerows((line.ballot, line.option, line.accepted_at) for line in _lines(certificate, records))
        beside(path).write_bytes(msgspec.json.encode(certificate))
        return
    encode = msgspec.json.Encoder().encode
    with path.open("wb") as file:
        for line in (certificate, *_lines(certificate, records)):
            file.write(encode(line) + b"\n")


def read(path: Path) -> tuple[Certificate, Records]:
    """Read an export; raises InvalidInput naming the line that is wrong."""
    if path.suffix == ".csv":
        if not beside(path).is_file():
            raise InvalidInput(f"{path}: its certificate must be beside it, in {beside(path).name}")
        certificate = _certificate(beside(path).read_bytes(), beside(path))
        with path.open(newline="", encoding="utf-8", errors="replace") as file:
            return certificate, _records(_csv_lines(file), certificate)
    with path.open("rb") as file:
        certificate = _certificate(file.readline(), path)
        return certificate, _records(_json_lines(file), certificate)


def beside(path: Path) -> Path:
    """Return where the certificate of a CSV export is."""
    return path.with_name(path.name + ".json")


def _lines(certificate: Certificate, records: Records) -> Iterator[Line]:
    columns = (records.high.tolist(), records.low.tolist(), records.options.tolist(), records.accepted_at.tolist())
    for high, low, option, accepted_at in zip(*columns, strict=True):
        yield Line(f"{high:016x}{low:016x}", certificate.options[option], accepted_at)


def _certificate(data: bytes, path: Path) -> Certificate:
    try:
        certificate = msgspec.json.decode(data, type=Certificate)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path}: no certificate: {error}") from error
    texts = (certificate.poll, *certificate.options)
    if len(texts) - 1 > 1 << OPTION_BITS or max(len(text.encode()) for text in texts) > _TEXT_BYTES:
        raise InvalidInput(
            f"{path}: no certificate: over {1 << OPTION_BITS} options, or a name over {_TEXT_BYTES} bytes"
        )
    return certificate


def _json_lines(file: IO[bytes]) -> Iterator[tuple[int, Line]]:
    decode = msgspec.json.Decoder(Line).decode
    for number, line in enumerate(file, start=2):
        try:
            yield number, decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InvalidInput(f"line {number}: {error}") from error


def _csv_lines(file: IO[str]) -> Iterator[tuple[int, Line]]:
    rows = csv.reader(file)
    if next(rows, None) != _COLUMNS:
        raise InvalidInput(f"line 1: want the columns {', '.join(_COLUMNS)}")
    try:
        for row in rows:
            ballot, option, accepted_at = row
            yield rows.line_num, Line(ballot, option, int(accepted_at))
    except (ValueError, csv.Error) as error:
        raise InvalidInput(f"line {rows.line_num}: {error}") from error


def _records(lines: Iterator[tuple[int, Line]], certificate: Certificate) -> Records:
    numbers = {option: number for number, option in enumerate(certificate.options)}
    high, low, options, instants = [], [], [], []
    before = ""
    for number, line in lines:
        if not _BALLOT.fullmatch(line.ballot) or line.ballot <= before:
            raise InvalidInput(f"line {number}: ballot {line.ballot!r} is malformed, out of order, or there twice")
        if line.option not in numbers or not 0 < line.accepted_at < INSTANT_LIMIT:
            raise InvalidInput(f"line {number}: option {line.option!r} or instant {line.accepted_at} cannot be")
        high.append(int(line.ballot[:16], 16))
        low.append(int(line.ballot[16:], 16))
        options.append(numbers[line.option])
        instants.append(line.accepted_at)
        before = line.ballot
    return Records(
        np.array(high, np.uint64),
        np.array(low, np.uint64),
        ranks(np.array(instants, np.uint64), np.array(options, np.intp)),
    )
