"""What `tally doctor` finds out about Google Cloud or the emulators: hosts, credentials, topics, database."""

import asyncio
import urllib.request
from collections.abc import Iterator
from typing import Final

import google.auth
from google.auth.exceptions import GoogleAuthError
from google.pubsub_v1 import types

from tally.config import Channel, Settings
from tally.errors import BackendError
from tally.finding import Finding, note, ok, wrong
from tally.gcp import calls
from tally.gcp.clients import Clients
from tally.gcp.datastore import DatastoreStore
from tally.gcp.pubsub import subscription_path, topic_path
from tally.limits import ACK_DEADLINE_SECONDS

_HOST_SECONDS: Final = 3
_WEEK: Final = 7 * 24 * 3_600
_START: Final = 'eval "$(python -m emulator up)"'
_SCOPES: Final = ("https://www.googleapis.com/auth/cloud-platform",)


async def examine(settings: Settings) -> list[Finding]:
    """Look at what the settings name. Hosts or credentials that fail end it: nothing else could answer."""
    if settings.backend == "cloud":
        first = [await asyncio.to_thread(_credentials)]
    else:
        hosts = (
            ("PUBSUB_EMULATOR_HOST", settings.pubsub_emulator),
            ("DATASTORE_EMULATOR_HOST", settings.datastore_emulator),
            ("CLOUD_TASKS_EMULATOR_HOST", settings.cloud_tasks_emulator),
        )
        first = [await asyncio.to_thread(_host, name, host) for name, host in hosts if host]
    if any(finding.level == "wrong" for finding in first):
        return first
    clients = Clients(settings)
    try:
        return [*first, *await _pubsub(settings, clients), await _database(settings, clients)]
    finally:
        await clients.close()


def has_store(settings: Settings) -> bool:
    """Say whether there is a store to look into once nothing is wrong."""
    return True


def _credentials() -> Finding:
    try:
        credentials, project = google.auth.default(scopes=_SCOPES)
    except GoogleAuthError as error:
        return wrong("credentials", str(error).splitlines()[0], "gcloud auth application-default login")
    account = getattr(credentials, "service_account_email", None) or "a user's own"
    return ok("credentials", f"found: {account}, project {project}")


def _host(name: str, host: str) -> Finding:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # an emulator is on this machine
    try:
        with opener.open(f"http://{host}/", timeout=_HOST_SECONDS) as reply:
            return ok("hosts", f"{name}={host} answers ({reply.status})")
    except OSError as error:
        return wrong("hosts", f"{name}={host} does not answer: {error}", _START)


async def _pubsub(settings: Settings, clients: Clients) -> list[Finding]:
    findings = []
    for channel in settings.channels:
        topic, subscription = channel
        path = topic_path(settings.project, topic)
        there = True
        try:
            await calls.call(calls.ADMIN, clients.publisher.get_topic, types.GetTopicRequest(topic=path))
            findings.append(ok("topic", f"{topic} is there"))
        except BackendError as error:
            there = False
            findings.append(_absent("topic", topic, error, settings))
        request = types.GetSubscriptionRequest(subscription=subscription_path(settings.project, subscription))
        try:
            found = await calls.call(calls.ADMIN, clients.subscriber.get_subscription, request)
        except BackendError as error:
            if there and error.status == "NOT_FOUND":
                findings.append(_swallowed(channel, settings))
            else:
                findings.append(_absent("subscription", subscription, error, settings))
        else:
            findings += judge(subscription, found, path, of_votes=channel in settings.vote_channels)
    return findings


def judge(name: str, found: types.Subscription, topic: str, *, of_votes: bool) -> list[Finding]:
    """Judge a subscription as the service describes it."""
    faults = list(_faults(name, found, topic, of_votes=of_votes))
    return faults or [ok("subscription", f"{name} on {topic}, as it should be")]


