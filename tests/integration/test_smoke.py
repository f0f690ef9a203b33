"""The test before the suites says which emulator is broken, and at what."""

import pytest

from emulator.google import FLAVOURS, Flavour
from emulator.port import free_port
from tests import smoke
from tests.conftest import Hosts


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_whole_emulators_pass(emulators: Hosts, flavour: Flavour) -> None:
    smoke.check(emulators(flavour))


def test_swapped_ports_are_named(emulators: Hosts) -> None:
    hosts = emulators("firestore-mode")
    swapped = hosts | {
        "DATASTORE_EMULATOR_HOST": hosts["PUBSUB_EMULATOR_HOST"],
        "PUBSUB_EMULATOR_HOST": hosts["DATASTORE_EMULATOR_HOST"],
    }
    with pytest.raises(smoke.Broken, match=f"Datastore emulator at {hosts['PUBSUB_EMULATOR_HOST']}: write"):
        smoke.check(swapped)


@pytest.mark.parametrize("name", ["DATASTORE_EMULATOR_HOST", "PUBSUB_EMULATOR_HOST"])
def test_one_that_is_not_there_is_named(emulators: Hosts, name: str) -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    with pytest.raises(smoke.Broken, match=f"emulator at {nowhere}"):
        smoke.check(emulators("firestore-mode") | {name: nowhere})
