"""`holdfast audit transitions`: every transition, with who made it."""

from tests.support.cli.world import World


def test_every_transition_is_listed_with_who_made_it(world: World) -> None:
    task_id = world.upgrade(tenant="t-1")
    world.cli("tasks", "pause", task_id, "--reason", "lunch")
    found = world.json("audit", "transitions", "--tenant", "t-1")
    assert found["cursor"] is None
    told = [
        (one["command"], one["before"], one["after"], one["maker"], one["reason"])
        for one in found["transitions"]
    ]
    assert told == [
        ("submit", None, "PENDING", "client", ""),
        ("pause", "PENDING", "PAUSED", "operator", "lunch"),
    ]
    assert found["transitions"][1]["name"].startswith("cli:")
    assert world.json("audit", "transitions", "--task", task_id) == found


def test_a_person_reads_them_in_columns(world: World) -> None:
    task_id = world.upgrade(tenant="t-1")
    world.cli("tasks", "pause", task_id, "--reason", "lunch, password=hunter2")
    head, submit, pause = world.cli("audit", "transitions", columns=200).stdout.splitlines()
    assert head.split() == ["ID", "AGO", "COMMAND", "FROM", "TO", "BY", "NAME", "REASON"]
    assert submit.split()[0] == pause.split()[0] == task_id
    assert submit.split()[2:7] == ["submit", "-", "PENDING", "client", "-"]
    assert pause.split()[2:6] == ["pause", "PENDING", "PAUSED", "operator"]
    assert pause.endswith("lunch, password=***")


def test_a_page_says_where_the_next_begins(world: World) -> None:
    task_id = world.upgrade(tenant="t-1")
    world.cli("tasks", "pause", task_id)
    first = world.json("audit", "transitions", "--limit", "1")
    rest = world.json("audit", "transitions", "--limit", "1", "--cursor", first["cursor"])
    assert [one["command"] for one in first["transitions"]] == ["submit"]
    assert [one["command"] for one in rest["transitions"]] == ["pause"]
    assert world.json("audit", "transitions", "--until", "1h")["transitions"] == []