def _faults(name: str, found: types.Subscription, topic: str, *, of_votes: bool) -> Iterator[Finding]:
    update = f"gcloud pubsub subscriptions update {name}"
    again = f"gcloud pubsub subscriptions create {name}-2 --topic={topic} --expiration-period=never"
    if found.topic != topic:
        yield wrong("subscription", f"{name} is on {found.topic}, not {topic}: votes would never come", again)
    if found.push_config.push_endpoint:
        yield wrong(
            "subscription", f"{name} pushes to {found.push_config.push_endpoint}", f'{update} --push-endpoint=""'
        )
    if found.filter:
        yield wrong("subscription", f"{name} has the filter {found.filter!r}, which drops the rest", again)
    if found.dead_letter_policy.dead_letter_topic:
        says = f"{name} has a dead-letter policy: after an outage it takes good votes away"
        yield wrong("subscription", says, f"{update} --clear-dead-letter-policy")
    if "expiration_policy" not in found or found.expiration_policy.ttl:
        says = f"{name} is deleted, with what waits in it, when it was idle for a time"
        yield wrong("subscription", says, f"{update} --expiration-period=never")
    retention = found.message_retention_duration.total_seconds()
    if retention < _WEEK:
        says = f"{name} keeps messages for {retention / 3_600:.0f} h: an outage may last longer"
        yield note("subscription", says, f"{update} --message-retention-duration=7d")
    if of_votes and found.ack_deadline_seconds != ACK_DEADLINE_SECONDS:
        says = f"{name} has an ack deadline of {found.ack_deadline_seconds} s: votes of a dead worker wait that long"
        yield note("subscription", says, f"{update} --ack-deadline={ACK_DEADLINE_SECONDS}")


def _swallowed(channel: Channel, settings: Settings) -> Finding:
    says = f"{channel.subscription} does not exist, but its topic does: what is published to {channel.topic} is lost"
    if settings.backend == "emulator":
        return wrong("subscription", says, "tally serve  # makes it")
    create = f"gcloud pubsub subscriptions create {channel.subscription} --project={settings.project}"
    options = f"--topic={channel.topic} --expiration-period=never --message-retention-duration=7d"
    again = f"gcloud pubsub subscriptions seek {channel.subscription} --project={settings.project} --time=TIME"
    return wrong("subscription", says, f"{create} {options} && {again}  # as far back as the topic keeps messages")


def _absent(check: str, name: str, error: BackendError, settings: Settings) -> Finding:
    if error.status == "NOT_FOUND" and settings.backend == "emulator":
        return ok(check, f"{name} is not there yet: `tally serve` or `tally worker` makes it")
    if error.status == "NOT_FOUND":
        return wrong(check, f"{name} does not exist in {settings.project}", "make deploy")
    return _unreadable(check, name, error, settings, role="roles/pubsub.viewer")


def _unreadable(check: str, name: str, error: BackendError, settings: Settings, *, role: str) -> Finding:
    if error.status == "PERMISSION_DENIED":
        grant = f"gcloud projects add-iam-policy-binding {settings.project} --member=user:YOU --role={role}"
        return wrong(check, f"these credentials may not look at {name}", grant)
    if error.status == "UNAUTHENTICATED":
        return wrong(check, f"the credentials are refused: {error.message}", "gcloud auth application-default login")
    return wrong(check, f"{name} could not be looked at: {error.message}", "tally doctor  # once the service answers")


async def _database(settings: Settings, clients: Clients) -> Finding:
    """A read tells: Datastore's API refuses a database that is in Native mode, or none."""
    name = settings.database or "(default)"
    create = f"gcloud firestore databases create --database='{name}' --type=datastore-mode --location=LOCATION"
    store = DatastoreStore(clients, settings.project, settings.database)
    try:
        await store.get([(("Poll", "doctor"),)])
    except BackendError as error:
        if error.status == "NOT_FOUND":
            return wrong("database", f"database {name} does not exist in {settings.project}", create)
        if error.status == "FAILED_PRECONDITION":
            says = f"database {name} is not in Datastore mode: {error.message}"
            return wrong("database", says, f"{create}  # under another name: a mode cannot be changed")
        return _unreadable("database", name, error, settings, role="roles/datastore.user")
    return ok("database", f"{name} answers in Datastore mode")
