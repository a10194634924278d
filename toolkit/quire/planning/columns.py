"""The columns of files that hold rows: looked at where the files are listed, and frozen with the plan.

footers, or samples of texts, in the listing's tasks → the columns of all → an object of the plan, which its tasks read
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from quire.commit import names
from quire.commit.log import Log
from quire.errors import FormatError, NotFoundError, RefusedError, UsageError, scrub
from quire.formats import measure
from quire.formats.parquet import stored
from quire.formats.partition_columns import for_spark
from quire.sources.archives import Archive, BrokenArchive, is_archive, unpacking
from quire.sources.compression import NONE, Decoded, begun, codec_of, decode
from quire.sources.files import Root
from quire.sources.members import Member
from quire.sources.partition_by import PartitionBy
from quire.sources.transforms import BadContent, columnar, directories, schemas, text, widening
from quire.sources.transforms.text import Reader
from quire.storage import OnRetry, ReadRequest, Store, Unreadable, Vanished

if TYPE_CHECKING:
    from quire.planning.listing import Written

WHOLE = 1 << 20  # bytes of a file that is read in one request, rather than by its footer
SAMPLE = 8  # files of a listing whose columns are measured without their footers
MANY, TOGETHER = 128, 16  # files of a listing, of which so many are written together to measure them
SAMPLES, SEARCHED = 64, 2_000  # files of text of which the columns are inferred, out of so many
SAMPLED = 256 << 10  # bytes of each
MEMBER = 256 << 20  # bytes of a member of an archive that is looked at
STRANGE = 3  # of those that cannot be read, which a plan names

Counted = list[list[Any]]  # schemas, serialised, each with how many files have it


@dataclass(frozen=True)
class Columns:
    """Which columns the files of a call have, and how they are found; travels to the listing's tasks."""

    kind: str  # the transform
    reader: Reader | None = None  # of text
    said: pa.Schema | None = None  # by the call
    compression: str = "zstd"
    evolves: str = ""  # MORE: the destination's columns grow by those that are new
    partitions: bool = False  # directories make columns, too
    order: tuple[str, ...] = ()  # columns by which rows are sorted
    by: PartitionBy = field(default_factory=PartitionBy)  # directories of the destination

    def look(self, root: Root, rows: pa.Table, written: Written, again: OnRetry) -> Counted:
        """The columns of a plan's files, or of some of them; those that cannot be read are told when they are gathered."""
        prefix, store = len(root.url.rstrip("/")) + 1, root.store(again)
        found = Counter[pa.Schema]()
        if self.said is not None:
            pass  # only directories say something new
        elif self.reader is None:
            found = self._footers(opened(store, prefix, rows, archives=root.archives), rows.num_rows, written)
        else:
            # A long one comes as a stream, of which the beginning is taken.
            decoded = unpacking(store, root.decompress, archives=root.archives)
            found = self._samples(self.reader, decoded, prefix, rows, written)
        made = directories.seen(rows.column("path").to_pylist()) if self.partitions else None
        counted = [*found.items(), *([(made, 1)] if made is not None else [])]
        return [[base64.b64encode(schema.serialize().to_pybytes()).decode(), n] for schema, n in counted]

    def _footers(self, files: Iterator[tuple[str, int, Any]], n: int, written: Written) -> Counter[pa.Schema]:
        found, samples, last, alike = Counter[pa.Schema](), list[tuple[bytes, pa.Schema]](), pa.schema([]), 0
        together = TOGETHER if n >= MANY else 0
        alone = SAMPLE if self.kind == "parquet" and not together else 0  # by their footers, which takes less time
        for _, size, file in files:
            try:
                schema = columnar.schema_of(self.kind, file)
                if schema is not last:  # as it nearly always is: a schema's hash takes longer than all else here
                    found[last] += alike
                    last, alike = schema, 0
                alike += 1
                if len(samples) < together and size <= SAMPLED:
                    file.seek(0)
                    samples.append((file.read(), schema))
                elif alone:
                    file.seek(0)
                    alone, written.sampled = alone - 1, written.sampled + size
                    written.sampled_out += _measured(pq.read_metadata(file))
            except (BadContent, Vanished, Unreadable):
                continue
        found[last] += alike
        self._measure(samples, written)
        return +found

    def _measure(self, samples: list[tuple[bytes, pa.Schema]], written: Written) -> None:
        """Write some small files' rows as they will be: together they take a part of what each of them takes."""
        try:
            columns = columnar.common((schema, 1) for _, schema in samples)
            alike = [content for content, schema in samples if schema == columns]
            if columns is not None and alike:
                batch, _ = columnar.together(self.kind, alike, columns)
                written.sampled += sum(map(len, alike))
                written.sampled_out += measure.written("parquet", self.compression, [batch])
        except BadContent:  # whoever gathers them says so
            pass

    def _samples(self, reader: Reader, store: Any, prefix: int, rows: pa.Table, written: Written) -> Counter[pa.Schema]:
        found, measured = Counter[pa.Schema](), 0
        # Files from their beginnings on, and what others have grown by.
        begins = pc.or_(pc.equal(rows.column("start"), 0), pc.is_valid(rows.column("follows")))
        first = rows.filter(pc.and_(begins, pc.greater(rows.column("size"), 0)))
        for at in range(0, first.num_rows, SEARCHED):  # more are looked at where none of these can be read
            some = first.slice(at, SEARCHED)
            some = some.take(list(range(0, some.num_rows, -(-some.num_rows // SAMPLES))))
            for path, size, content, whole in _begun(store, prefix, some):
                try:
                    if isinstance(content, BadContent):
                        raise content
                    schema = reader.sampled(content, whole=whole)
                except BadContent as e:
                    written.strange += [(path, e.reason)] if len(written.strange) < STRANGE else []
                    continue
                found[schema] += 1
                if measured < SAMPLE and whole:
                    measured, written.sampled = measured + 1, written.sampled + size
                    written.sampled_out += self._written(reader, content, schema)
            if found:
                break
        return found

    def _written(self, reader: Reader, content: bytes, schema: pa.Schema) -> int:
        known = self.said or text.common(self.kind, [(schema, 1)])
        try:
            batches, _ = replace(reader, columns=known, rescued="").read(content, begins=True)
        except BadContent:
            return 0
        return measure.written(reader.format, self.compression, batches) if batches else 0

    def freeze(self, store: Store, log: Log, job: str, plan: str, counted: Counted) -> pa.Schema | None:
        """Write the columns that the files of a plan have together; RefusedError where the destination does not have all of them."""
        there, total = schemas.there(log), Counter[str]()
        for serialised, n in counted:
            total[serialised] += n
        known = [(pa.ipc.read_schema(pa.BufferReader(base64.b64decode(each))), n) for each, n in total.items()]
        found = [(schema, n) for schema, n in known if not directories.are_made(schema)]
        made = [schema for schema, _ in known if directories.are_made(schema)]
        said = self.said
        if said is not None:
            if self.partitions:  # it need not name them
                said = directories.beside(pa.schema([*said, *_lacking(said, there)]), (s for s, _ in found), made)
            columns = schemas.agreed(there, said, store.url, schemas.evolving(log, self.evolves))
        else:
            columns = self._together(found, there) if found else there  # of what shows none those of the destination say what fits
            if self.partitions and columns is not None:
                columns = directories.beside(columns, (s for s, _ in found), made)
        if columns is None:
            return None
        if there is not None and columns != there and self.said is None and not self.evolves:
            raise RefusedError(
                f"the files have other columns than {store.url}: {widening.difference(there, columns)}. Nothing was changed: say "
                f"schema_evolution='add', so that they are added and null for the rows that are there, or gather these files into another "
                f"destination. quire.sniff(source).schemas() tells which files have which columns."
            )
        _check_order(columns, self.order)
        if name := self.by.clash(columns.names):
            raise RefusedError(f"partition_by makes directories {name}=…, and the files have a column {name!r}. Say '… as' another name.")
        store.put(_name(job, plan), schemas.text(columns).encode())
        return columns

    def _together(self, found: list[tuple[pa.Schema, int]], there: pa.Schema | None) -> pa.Schema | None:
        if self.reader is None:
            return columnar.common(found, there)
        columns, rescued = text.common(self.kind, found), self.reader.rescued
        if there is None or columns is None:
            return there if columns is None else text.with_rescued(columns, rescued) if rescued else columns
        if rescued:
            columns = text.with_rescued(columns if self.evolves else there, rescued)
        # Any value of a text may fit into what is there, or be quarantined: new columns alone are a matter of all files.
        known = {f.name.lower(): f for f in columns}
        wide = [_wide(field, known.get(field.name.lower(), field)) if self.evolves else field for field in there]
        return pa.schema([*wide, *_lacking(there, columns)])


def _wide(there: pa.Field, new: pa.Field) -> pa.Field:
    try:
        return there.with_type(widening.wider(there.type, new.type, there.name))
    except widening.DiffersError:
        return there


def _check_order(columns: pa.Schema, order: Sequence[str]) -> None:
    """RefusedError for columns by which rows cannot be sorted, and for those that Spark, which sorts, does not have."""
    for name in order:
        if name not in columns.names:
            raise RefusedError(f"sort_by names the column {name[:100]!r}, and the rows have {scrub(', '.join(columns.names), 300)}.")
        if pa.types.is_nested(kind := columns.field(name).type):
            raise RefusedError(f"sort_by names the column {name[:100]!r}, and it is {scrub(str(kind), 100)}, which has no order.")
    if odd := next((f for f in columns if order and for_spark(f.type) != f.type), None):
        raise RefusedError(f"Spark sorts the rows, and has no {odd.type}, which the column {odd.name!r} is. Leave sort_by out.")


def _lacking(one: pa.Schema, other: pa.Schema | None) -> list[pa.Field]:
    """The columns of the other that the one has not."""
    known = {name.lower() for name in one.names}
    return [field for field in other or () if field.name.lower() not in known]


def _begun(store: Any, prefix: int, rows: pa.Table) -> Iterator[tuple[str, int, bytes | BadContent, bool]]:
    """The path and size of each file, its content or the beginning of that, decoded, and whether it is whole.

    A file that has grown gives the end of it.
    """
    paths, *others = (rows.column(c).to_pylist() for c in ("path", "version", "size", "start"))
    requests = [
        ReadRequest(path[prefix:], version, size, start, size - start) for path, version, size, start in zip(paths, *others, strict=True)
    ]
    with closing(store.read_many(requests)) as answers:
        for path, (request, answer) in zip(paths, answers, strict=True):
            if isinstance(answer, Archive):
                with suppress(Vanished, Unreadable):
                    for member, size, found, whole in islice(_documents(answer, _beginning), SAMPLE):
                        yield f"{path}!{member}", size, found, whole
                continue
            content = answer.content if isinstance(answer, Decoded) else answer
            with suppress(BadContent, Vanished, Unreadable):
                if isinstance(content, bytes):
                    ends = len(content) <= SAMPLED and (not request.start or content.endswith(b"\n"))
                    yield path, request.length, content[:SAMPLED], ends
                elif isinstance(content, BadContent):
                    yield path, request.size, content, True
                elif not isinstance(content, Vanished | Unreadable):
                    with closing(content):  # type: ignore[type-var]  # a stream is a generator
                        beginning = b""
                        while len(beginning) < SAMPLED and (piece := next(content, b"")):
                            beginning += piece
                        yield path, request.size, beginning[:SAMPLED], False


def _whole(archive: Archive, member: Member) -> tuple[int, bytes, bool]:
    content = archive.content(member, MEMBER).whole
    return len(content), content, True


def _beginning(archive: Archive, member: Member) -> tuple[int, bytes, bool]:
    beginning, pieces = begun(member.pieces())
    codec = codec_of(member.name, beginning, archive.decompress)
    content, _ = begun(decode(codec, pieces) if codec else pieces, SAMPLED + 1)
    return len(content), content[:SAMPLED], len(content) <= SAMPLED


def _documents(
    archive: Archive, look: Callable[[Archive, Member], tuple[int, bytes, bool]]
) -> Iterator[tuple[str, int, bytes | BadContent, bool]]:
    """The members of an archive, and of each its size, what is in it, or what is wrong with it, and whether that is all of it."""
    with closing(archive), suppress(BrokenArchive):  # whoever takes it says that it is damaged
        for member in archive.members():
            if not member.why:
                try:
                    yield member.name, *look(archive, member)
                except BrokenArchive:
                    raise
                except BadContent as e:
                    yield member.name, 0, e, True


def _packed(store: Store, request: ReadRequest) -> bool:
    try:
        return is_archive(store, request)
    except (Vanished, Unreadable):
        return False


def opened(store: Store, prefix: int, rows: pa.Table, *, archives: bool = False) -> Iterator[tuple[str, int, Any]]:
    """Files that hold something, with their names and sizes: a short one whole, of a long one only what is asked for is read."""
    short, long = list[ReadRequest](), list[ReadRequest]()
    for path, version, size, start in zip(*(rows.column(c).to_pylist() for c in ("path", "version", "size", "start")), strict=True):
        if size and not start:
            (short if size <= WHOLE else long).append(ReadRequest(path[prefix:], version, size, 0, size))
    if archives:  # of which each is read as a whole
        long, packed = [], [request for request in long if _packed(store, request)]
        short += packed
    for request, content in unpacking(store, NONE, archives=archives).read_many(short):
        with suppress(Vanished, Unreadable):
            if isinstance(content, Archive):
                for _, _, found, _ in _documents(content, _whole):
                    if isinstance(found, bytes):
                        yield request.name, len(found), pa.BufferReader(found)
            elif not isinstance(content, Vanished | Unreadable | BadContent):
                yield request.name, request.size, pa.BufferReader(content if isinstance(content, bytes) else b"".join(content))
    for request in long:
        try:
            yield request.name, request.size, stored(store, request.name)
        except NotFoundError:
            continue


def _measured(metadata: Any) -> int:
    """The bytes of columns, which stay when many files become one; their footers do not."""
    groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
    return sum(group.column(i).total_compressed_size for group in groups for i in range(metadata.num_columns))


def frozen(store: Store, job: str, plan: str) -> pa.Schema | None:
    """The columns of a plan; None: none of its files could be read."""
    try:
        return schemas.parse(store.get(_name(job, plan)).decode())
    except NotFoundError:
        return None
    except (UnicodeDecodeError, UsageError) as e:
        raise FormatError(f"{store.url}/{_name(job, plan)} does not name columns: it is damaged. Look who wrote it.") from e


def _name(job: str, plan: str) -> str:
    return names.plan_parquet(job, plan, "columns")
