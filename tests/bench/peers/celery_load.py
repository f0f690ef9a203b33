"""Gives a Celery worker that consumes nothing yet a backlog of votes, and prints how long that took it, and the total.

`python celery_load.py POLL VOTES`, run by the interpreter that has Celery, in this folder; a line "OPTION VOTER" a task
on standard input.
"""

import json
import sys
import time

from celery_redis import app, count, redis, total


def main(poll: str, votes: int) -> None:
    tries = iter(range(30))
    while not app.control.ping(timeout=1, limit=1):  # a worker that is not there yet never hears of it
        if next(tries, None) is None:
            sys.exit("no Celery worker answers")
    for line in sys.stdin:
        count.delay(poll, *line.split())
    begun = time.perf_counter()
    app.control.add_consumer("votes")
    while total(poll) < votes:
        time.sleep(0.01)
    seconds = time.perf_counter() - begun
    while redis.llen("votes"):
        time.sleep(0.01)
    app.control.cancel_consumer("votes", reply=True, limit=1)
    print(json.dumps({"seconds": seconds, "total": total(poll)}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
