"""A next version of Tally, as edits of this one's source.

Its messages are of version 2 and its entities of format 2, with compressed records; it reads the old ones.
"""

from tests.simulation.bugs import Edit

PATCH = (
    Edit("batch", "VERSION = 1\n", "VERSION = 2\n"),
    Edit("decoder", "        if decoded.v != VERSION:\n", "        if decoded.v not in (1, VERSION):\n"),
    Edit("ledger", "FORMAT = 1\n", "FORMAT = 2\n"),
    Edit("ledger", '"records": pack(records)', '"packed": zlib.compress(pack(records))'),
    Edit(
        "ledger",
        '        return unpack(msgspec.convert(_known(entity)["records"], bytes))\n',
        "        known = _known(entity)\n"
        '        return unpack(known["records"] if known["format"] == 1 else zlib.decompress(known["packed"]))\n',
    ),
    Edit("ledger", "import msgspec\n", "import zlib\n\nimport msgspec\n"),
)
