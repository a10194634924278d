"""Users' functions, unfinished jobs, entries of other versions, and looking before running."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from checker import check, look, tree
from gathering import documents, gather, not_taken, refused, snapshot, write
from gathering import look as plan
from quire.commit import parts, protocol
from quire.errors import FormatError, UsageError
from quire.sources.splits import FileInfo
from quire.storage import Content, ReadRequest, connect
from quire.storage.memory import MemoryStore


def crash(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> None:
    def die(*args: Any, **kwargs: Any) -> None:
        raise SystemExit(9)

    monkeypatch.setattr(module, name, die)


# ------------------------------------------------------------------------------------------------------------------ functions


def shout(content: bytes, file: FileInfo) -> bytes:
    return file.name.encode() + b": " + content.upper()


def words(content: bytes, file: FileInfo) -> Iterator[bytes]:
    yield from content.split()


def numbers(content: bytes, file: FileInfo) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"name": [file.name], "n": [len(content)]})


def moody(content: bytes, file: FileInfo) -> Any:
    if file.name.startswith("raises"):
        raise ValueError("secret content " + content.decode())
    return {"none": None, "text": "text", "number": 3, "ints": [1], "rows": numbers(content, file)}.get(file.name, content)


def test_a_function_gives_bytes_lines_or_rows(tmp_path: Path) -> None:
    source = write(tmp_path / "in", documents(6))
    gather(source, tmp_path / "bytes", transform=shout, format="raw")
    names = {c: Path(p).name.encode() for p, c in tree(source).items()}
    check(source, tmp_path / "bytes", lambda c: names[c] + b": " + c.upper())
    gather(source, tmp_path / "lines", transform=words)
    check(source, tmp_path / "lines", lambda c: b"\n".join(c.split()) + b"\n")
    gather(source, tmp_path / "rows", transform=numbers, format="parquet")
    (name,) = check(source, tmp_path / "rows", None).data
    assert sorted(r["name"] for r in pq.read_table(tmp_path / "rows" / name).to_pylist()) == [f"f{i:04}.txt" for i in range(6)]


def test_what_a_function_does_wrong_sets_its_file_aside_and_its_text_is_kept_only_on_request(tmp_path: Path) -> None:
    odd = ["raises", "none", "text", "number", "ints", "rows"]
    source = write(tmp_path / "in", {**documents(4), **dict.fromkeys(odd, b"4711")})
    report = gather(source, tmp_path / "out", transform=moody)
    assert (report.files, not_taken(report)) == (4, len(odd))
    found = check(source, tmp_path / "out")
    reasons = {Path(p).name: reason for p, reason in found.quarantined.items()}
    assert reasons["raises"].startswith("ValueError (test_plans.py line ")
    assert "4711" not in "".join(reasons.values())
    assert reasons["none"].startswith("TypeError: the function returned None; allowed are bytes")
    assert "format='parquet'" in reasons["rows"]
    gather(source, tmp_path / "kept", transform=moody, keep_messages=True)
    assert "secret content 4711" in "".join(look(tmp_path / "kept").quarantined.values())
    report = gather(source, tmp_path / "parquet", transform=moody, format="parquet")
    assert report.files == 1
    assert "format='lines'" in "".join(look(tmp_path / "parquet").quarantined.values())


def halves(content: bytes, file: FileInfo) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": [1]} if content == b"a" else {"m": ["x"]})


def test_rows_of_another_schema_are_set_aside(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"1": b"a", "2": b"b", "3": b"a"})
    report = gather(source, tmp_path / "out", transform=halves, format="parquet")
    assert (report.files, not_taken(report)) == (2, 1)
    assert "another schema" in report.quarantined[0][1]


def test_an_edited_function_does_not_finish_the_old_ones_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "in", documents(6))

    def function(edition: str) -> Callable[[bytes, FileInfo], bytes]:
        space: dict[str, Any] = {}
        exec(f"def change(content, file): return b'{edition}' + content", space)
        return space["change"]  # type: ignore[no-any-return]

    crash(monkeypatch, protocol, "commit")
    with pytest.raises(SystemExit):
        gather(source, tmp_path / "out", transform=function("old"))
    monkeypatch.undo()
    report = gather(source, tmp_path / "out", transform=function("new"))
    assert (report.files, len(report.others)) == (6, 1)
    assert report.others[0] in str(report), "the unfinished job is named, with what to do"
    check(source, tmp_path / "out", lambda c: b"new" + c + b"\n", settled=False)
    protocol.recover(connect(f"file://{tmp_path}/out"), "open")
    check(source, tmp_path / "out", lambda c: b"new" + c + b"\n")


def test_a_file_above_max_file_size_is_set_aside_where_it_must_be_held_whole(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"long.xml": b"<a>" + b"x" * 2000 + b"</a>", "ok.xml": b"<a/>"})
    report = gather(source, tmp_path / "xml", transform="xml", max_file_size="1000 B")
    assert (report.files, not_taken(report)) == (1, 1)
    assert "larger than max_file_size: 2,007 bytes, allowed are 1,000" in report.quarantined[0][1]
    assert gather(source, tmp_path / "raw", transform="raw", max_file_size="1000 B").files == 2


def test_of_a_file_above_max_file_size_no_byte_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be a terabyte, and goes into quarantine by its length alone."""
    source, asked = connect("memory://above/in"), dict[str, int]()
    source.put("long.xml", b"<a>" + b"x" * (2 << 20) + b"</a>")
    source.put("ok.xml", b"<a/>")
    real = MemoryStore.read_many

    def read_many(store: MemoryStore, requests: Iterable[ReadRequest]) -> Iterator[tuple[ReadRequest, Content]]:
        for request, content in real(store, requests):
            asked[request.name] = max(asked.get(request.name, 0), request.length)
            yield request, content

    monkeypatch.setattr(MemoryStore, "read_many", read_many)
    report = gather(source.url, "memory://above/out", transform="xml", max_file_size="1000 B")
    assert (report.files, not_taken(report)) == (1, 1)
    assert asked == {"long.xml": 0, "ok.xml": 4}


