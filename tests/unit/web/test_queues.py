import asyncio
from typing import Any

import pytest

from tests.unit.web.conftest import Play, Stage

Q = "/v1/queues/mail"


def test_a_task_goes_from_add_to_complete_over_http(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        client = stage.client
        added = await client.post(f"{Q}/tasks", {"v": 1, "name": "a", "tag": "t", "json": {"to": 7}})
        assert (added.status, added.json) == (201, {"name": "a", "status": "added"})
        again = await client.post(f"{Q}/tasks", {"v": 1, "name": "a"})
        assert (again.status, again.json) == (200, {"name": "a", "status": "exists"})
        leases = (await client.post(f"{Q}/lease", {"max_tasks": 5, "seconds": 30, "tag": "t"})).json["leases"]
        assert [each["task"]["json"] for each in leases] == [{"to": 7}]
        held = {"name": "a", "token": leases[0]["token"]}
        extended = await client.post(f"{Q}/extend", {**held, "seconds": 60})
        assert (extended.status, extended.json["expires_at"]) == (200, "2030-03-17T17:47:40Z")
        assert (await client.get(f"{Q}/stats")).json["in_flight"] == 1
        done = await client.post(f"{Q}/complete", {"leases": [held]})
        assert (done.status, done.json) == (200, {"outcomes": [{"name": "a", "status": "done"}]})
        lost = await client.post(f"{Q}/complete", {"leases": [held]})
        assert (lost.status, lost.json["outcomes"][0]["status"]) == (207, "lost")
        stats = (await client.get(f"{Q}/stats")).json
        assert (stats["tasks"], stats["oldest_eta"], stats["executed_last_minute"]) == (0, None, 1)

    play(scene)


def test_a_list_has_one_outcome_a_task_in_order(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        tasks = [{"v": 1, "name": "a"}, {"v": 2}, {"v": 1, "name": "a b"}, {"v": 1, "text": "x", "name": "c"}]
        answer = await stage.client.post(f"{Q}/tasks", {"tasks": tasks})
        statuses = [outcome["status"] for outcome in answer.json["outcomes"]]
        assert (answer.status, statuses) == (207, ["added", "invalid", "invalid", "added"])
        assert "version 2" in answer.json["outcomes"][1]["error"]
        good = await stage.client.post(f"{Q}/tasks", {"tasks": [{"v": 1}] * 1_000})
        assert (good.status, len(good.json["outcomes"])) == (200, 1_000)

    play(scene)


def test_a_failed_task_is_released_and_in_the_end_dead(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        client = stage.client
        retry = {"max_attempts": 2, "min_backoff": 5}
        await client.post(f"{Q}/tasks", {"v": 1, "name": "a", "retry": retry, "base64": "AAEC"})
        (lease,) = (await client.post(f"{Q}/lease", {})).json["leases"]
        uncounted = {"name": "a", "token": lease["token"], "error": "later", "counts": False, "delay": 0}
        assert (await client.post(f"{Q}/release", uncounted)).json == {"name": "a", "status": "released"}
        for status in ("released", "dead"):
            (lease,) = (await client.post(f"{Q}/lease", {"wait": 20})).json["leases"]
            assert lease["task"]["base64"] == "AAEC"
            released = await client.post(f"{Q}/release", {"name": "a", "token": lease["token"], "error": "boom"})
            assert released.json == {"name": "a", "status": status}
        assert stage.time() >= 5
        assert (await client.get(f"{Q}/stats")).json["dead"] == 1

    play(scene)


def test_a_lease_that_is_over_is_a_conflict(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        client = stage.client
        await client.post(f"{Q}/tasks", {"v": 1, "name": "a"})
        (lease,) = (await client.post(f"{Q}/lease", {"seconds": 10})).json["leases"]
        await asyncio.sleep(11)
        held = {"name": "a", "token": lease["token"]}
        for path, more in (("extend", {"seconds": 5}), ("release", {})):
            answer = await client.post(f"{Q}/{path}", {**held, **more})
            assert (answer.status, answer.json["code"]) == (409, "lease-expired")

    play(scene)


@pytest.mark.parametrize(
    ("path", "sent", "status"),
    [
        ("/v1/queues/a_b/tasks", {"v": 1}, 404),
        (f"{Q}/tasks", {"json": 1}, 400),
        (f"{Q}/tasks", {"v": 1, "colour": "red"}, 400),
        (f"{Q}/tasks", {"v": 1, "delay": 1, "eta": "2031-01-01T00:00:00Z"}, 400),
        (f"{Q}/tasks", {"tasks": []}, 400),
        (f"{Q}/tasks", {"tasks": [{"v": 1}] * 1_001}, 400),
        (f"{Q}/tasks", {"tasks": [], "more": 1}, 400),
        (f"{Q}/tasks", {"tasks": 5}, 400),
        (f"{Q}/tasks", [], 400),
        (f"{Q}/tasks", b'{"v":1,"json":NaN}', 400),
        (f"{Q}/tasks", {"v": 1, "text": "x" * 900_001}, 413),
        (f"{Q}/tasks", {"v": 1, "text": "x" * 4_000_001}, 413),
        (f"{Q}/lease", {"max_tasks": 1_001}, 400),
        (f"{Q}/lease", {"max_tasks": "1"}, 400),
        (f"{Q}/lease", {"seconds": 604_801}, 400),
        (f"{Q}/lease", {"wait": 31}, 400),
        (f"{Q}/lease", {"tag": "a", "oldest_tag": True}, 400),
        (f"{Q}/complete", {"leases": []}, 400),
        (f"{Q}/complete", {"leases": [{"name": "a"}]}, 400),
        (f"{Q}/complete", {"leases": [{"name": "a b", "token": "x"}]}, 400),
        (f"{Q}/extend", {"name": "a", "token": "x", "seconds": -1}, 409),
        (f"{Q}/release", {"name": "a", "token": ""}, 409),
    ],
    ids=lambda value: str(value)[:60],
)
def test_wrong_input_is_a_problem_and_never_a_500(play: Play, path: str, sent: Any, status: int) -> None:
    async def scene(stage: Stage) -> None:
        answer = await stage.client.post(path, sent)
        assert (answer.status, answer.json["status"]) == (status, status), answer.body

    play(scene)


def test_reading_a_queue_that_there_is_not_makes_none(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        assert (await stage.client.post(f"{Q}/lease", {})).json == {"leases": []}
        missing = await stage.client.get(f"{Q}/stats")
        assert (missing.status, missing.json["code"]) == (404, "queue-not-found")
        assert all(says in missing.json["detail"] for says in ("no queue mail", "GET /v1/queues"))
        assert (await stage.client.get("/v1/queues")).json["queues"] == []
        assert (await stage.client.get(f"{Q}/tasks")).status == 405

    play(scene)


def test_the_queues_are_listed_with_their_numbers_in_pages(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        assert (await stage.client.get("/v1/queues")).json == {"queues": [], "cursor": None}
        for queue in ("b", "a", "c"):
            await stage.client.post(f"/v1/queues/{queue}/tasks", {"v": 1})
        first = (await stage.client.get("/v1/queues?limit=2")).json
        assert [(each["name"], each["tasks"], each["paused"]) for each in first["queues"]] == [
            ("a", 1, False),
            ("b", 1, False),
        ]
        rest = (await stage.client.get(f"/v1/queues?limit=2&cursor={first['cursor']}")).json
        assert [each["name"] for each in rest["queues"]] == ["c"]
        assert rest["cursor"] is None

    play(scene)


@pytest.mark.parametrize("query", ["limit=0", "limit=51", "limit=x", "cursor=%FF", "cursor=bm9uZQ==", "queue=a"])
def test_a_malformed_page_is_refused(play: Play, query: str) -> None:
    async def scene(stage: Stage) -> None:
        answer = await stage.client.get(f"/v1/queues?{query}")
        assert (answer.status, answer.json["code"] in ("bad-query", "bad-cursor")) == (400, True)

    play(scene)
