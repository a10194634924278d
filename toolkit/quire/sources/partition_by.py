"""The meaning of `partition_by`: by which values of a file, or of its rows, data files lie in directories `name=value`.

    country                  a column of the rows, which then stands in the directory's name alone
    path.dt                  the value of the directory dt=… in a file's path
    path[0] as site          the first directory below the source; path[-1]: the one that the file lies in
    day(modified)            the day of a file's last change, in UTC; year, month and hour likewise

`as NAME` gives the directory another name. Values of files are known before they are read, so each task keeps to one of their directories.
"""

from __future__ import annotations

import datetime as dt
import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quire.commit.entries import CLAIM, OFFSETS, Spec
from quire.errors import FormatError, UsageError, about, quoted
from quire.formats import partitions

_LENGTHS = {"year": 4, "month": 7, "day": 10, "hour": 13}  # of a time in ISO 8601
_NAMES = {"day": "date"}  # of a directory, where `as` says no other
_SPELLINGS = "'country' (a column of the rows), 'path.dt', 'path[0] as site', 'day(modified)', or a list of these"
_ITEM = re.compile(r"\s*((?:[^`]|`(?:[^`]|``)+`)+?)(?:\s+as\s+(`(?:[^`]|``)+`|[^\s`]+))?\s*", re.DOTALL | re.IGNORECASE)
_PATH = re.compile(r"path\.(.+)|path\[\s*(-?[0-9]{1,4})\s*\]", re.DOTALL)
_TIME = re.compile(r"(year|month|day|hour)s?\(\s*modified\s*\)")
_HOUR = 3_600 * 10**9
_DAYS = (-719_162, 2_932_896)  # of the years 1 to 9999, since 1970


@dataclass(frozen=True)
class OfFile:
    """One value of a file: that of its directory `said`=…, its directory number `at`, or with a `unit` its last change."""

    name: str
    said: str = ""
    at: int = 0
    unit: str = ""

    def __str__(self) -> str:
        what = f"{self.unit}(modified)" if self.unit else f"path.{_quoted(self.said)}" if self.said else f"path[{self.at}]"
        return what if self.name == (self.said or _NAMES.get(self.unit, self.unit)) else f"{what} as {_quoted(self.name)}"

    def value(self, root: str, folder: str, hour: int) -> str | None:
        """The value of a file that lies in a `folder` below a root, and was changed in this hour since 1970; None: it has none."""
        if self.unit:
            return _time(hour, self.unit) if hour else None
        if self.said:
            return partitions.values(f"{root}/{folder}/").get(self.said)
        parts = folder.split("/") if folder else []
        return parts[self.at] if -len(parts) <= self.at < len(parts) else None


