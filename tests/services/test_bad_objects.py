"""Bad input: odd objects, names, buckets and uploads, through the main job: each file once or quarantined with the reason, no other.

On Azurite, SeaweedFS and moto, whichever can show it; keys, places and what lies between are in `test_bad_input.py`.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from azure.storage.blob import ContentSettings, StandardBlobTier

from gathering import gather, look, not_taken, write
from quire.commit import names, protocol
from quire.commit.log import Log
from quire.errors import QuireError
from quire.storage import ReadRequest, Vanished, bare
from services import s3
from services.azurite import KEY
from services.scripted import Asked, Says, between, scripted
from services.site import FILES, LINES, Site, both_ways, line, lines, sites


def _sites(*kinds: str) -> Callable[..., Any]:
    def made(request: pytest.FixtureRequest) -> Iterator[Site]:
        yield from sites(request, request.param)

    return pytest.fixture(params=kinds)(made)


site, azure, on_s3, on_moto = _sites("azurite", "seaweedfs", "moto"), _sites("azurite"), _sites("seaweedfs", "moto"), _sites("moto")
with_slashes = _sites("azurite", "moto")  # SeaweedFS keeps `a//b` as `a/b`
with_archive = _sites("azurite", "moto")


@pytest.fixture
def local(tmp_path: Path) -> Path:
    """A source on disk."""
    return write(tmp_path / "disk", FILES)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def _killed(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def killed_before_it_is_published(*args: Any, **more: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol, "publish", _killed)
        with suppress(KeyboardInterrupt):
            gather(*args, **more)


# --------------------------------------------------------------------------------------- what changes while it is being gathered
@pytest.mark.nth(3)
def test_what_is_deleted_or_overwritten_between_listing_and_reading(site: Site, out: Path) -> None:
    """Read on condition of the version that was listed: another one is not mixed in, and not quarantined either."""
    site.fill()
    first, second, *_ = sorted(FILES)
    planned = look(f"{site.url}/in", out, source_options=site.options, transform="raw")
    site.put(first, b"rewritten")
    site.store().remove(second)
    report = planned.run()
    assert (report.files, not_taken(report)) == (len(FILES) - 1, 0), "it is listed again, and taken as it is now"
    assert [(path.removeprefix(f"{site.url}/in/"), why) for path, why in report.deferred] == [(second, "vanished")]
    assert site.gathered(out) == {name: data for name, data in {**FILES, first: b"rewritten"}.items() if name != second}


@pytest.mark.nth(4)
def test_an_object_that_is_overwritten_again_and_again(site: Site, out: Path) -> None:
    """Each time before it is read: the call ends and says so, and the next one takes it."""
    site.fill()
    changing, turns = min(FILES), iter(range(1000))

    def says(asked: Asked) -> Says | None:
        if asked.method == "GET" and asked.target.endswith(changing):
            site.put(changing, b"rewritten %d" % next(turns))
        return None

    with between(site.endpoint, says) as (endpoint, _):
        report = site.gather(out, source_options=site.reached(endpoint))
    assert (report.files, not_taken(report)) == (len(FILES) - 1, 0)
    assert [(path.removeprefix(f"{site.url}/in/"), why) for path, why in report.deferred] == [(changing, "changed")]
    assert site.gather(out).files == 1
    assert site.gathered(out) == {**FILES, changing: b"rewritten %d" % (next(turns) - 1)}


# --------------------------------------------------------------------------------------------------------------- leases and tiers
def test_a_lease_does_not_forbid_to_read(azure: Site, out: Path) -> None:
    azure.fill()
    leases = [azure.blob(f"in/{name}").acquire_lease() for name in FILES]
    assert azure.gather(out).files == len(FILES)
    assert azure.gathered(out) == FILES
    for lease in leases:
        lease.release()


def test_a_lease_on_what_quire_wants_to_delete(azure: Site, local: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job is committed and published by then; the next call cleans up when the lease has ended."""
    held, publish = list[Any](), protocol.publish

    def leased(*args: Any, **more: Any) -> Any:
        for found in azure.client.list_blobs(name_starts_with=f"{azure.path}/out/_quire/jobs/"):
            if "/tasks/" in found.name and not held:
                held.append(azure.client.get_blob_client(found.name).acquire_lease())
        return publish(*args, **more)

    monkeypatch.setattr(protocol, "publish", leased)
    dest = {"dest_options": azure.options, "target_size": "60 B"}
    with line("cannot remove", "/tasks/", "somebody holds a lease on it. End the lease"):
        gather(local, f"{azure.url}/out", **dest)
    assert len(held) == 1
    assert lines(azure.store("out")) == LINES
    held[0].release()
    assert gather(local, f"{azure.url}/out", **dest).files == 0
    assert {e.name.split("/")[1] for e in azure.store("out").walk("_quire")} == {"log", "ledger"}
    assert lines(azure.store("out")) == LINES


