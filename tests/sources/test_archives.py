"""Archives: their members come one by one, under names that mean no place; what is wrong with one member is wrong with it alone."""

from __future__ import annotations

import bz2
import gzip
import io
import random
import stat
import struct
import tarfile
import time
import tracemalloc
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
import zstandard

from quire.sources import archives, compression
from quire.sources.archives import Archive, BrokenArchive, Member, is_archive, unpacking
from quire.sources.compression import AUTO, CONTENT, NONE
from quire.sources.members import NAME, escaped, is_tar, refused
from quire.sources.transforms.content import BadContent
from quire.storage import ReadRequest, Store, Vanished, bare

TEXT = b"line\n" * 40


def tar(files: Iterable[tuple[str | tarfile.TarInfo, bytes]], kind: int = tarfile.PAX_FORMAT) -> bytes:
    """A tar archive."""
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=kind) as archive:
        for name, content in files:
            info = tarfile.TarInfo(name) if isinstance(name, str) else name
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return sink.getvalue()


def zipped(files: Iterable[tuple[str | zipfile.ZipInfo, bytes]], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip archive, the same at any time."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        for name, content in files:
            info = zipfile.ZipInfo(name) if isinstance(name, str) else name
            info.compress_type = method
            archive.writestr(info, content)
    return sink.getvalue()


def of(kind: bytes, name: str = "n") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, "/etc/passwd" if kind in (tarfile.LNKTYPE, tarfile.SYMTYPE) else ""
    return info


class Streams:
    """A store of one file, whose answer is a stream; ranges are bytes."""

    def __init__(self, content: bytes, error: Exception | None = None) -> None:
        self.content, self.error, self.asked = content, error, list[int]()

    def read_many(self, requests: Iterable[ReadRequest]) -> Iterator[tuple[ReadRequest, Any]]:
        for request in requests:
            if (request.start, request.length) == (0, len(self.content)):
                yield request, self.stream()
                continue
            self.asked.append(request.length)
            if self.error is not None:
                raise self.error
            yield request, self.content[request.start : request.start + request.length]

    def stream(self) -> Iterator[bytes]:
        for at in range(0, len(self.content), 100_000):
            yield self.content[at : at + 100_000]
        if self.error is not None:
            raise self.error


def answer(content: bytes, name: str = "a", mode: str = NONE, *, stream: bool = False) -> Any:
    """The answer for a file, held or as a stream."""
    store: Any = Streams(content)
    if not stream:
        store = bare("memory://archives")
        store.put(name, content)
    found = None if stream else store.stat(name)
    request = ReadRequest(name, found.version if found else "", len(content), 0, len(content))
    answers = unpacking(cast("Store", store), mode, None, archives=True).read_many([request])
    return next(answers)[1]


def taken(content: bytes, name: str = "a", mode: str = NONE, **how: Any) -> list[tuple[str, bytes | str]]:
    """Each member's name, with its content or the reason for which it is quarantined."""
    archive, found = answer(content, name, mode, **how), list[tuple[str, bytes | str]]()
    if isinstance(archive, Exception):
        raise archive
    assert isinstance(archive, Archive)
    for number, member in enumerate(archive.members()):
        assert member.number == number
        try:
            found.append((member.name, archive.content(member, 1 << 30).whole))
        except BrokenArchive:
            raise
        except BadContent as e:
            found.append((member.name, e.reason))
    return found


def broken(content: bytes, *words: str, name: str = "a", **how: Any) -> None:
    """All of an archive is quarantined, with these words."""
    with pytest.raises(BrokenArchive) as caught:
        taken(content, name, **how)
    for word in words:
        assert word in caught.value.reason


FILES = [("x/1.txt", b"one\n"), ("x/2.txt", b""), ("big", TEXT * 300), ("ü.txt", b"three")]
PACKED = {
    "zip": zipped(FILES),
    "stored.zip": zipped(FILES, zipfile.ZIP_STORED),
    "bzip2.zip": zipped(FILES, zipfile.ZIP_BZIP2),
    "lzma.zip": zipped(FILES, zipfile.ZIP_LZMA),
    "tar": tar(FILES),
    "gnu.tar": tar(FILES, tarfile.GNU_FORMAT),
    "ustar.tar": tar(FILES, tarfile.USTAR_FORMAT),
    "tar.gz": gzip.compress(tar(FILES), mtime=0),
    "tgz": gzip.compress(tar(FILES), mtime=0),
    "tar.bz2": bz2.compress(tar(FILES)),
    "tar.zst": zstandard.compress(tar(FILES)),
}


@pytest.mark.parametrize("stream", [False, True], ids=["held", "stream"])
@pytest.mark.parametrize("ending", PACKED)
def test_members_come_with_their_names_and_bytes(ending: str, stream: bool) -> None:
    assert taken(PACKED[ending], f"a.{ending}", stream=stream) == FILES
    assert taken(PACKED[ending], "a name that says nothing", AUTO, stream=stream) == FILES


@pytest.mark.parametrize("stream", [False, True], ids=["held", "stream"])
def test_what_is_no_archive_is_as_it_would_be_without(stream: bool) -> None:
    packed = gzip.compress(TEXT)
    given = answer(packed, "a.gz", stream=stream)
    assert (given if isinstance(given, bytes) else b"".join(given)) == packed
    assert answer(packed, "a.gz", AUTO, stream=stream).whole == TEXT
    assert isinstance(answer(packed[:-9], "a.gz", AUTO, stream=stream), BadContent)
    plain = answer(b"PK is how it begins", "a.txt", AUTO, stream=stream)
    assert (plain if isinstance(plain, bytes) else b"".join(plain)) == b"PK is how it begins"
    assert answer(b"", "a.txt", AUTO) == b""


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.zip", b"text", ("zip", "no archive")),
        ("a.ZIP", tar(FILES), ("zip", "tar")),
        ("a.tar", zipped(FILES), ("tar", "zip")),
        ("a.tgz", gzip.compress(TEXT, mtime=0), ("tar", "gzip, which holds no tar archive")),
        ("a.tar.gz", b"\0" * 20, ("tar", "no archive")),
    ],
)
def test_a_name_that_disagrees_is_said_beside_the_content(name: str, content: bytes, words: tuple[str, ...]) -> None:
    broken(content, "its name says", *words, name=name)