@dataclass(frozen=True)
class PartitionBy:
    """The directories of a destination, from the outer to the inner one: by values `of_files`, then by `columns` of their rows.

    `source`: those of the source make columns of its rows.
    """

    of_files: tuple[OfFile, ...] = ()
    columns: tuple[str, ...] = ()
    source: bool = False

    def __str__(self) -> str:
        return ", ".join((*map(str, self.of_files), *map(_quoted, self.columns)))

    def __bool__(self) -> bool:
        return bool(self.of_files or self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that the directories make."""
        return (*(each.name for each in self.of_files), *self.columns)

    def folder(self, root: str, name: str, modified: int) -> str:
        """The directory of a file that is called `name` below its root."""
        hour = modified // _HOUR if any(each.unit for each in self.of_files) else 0
        return _folder(self.of_files, root, name.rpartition("/")[0], hour)

    def without(self, schema: pa.Schema | None) -> pa.Schema | None:
        """The columns that stand in data files."""
        return schema if schema is None or not self.columns else pa.schema([f for f in schema if f.name not in self.columns])

    def clash(self, names: Iterable[str]) -> str:
        """The first of the rows' own columns that a value of files would make, too; "" where there is none."""
        made = {each.name.lower() for each in self.of_files}
        return next((name for name in names if name.lower() in made), "")

    def check(self, schema: pa.Schema) -> None:
        """UsageError for columns that are not there, make no directories, or would be there twice."""
        for name in self.columns:
            if name not in schema.names:
                raise UsageError(f"partition_by={name!r} is not a column. The columns are {', '.join(schema.names)}.")
            check_kind(name, schema.field(name).type)
        if self.columns and len(schema) == len(self.columns):
            raise UsageError(f"partition_by names all columns ({', '.join(schema.names)}), and nothing would be left in the files.")
        if name := self.clash(schema.names):
            raise UsageError(f"partition_by makes directories {name}=…, and the rows have a column {name!r}. Say 'as' with another name.")


@functools.lru_cache(1 << 14)
def _folder(of_files: tuple[OfFile, ...], root: str, folder: str, hour: int) -> str:
    return "/".join(partitions.directory(each.name, each.value(root, folder, hour)) for each in of_files)


@functools.lru_cache(1 << 14)
def _time(hour: int, unit: str) -> str | None:
    try:
        at = dt.datetime.fromtimestamp(hour * 3_600, dt.UTC)
    except (ValueError, OverflowError, OSError):
        return None  # of no year from 1 to 9999
    return at.isoformat()[: _LENGTHS[unit]].replace("T", "-")


# ---------------------------------------------------------------------------------------------------------------------- the words
def parse(given: object) -> PartitionBy:
    """The meaning of a call's `partition_by=`; UsageError for anything else."""
    with about("partition_by"):
        items = [given] if isinstance(given, str) else list(given) if isinstance(given, list | tuple) else [None]
        if not items or not all(isinstance(item, str) and item.strip() for item in items):
            raise UsageError(f"partition_by={quoted(given)} says no directories. Say {_SPELLINGS}.")
        found = [_parsed(str(item)) for item in items]
        of_files, columns = [each for each in found if isinstance(each, OfFile)], [each for each in found if isinstance(each, str)]
        if found != [*of_files, *columns]:
            raise UsageError(f"partition_by names a column before what comes of files. Say {[*map(str, of_files), *columns]}.")
        made = PartitionBy(tuple(of_files), tuple(columns))
        lower = [name.lower() for name in made.names]
        if twice := next((name for name in made.names if lower.count(name.lower()) > 1), ""):
            raise UsageError(f"partition_by makes directories {twice}=… twice. Give one of them another name: '… as name'.")
        return made


def of(spec: Spec) -> PartitionBy:
    """The directories of a destination of files."""
    if not spec.by or spec.kind in (CLAIM, OFFSETS):
        return PartitionBy()
    try:
        return parse(_items(spec.by))
    except UsageError as e:
        raise FormatError(f"the log says partition_by={quoted(spec.by)}, which no call of quire's has said: {e} Look who wrote it.") from e


def columns_of(spec: Spec) -> tuple[str, ...]:
    """The columns of rows by whose values a destination has directories."""
    return (spec.by,) if spec.by and spec.kind == OFFSETS else of(spec).columns


def _parsed(item: str) -> OfFile | str:
    if (found := _ITEM.fullmatch(item)) is None:
        raise UsageError(f"partition_by={quoted(item)} has a backquote without its other half. Write a name as '`a b`'.")
    what, name = found[1], found[2] and _plain(found[2])
    said = _PATH.fullmatch(what)
    if said is None and not (time := _TIME.fullmatch(what)):
        if re.match(r"(path|modified|\w+\()", what) and re.search(r"[.\[(]", what) and not what.startswith("`"):
            raise UsageError(f"partition_by={quoted(item)} is not understood. Say {_SPELLINGS}; a column of that name as '`{what[:50]}`'.")
        if name is not None:
            raise UsageError(f"partition_by={quoted(item)}: a column of the rows keeps its name. Leave 'as' out.")
        return _plain(what)
    if said is None:
        assert time is not None
        made = OfFile(name or _NAMES.get(time[1], time[1]), unit=time[1])
    elif said[1]:
        made = OfFile(name or _plain(said[1]), said=_plain(said[1]))
    elif name is None:
        raise UsageError(f"partition_by={quoted(item)} needs a name for its directories. Say '{what} as site'.")
    else:
        made = OfFile(name, at=int(said[2]))
    if made.name[0] in "_." or partitions.length(made.name, "x" * 64) > partitions.LONGEST or "/" in made.name:
        raise UsageError(f"partition_by={quoted(item)}: {quoted(made.name)} names no directory that readers see. Say '… as name'.")
    return made


def _items(text: str) -> list[str]:
    """A text of several, as it stands in the log, apart."""
    return [found[0].strip() for found in re.finditer(r"(?:`(?:[^`]|``)*`|[^,`])+", text)]


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"\w+", name) else "`" + name.replace("`", "``") + "`"


def _plain(text: str) -> str:
    return text[1:-1].replace("``", "`") if len(text) > 2 and text[0] == text[-1] == "`" else text


# ------------------------------------------------------------------------------------------------------------------- columns of rows
def check_seen(name: str) -> None:
    """UsageError for a column whose directories readers of the destination's own directory would pass over, and all rows in them."""
    if name.startswith(("_", ".")):
        raise UsageError(
            f"partition_by={quoted(name)}: {quoted(name)} names no directory that readers see, as they pass over names that begin with "
            f"{name[0]!r}. Rename the column."
        )


def check_kind(name: str, kind: pa.DataType) -> None:
    """UsageError for a column whose values name no directories."""
    if not (pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_boolean(kind)):
        raise UsageError(f"partition_by={name!r}: a column of {kind} makes no directories. Take text, whole numbers, days or truth values.")


def unfit(name: str, column: pa.Array) -> str:
    """Why a value of a column names no directory; "" where each does."""
    values = pc.unique(column)
    if pa.types.is_date32(values.type) and len(values):
        least, most = pc.min_max(values.cast(pa.int32())).as_py().values()
        if least is not None and not _DAYS[0] <= least <= most <= _DAYS[1]:
            return f"the column {name!r} has a day that lies in no year from 1 to 9999, so it names no directory"
    longest = max((partitions.length(name, value) for value in values.cast(pa.string()).to_pylist()), default=0)
    if longest > partitions.LONGEST:
        return (
            f"a value of the column {name!r} makes a directory's name of {longest:,} bytes, and a name may have "
            f"{partitions.LONGEST}: give a shorter one, or its beginning"
        )
    return ""


def apart(rows: pa.RecordBatch, columns: Sequence[tuple[str, pa.Array]]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Rows by the values of some columns (with their names): each directory with its rows, in their order."""
    texts = [column.cast(pa.string()).dictionary_encode() for _, column in columns]
    codes = np.zeros(rows.num_rows, np.int64)
    for text in texts:
        codes = np.unique(codes * (len(text.dictionary) + 1) + text.indices.fill_null(-1).to_numpy(), return_inverse=True)[1]
    order = np.argsort(codes, kind="stable")
    bounds = np.flatnonzero(np.diff(codes[order], prepend=-1)).tolist()
    for first, last in zip(bounds, [*bounds[1:], len(order)], strict=True):
        values = (column[int(order[first])].as_py() for column in texts)
        folder = "/".join(partitions.directory(name, value) for (name, _), value in zip(columns, values, strict=True))
        yield folder, rows if last - first == len(order) else rows.take(pa.array(order[first:last]))
