"""The work that all decoders share: frames taken off, schemas asked for once, rows brought into the columns of a job.

A record that cannot be decoded is told with the reason, and the others count. Where a registry is at fault, and not a record, that is
raised (see `registry`). No reason holds a value.
"""

from __future__ import annotations

import functools
import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, ClassVar, NamedTuple, Self

import pyarrow as pa

from quire.errors import StorageError, UsageError, about
from quire.formats.damage import ARROW
from quire.formats.parquet import RECORDS
from quire.sources.decoders.frames import Frame, unframed
from quire.sources.decoders.registry import Found, Registry, UnknownSchemaError
from quire.sources.kafka.rows import as_batch, fitted
from quire.sources.splits import FileInfo
from quire.sources.transforms import schemas
from quire.sources.transforms.columnar import merged
from quire.sources.transforms.columns import check_names, refined, storable
from quire.sources.transforms.content import BadContent, NotDecoded, told_apart
from quire.sources.transforms.functions import WrongTypeError

BARE = "value"  # the column of a document without fields
TOMBSTONE = "a tombstone: no value, so nothing to decode"
Payload = tuple[Frame | None, bytes]


class Form(ABC):
    """The form of documents of one schema.

    columns  its fields
    bare     it has no fields, but one value alone, in the column `value`
    """

    columns: pa.Schema
    bare: bool = False

    @abstractmethod
    def row(self, document: bytes) -> Any:
        """A document as an object; BadContent where it is damaged."""

    @abstractmethod
    def batch(self, rows: list[Any], columns: pa.Schema) -> pa.RecordBatch:
        """Rows in columns; BadContent where one of them does not fit."""


class Decoded(NamedTuple):
    """The rows of documents, the places of these in what was given, and the places of the others with the reason."""

    rows: pa.Table | None
    places: list[int]
    wrong: list[tuple[int, str]]


