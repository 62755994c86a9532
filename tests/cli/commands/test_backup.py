"""`holdfast backup`."""

from pathlib import Path

from holdfast.cli.exit_codes import Exit
from tests.support.cli.world import World


def test_a_backup_is_a_store_and_is_written_down(world: World, tmp_path: Path) -> None:
    task_id, copy = world.upgrade(tenant="t-1"), tmp_path / "copy.db"
    told = world.json("backup", str(copy), "--reason", "before the upgrade")
    assert told == {"path": str(copy), "sizeBytes": copy.stat().st_size}
    assert world.cli("--store", f"sqlite:///{copy}", "tasks", "show", task_id).exit_code == Exit.OK
    [entry] = world.json("audit")["entries"]
    assert (entry["command"], entry["taskId"]) == ("backup", "store")
    assert entry["reason"] == "before the upgrade"
    again = world.cli("backup", str(copy))
    assert again.exit_code == Exit.REFUSED
    assert "[backup-refused]" in again.stderr