@pytest.mark.nth(2)
def test_what_is_archived_is_set_aside_alone(with_archive: Site, out: Path) -> None:
    site = with_archive
    site.fill()
    if site.azure:
        site.put("cold", b"cold")
        site.blob("in/cold").set_standard_blob_tier(StandardBlobTier.ARCHIVE)
    else:
        site.put("cold", b"cold", StorageClass="GLACIER")
    report = site.gather(out)
    assert (report.files, not_taken(report)) == (len(FILES), 1)
    ((path, why),) = report.quarantined
    assert path == f"{site.url}/in/cold"
    assert ("it lies in the archive tier. Set it to the tier hot or cool" if site.azure else "it is archived. Restore it first") in why
    assert site.gathered(out) == FILES
    assert site.gather(out).files == 0, "it is in quarantine until it changes"


# --------------------------------------------------------------------------------------------- what is no file, and odd kinds of them
@pytest.mark.nth(2)
def test_what_stands_for_a_directory_is_no_file(site: Site, out: Path) -> None:
    site.fill()
    for name in ("empty", "d0/", "nothing/", ""):
        site.put(name, b"")
    if site.azure:
        for name in ("d1", "marked"):
            site.put(name, b"", metadata={"hdi_isfolder": "true"})
    report = site.gather(out)
    assert (report.files, not_taken(report), report.deferred) == (len(FILES) + 1, 0, ())
    assert site.gathered(out) == {**FILES, "empty": b""}


def test_snapshots_are_not_read(azure: Site, out: Path) -> None:
    azure.fill()
    first, second, *_ = sorted(FILES)
    for name in (first, second):
        azure.blob(f"in/{name}").create_snapshot()
    azure.put(first, b"newer")
    azure.blob(f"in/{second}").delete_blob(delete_snapshots="include")
    report = azure.gather(out)
    assert (report.files, not_taken(report), report.deferred) == (len(FILES) - 1, 0, ())
    assert azure.gathered(out) == {name: data for name, data in {**FILES, first: b"newer"}.items() if name != second}


@pytest.mark.nth(2)
def test_a_bucket_with_versions(on_s3: Site) -> None:
    """As a source: the newest ones alone, and none of what was deleted. As a destination: each once, also after a kill."""
    bucket = f"versioned-{on_s3.path[:12]}"
    on_s3.client.create_bucket(Bucket=bucket)
    on_s3.client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    source = bare(f"s3://{bucket}/in", on_s3.options)
    for before in (b"older ", b""):
        for name, data in FILES.items():
            source.put(name, before + data)
    source.put("gone", b"gone")
    source.remove("gone")
    versions = on_s3.client.list_object_versions(Bucket=bucket, Prefix="in/")
    assert (len(versions["Versions"]), len(versions["DeleteMarkers"])) == (2 * len(FILES) + 1, 1)
    job = (f"s3://{bucket}/in", f"s3://{bucket}/out"), {"storage_options": on_s3.options, "target_size": "100 B"}
    for expected in (len(FILES), 0):
        assert gather(*job[0], **job[1]).files == expected
    source.put("late", b"late")
    killed_before_it_is_published(*job[0], **job[1])
    gather(*job[0], **job[1])
    assert lines(bare(f"s3://{bucket}/out", on_s3.options)) == sorted([*LINES, "late"])


def test_append_and_page_blobs_are_read_and_not_written_over(azure: Site, local: Path, out: Path) -> None:
    appended = azure.blob("in/appended")
    appended.create_append_blob()
    appended.append_block(b"12345")
    azure.blob("in/paged").create_page_blob(512)
    assert azure.gather(out).files == 2
    assert azure.gathered(out) == {"appended": b"12345", "paged": bytes(512)}
    taken, dest = azure.blob(f"out/{names.entry(1)}"), f"{azure.url}/out"
    taken.create_append_blob()
    with pytest.raises(QuireError, match=names.entry(1)) as caught:
        gather(local, dest, dest_options=azure.options)
    assert str(caught.value).isprintable()
    taken.delete_blob()
    sink = azure.store("out").create("x")
    azure.blob("out/x").create_append_blob()
    sink.write(b"1")
    with line("cannot write", "/out/x: it is an append blob or a page blob, which cannot be written so. Choose another"):
        sink.close()
    azure.store("out").remove("x")
    gather(local, dest, dest_options=azure.options)
    assert lines(azure.store("out")) == LINES


