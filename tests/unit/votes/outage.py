"""An outage, and what came of it."""

from dataclasses import dataclass

from tally.errors import BackendError, Unavailable

DOWN = Unavailable("down", status="UNAVAILABLE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """`worker` and `function` name the calls that fail, of each; `latency`: mean seconds of one way for all calls.

    `poisoned`: the worker's commits of one partition fail; `unreadable`: its reads of definitions.
    """

    what: str
    seconds: int
    worker: tuple[str, ...] = ()
    function: tuple[str, ...] = ()
    error: BackendError = DOWN
    latency: float = 0.005
    poisoned: bool = False
    unreadable: bool = False

    def __str__(self) -> str:
        return f"{self.what}, {self.seconds} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What came of an outage. Of messages: `held` at most, `extended`, `let_go`, and `tried` in the last half of it.

    `refused`: answers of 503; `unhealthy`: seconds until health said so, None if it never did; `bad`: seconds in which
    it did; `recovered`: seconds from the end of the outage until all that had come in before was settled and health was
    good.
    """

    outage: Outage
    held: int
    extended: int
    let_go: int
    tried: int
    parked: tuple[int, ...]
    store_down: bool
    neighbours: int
    refused: int
    unhealthy: int | None
    bad: int
    recovered: int
    accepted: int
    lost: int
    doubled: int
    dead_letters_lost: int
    good_votes_dead: int

    @property
    def did(self) -> str:
        """Say in words what the worker and the functions did."""
        said = []
        if self.store_down:
            said.append(f"said store_down, pulled {self.tried} in the last half")
        if self.parked:
            said.append(f"parked {', '.join(map(str, self.parked))}")
        if self.refused:
            said.append(f"{self.refused} answers of 503")
        said.append(f"held {self.held} at most")
        if self.extended:
            said.append(f"extended {self.extended} leases")
        if self.let_go:
            said.append(f"let {self.let_go} go")
        said.append("health good" if self.unhealthy is None else f"health bad after {self.unhealthy} s")
        return "; ".join(said)
