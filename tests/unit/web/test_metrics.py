"""`GET /metrics`: the text as it is, with the type that Prometheus asks for."""

from tally.web import metrics
from tally.web.app import App
from tests.asgi import Client


async def test_metrics_answers_the_text_with_its_type() -> None:
    app = App(metrics.routes(lambda: b"tally_worker_healthy 1\n", "text/plain; version=0.0.4"))
    answer = await Client(app).get("/metrics")
    assert (answer.status, answer.body) == (200, b"tally_worker_healthy 1\n")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4"