def test_what_is_stored_packed_is_gathered_as_it_lies_there(site: Site, out: Path) -> None:
    packed = gzip.compress(b"content" * 1000, mtime=0)
    if site.azure:
        site.put("a", packed, content_settings=ContentSettings(content_encoding="gzip"))
    else:
        site.put("a", packed, ContentEncoding="gzip")
    assert site.gather(out).files == 1
    assert site.gathered(out) == {"a": packed}
    assert (site.store().get("a"), site.store().get_range("a", 3, 4)) == (packed, packed[3:7])


@pytest.mark.parametrize("body", [gzip.compress(b"content", mtime=0), b"not packed at all"])
@pytest.mark.parametrize("scheme", ["abfs", "s3"])
def test_what_a_service_calls_packed_is_not_unpacked(scheme: str, body: bytes) -> None:
    """Also where that is not even true; and nobody is asked to pack anything."""
    headers = {"Content-Encoding": "gzip", "ETag": '"v"', "Last-Modified": "Sat, 21 Nov 2026 10:00:00 GMT"}
    with scripted(lambda _: (200, headers, body)) as (endpoint, came):
        azure = {"account_name": "acc", "account_host": endpoint, "account_key": KEY}
        store = bare(f"{scheme}://tests/x", azure if scheme == "abfs" else s3.options(endpoint))
        assert store.get("a") == body
        assert [data for _, data in store.read_many([ReadRequest("a", "v", len(body), 0, len(body))])] == [body]
        assert {request.headers.get("accept-encoding", "identity") for request in came} == {"identity"}


@pytest.mark.nth(2)
def test_an_etag_with_dashes_is_a_version_like_any_other(on_s3: Site, out: Path) -> None:
    """Of an object that was uploaded in parts."""
    files = {name: name.encode() * (3 << 20) for name in ("ab", "cd")}
    for name, content in files.items():
        where = {"Bucket": s3.BUCKET, "Key": f"{on_s3.path}/in/{name}"}
        upload, parts = on_s3.client.create_multipart_upload(**where)["UploadId"], list[dict[str, Any]]()
        for number, part in enumerate((content[: 5 << 20], content[5 << 20 :]), 1):
            etag = on_s3.client.upload_part(**where, UploadId=upload, PartNumber=number, Body=part)["ETag"]
            parts.append({"PartNumber": number, "ETag": etag})
        on_s3.client.complete_multipart_upload(**where, UploadId=upload, MultipartUpload={"Parts": parts})
    assert all(e.version.endswith("-2") for e in on_s3.store().walk())
    planned = look(f"{on_s3.url}/in", out, source_options=on_s3.options, transform="raw")
    on_s3.put("cd", b"now of one part")
    assert planned.run().files == 2
    assert on_s3.gathered(out) == {"ab": files["ab"], "cd": b"now of one part"}


# -------------------------------------------------------------------------------------------------------------------------- names
ODD = [
    "trailing dot.", "trailing space ", "#fragment", "?query=1&sig=2", "%2F", "%", "S\u00fcd", "Su\u0308d", "a+b", "日本語", "😀", "d./e",
    "d /f", " ",
]  # fmt: skip


@pytest.mark.nth(3)
def test_odd_names_of_a_source(site: Site, out: Path) -> None:
    """Each is a file of its own, up to the longest that the service takes."""
    files = {name: f"{number}".encode() for number, name in enumerate(ODD)}
    files["/".join(["x" * 200] * 5)[: 1024 - len(f"{site.path}/in/")]] = b"longest"
    for name, data in files.items():
        site.put(name, data)
    report = site.gather(out)
    assert (report.files, not_taken(report), report.deferred) == (len(files), 0, ())
    assert site.gathered(out) == files
    assert site.gather(out).files == 0


def test_names_that_no_path_can_say(with_slashes: Site, out: Path) -> None:
    """`a//b` is another name than `a/b`: it is told, and the rest is gathered."""
    site = with_slashes
    site.fill()
    for name in ("d0//x", "/y", "alone//z"):
        site.put(name, b"1")
    report = site.gather(out)
    assert report.files == len(FILES)
    assert sorted(path.removeprefix(f"{site.url}/in/") for path, _ in report.unreadable) == ["/", "alone//", "d0//"]
    assert all("copy" in why for _, why in report.unreadable)
    assert site.gathered(out) == FILES


@pytest.mark.nth(18)
@pytest.mark.parametrize("path", ["trailing dot./out", "out #1?%2F", "S\u00fcd", "Su\u0308d", "日本語/a b"])
def test_odd_names_of_a_destination(site: Site, local: Path, path: str) -> None:
    dest = f"{site.url}/{path}"
    for expected in (len(FILES), 0):
        assert gather(local, dest, dest_options=site.options, target_size="200 B", layout="directories").files == expected
    assert lines(bare(dest, site.options)) == LINES


