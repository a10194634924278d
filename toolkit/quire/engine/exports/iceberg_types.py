"""Columns of Parquet as Iceberg's schema has them: Arrow types → the objects of its JSON, each field with an id.

Data files name their columns and hold no ids, so the table says which id each name is (`schema.name-mapping.default`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from quire.errors import RefusedError, quoted

_NAMED: dict[pa.DataType, str] = {
    pa.bool_(): "boolean", pa.int8(): "int", pa.int16(): "int", pa.int32(): "int", pa.int64(): "long", pa.uint8(): "int",
    pa.uint16(): "int", pa.uint32(): "long", pa.float32(): "float", pa.float64(): "double", pa.string(): "string",
    pa.large_string(): "string", pa.string_view(): "string", pa.binary(): "binary", pa.large_binary(): "binary",
    pa.binary_view(): "binary", pa.date32(): "date", pa.date64(): "date", pa.time64("us"): "time",
}  # fmt: skip
MADE: dict[str, pa.DataType] = {  # what columns of directories may be
    "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64(), "string": pa.string(),
    "binary": pa.binary(), "date": pa.date32(), "decimal(20, 0)": pa.decimal128(20, 0),
}  # fmt: skip
_AVRO: dict[str, Any] = {
    "boolean": "boolean", "int": "int", "long": "long", "float": "float", "double": "double", "string": "string", "binary": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    "decimal(20, 0)": {"type": "fixed", "name": "decimal_20_0", "size": 9, "logicalType": "decimal", "precision": 20, "scale": 0},
}  # fmt: skip
_FINEST = ("s", "ms", "us")
_WIDER = {("int", "long"), ("float", "double")}


class Schema:
    """A table's columns: those of its data files, and those that directories make."""

    def __init__(
        self, own: pa.Schema, made: Mapping[str, str], where: str, before: Sequence[Mapping[str, Any]] = (), last: int = 0
    ) -> None:  # fmt: skip
        """`before`: the fields of the table so far, whose ids stay; columns that are new, or of another kind, get ids after `last`."""
        ids = _Ids(before, last)
        self.fields = [_field(ids, field.name, field.type, where) for field in own]
        self.made = {name: ids.of_made(name, kind) for name, kind in made.items()}
        self.fields += [{"id": self.made[name], "name": name, "required": False, "type": kind} for name, kind in made.items()]
        self.last = ids.last
        names = Counter(map(".".join, _Ids(self.fields, 0).known))
        if twice := next((name for name, count in names.items() if count > 1), None):
            raise RefusedError(
                f"{where} has two columns that Iceberg calls {quoted(twice)}, since it joins the name of a column to that of its part by a "
                "dot: give one of them another name."
            )

    def mapping(self) -> list[dict[str, Any]]:
        """Which id each column of a data file has, by its name."""
        return [_mapped(field["id"], field["name"], field["type"]) for field in self.fields]


def check_ids(fields: Sequence[Mapping[str, Any]]) -> None:
    """ValueError, or another of a wrong shape, for fields without ids."""
    if not all(isinstance(number, int) for number in _Ids(fields, 0).known.values()):
        raise ValueError("an id")


class _Ids:
    """The ids of columns and of what lies within them: each has one for ever."""

    def __init__(self, before: Sequence[Mapping[str, Any]], last: int) -> None:
        self.last, self.made = last, {each["name"]: (each["id"], each["type"]) for each in before}
        self.known = dict[tuple[str, ...], int]()
        for each in before:
            self._note((each["name"],), each["id"], each["type"])

    def _note(self, path: tuple[str, ...], number: int, kind: Any) -> None:
        self.known[path] = number
        for inner, name, part in _parts(kind):
            self._note((*path, name), inner, part)

    def __call__(self, path: tuple[str, ...]) -> int:
        return self.known.get(path) or self._new()

    def of_made(self, name: str, kind: str) -> int:
        """The id of a column that directories make: with another type it is another column, as old manifests hold its values."""
        number, before = self.made.get(name, (0, ""))
        return number if before == kind else self._new()

    def _new(self) -> int:
        self.last += 1
        return self.last


def of(kind: pa.DataType, column: str, where: str) -> str:
    """The type of a column that directories make."""
    found = "decimal(20, 0)" if kind == pa.decimal128(20, 0) else _NAMED.get(kind)
    if found not in MADE:
        raise _refused(kind, column, where)
    return found


def check_promoted(own: pa.Schema, now: pa.Schema, where: str) -> None:
    """RefusedError where a data file has a column of a type that readers do not widen to the table's."""
    for field in own:
        if field.name in now.names and not _promoted(field.type, kind := now.field(field.name).type):
            raise RefusedError(
                f"the column {quoted(field.name)} of {where} is {field.type}, and the table's is {kind} by now, which readers of Iceberg "
                "do not widen. The export goes on once such files are written anew."
            )


