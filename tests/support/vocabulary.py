"""Names and docstrings that a newcomer stumbles over. `test_tidy` allows none, or ever fewer.

`python -m tests.support.vocabulary` lists them all.
"""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.support.source_tree import PACKAGE, ROOT, Breach, files_under, nodes_of, tree_of

BENCH = ROOT / "bench"
TESTS = ROOT / "tests"
FOLDERS = (PACKAGE, ROOT / "verify", BENCH)
PEERS = BENCH / "peers"  # each adapter lives in an environment of its own, and may repeat a name
SOURCE_SUFFIXES = (".py", ".lua", ".sql", ".js", ".ts", ".css", ".html")
FOLDER_FILES = 20
NOUNS_IN_ING = {"ceiling", "firing", "tracing"}  # of a drain; of a trigger; of calls

# A docstring that opens with one of these leans on what stands before it, and cannot be read alone.
PRONOUNS = """
It Its They Them Their Those These That This He His She Her We Our Who Whom Whose Whoever What
Whatever Which Whichever
"""
CONJUNCTIONS = """
And Or But Nor So Yet If Unless Whether While Because Since Though Although When Whenever Where
Wherever How As Than Until Till
"""
PREPOSITIONS = """
Of Off In Into On Onto At By To From For With Without Within Over Under Above Below Between
Among Behind Beside Before After During Through About Against Towards Upon Like Beyond Out Up
"""
DANGLING = frozenset(f"{PRONOUNS} {CONJUNCTIONS} {PREPOSITIONS}".split())
# These may stand before a noun ("One look at both."); "A" or the noun itself says more.
VAGUE = frozenset("One Ones Another Other Others Some Such Same Not Here There".split())
LABEL = re.compile(r"(``[^`]+``|None):")  # "``tokens``: beside …" is half a sentence

IRREGULAR = """
begun born bound brought built caught chosen drawn driven fallen felt found given gone got
gotten grown heard held hidden kept known laid led left lent lost made meant met paid said seen
sent shown shut sought spent spoken stolen struck sworn taken taught thought thrown told torn
understood undone woken won worn written
"""
POINTING = """
it its they them those these that this who whom whose what which one ones other others each all
any some same such own mine theirs here there so as of for by
"""
PARTICIPLES_AND_PRONOUNS = frozenset(f"{IRREGULAR} {POINTING}".split())


def source_files(*folders: Path) -> list[Path]:
    return [path for folder in folders or FOLDERS for path in files_under(folder, ".py")]


def doubled_classes() -> list[Breach]:
    """Public classes whose name another module defines, too: one for each name."""
    places = defaultdict[str, list[tuple[Path, int]]](list)
    for path in source_files():
        if path.is_relative_to(PEERS):
            continue
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append((path, node.lineno))
    return [
        Breach(*there[0], f"class {name} is also in {_named(p for p, _ in there[1:])}")
        for name, there in places.items()
        if len(there) > 1
    ]


def gerund_modules() -> list[Breach]:
    return [
        Breach(path, 1, f"{path.stem}: a module is named by the thing in it, a noun")
        for path in source_files(*FOLDERS, TESTS)
        if path.stem.endswith("ing") and path.stem.removeprefix("test_") not in NOUNS_IN_ING
    ]


def gerund_aliases() -> list[Breach]:
    """Modules that an import gives a name in -ing, which no module may have."""
    return [
        Breach(path, node.lineno, f"import {item.name} as {item.asname}: a module is a noun")
        for path in source_files(*FOLDERS, TESTS)
        for node in nodes_of(path)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for item in node.names
        if item.asname and item.asname.endswith("ing") and item.asname not in NOUNS_IN_ING
    ]


def docstrings(*folders: Path) -> Iterator[tuple[Path, int, str]]:
    """Yield every docstring with its file and line."""
    for path in source_files(*folders):
        for node in nodes_of(path):
            if isinstance(
                node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
            ) and (text := ast.get_docstring(node)):
                yield path, 1 if isinstance(node, ast.Module) else node.lineno, text


def dangling_docstrings(*folders: Path) -> list[Breach]:
    return [
        Breach(path, line, f"a docstring that opens with {opener!r} cannot be read alone")
        for path, line, text in docstrings(*folders)
        if (opener := dangling_opener(text))
    ]


def dangling_test_docstrings() -> list[Breach]:
    return dangling_docstrings(TESTS)


def vague_docstrings() -> list[Breach]:
    return [
        Breach(path, line, f"a docstring that opens with {opener!r} does not say of what")
        for path, line, text in docstrings()
        if (opener := text.split(maxsplit=1)[0]) in VAGUE
    ]


def dangling_opener(docstring: str) -> str | None:
    """Return the word or label at the start that makes the docstring unreadable alone."""
    if label := LABEL.match(docstring):
        return label[0]
    word = re.match(r"\W*(\w*)", docstring)
    return word[1] if word and word[1] in DANGLING else None


def dangling_functions(*folders: Path) -> list[Breach]:
    """Functions named by a bare participle or pronoun; properties may be adjectives."""
    return [
        Breach(path, node.lineno, f"{node.name}(): say what it does to what")
        for path in source_files(*folders)
        for node in nodes_of(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and not _is_property(node)
        and _is_participle_or_pronoun(node.name.strip("_"))
    ]


def dangling_test_functions() -> list[Breach]:
    return dangling_functions(TESTS)


def full_folders() -> list[Breach]:
    files = Counter(
        path.parent
        for folder in (*FOLDERS, TESTS)
        for path in files_under(folder, *SOURCE_SUFFIXES)
        if path.name != "__init__.py"
    )
    return [
        Breach(folder, 0, f"{count} source files, at most {FOLDER_FILES}")
        for folder, count in files.items()
        if count > FOLDER_FILES
    ]


def _is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    names = (ast.unparse(decorator) for decorator in node.decorator_list)
    return any(name.endswith("property") for name in names)


def _is_participle_or_pronoun(name: str) -> bool:
    if "_" in name or not name.islower():
        return False
    return name in PARTICIPLES_AND_PRONOUNS or (name.endswith("ed") and len(name) > 4)


def _named(paths: Iterator[Path]) -> str:
    return ", ".join(str(path.relative_to(ROOT)) for path in paths)


def main() -> None:
    for count in (
        doubled_classes,
        gerund_modules,
        dangling_docstrings,
        dangling_functions,
        full_folders,
        gerund_aliases,
        vague_docstrings,
        dangling_test_docstrings,
        dangling_test_functions,
    ):
        breaches = sorted(count())
        print(f"\n{count.__name__}: {len(breaches)}", *breaches, sep="\n  ")
    print(f"\ndocstrings: {sum(1 for _ in docstrings())}")


if __name__ == "__main__":
    main()
