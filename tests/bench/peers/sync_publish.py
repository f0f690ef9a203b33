"""The usual function: publishes a vote and waits for Pub/Sub's answer, so that its own is true."""

import os
from functools import cache

import functions_framework
from flask import Request
from google.cloud import pubsub_v1


@cache
def publisher() -> pubsub_v1.PublisherClient:
    return pubsub_v1.PublisherClient()


@functions_framework.http
def vote(request: Request) -> tuple[dict[str, bool], int]:
    if request.method == "GET":
        return {"live": True}, 200
    request.get_json()
    topic = publisher().topic_path(os.environ["TALLY_PROJECT"], os.environ["TALLY_TOPIC"])
    publisher().publish(topic, request.get_data()).result(timeout=10)
    return {"accepted": True}, 202
