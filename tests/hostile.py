"""What the tests about forged objects share: a destination to forge in, what can be done with it, and a witness beside it."""

from __future__ import annotations

import copy
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

import quire
from gathering import documents, gather, look, write
from quire.engine import take_up
from quire.errors import QuireError
from quire.read import first_rows
from quire.sources.transforms import BadContent
from quire.storage import connect, normalise

JOB = "7-0123456789abcdef"
ATTEMPT = "0123456789ab"
SECONDS = 20.0  # on a busy machine; alone, each of these calls is a matter of milliseconds


def destination(folder: Path, n: int = 6, **settings: Any) -> Path:
    """A destination with one commit: some files gathered, one quarantined."""
    source = write(folder / "in", {**documents(n, "xml"), "d0/bad.xml": b"<"})
    gather(source, folder / "out", **{"transform": "xml", **settings})
    return folder / "out"


def freeze(plan: Any) -> None:
    """Make a plan that was looked at an open job."""
    identity, planned = plan._options.identity, plan._planned
    assert take_up._freeze(plan._options.store(), identity, identity.head(planned.base, planned.plan, len(planned.tasks))) is not None


def frozen(folder: Path, **settings: Any) -> tuple[Path, Path]:
    """A destination with one commit and an open job: (plan.entry, the Parquet of its one piece)."""
    out = destination(folder, **settings)
    write(folder / "in", {"d9/late.xml": b"<late/>", "d9/later.xml": b"<later/>"})
    plan: Any = look(folder / "in", out, **{"transform": "xml", **settings})
    freeze(plan)
    (job,) = (out / "_quire/jobs").iterdir()
    (piece,) = (p for p in job.glob("plan-*-*.rows"))
    return job / "plan.entry", piece


def whole_plan(head: Path) -> Path:
    """The Parquet that says which task reads what."""
    return head.with_name(f"plan-{json.loads(head.read_bytes())['plan']}.rows")


def entries(out: Path) -> list[Any]:
    """The log, as JSON."""
    return [json.loads(p.read_bytes()) for p in sorted((out / "_quire/log").glob("*.entry"))]


def append(out: Path, entry: Any) -> Path:
    """Put an entry at the end of the log, as its bytes or as what they mean."""
    path = out / f"_quire/log/{len(list((out / '_quire/log').glob('*.entry'))) + 1:020}.entry"
    path.write_bytes(entry if isinstance(entry, bytes) else json.dumps(entry).encode())
    return path


def commit(out: Path, job: str = JOB) -> dict[str, Any]:
    """A commit like the first one of the log, of another job and with names of its own."""
    found: dict[str, Any] = copy.deepcopy(next(e for e in entries(out) if e["kind"] == "commit"))
    text = json.dumps(found).replace(found["job"], job).replace(found["tasks"][0]["attempt"], ATTEMPT)
    found = json.loads(text)
    del found["tasks"][1:]
    return found


def put(thing: Any, where: tuple[str | int, ...], value: Any) -> Any:
    """The same with another value in one place."""
    changed = at = copy.deepcopy(thing)
    for key in where[:-1]:
        at = at[key]
    at[where[-1]] = value
    return changed


def rewrite(path: Path, /, **columns: Any) -> None:
    """Other columns in a Parquet file; None takes one out."""
    table = pq.read_table(path)
    for name, made in columns.items():
        at = table.schema.names.index(name)
        if made is None:
            table = table.remove_column(at)
        else:
            values = made if isinstance(made, pa.Array) else pa.array(made, table.schema.field(name).type)
            table = table.set_column(at, name, values)
    pq.write_table(table, path)


def acts(out: Path) -> Mapping[str, Callable[[], object]]:
    """All that can be done with a destination."""
    source, kind = out.parent / "in", entries_transform(out)

    def opened(use: Callable[[quire.Ledger], object]) -> Callable[[], object]:
        return lambda: use(quire.Ledger(out))

    first = source / "d0/f0000.xml"
    return {
        "recover": lambda: quire.recover(out),
        "summary": opened(lambda x: (x.summary(), str(x.summary()), x.summary()._repr_html_())),
        "history": opened(lambda x: x.inspect.history().to_string()),
        "skew": opened(lambda x: repr(x.skew())),
        "tasks": opened(lambda x: x.inspect.tasks().to_string()),
        "sizes": opened(lambda x: x.inspect.sizes().to_string()),
        "quarantined": opened(lambda x: x.inspect.quarantined().to_string()),
        "locate": opened(lambda x: x.locate(first)),
        "read": opened(lambda x: x.read(first)),
        "verify": opened(lambda x: str(x.verify(spark=quire.LocalRunner()))),
        "rows": lambda: list(first_rows(connect(normalise(out)), 1000)),
        "plan": lambda: str(look(source, out, transform=kind)),
        "gather": lambda: gather(source, out, transform=kind),
        "give up": lambda: quire.recover(out, abort="open"),
    }


def entries_transform(out: Path) -> str:
    """What the destination holds, as far as its first entry can be read."""
    try:
        return str(entries(out)[0]["spec"]["transform"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return "xml"


def survive(out: Path) -> dict[str, QuireError]:
    """Do all that can be done; each call ends soon, with an answer or with an error of one line, which is given back."""
    said = {}
    for name, act in acts(out).items():
        began = time.monotonic()
        try:
            act()
        except QuireError as e:
            one_line(e)
            said[name] = e
        assert time.monotonic() - began < SECONDS, name
    return said


def trouble(act: Callable[[], object]) -> Any:
    """What the call raises of quire's, or of a transform's; None if it gives an answer."""
    try:
        act()
    except (QuireError, BadContent) as e:
        return e
    return None


def one_line(error: QuireError) -> None:
    """What an error of quire's is."""
    text = str(error)
    assert text, repr(error)
    assert text.isprintable(), repr(text)
    assert len(text) < 6000, text
    assert error.exit_code in (1, 2, 3)


def state(folder: Path) -> dict[str, tuple[Any, ...]]:
    """Everything below a directory: kind, rights and content, links as they are."""
    found: dict[str, tuple[Any, ...]] = {}
    for where, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = Path(where, name)
            status = path.lstat()
            content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else b""
            found[str(path.relative_to(folder))] = (status.st_mode, status.st_mtime_ns, content)
    return found


@contextmanager
def untouched(*folders: Path) -> Iterator[None]:
    """Nothing in these directories is made, changed or deleted meanwhile."""
    before = [state(folder) for folder in folders]
    yield
    assert [state(folder) for folder in folders] == before


def outside(folder: Path, job: str = JOB) -> Path:
    """A directory beside the destination, with all that a clean-up deletes where it is its own."""
    place = folder / "outside"
    names = [
        "precious", f"{job}/plan.entry", f"{job}/plan-{ATTEMPT}.rows", f"{job}/attempts/0-{ATTEMPT}/x", f"{job}/tasks/0.entry",
        f"jobs/{job}/plan.entry", f"jobs/{job}/attempts/x", f"ledger/{job}-0-{ATTEMPT}.rows", f"{job}-0-{ATTEMPT}.rows",
        f"{job}-{ATTEMPT}.rows", "plan.entry", f"plan-{ATTEMPT}.rows", "attempts/x", "tasks/0.entry", "tmp/x", f"0-{ATTEMPT}/x",
        f"part-{job}-0-{ATTEMPT}-0.txt",
    ]  # fmt: skip
    for name in names:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(b"precious")
    return place


def encoded(thing: Any) -> bytes:
    """JSON, also of what Python's writer refuses."""
    return msgspec.json.encode(thing)
