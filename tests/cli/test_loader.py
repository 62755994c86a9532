import sys
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.cli.loader import CannotLoad, load_app
from tests.support.cli.world import World


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


def test_an_app_is_found_beside_the_one_who_calls(here: Path) -> None:
    package = here / "found_pkg"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "apps.py").write_text(
        "from holdfast import Holdfast\nclass Box: app = Holdfast('memory://')\n"
    )
    assert isinstance(load_app("found_pkg.apps:Box.app"), Holdfast)


@pytest.mark.parametrize(
    ("source", "target", "told"),
    [
        ("", "lonely_a", "write module:attribute"),
        ("", ":app", "write module:attribute"),
        ("", "no_such_module_here:app", "there is no module 'no_such_module_here'"),
        ("", "lonely_b:app", "lonely_b has no attribute 'app'"),
        ("app = 1", "lonely_c:app", "'lonely_c:app' is of type int, not a Holdfast app"),
        ("import no_such_library", "lonely_d:app", "No module named 'no_such_library'"),
        ("1 / 0", "lonely_e:app", "ZeroDivisionError: division by zero (lonely_e.py:1)"),
        ("def", "lonely_f:app", "lonely_f cannot be imported: SyntaxError"),
    ],
)
def test_what_cannot_be_loaded_is_told_plainly(
    here: Path, source: str, target: str, told: str
) -> None:
    (here / f"{target.partition(':')[0] or 'none'}.py").write_text(source)
    if "no_such_module" in target:
        (here / "no_such_module_here.py").unlink()
    with pytest.raises(CannotLoad) as raised:
        load_app(target)
    assert told in str(raised.value)


def test_the_command_ends_with_invalid_input(world: World, here: Path) -> None:
    result = world.cli("worker", "no_such_module_at_all:app")
    assert result.exit_code == 6
    assert result.stderr.endswith("[cannot-load]\n")