@dataclass(frozen=True)
class Decoder(ABC):
    """Makes columns of documents: a function for `quire.load`, `quire.process`, `quire.consolidate` and `Ledger.retry`.

    columns   of the documents, as the call says them; None: those of their schemas
    registry  where the schemas are, of records in a frame
    metadata  columns of Kafka's records that stand beside them: their names, and how they are called here
    key       decodes the records' keys, into the column `key`
    into      all columns of a job, once they are known
    """

    columns: pa.Schema | None = None
    registry: Registry | None = None
    metadata: tuple[tuple[str, str], ...] = ()
    key: Decoder | None = None
    into: pa.Schema | None = field(default=None, repr=False)

    name: ClassVar[str]
    kind: ClassVar[str] = ""  # as a registry calls it
    indexed: ClassVar[bool] = False  # its frames say which message of a schema it is

    # -------------------------------------------------------------------------------------------------------------- of each kind
    @abstractmethod
    def form(self, frame: Frame | None, found: Found | None) -> Form:
        """The form of documents in a frame, of which a registry says the schema; BadContent where no columns hold them."""

    def first(self, payloads: Sequence[Payload]) -> pa.Schema | None:
        """The columns that some documents show; None where they show none."""
        forms = [(self._form(frame), n) for frame, n in Counter(frame for frame, _ in payloads).items()]
        return merged((columns, n) for form, n in forms if isinstance(columns := _columns(form), pa.Schema))

    def whole(self, content: bytes) -> list[bytes]:
        """The documents of a file; BadContent where it holds none, or is of another kind."""
        return [content]

    def documents(self, content: bytes) -> list[tuple[int, bytes]]:
        """The documents of a split, and where each begins; BadContent where it holds none."""
        return [(0, content)]

    def told(self) -> list[str]:
        """The words that tell this decoder from others: no secret, and no address."""
        return ["" if self.columns is None else schemas.text(self.columns), *map(":".join, self.metadata)]

    # ------------------------------------------------------------------------------------------------------------------ identity
    @property
    def __edition__(self) -> str:
        parts = [self.name, *self.told(), *(["key", self.key.__edition__] if self.key else [])]
        return f"{self.title}@{hashlib.sha256(repr(parts).encode()).hexdigest()[:32]}"

    @property
    def title(self) -> str:
        """Its name in a ledger."""
        return f"quire.decoder.{self.name}"

    def reading(self, into: pa.Schema | None) -> Self:
        """The same, once the columns of the job are known."""
        return replace(self, into=into)

    # ------------------------------------------------------------------------------------------------------------------- columns
    @property
    def all_columns(self) -> pa.Schema | None:
        """The columns that it gives, where the call says all of them; UsageError where one is there twice."""
        if self.columns is None or (self.key is not None and self.key.columns is None):
            return None
        return self._with_others(self.columns, self.key.columns.field(0).type if self.key is not None and self.key.columns else None)

    def shown(self, records: pa.RecordBatch) -> pa.Schema | None:
        """The columns that the first records show, and the newest schemas of their topics; None where they show none."""
        topics = records.column("topic").unique().to_pylist()
        columns = self._of_topics(records.column("value"), topics, "value")
        if self.key is None or columns is None:
            return None if columns is None else self._with_others(columns, None)
        keys = self.key._of_topics(records.column("key"), topics, "key")
        if keys is None:
            return None
        return self._with_others(columns, keys.field(0).type if keys.names == [BARE] else pa.struct(list(keys)))

    def _of_topics(self, column: Any, topics: Iterable[str], part: str) -> pa.Schema | None:
        if self.columns is not None:
            return self.columns
        found = list(self._payloads(column)[0].values())
        newest = [] if self.registry is None else [self.registry.latest(f"{topic}-{part}") for topic in topics]
        messages = {frame.message for frame, _ in found if frame} or {(0,) if self.indexed else ()}
        frames = [Frame(number, message) for number in newest if number is not None for message in messages]
        return self.first([*found, *((frame, b"") for frame in frames)])

    def _with_others(self, columns: pa.Schema, key: pa.DataType | None) -> pa.Schema:
        fields = [*([pa.field("key", key)] if key is not None else []), *columns]
        fields += [pa.field(called, RECORDS.field(name).type) for name, called in self.metadata]
        try:
            check_names(fields, "the decoded records, with their key and metadata, have")
            return storable(refined(pa.schema(fields)))
        except WrongTypeError as e:
            with about("metadata"):
                raise UsageError(f"{e}. Say other names: metadata={{'timestamp': 'kafka_timestamp'}}, or leave the column out.") from None

    # ------------------------------------------------------------------------------------------------------------------ decoding
    def decoded(self, records: pa.RecordBatch) -> Decoded:
        """The rows of Kafka's records, in their order. Raises TransientError or StorageError for a registry that is of no use now."""
        others = {called for _, called in self.metadata} | ({"key"} if self.key else set())
        into = None if self.into is None else pa.schema([f for f in self.into if f.name not in others])
        made = self._made(*self._payloads(records.column("value")), into)
        keys: pa.Array | None = None
        if self.key is not None and made.rows is not None:
            made, keys = self._with_keys(made, records.column("key").take(pa.array(made.places, pa.int64())))
        if made.rows is None:
            return made
        rows = made.rows if keys is None else made.rows.add_column(0, "key", keys)
        beside = records.take(pa.array(made.places, pa.int64()))
        for name, called in self.metadata:
            rows = rows.append_column(called, beside.column(name))
        return Decoded(rows if self.into is None else rows.select(self.into.names), made.places, made.wrong)

    def _with_keys(self, made: Decoded, column: pa.Array) -> tuple[Decoded, pa.Array]:
        """The rows whose keys can be decoded, and these keys; a record without a key has none."""
        assert self.key is not None
        assert made.rows is not None
        kind = None if self.into is None else self.into.field("key").type
        into = None if kind is None else pa.schema(list(kind)) if pa.types.is_struct(kind) else pa.schema([(BARE, kind)])
        payloads, wrong = self.key._payloads(column)
        nulls = {i for i, _ in wrong if not column[i].is_valid}
        keys = self.key._made(payloads, [(i, f"its key: {why}") for i, why in wrong if i not in nulls], into)
        bad = {i: why if why.startswith("its key: ") else f"its key: {why}" for i, why in keys.wrong}
        keep = [i for i in range(len(column)) if i not in bad]
        at = {place: row for row, place in enumerate(keys.places)}
        if keys.rows is None:
            array = pa.nulls(1, kind or pa.null())
        else:
            bare = keys.rows.column_names == [BARE]
            array = keys.rows.column(0).combine_chunks() if bare else keys.rows.to_struct_array().combine_chunks()
        found = array.take(pa.array([at.get(i) for i in keep], pa.int64()))
        wrong = [*made.wrong, *((made.places[i], why) for i, why in bad.items())]
        return Decoded(made.rows.take(pa.array(keep, pa.int64())) if keep else None, [made.places[i] for i in keep], wrong), found

    def _payloads(self, column: Any) -> tuple[dict[int, Payload], list[tuple[int, str]]]:
        """The documents in a column, with their frames, by their places; and the places of what holds none."""
        found, wrong = dict[int, Payload](), list[tuple[int, str]]()
        for i, value in enumerate(column.to_pylist()):
            try:
                if value is None:
                    raise BadContent(TOMBSTONE)
                found[i] = self._unframed(value)
            except BadContent as e:
                wrong.append((i, e.reason))
        return found, wrong

    def _unframed(self, value: bytes) -> Payload:
        return (None, value) if self.registry is None else unframed(value, indexed=self.indexed)

    def _made(self, payloads: dict[int, Payload], wrong: list[tuple[int, str]], into: pa.Schema | None) -> Decoded:
        into = into or self.columns or self.first([*payloads.values()])
        wrong, tables, places = list(wrong), list[pa.Table](), list[int]()
        groups = dict[Frame | None, list[int]]()
        for i, (frame, _) in payloads.items():
            groups.setdefault(frame, []).append(i)
        for frame, members in groups.items():
            form, rows, kept = self._form(frame, into), list[Any](), list[int]()
            if isinstance(form, BadContent) or into is None:
                shown = _columns(form)
                wrong += [(i, shown.reason if isinstance(shown, BadContent) else "it shows no columns: say schema=") for i in members]
                continue
            for i in members:
                try:
                    rows.append(form.row(payloads[i][1]))
                    kept.append(i)
                except BadContent as e:
                    wrong.append((i, e.reason))
            for first, end, made in told_apart(len(rows), lambda first, end, form=form, rows=rows: _fitted(form, rows[first:end], into)):  # type: ignore[misc]
                if isinstance(made, BadContent):
                    wrong.append((kept[first], made.reason))
                else:
                    tables.append(made)
                    places += kept[first:end]
        if not tables:
            return Decoded(None, [], sorted(wrong))
        rows, order = pa.concat_tables(tables), sorted(range(len(places)), key=places.__getitem__)
        if order != list(range(len(places))):
            rows = rows.take(pa.array(order, pa.int64()))
        return Decoded(rows, sorted(places), sorted(wrong))

    def _form(self, frame: Frame | None, into: pa.Schema | None = None) -> Form | BadContent:
        try:
            return _known(replace(self, into=into, metadata=(), key=None), frame)
        except UnknownSchemaError:
            assert frame is not None
            return BadContent(f"its schema {frame.schema} is not in the schema registry")
        except UsageError as e:  # a package, or a variable of the environment, that this process lacks
            raise StorageError(f"{e} No record was quarantined for it.") from e

    # ----------------------------------------------------------------------------------------------------------- as a function
    def __call__(self, *given: Any) -> Any:
        """The rows of a batch of records, of `(content, file)` as consolidate gives them, or of `(split, content)` as process does."""
        try:
            return self._called(*given)
        except BadContent as e:
            raise NotDecoded(e.reason) from None

    def _called(self, *given: Any) -> Any:
        if len(given) == 1:
            return self._of_records(given[0])
        one, other = given
        if isinstance(other, FileInfo):
            return as_batch(self._of_documents(one, None))
        if isinstance(other, pa.Table):
            if "value" not in other.column_names or not pa.types.is_binary(other.schema.field("value").type):
                raise BadContent("it has no column 'value' of bytes, as files that quire.load has written do")
            return self._of_records(as_batch(other))
        return self._of_documents(other, one)

    def together(self, contents: Sequence[bytes]) -> tuple[pa.RecordBatch, list[int]]:
        """The rows of several files, one after the other, and how many each has; BadContent where one of them cannot be decoded."""
        found = [self.whole(content) for content in contents]
        made = self._made({i: self._unframed(each) for i, each in enumerate(chain.from_iterable(found))}, [], self.into)
        if made.wrong or made.rows is None:
            raise BadContent(made.wrong[0][1] if made.wrong else "empty")
        return as_batch(made.rows), [len(each) for each in found]

    def _of_records(self, records: pa.RecordBatch) -> pa.Table | None:
        made = self.decoded(records)
        if made.wrong:
            place, why = made.wrong[0]
            raise BadContent(f"{len(made.wrong):,} of its records cannot be decoded; row {place:,}: {why}")
        return made.rows

    def _of_documents(self, content: bytes, split: Any) -> pa.Table:
        """The rows of a file, or of lines; a line that cannot be decoded is quarantined alone, where there is a split."""
        found = self.documents(content) if split is not None else [*enumerate(self.whole(content))]
        payloads, wrong = dict[int, Payload](), list[tuple[int, str]]()
        for i, (_, document) in enumerate(found):
            try:
                payloads[i] = self._unframed(document)
            except BadContent as e:
                wrong.append((i, e.reason))
        made = self._made(payloads, wrong, self.into)
        if made.wrong and (split is None or len(found) == 1):
            place, why = made.wrong[0]
            raise BadContent(why if len(found) == 1 else f"its document {place + 1:,}: {why}")
        for place, why in made.wrong:
            split.quarantine(found[place][1], why, offset=found[place][0])
        return made.rows