@pytest.mark.nth(3)
@pytest.mark.parametrize(("length", "fits"), [(800, True), (900, False), (1024, False), (1500, False)])
def test_a_destination_so_long_that_no_name_fits_below_it(site: Site, local: Path, length: int, fits: bool) -> None:
    """Said before anything is written."""
    dest = f"{site.top}/{'/'.join([site.path, *['x' * 100] * 20])[:length]}"
    if fits:
        gather(local, dest, dest_options=site.options, target_size="200 B")
        assert lines(bare(dest, site.options)) == LINES
        return
    with line("cannot write below", "names of 1,024 are the longest here", "Choose a shorter one"):
        gather(local, dest, dest_options=site.options)
    assert list(bare(site.url, site.options).walk()) == []


@pytest.mark.nth(3)
def test_a_source_directory_so_long_that_it_does_not_fit_below_the_destination(site: Site, local: Path) -> None:
    deep = "/".join(["y" * 100] * 9)
    write(local, {f"{deep}/a.txt": b"deep\n"})
    dest = {"dest_options": site.options, "layout": "directories"}
    report = gather(local, f"{site.url}/{'z' * 100}", **dest)
    assert (report.files, not_taken(report)) == (len(FILES), 1), "one directory keeps nobody from the others"
    ((path, reason),) = report.unreadable
    assert path.endswith(deep)
    assert "a name has at most 1,024" in reason
    assert lines(bare(f"{site.url}/{'z' * 100}", site.options)) == LINES


# ------------------------------------------------------------------------------------------------------- who pays, and expired uploads
def test_a_bucket_whose_requester_pays(on_moto: Site, local: Path, out: Path) -> None:
    """Every request says so, of listing, reading many, writing, publishing and cleaning; without the option the line names it."""

    def says(asked: Asked) -> Says | None:
        if asked.headers.get("x-amz-request-payer") == "requester":
            return None
        return 403, {}, b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"

    on_moto.fill()
    with between(on_moto.endpoint, says) as (endpoint, came):
        both_ways(on_moto.url, on_moto.reached(endpoint), local, out, "no permission", "requester_pays=True where the bucket wants that")
        came.clear()
        paying = {**on_moto.reached(endpoint), "requester_pays": True}
        assert on_moto.gather(out, source_options=paying).files == len(FILES)
        gather(local, f"{on_moto.url}/out", dest_options=paying, target_size="100 B")
        assert {asked.method for asked in came} >= {"GET", "PUT", "POST", "DELETE"}
    assert on_moto.gathered(out) == FILES
    assert lines(on_moto.store("out")) == LINES


@pytest.mark.nth(3)
def test_uploads_that_expired_before_they_were_published(site: Site, local: Path) -> None:
    """`published` names the lost tasks, and they are planned and gathered again."""
    store, job = site.store("out"), {"dest_options": site.options, "target_size": "60 B"}
    killed_before_it_is_published(local, f"{site.url}/out", **job)
    lost = sorted(name for name, _ in store.pending())[:2]
    assert len(lost) == 2
    for name, handle in list(store.pending()):
        if name in lost and site.azure:  # a list of other blocks drops them, as the service does by itself after a week
            store.create(name).close()
            store.remove(name)
        elif name in lost:
            store.give_up(name, handle)
    gather(local, f"{site.url}/out", **job)
    assert lines(store) == LINES
    told = [entry.lost for entry in Log(store).refresh().entries if getattr(entry, "lost", ())]
    assert [len(tasks) for tasks in told] == [2]
    assert gather(local, f"{site.url}/out", **job).files == 0


@pytest.mark.parametrize("scheme", ["s3", "abfs"])
def test_a_service_that_sends_more_than_it_was_asked_for_fills_no_memory(scheme: str) -> None:
    """As one that knows no ranges; of what is far above max_file_size no byte is needed."""

    def answer(asked: Asked) -> Says:
        sent.append(asked.headers.get("range", "all of it"))
        return 200, {"ETag": '"v"'}, b"x" * (8 << 20)

    sent = list[str]()
    with scripted(answer) as (endpoint, _):
        if scheme == "s3":
            store = bare(f"s3://{s3.BUCKET}/in", s3.options(endpoint))
        else:
            store = bare("abfs://tests/in", {"account_name": "devstoreaccount1", "account_key": KEY, "account_host": endpoint})
        none, some, whole = (
            content for _, content in store.read_many([ReadRequest("x", "v", 1 << 40, *r) for r in ((0, 0), (5, 3), (0, 9))])
        )
    assert (none, type(some), type(whole)) == (b"", Vanished, Vanished)
    assert sorted(sent) == ["bytes=0-0", "bytes=0-8", "bytes=5-7"]
