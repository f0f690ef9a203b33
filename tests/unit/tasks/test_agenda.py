from tally.tasks.agenda import Agenda


def test_items_come_by_instant_then_sequence_without_the_void_ones() -> None:
    void = {3}
    agenda: Agenda[str] = Agenda(lambda _, sequence, key: sequence not in void, lambda: 4)
    for instant, sequence in ((20, 1), (10, 4), (10, 2), (10, 3), (5, 3)):
        agenda.push(instant, sequence, "x")
    order = []
    while (item := agenda.head()) is not None:
        order.append(item[:2])
        agenda.pop()
    assert order == [(10, 2), (10, 4), (20, 1)]


def test_void_items_do_not_pile_up() -> None:
    newest = 0
    agenda: Agenda[int] = Agenda(lambda _, sequence, key: sequence == newest, lambda: 1)
    agenda.push(0, newest, 0)
    for newest in range(1, 10_000):
        agenda.push(10_000 - newest, newest, 0)
        assert len(agenda) < 100
