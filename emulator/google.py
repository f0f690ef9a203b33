"""Where Google's emulators are on this machine, and how each is started.

Their jars are run directly: gcloud's wrapper takes seconds, keeps data on disk and leaves its java behind.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args

from emulator.process import Program

# firestore-mode: the Datastore emulator as Firestore in Datastore mode. firestore: the Firestore emulator in Datastore
# mode. datastore: the Datastore emulator as the Datastore of old, always consistent.
Flavour = Literal["firestore-mode", "firestore", "datastore"]
FLAVOURS: tuple[Flavour, ...] = get_args(Flavour)
DEFAULT: Flavour = "firestore-mode"


class Missing(Exception):
    """Something is not installed; the message says what, and the command that installs it."""


def pubsub() -> Program:
    java = _java()
    jar = _component("pubsub-emulator", "lib/cloud-pubsub-emulator-*.jar")
    return Program(
        name="pubsub",
        variable="PUBSUB_EMULATOR_HOST",
        command=lambda port: [java, "-jar", jar, "--host=127.0.0.1", f"--port={port}"],
    )


def datastore(flavour: Flavour) -> Program:
    java = _java()
    if flavour == "firestore":
        jar = _component("cloud-firestore-emulator", "*.jar")
        start = [java, "-Duser.language=en", "-cp", jar, "com.google.cloud.datastore.emulator.firestore.CloudFirestore"]
        options = ["--database-mode=datastore-mode"]
    else:
        jar = _component("cloud-datastore-emulator", "*.jar")
        start = [java, "-cp", jar, "com.google.cloud.datastore.emulator.CloudDatastore"]
        mode = "--firestore_in_datastore_mode" if flavour == "firestore-mode" else "--consistency=1.0"
        # A directory must be named, and with this option it is never made.
        options = ["--store_on_disk=False", mode, "/tally-keeps-nothing"]
    return Program(
        name=f"datastore-{flavour}",
        variable="DATASTORE_EMULATOR_HOST",
        command=lambda port: [*start, "start", "--host=127.0.0.1", f"--port={port}", *options],
    )


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin/java") if home else shutil.which("java")
    if java is None:
        raise Missing("Google's emulators need Java 11 or later: apt-get install default-jre-headless")
    return java


def _component(name: str, pattern: str) -> str:
    for root in _sdk_roots():
        jars = sorted((root / "platform" / name).glob(pattern))
        if jars:
            return str(jars[-1])
    package = f"google-cloud-cli-{name.removeprefix('cloud-')}"
    raise Missing(f"{name} is not installed: gcloud components install {name} (or: apt-get install {package})")


def _sdk_roots() -> Iterator[Path]:
    gcloud = shutil.which("gcloud")
    if gcloud:
        yield Path(gcloud).resolve().parents[1]
    yield Path.home() / "google-cloud-sdk"
    yield Path("/usr/lib/google-cloud-sdk")