# -------------------------------------------------------------------------------------------------- unfinished, other versions


@pytest.mark.parametrize("step", ["commit", "publish", "clean"])
def test_a_job_that_died_is_finished_by_the_next_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    source = write(tmp_path / "in", documents(20))
    crash(monkeypatch, protocol, step)
    with pytest.raises(SystemExit):
        gather(source, tmp_path / "out", target_size="200 B")
    monkeypatch.undo()
    write(source, {"late": b"late"})
    report = gather(source, tmp_path / "out", target_size="200 B")
    assert report.files == (21 if step == "commit" else 1)
    check(source, tmp_path / "out")


def test_recover_gives_up_an_unfinished_job_on_request_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, store = write(tmp_path / "in", documents(20)), connect(f"file://{tmp_path}/out")
    crash(monkeypatch, protocol, "commit")
    with pytest.raises(SystemExit):
        gather(source, tmp_path / "out")
    monkeypatch.undo()
    assert len(protocol.recover(store).entries) == 0, "an open job is left alone"
    with refused(UsageError, 2, "nope", "is not known"):
        protocol.recover(store, "nope")
    (job,) = protocol.jobs(store)
    assert [type(e).__name__ for e in protocol.recover(store, job).entries] == ["Abort"]
    check({}, tmp_path / "out")
    assert gather(source, tmp_path / "out").files == 20
    check(source, tmp_path / "out")


def test_an_entry_of_a_newer_quire_or_a_damaged_one_is_refused_not_guessed(tmp_path: Path) -> None:
    source = write(tmp_path / "in", documents(5))
    gather(source, tmp_path / "out")
    write(source, {"new": b"1"})
    entry = tmp_path / "out/_quire/log/00000000000000000001.entry"
    good = entry.read_bytes()
    for bad, word in [
        (json.dumps({**json.loads(good), "format": 2}).encode(), "newer quire"), (b"{", "damaged"), (b"", "damaged"), (b"\xff", "damaged"),
        (json.dumps({**json.loads(good), "kind": "merge"}).encode(), "damaged"), (b'{"format": 99, "kind": "what"}', "Update quire"),
    ]:  # fmt: skip
        entry.write_bytes(bad)
        before = snapshot(tmp_path / "out")
        with refused(FormatError, 2, str(entry), word):
            gather(source, tmp_path / "out")
        assert snapshot(tmp_path / "out") == before
    entry.write_bytes(good)
    assert gather(source, tmp_path / "out").files == 1


def test_entries_that_would_be_too_long_keep_their_tasks_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "LONGEST", 2000)
    source = write(tmp_path / "in", documents(50))
    gather(source, tmp_path / "out", target_size="100 B")
    write(source, {"late": b"late"})
    assert gather(source, tmp_path / "out", target_size="100 B").files == 1
    found = check(source, tmp_path / "out")
    assert len(found.data) > 5
    assert len(list((tmp_path / "out/_quire/log/parts").iterdir())) == 1
    assert max(p.stat().st_size for p in (tmp_path / "out/_quire/log").glob("*.entry")) <= 2000


# ------------------------------------------------------------------------------------------------------------ look before


def test_looking_leaves_nothing_that_a_later_run_picks_up(tmp_path: Path) -> None:
    source = write(tmp_path / "in", documents(30))
    found = plan(source, tmp_path / "out", target_size="300 B")
    assert found.tasks["files"].sum() == 30
    files = found.files()
    assert list(files["path"]) == sorted(f"file://{p}" for p in tree(source))
    assert str(files["modified"].dtype) == "datetime64[ns, UTC]"
    assert len(found.files(limit=7)) == 7
    assert json.dumps(found.as_dict())
    assert "30" in str(found)
    write(source, {"late": b"1"})
    assert gather(source, tmp_path / "out", target_size="300 B").files == 31
    report = found.run(progress=False)
    assert report.files == 0, "the destination has moved on: what is left is planned anew"
    check(source, tmp_path / "out")


def test_a_plan_is_run_as_it_was_seen(tmp_path: Path) -> None:
    source = write(tmp_path / "in", documents(30))
    found = plan(source, tmp_path / "out")
    write(source, {"late": b"1"})
    assert found.run(progress=False).files == 30
    assert found.run(progress=False).files == 1, "a second time plans anew"
    check(source, tmp_path / "out")


def test_a_plan_that_was_discarded_can_still_be_run(tmp_path: Path) -> None:
    source = write(tmp_path / "in", documents(3))
    found = plan(source, tmp_path / "out")
    found.discard()
    assert not [p for p in (tmp_path / "out").rglob("*") if p.is_file()]
    assert found.run(progress=False).files == 3
    found.discard()
    check(source, tmp_path / "out")
    assert len(plan(source, tmp_path / "out").files()) == 0
