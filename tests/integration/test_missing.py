"""A machine without Google's emulators: their tests are skipped with one clear line, and fail when CI is set."""

import os
import subprocess
import sys
from pathlib import Path

TEST = "tests/conformance/test_store.py::test_an_id_is_no_name"
ROOT = Path(__file__).resolve().parents[2]


def run(tmp_path: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run one conformance test on every backend, with a PATH where neither java nor gcloud is."""
    kept = {name: value for name, value in os.environ.items() if not name.endswith(("_EMULATOR_HOST", "JAVA_HOME"))}
    kept.pop("CI", None)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path}", TEST],
        env={**kept, "PATH": str(tmp_path), **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=ROOT,
    )


def test_locally_the_emulators_tests_are_skipped_with_one_line(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout
    assert "2 passed, 2 skipped" in done.stdout
    lines = [line for line in done.stdout.splitlines() if "apt-get install" in line]
    assert len(lines) == 1
    assert lines[0].startswith("skipped what needs Google's emulators: Google's emulators need Java")
    assert "conformance emulator-datastore: 0 passed, 0 failed, 0 error, 1 skipped" in done.stdout


def test_in_ci_they_fail(tmp_path: Path) -> None:
    done = run(tmp_path, CI="true")
    assert done.returncode == 1
    assert "2 passed, 2 errors" in done.stdout
    assert "apt-get install default-jre-headless" in done.stdout
