from emulator.cloud_tasks.faults import Faults, Plan, Rule


def strikes(rule: Rule, chances: int, *, seed: int = 0, queue: str = "q") -> list[int]:
    faults = Faults(Plan(rules=(rule,), seed=seed))
    return [n for n in range(chances) if faults.hit("throttle", queue)]


def test_a_rule_skips_then_hits_so_many_times() -> None:
    assert strikes(Rule(kind="throttle"), 5) == [0]
    assert strikes(Rule(kind="throttle", skip=2, times=2), 6) == [2, 3]
    assert strikes(Rule(kind="throttle", times=None), 4) == [0, 1, 2, 3]


def test_a_rule_keeps_to_its_kind_and_queue() -> None:
    assert strikes(Rule(kind="lose-answer", times=None), 3) == []
    assert strikes(Rule(kind="throttle", queue="other", times=None), 3) == []
    assert strikes(Rule(kind="throttle", queue="other", times=None), 3, queue="other") == [0, 1, 2]


def test_the_same_seed_strikes_the_same_chances() -> None:
    rule = Rule(kind="throttle", probability=0.3, times=None)
    assert strikes(rule, 1_000, seed=1) == strikes(rule, 1_000, seed=1) != strikes(rule, 1_000, seed=2)
    assert 250 < len(strikes(rule, 1_000)) < 350


def test_a_report_counts_chances_and_hits() -> None:
    faults = Faults(Plan(rules=(Rule(kind="throttle"),)))
    for _ in range(3):
        faults.hit("throttle", "q")
    [row] = faults.report()
    assert (row["kind"], row["chances"], row["hits"]) == ("throttle", 3, 1)