@functools.lru_cache(maxsize=500)
def _known(decoder: Decoder, frame: Frame | None) -> Form | BadContent:
    """The form of documents in a frame, or why there is none. Raises UnknownSchemaError, and what `Registry.schema` raises."""
    found: Found | None = None
    if frame is not None:
        assert decoder.registry is not None
        found = decoder.registry.schema(frame.schema)
        if found.kind != decoder.kind:
            return BadContent(f"its schema {frame.schema} is of {found.kind}, and this is a decoder of {decoder.kind}")
    try:
        return decoder.form(frame, found)
    except BadContent as e:
        return BadContent(e.reason if frame is None else f"its schema {frame.schema}: {e.reason}")


def _columns(form: Form | BadContent) -> pa.Schema | BadContent:
    try:
        return form if isinstance(form, BadContent) else form.columns
    except BadContent as e:
        return e


def _fitted(form: Form, rows: list[Any], into: pa.Schema) -> pa.Table:
    try:
        return fitted(pa.Table.from_batches([form.batch(rows, into)]), into)
    except WrongTypeError as e:
        raise BadContent(str(e)) from None
    except (*ARROW, OverflowError, ValueError, TypeError) as e:
        raise BadContent(f"a value of it does not fit into its column ({type(e).__name__})") from None