def test_a_codec_that_a_name_says_and_an_archive_lacks_quarantines_it() -> None:
    found = answer(tar(FILES), "a.tar.gz")
    assert isinstance(found, BadContent)
    assert "its name says gzip" in found.reason
    assert taken(tar(FILES), "a.tar.gz", CONTENT) == FILES  # a purge looks at what was taken already


def test_a_tar_older_than_posix_is_known_by_the_sum_of_its_header() -> None:
    header = bytearray(tar([("a.txt", b"hey")], tarfile.USTAR_FORMAT))
    header[257:512] = bytes(255)
    header[148:156] = b"        "
    header[148:156] = b"%06o\0 " % sum(header[:512])
    assert is_tar(bytes(header))
    assert taken(bytes(header)) == [("a.txt", b"hey")]
    header[0] ^= 1
    assert not is_tar(bytes(header))


def test_empty_archives_have_no_members() -> None:
    assert taken(zipped([])) == taken(tar([]), "a.tar") == taken(gzip.compress(tar([])), "a.tar.gz") == []
    assert answer(tar([]), "zeros") == tar([])  # nothing but its name would say that it is one


# ---------------------------------------------------------------------------------------------------------------------------- names
@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("a/b.txt", "a/b.txt"), ("./a//b", "a/b"), ("a!b%", "a%21b%25"), ("../a", "%2E%2E/a"), ("/a", "%2Fa"), ("a\nb\x7f", "a%0Ab%7F"),
        ("a\udcff", "a%FF"), ("日本", "日本"), ("a\\b", "a\\b"), ("..a", "..a"),
    ],
    ids=ascii,
)  # fmt: skip
def test_a_name_is_escaped_so_that_it_means_no_place(name: str, known: str) -> None:
    assert escaped(name) == known


@pytest.mark.parametrize("name", ["../a", "a/../../b", "..", "..\\a", "/a", "\\a", "C:\\a", "c:a", "", "a\0b", "a" * (NAME + 1)])
def test_a_name_that_leads_elsewhere_is_refused(name: str) -> None:
    assert refused(name)
    assert not refused("a..b/c:d")
    assert len(escaped(name)) <= NAME + 1


@pytest.mark.parametrize("pack", [zipped, tar])
def test_such_members_are_quarantined_alone(pack: Any) -> None:
    found = dict(taken(pack([("../x", b"1"), ("/y", b"2"), ("good", b"3"), ("d/", b""), ("a/../b", b"4")])))
    assert found.pop("good") == b"3"
    assert sorted(found) == ["%2E%2E/x", "%2Fy", "a/%2E%2E/b"]
    assert all("Pack it again" in str(why) for why in found.values())


