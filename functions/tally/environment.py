"""What is odd about the environment variables themselves, before any is used. Pure."""

import difflib
import re
from collections.abc import Iterator, Mapping

from tally import config
from tally.errors import ConfigError
from tally.finding import Finding, note, ok, wrong

_KNOWN = [variable.name for variable in config.VARIABLES]
_HOSTS = [name for name in _KNOWN if name.endswith("_EMULATOR_HOST")]
_PROXIES = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "grpc_proxy")


def examine(environ: Mapping[str, str]) -> list[Finding]:
    """Return what is to be said of the variables; one `ok` if they make a whole."""
    findings = [*_hosts(environ), *_proxies(environ), *_mixtures(environ), *_unknown(environ)]
    try:
        settings = config.load(environ)
    except ConfigError as error:
        if not any(finding.level == "wrong" for finding in findings):
            name = re.match(r"\w+", error.message)
            findings.append(wrong("settings", error.message, f"unset {name.group() if name else 'TALLY_BACKEND'}"))
        return findings
    return [ok("settings", f"backend {settings.backend}, project {settings.project}"), *findings]


def _hosts(environ: Mapping[str, str]) -> Iterator[Finding]:
    for name in _HOSTS:
        value = environ.get(name, "")
        bare = re.sub(r"^\s*(\w+://)?", "", value).split("/")[0].strip()
        if value and value != bare:
            yield wrong(
                "hosts", f"{name}={value!r} is not a bare host:port: a client would hang", f"export {name}={bare}"
            )


def _proxies(environ: Mapping[str, str]) -> Iterator[Finding]:
    proxy = next((name for name in _PROXIES if environ.get(name)), None)
    hosts = sorted({environ[name].rpartition(":")[0].strip("[]") for name in _HOSTS if environ.get(name)})
    exempt = (environ.get("no_proxy") or environ.get("NO_PROXY") or "").replace(" ", "").split(",")
    caught = [host for host in hosts if "*" not in exempt and host not in exempt]
    if proxy and caught:
        hint = f"export no_proxy={','.join(filter(None, [*exempt, *caught]))}"
        says = f"{proxy} is set and no_proxy does not name {', '.join(caught)}: Tally goes round it, other clients hang"
        yield note("proxy", says, hint)


def _mixtures(environ: Mapping[str, str]) -> Iterator[Finding]:
    given = [name for name in _HOSTS if environ.get(name)]
    backend = environ.get("TALLY_BACKEND") or "auto"
    if backend == "cloud" and given:
        says = f"TALLY_BACKEND=cloud, but {', '.join(given)} would send calls to an emulator"
        yield wrong("mixture", says, f"unset {' '.join(given)}")
    if backend == "embedded" and given:
        yield note("mixture", f"TALLY_BACKEND=embedded: {', '.join(given)} is not used", f"unset {' '.join(given)}")
    needed = [name for name in _HOSTS if name != "CLOUD_TASKS_EMULATOR_HOST"]
    if backend == "auto" and len(missing := [name for name in needed if name not in given]) == 1:
        says = f"{missing[0]} is not set, so `auto` takes the embedded file although the other emulator is given"
        yield wrong("mixture", says, 'eval "$(python -m emulator up)"')
    project, other = environ.get("TALLY_PROJECT", ""), environ.get("GOOGLE_CLOUD_PROJECT", "")
    if backend == "cloud" and not project:
        says = "TALLY_BACKEND=cloud, but TALLY_PROJECT is not set"
        yield wrong("settings", says, f"export TALLY_PROJECT={other or '$(gcloud config get-value project)'}")
    elif backend == "cloud" and other not in ("", project):
        says = f"GOOGLE_CLOUD_PROJECT={other!r} is not TALLY_PROJECT={project!r}, which counts"
        yield note("mixture", says, f"export TALLY_PROJECT={other}")


def _unknown(environ: Mapping[str, str]) -> Iterator[Finding]:
    for name in sorted(environ):
        if name.startswith("TALLY_") and name not in _KNOWN:
            for near in difflib.get_close_matches(name, _KNOWN, 1, cutoff=0.85):
                yield note("settings", f"{name} is not read: is {near} meant?", f"export {near}={environ[name]!r}")