def _promoted(own: pa.DataType, now: pa.DataType) -> bool:
    """Whether readers widen a type, as Iceberg's specification has it."""
    if pa.types.is_decimal(own) and pa.types.is_decimal(now):
        return bool(own.scale == now.scale and own.precision <= now.precision)
    if pa.types.is_struct(own) and pa.types.is_struct(now):
        return all(_promoted(part.type, now.field(part.name).type) for part in own if now.get_field_index(part.name) >= 0)
    if pa.types.is_map(own) and pa.types.is_map(now):
        return _promoted(own.key_type, now.key_type) and _promoted(own.item_type, now.item_type)
    if pa.types.is_list(own) and pa.types.is_list(now):
        return _promoted(own.value_type, now.value_type)
    return _NAMED.get(own, str(own)) == _NAMED.get(now, str(now)) or (_NAMED.get(own), _NAMED.get(now)) in _WIDER


def partition(spec: list[dict[str, Any]], kinds: Mapping[str, str]) -> dict[str, Any]:
    """Avro's record of a file's values of partition columns."""
    fields = [
        {"name": avro_name(each["name"]), "type": ["null", _AVRO[kinds[each["name"]]]], "default": None, "field-id": each["field-id"]}
        for each in spec
    ]
    return {"type": "record", "name": "r102", "fields": fields}


def avro_name(name: str) -> str:
    """A column's name as Avro can have it, in the way of Iceberg's own writers."""
    first = f"_{name[0]}" if name[0].isdecimal() and name[0].isascii() else _escaped(name[0])
    return first + "".join(map(_escaped, name[1:]))


def _escaped(letter: str) -> str:
    return letter if re.fullmatch("[A-Za-z0-9_]", letter) else f"_x{ord(letter):X}"


def _field(ids: _Ids, name: str, kind: pa.DataType, where: str) -> dict[str, Any]:
    return {"id": ids((name,)), "name": name, "required": False, "type": _of(ids, (name,), name, kind, where)}


def _of(ids: _Ids, path: tuple[str, ...], column: str, kind: pa.DataType, where: str) -> Any:
    if named := _NAMED.get(kind):
        return named
    if pa.types.is_decimal(kind) and kind.precision <= 38:
        return f"decimal({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind) and kind.unit in _FINEST:
        return "timestamptz" if kind.tz else "timestamp"
    if pa.types.is_fixed_size_binary(kind):
        return f"fixed[{kind.byte_width}]"
    if pa.types.is_dictionary(kind):
        return _of(ids, path, column, kind.value_type, where)
    if pa.types.is_struct(kind):
        return {"type": "struct", "fields": [_part(ids, (*path, each.name), f"{column}.{each.name}", each, where) for each in kind]}
    if pa.types.is_map(kind):
        at = (*path, "key"), (*path, "value")
        key, value = map(ids, at)
        kinds = [_of(ids, each, column, inner, where) for each, inner in zip(at, (kind.key_type, kind.item_type), strict=True)]
        return {"type": "map", "key-id": key, "key": kinds[0], "value-id": value, "value-required": False, "value": kinds[1]}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        at_element = (*path, "element")
        number = ids(at_element)
        return {
            "type": "list",
            "element-id": number,
            "element-required": False,
            "element": _of(ids, at_element, column, kind.value_type, where),
        }
    raise _refused(kind, column, where)


def _part(ids: _Ids, path: tuple[str, ...], column: str, field: pa.Field, where: str) -> dict[str, Any]:
    return {"id": ids(path), "name": field.name, "required": False, "type": _of(ids, path, column, field.type, where)}


def _refused(kind: pa.DataType, column: str, where: str) -> RefusedError:
    return RefusedError(
        f"the column {quoted(column)} of {where} is {kind}, which Iceberg does not have: leave it out, or give it another type."
    )


def _mapped(number: int, name: str, kind: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"field-id": number, "names": [name]}
    parts = _parts(kind)
    return found | {"fields": [_mapped(*each) for each in parts]} if parts else found


def _parts(kind: Any) -> list[tuple[int, str, Any]]:
    """The id, name and type of each part of a type that holds others."""
    if not isinstance(kind, dict):
        return []
    if kind["type"] == "struct":
        return [(each["id"], each["name"], each["type"]) for each in kind["fields"]]
    if kind["type"] == "list":
        return [(kind["element-id"], "element", kind["element"])]
    return [(kind["key-id"], "key", kind["key"]), (kind["value-id"], "value", kind["value"])]
