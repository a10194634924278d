"""The distribution is `quire-spark`, the package `quire`; where another project of the package's name is installed, the import says so."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

from quire import packaging

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    build = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    made = subprocess.run([sys.executable, "-c", build, str(out)], cwd=ROOT, capture_output=True, text=True, check=True)
    return out / made.stdout.split()[-1]


def installed(folder: Path, *names: str) -> Path:
    """A directory with what an installer would write for packages of these distributions."""
    for name in names:
        info = folder / f"{name}-9.9.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 9.9\n")
        (info / "RECORD").write_text("quire/__init__.py,,\n")
    return folder


def test_a_wheel_installs_under_our_name_and_its_extras_name_no_other_project(wheel: Path, tmp_path: Path) -> None:
    assert wheel.name.startswith("quire_spark-")
    with zipfile.ZipFile(wheel) as content:
        (named,) = (name for name in content.namelist() if name.endswith("dist-info/METADATA"))
        metadata = message_from_string(content.read(named).decode())
    assert metadata["Name"] == packaging.DISTRIBUTION == PROJECT["name"]
    assert set(metadata.get_all("Provides-Extra", [])) == set(PROJECT["optional-dependencies"])
    for page in ("README.md", "docs/install.md"):
        text = (ROOT / page).read_text()
        assert set(re.findall(r"quire_spark-[\w.-]+\.whl", text)) == {wheel.name}, f"{page} names another wheel"
        named = re.findall(r"(?m)^\| ((?:`\w+`(?:, )?)+) \|", text.partition("| extra |")[2].partition("\n\n")[0])
        extras = {extra for cell in named for extra in re.findall(r"`(\w+)`", cell)}
        assert {"azure", "s3", "hdfs", "java", "widgets", "plots", "connect"} <= extras <= set(PROJECT["optional-dependencies"])
    wanted = metadata.get_all("Requires-Dist", [])
    assert not [line for line in wanted if re.match(r"quire(?![-_\w])", line)]
    venv.create(tmp_path / "fresh", symlinks=True)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(tmp_path / "fresh/bin/python"),
        "install",
        "--no-deps",
        "--no-index",
        "-q",
        str(wheel),
    ]
    subprocess.run(pip, check=True, env={**os.environ, "PYTHONPATH": "", "PIP_DISABLE_PIP_VERSION_CHECK": "1"})
    asked = (
        f"import sys; sys.path += [p for p in {[p for p in sys.path if 'site-packages' in p]!r}]; import quire, quire_widgets; "
        "from quire.packaging import another; print(quire.__file__, repr(another()))"
    )
    said = subprocess.run(
        [tmp_path / "fresh/bin/python", "-W", "error", "-c", asked], capture_output=True, text=True, check=False, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": ""},
    )  # fmt: skip
    assert said.returncode == 0, said.stderr[-1000:]
    assert said.stdout.startswith(str(tmp_path / "fresh"))
    assert said.stdout.endswith("''\n"), "our own is no other project"


@pytest.mark.parametrize(
    ("names", "warned"), [(["quire"], True), (["quire-spark"], False), (["Quire"], True), (["quire_spark"], False), (["quires"], False)]
)
def test_another_project_of_the_packages_name_is_said_in_one_line(tmp_path: Path, names: list[str], warned: bool) -> None:
    place = installed(tmp_path / "site", *names)
    command = f"import sys; sys.path.append({str(place)!r}); import quire"
    said = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True).stderr
    assert (said.count("\n"), "another project called quire (9.9)" in said) == ((1, True) if warned else (0, False)), said


def test_an_error_that_misses_a_package_says_what_works_today() -> None:
    assert packaging.install("s3").startswith('pip install "PLACE[s3]"')
    assert "clone" in packaging.install()
    assert "wheel" in packaging.install()


def test_nobody_is_sent_to_the_other_project() -> None:
    texts = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *(ROOT / "toolkit").rglob("*.py"), *(ROOT / "widgets").rglob("*.py")]
    texts += [*ROOT.glob("notebooks/*.md"), *ROOT.glob("notebooks/*.ipynb"), *ROOT.glob("binder/*"), ROOT / "pyproject.toml"]
    wrong = re.compile(r"(?<![\w-])quire\[[a-z]+[\],]|pip install [\"'`]?quire(?![-\w/])")
    assert not [f"{path.name}: {found[0]}" for path in texts if path.is_file() for found in wrong.finditer(path.read_text())]
