"""The names of the backends that every conformance test runs on."""

from emulator import google

FLAVOURS: dict[str, google.Flavour] = {"emulator-datastore": "firestore-mode", "emulator-firestore": "firestore"}
BACKENDS = ("fake", "embedded", *FLAVOURS)
