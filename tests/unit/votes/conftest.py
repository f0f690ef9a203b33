from collections.abc import Callable

import pytest

from tally.testing.loop import VirtualLoop
from tests.unit.votes.pipeline import Pipeline
from tests.unit.votes.scripted import ScriptedStore
from tests.unit.votes.working import Scene


@pytest.fixture
def play(tally_loop: VirtualLoop) -> Callable[[Scene], None]:
    """Give a function that plays a scene on a pipeline whose store is scripted."""

    async def main(scene: Scene) -> None:
        pipeline = Pipeline()
        store = ScriptedStore(pipeline.backend.store)
        pipeline.store = store
        await scene(pipeline, store)

    return lambda scene: tally_loop.run(main(scene))
