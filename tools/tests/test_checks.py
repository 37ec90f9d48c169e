"""The check scripts, each on small trees that break its rule in one place."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[1]
LAYERS = "0 base :\n1 env : base\n3 codec : base\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    put(tmp_path, "tools/layers.txt", LAYERS)
    put(tmp_path, "pyproject.toml", 'testpaths = ["tests"]\n')
    return tmp_path


def put(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def check(name: str, root: Path) -> list[str]:
    """What the script finds in the tree, one line each; its exit status must fit."""
    script = TOOLS / f"check_{name}.py"
    done = subprocess.run([sys.executable, script, root], capture_output=True, text=True)
    found = done.stdout.splitlines()
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == (1 if done.stderr else 0)
    return found


# --- layers --------------------------------------------------------------------------------------


def test_layers_accept_own_and_lower_modules(tree: Path) -> None:
    put(
        tree,
        "src/headrace/codec/a.cc",
        '#include "headrace/codec/a.h"\n#include "headrace/base/b.h"\n',
    )
    assert check("layers", tree) == []


@pytest.mark.parametrize(
    ("name", "include"),
    [
        ("src/headrace/codec/a.cc", '"headrace/env/file.h"'),
        ("src/headrace/base/a.h", '"headrace/env/file.h"'),
        ("src/headrace/codec/a.cc", '"headrace/codec/testing/fake.h"'),
        ("src/headrace/codec/a.cc", '"a.h"'),
        ("src/headrace/novel/a.cc", '"headrace/base/b.h"'),
    ],
)
def test_layers_find_a_wrong_include(tree: Path, name: str, include: str) -> None:
    put(tree, name, f"#include {include}\n")
    (found,) = check("layers", tree)
    assert found.startswith(f"{name}:1: ")


def test_layers_let_tests_use_doubles(tree: Path) -> None:
    put(tree, "src/headrace/codec/a_test.cc", '#include "headrace/codec/testing/fake.h"\n')
    assert check("layers", tree) == []


# --- banned calls --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("#include <unistd.h>", "os-header"),
        ("#include <sys/mman.h>", "os-header"),
        ("std::ifstream in(path);", "file-access"),
        ('const char* home = getenv("HOME");', "file-access"),
        ("std::mutex mu;", "raw-mutex"),
        ("std::jthread worker;", "raw-thread"),
        ('printf("%d", 3);', "printing"),
        ("std::cerr << 3;", "printing"),
        ("std::shuffle(a.begin(), a.end(), g);", "randomness"),
        ("int x = rand();", "randomness"),
        ("std::uniform_int_distribution<int> d;", "randomness"),
        ("size_t h = std::hash<int>()(3);", "library-hash"),
        ("std::abort();", "ending-the-process"),
        ("throw std::runtime_error(a);", "exceptions"),
        ("double d = strtod(text, &end);", "locale"),
        ("auto now = std::chrono::system_clock::now();", "wall-clock"),
        ("#include <nlohmann/json.hpp>", "heavy-header"),
        ("using namespace std;", "using-namespace"),
    ],
)
def test_banned_finds(tree: Path, line: str, rule: str) -> None:
    put(tree, "src/headrace/codec/a.cc", f"int before;\n{line}\n")
    (found,) = check("banned", tree)
    assert found.startswith("src/headrace/codec/a.cc:2: ")
    assert f"[{rule}]" in found


@pytest.mark.parametrize(
    "line",
    [
        "// std::mutex is named in a comment only",
        'const char* text = "std::mutex and rand() in a string";',
        "queue.abort();",
        "int operand(int x); int y = operand(3);",
        "std::snprintf(buffer, 3, format);",
        "job->exit(3);",
        "int z = timer.time(3);",
        "const uint64_t million = 1'000'000; char c = 'x';",
    ],
)
def test_banned_accepts(tree: Path, line: str) -> None:
    put(tree, "src/headrace/codec/a.cc", line + "\n")
    assert check("banned", tree) == []


def test_banned_knows_where_a_rule_does_not_hold(tree: Path) -> None:
    put(tree, "src/headrace/base/mutex.h", "#include <mutex>\n")
    put(tree, "src/headrace/env/file.cc", "#include <fcntl.h>\n")
    put(tree, "src/headrace/codec/a_test.cc", "#include <fstream>\n")
    assert check("banned", tree) == []


def test_banned_takes_an_exception_with_a_reason_and_finds_a_stale_one(tree: Path) -> None:
    put(tree, "src/headrace/codec/a.cc", "std::mutex mu;\n")
    put(tree, "tools/banned_allowed.txt", "src/headrace/codec/a.cc raw-mutex a library wants it\n")
    assert check("banned", tree) == []
    put(tree, "src/headrace/codec/a.cc", "int mu;\n")
    (found,) = check("banned", tree)
    assert "no longer needed" in found


# --- sizes ---------------------------------------------------------------------------------------


def function_of(lines: int, comment: str = "") -> str:
    return f"{comment}int Long(int x) {{\n" + "  x += f({x});\n" * (lines - 2) + "}\n"


def test_sizes_find_a_long_header_and_source(tree: Path) -> None:
    put(tree, "src/headrace/base/a.h", "int x;\n" * 301)
    put(tree, "src/headrace/base/a.cc", "int x;\n" * 601)
    assert len(check("sizes", tree)) == 2


def test_sizes_accept_the_limits(tree: Path) -> None:
    put(tree, "src/headrace/base/a.h", "int x;\n" * 300)
    put(tree, "src/headrace/base/a.cc", "namespace a {\n" + function_of(100) * 5 + "}\n")
    assert check("sizes", tree) == []


def test_sizes_find_a_long_function(tree: Path) -> None:
    put(tree, "src/headrace/base/a.cc", "namespace a {\nint before;\n" + function_of(101) + "}\n")
    (found,) = check("sizes", tree)
    assert found.startswith("src/headrace/base/a.cc:3: a function of 101 lines")


def test_sizes_take_a_reason(tree: Path) -> None:
    reason = "// Long because it is one table.\n"
    put(tree, "src/headrace/base/a.cc", function_of(150, reason))
    assert check("sizes", tree) == []


def test_sizes_do_not_count_a_class_as_a_function(tree: Path) -> None:
    put(tree, "src/headrace/base/a.h", "class A {\n" + "  int f() { return 1; }\n" * 120 + "};\n")
    assert check("sizes", tree) == []


# --- targets -------------------------------------------------------------------------------------


def test_targets_find_a_source_nobody_builds(tree: Path) -> None:
    put(
        tree,
        "src/headrace/base/CMakeLists.txt",
        "headrace_test(t SOURCES a_test.cc plan/b_test.cc)\n",
    )
    put(tree, "src/headrace/base/a_test.cc", "")
    put(tree, "src/headrace/base/plan/b_test.cc", "")
    assert check("targets", tree) == []
    put(tree, "src/headrace/base/aa_test.cc", "")
    (found,) = check("targets", tree)
    assert found.startswith("src/headrace/base/aa_test.cc:1: ")


def test_targets_find_an_empty_corpus(tree: Path) -> None:
    put(tree, "fuzz/CMakeLists.txt", "headrace_fuzzer(tar_fuzz SOURCES tar_fuzz.cc CORPUS tar)\n")
    put(tree, "fuzz/tar_fuzz.cc", "")
    (found,) = check("targets", tree)
    assert "fuzz/corpus/tar is empty" in found
    put(tree, "fuzz/corpus/tar/one", "x")
    assert check("targets", tree) == []


def test_targets_find_a_python_test_out_of_sight(tree: Path) -> None:
    put(tree, "tests/test_a.py", "")
    put(tree, "elsewhere/test_b.py", "")
    (found,) = check("targets", tree)
    assert found.startswith("elsewhere/test_b.py:1: ")


# --- links ---------------------------------------------------------------------------------------


def test_links_accept_files_headings_and_the_web(tree: Path) -> None:
    put(tree, "docs/a.md", "# A: the `first` one\n\n[b](b.md#two-words) [me](#a-the-first-one)\n")
    put(tree, "docs/b.md", "## Two words\n\n[web](https://example.org/x) `[no](link.md)`\n")
    assert check("links", tree) == []


@pytest.mark.parametrize("target", ["missing.md", "b.md#missing", "../../outside.md", "#missing"])
def test_links_find_a_broken_one(tree: Path, target: str) -> None:
    put(tree, "docs/b.md", "# B\n")
    put(tree, "docs/a.md", f"# A\n\nsee [b]({target})\n")
    (found,) = check("links", tree)
    assert found.startswith("docs/a.md:3: broken link")