def test_links_devices_and_sparse_files_are_quarantined_alone() -> None:
    kinds = {tarfile.SYMTYPE: "link", tarfile.LNKTYPE: "link", tarfile.CHRTYPE: "device", tarfile.BLKTYPE: "device",
             tarfile.FIFOTYPE: "pipe", b"Z": "type"}  # fmt: skip
    sparse = tarfile.TarInfo("s")
    sparse.pax_headers = {"GNU.sparse.major": "1"}
    found = taken(tar([*((of(kind), b"") for kind in kinds), (of(tarfile.DIRTYPE), b""), (sparse, b"hole"), ("good", b"3")]))
    assert found.pop() == ("good", b"3")
    for (_, why), word in zip(found, [*kinds.values(), "sparse"], strict=True):
        assert word in str(why)
    link, fifo = zipfile.ZipInfo("l"), zipfile.ZipInfo("f")
    link.create_system = fifo.create_system = 3
    link.external_attr, fifo.external_attr = (stat.S_IFLNK | 0o777) << 16, (stat.S_IFIFO | 0o777) << 16
    (_, linked), (_, piped), good = taken(zipped([(link, b"/etc/passwd"), (fifo, b""), ("good", b"3")]))
    assert good == ("good", b"3")
    assert "symbolic link" in str(linked)
    assert "pipe" in str(piped)


def test_an_old_sparse_file_with_more_headers_does_not_hide_what_follows() -> None:
    info = of(tarfile.GNUTYPE_SPARSE, "s")
    block = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    block[482] = 1
    block[148:156] = b"        "
    block[148:156] = b"%06o\0 " % sum(block)
    found = taken(bytes(block) + bytes(504) + b"\1" + bytes(7) + bytes(512) + tar([("good", b"3")]))
    assert [name for name, _ in found] == ["s", "good"]
    assert "sparse" in str(found[0][1])


def test_names_that_are_not_utf_8_are_told_apart() -> None:
    latin = tar([("gr\udcfc\udcdf.txt", b"1"), ("gr\udcfc.txt", b"2")], tarfile.GNU_FORMAT)
    assert taken(latin) == [("gr%FC%DF.txt", b"1"), ("gr%FC.txt", b"2")]
    sink = zipped([("abc.txt", b"1")])
    assert taken(sink.replace(b"abc.txt", b"a\xc3\xbcxtxt")) == [("aüxtxt", b"1")]  # UTF-8 that does not say so
    assert taken(sink.replace(b"abc.txt", b"a\x81c.txt")) == [("aüc.txt", b"1")]  # the code page of the format


def test_two_members_of_one_name_are_two_documents() -> None:
    twice = [("a", b"1"), ("b", b"2"), ("./a", b"3")]
    assert taken(tar(twice)) == [("a", b"1"), ("b", b"2"), ("a", b"3")]
    with pytest.warns(UserWarning, match="Duplicate"):
        archive = zipped([("a", b"1"), ("a", b"3")])
    assert taken(archive) == [("a", b"1"), ("a", b"3")]


def test_long_names_are_taken_and_longer_ones_quarantined() -> None:
    for kind in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        (long, content), (longer, why) = taken(tar([("d/" * 500 + "a", b"1"), ("b" * (NAME + 1), b"2")], kind))
        assert (long, content) == ("d/" * 500 + "a", b"1")
        assert len(longer) == NAME + 1
        assert "4,096" in str(why)


# --------------------------------------------------------------------------------------------------------------- encrypted, damaged
def _encrypted() -> bytes:
    data = bytearray(zipped([("secret", b"s"), ("good", b"3")]))
    data[6] |= 1
    data[data.index(b"PK\1\2") + 8] |= 1
    return bytes(data)


def test_encrypted_members_and_unknown_methods_are_quarantined_alone() -> None:
    (_, why), good = taken(_encrypted())
    assert "encrypted" in str(why)
    assert good == ("good", b"3")
    data = bytearray(zipped([("deep", b"s" * 99), ("good", b"3")]))
    data[8], data[data.index(b"PK\1\2") + 10] = 9, 9
    (_, why), good = taken(bytes(data))
    assert "deflate64" in str(why)
    assert good == ("good", b"3")


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_member_of_a_zip_is_quarantined_alone(method: int) -> None:
    data = bytearray(zipped([("bad", random.Random(1).randbytes(5_000)), ("good", b"3")], method))
    data[2_000] ^= 255
    (_, why), good = taken(bytes(data))
    assert "damaged" in str(why)
    assert good == ("good", b"3")


