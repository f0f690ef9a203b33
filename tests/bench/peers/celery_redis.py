"""Celery with Redis: a task a vote. A set knows who has voted, a hash counts; a task that comes again adds nothing.

Settings: acknowledged late, as everybody else here (Celery's own default forgets the tasks of a worker that dies); no
results are kept; all else is Celery's default: prefork, one process a core, four tasks fetched ahead for each.
A worker that dies between the two commands loses that vote.
"""

import os

from celery import Celery
from redis import Redis

app = Celery("votes", broker=os.environ["REDIS_URL"])
app.conf.update(task_acks_late=True, task_ignore_result=True, task_default_queue="votes")
redis = Redis.from_url(os.environ["REDIS_URL"])


@app.task
def count(poll: str, option: str, voter: str) -> None:
    if redis.sadd(f"voters:{poll}", voter):
        redis.hincrby(f"counts:{poll}", option, 1)


def total(poll: str) -> int:
    return sum(int(votes) for votes in redis.hvals(f"counts:{poll}"))