def test_a_long_member_that_is_damaged_is_known_before_a_byte_of_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "HELD", 1_000)
    monkeypatch.setattr(archives, "PIECE", 1_000)
    data = bytearray(zipped([("bad", random.Random(1).randbytes(50_000)), ("good", b"3" * 9_000)]))
    archive = answer(bytes(data))
    content = [archive.content(member, None).content for member in archive.members()]
    assert [b"".join(each) for each in content] == [random.Random(1).randbytes(50_000), b"3" * 9_000]
    data[40_000] ^= 255
    archive = answer(bytes(data))
    first, second = archive.members()
    with pytest.raises(BadContent, match="damaged"):
        archive.content(first, None)
    assert b"".join(archive.content(second, None).content) == b"3" * 9_000


@pytest.mark.parametrize("stream", [False, True], ids=["held", "stream"])
@pytest.mark.parametrize("ending", ["zip", "tar", "tar.gz", "tar.zst"])
def test_an_archive_that_is_cut_off_is_quarantined_whole_wherever_that_is(ending: str, stream: bool) -> None:
    data = PACKED[ending]
    for at in [*range(600, len(data), len(data) // 40 + 1), len(data) - 1]:
        ends = ending == "tar" and at > len(tar(FILES).rstrip(b"\0")) + 512 and at % 512 == 0
        if not ends:
            broken(data[:at], name=f"a.{ending}", stream=stream) if ending != "zip" else broken(data[:at], "zip", stream=stream)


def test_a_tar_that_ends_behind_a_member_is_cut_off() -> None:
    for n in (512, 1024):
        broken(tar([("a", b"1")])[:n], "cut off at byte", "before the block that ends it")


def test_what_follows_the_end_of_a_tar_is_not_lost() -> None:
    assert taken(tar([("a", b"1")]) + tar([("b", b"2")])) == [("a", b"1"), ("b", b"2")]
    broken(tar([("a", b"1")]) + b"x" * 512, "damaged at byte")


@pytest.mark.parametrize(
    ("key", "value"), [("size", "-1"), ("size", "many"), ("size", "9" * 30), ("size", "999999999")], ids=["below 0", "words", "huge", "cut"]
)
def test_a_size_that_is_none_quarantines_the_archive(key: str, value: str) -> None:
    record = f" {key}={value}\n"
    header = f"{len(record) + 2}{record}".encode()
    info = of(tarfile.XHDTYPE, "x")
    info.size = len(header)
    broken(info.tobuf(tarfile.USTAR_FORMAT) + header.ljust(512, b"\0") + tar([("a", b"1")], tarfile.USTAR_FORMAT), "tar")


def test_a_header_that_never_ends_is_not_held() -> None:
    for kind in (tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME):
        info = of(kind, "x")
        info.size = 5 << 30
        broken(info.tobuf(tarfile.GNU_FORMAT) + bytes(512) * 9, "header of 5,368,709,120 bytes")


def test_a_directory_of_a_zip_that_is_too_long_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "DIRECTORY", 1_000)
    broken(zipped((f"f{i}", b"") for i in range(30)), "directory of", stream=True)


# ---------------------------------------------------------------------------------------------------------------------------- bombs
def test_bombs_are_quarantined_before_they_unpack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "FREE", 1 << 20)
    monkeypatch.setattr(compression, "FREE", 1 << 20)
    zeros = b"\0" * (20 << 20)
    broken(zipped([("zeros", zeros), ("good", b"3")]), "more than 500 times its bytes")
    broken(gzip.compress(tar([("zeros", zeros)])), "bomb")
    data = bytearray(zipped([("zeros", b"\0" * 90_000)]))
    at = data.index(b"PK\1\2")
    data[at + 24 : at + 28] = struct.pack("<I", 10)  # it says less than it holds
    ((_, why),) = taken(bytes(data))
    assert "damaged" in str(why)


def test_members_that_are_bombs_together_are_no_better(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "FREE", 1 << 20)
    inner = gzip.compress(b"\0" * (5 << 20))
    members = [(f"{i}.gz", inner) for i in range(3)]
    broken(gzip.compress(tar(members)), "its members decode to", mode=AUTO)


def test_a_member_larger_than_allowed_is_quarantined_alone() -> None:
    archive = answer(zipped([("large", TEXT * 100), ("good", b"3"), ("l.gz", gzip.compress(TEXT * 100))]), mode=AUTO)
    large, good, packed = archive.members()
    with pytest.raises(BadContent, match="larger than max_file_size: 20,000 bytes, allowed are 10,000"):
        archive.content(large, 10_000)
    assert archive.content(good, 10_000).whole == b"3"
    with pytest.raises(BadContent, match="decodes to more than 10,000 bytes"):
        archive.content(packed, 10_000)


def test_a_member_that_is_a_compressed_file_is_decoded_as_any_other() -> None:
    data = zipped([("a.gz", gzip.compress(TEXT, mtime=0)), ("b.gz", b"plain"), ("c.tar", tar(FILES))])
    decoded = taken(data, mode=AUTO)
    assert (decoded[0], decoded[2]) == (("a.gz", TEXT), ("c.tar", tar(FILES)))
    assert "its name says gzip" in str(decoded[1][1])
    assert taken(data) == [("a.gz", gzip.compress(TEXT, mtime=0)), ("b.gz", b"plain"), ("c.tar", tar(FILES))]


# --------------------------------------------------------------------------------------------------------------------------- memory
@pytest.mark.parametrize("ending", ["zip", "tar", "tar.gz"])
def test_long_archives_take_little_memory(ending: str) -> None:
    noise = random.Random(1).randbytes(7 << 20)
    members = [(f"{i}", noise) for i in range(2)]
    data = zipped(members) if ending == "zip" else tar(members) if ending == "tar" else gzip.compress(tar(members), 1)
    tracemalloc.start()
    try:
        archive = answer(data, stream=True)
        before = tracemalloc.get_traced_memory()[0]
        size = 0
        for member in archive.members():
            for piece in archive.content(member, None).content:
                size += len(piece)
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert size == 2 * len(noise)
    assert peak < 11 << 20


def test_many_members_cost_as_much_each_as_a_few() -> None:
    def seconds(n: int) -> float:
        data = tar((f"{i}", b"x") for i in range(n))
        began = time.process_time()
        assert len(taken(data)) == n
        return time.process_time() - began

    few = seconds(1_000)
    assert seconds(10_000) < 30 * few + 1


def test_a_zip_of_more_members_than_16_bits_can_count() -> None:
    n = 66_000
    data = zipped(((f"{i}", b"") for i in range(n)), zipfile.ZIP_STORED)
    archive = answer(data)
    assert sum(1 for _ in archive.members()) == n


def test_a_zip_in_the_64_bit_form_is_read(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a", "w") as archive, archive.open("a", "w", force_zip64=True) as file:
        file.write(TEXT)
    assert taken((tmp_path / "a").read_bytes()) == [("a", TEXT)]


def test_a_store_that_fails_is_not_a_damaged_archive() -> None:
    data = zipped([("a", random.Random(1).randbytes(3 << 20)), ("b", random.Random(2).randbytes(3 << 20))])
    store: Any = Streams(data)
    request = ReadRequest("a.zip", "", len(data), 0, len(data))
    archive = next(unpacking(store, NONE, archives=True).read_many([request]))[1]
    assert isinstance(archive, Archive)
    members: Iterator[Member] = archive.members()
    first = next(members)
    store.error = Vanished("changed while it was read")
    with pytest.raises(Vanished):
        archive.content(first, 1 << 30)
    store = Streams(tar([("a", random.Random(1).randbytes(9 << 20))]), Vanished("changed while it was read"))
    request = ReadRequest("a.tar", "", len(store.content), 0, len(store.content))
    archive = next(unpacking(store, NONE, archives=True).read_many([request]))[1]
    with pytest.raises(Vanished):
        [archive.content(member, 1 << 30) for member in archive.members()]


def test_a_long_zip_is_read_by_few_ranges() -> None:
    data = zipped(((f"{i}", random.Random(i).randbytes(3_000)) for i in range(2_000)), zipfile.ZIP_STORED)
    store: Any = Streams(data)
    request = ReadRequest("a.zip", "", len(data), 0, len(data))
    archive = next(unpacking(store, NONE, archives=True).read_many([request]))[1]
    assert sum(len(archive.content(member, 1 << 20).whole) for member in archive.members()) == 6_000_000
    assert len(store.asked) < 20


def test_a_part_of_a_file_is_known_to_be_of_an_archive() -> None:
    kinds: Mapping[str, bytes] = {**PACKED, "no": TEXT, "no.gz": gzip.compress(TEXT)}
    for ending, data in kinds.items():
        store: Any = Streams(data)
        assert is_archive(store, ReadRequest("a", "", len(data), 1, 1)) == (not ending.startswith("no"))
