"""Documents of JSON and XML, of which expressions name the columns (see `fields`): a row a document.

a path or XPath that finds nothing     null, or quarantined where the column is `not null`
several values, and an array           all of them
several values, and any other type     quarantined
text in XML that is empty              null, unless the column is text
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, ClassVar

import msgspec
import pyarrow as pa

from quire.errors import UsageError, about, quoted, scrub
from quire.formats.damage import ARROW
from quire.sources import magic
from quire.sources.decoders import fields, json, paths
from quire.sources.decoders.base import Decoder, Form
from quire.sources.decoders.frames import Frame
from quire.sources.decoders.registry import Found
from quire.sources.transforms.content import BadContent
from quire.sources.transforms.schemas import type_text
from quire.sources.transforms.text.jsonl import SPOKEN, read_as
from quire.sources.transforms.text.rejects import DoesNotFitError
from quire.sources.transforms.text.typed import typed
from quire.sources.transforms.xml import checked

Row = list[Any]  # a value a column
_JSON = msgspec.json.Decoder(Any, float_hook=Decimal)  # digits stay as they were written


class DocumentForm(Form):
    """Documents of one kind. `parsed` makes a document, `value` a column's value of it."""

    def __init__(self, found: tuple[fields.Field[Any], ...]) -> None:
        self.fields, self.columns = found, fields.schema_of(found)

    def row(self, document: bytes) -> Row:
        """The values of a document."""
        parsed = self.parsed(document)
        return [self._checked(field, self.value(field, parsed)) for field in self.fields]

    def _checked(self, field: fields.Field[Any], value: Any) -> Any:
        if value is None and field.required:
            raise BadContent(f"the column {field.name!r} is not null, and nothing is found at {field.expression[:150]}")
        return value

    def batch(self, rows: list[Row], columns: pa.Schema) -> pa.RecordBatch:
        """Values as columns."""
        made = [self._array([row[i] for row in rows], field) for i, field in enumerate(self.fields)]
        return pa.record_batch(made, schema=self.columns).select(columns.names)

    def _array(self, values: list[Any], field: fields.Field[Any]) -> pa.Array:
        try:
            return typed(pa.array(values, self.read_as(field.type)), field.type, field.name)
        except (*ARROW, OverflowError, ValueError, TypeError, DoesNotFitError):
            raise _misfit(field, "a value of it is not") from None

    def parsed(self, document: bytes) -> Any:
        raise NotImplementedError

    def value(self, field: fields.Field[Any], document: Any) -> Any:
        raise NotImplementedError

    def read_as(self, kind: pa.DataType) -> pa.DataType:
        raise NotImplementedError


def _misfit(field: fields.Field[Any], what: str) -> BadContent:
    return BadContent(f"the column {field.name!r} is {type_text(field.type, field.name)}, and {what}")


def _several(field: fields.Field[Any], n: int) -> BadContent:
    return _misfit(field, f"{n:,} values are found: say array<{type_text(field.type, field.name)}>, which takes all of them")


# ---------------------------------------------------------------------------------------------------------------------------- JSON
class JsonDocuments(DocumentForm):
    """JSON: values have types of their own, which must be those of the columns."""

    def __init__(self, found: tuple[fields.Field[Any], ...]) -> None:
        super().__init__(found)
        self.plain = {field.name: _plain(field.type) for field in found}

    def parsed(self, document: bytes) -> Any:
        """Its value."""
        try:
            return _JSON.decode(document)
        except (msgspec.MsgspecError, UnicodeDecodeError, InvalidOperation) as e:
            raise BadContent(f"not a JSON document ({type(e).__name__})") from None
        except RecursionError:
            raise BadContent("its values are nested too deeply") from None

    def value(self, field: fields.Field[paths.Path], document: Any) -> Any:
        """The value that a path names."""
        found = field.found.of(document)
        if not field.found.definite and field.takes_all:
            return [_taken(each, field.type.value_type, field) for each in found]
        if len(found) > 1:
            raise _several(field, len(found))
        if not found or type(found[0]) is self.plain[field.name]:
            return found[0] if found else None
        return _taken(found[0], field.type, field)

    def read_as(self, kind: pa.DataType) -> pa.DataType:
        """Times are texts in JSON."""
        return read_as(kind)


def _plain(kind: Any) -> type | None:
    """The type of values that a column takes as they are: nearly all of them."""
    of = pa.types
    return int if of.is_integer(kind) else str if of.is_string(kind) or of.is_temporal(kind) else bool if of.is_boolean(kind) else None


def _taken(value: Any, kind: Any, field: fields.Field[Any]) -> Any:
    """A value of JSON as Arrow takes it for a type; BadContent where it is of another one. Fields that a struct lacks are left out."""
    of = pa.types
    if value is None:
        return None
    if of.is_struct(kind) and isinstance(value, dict):
        return {each.name: _taken(value.get(each.name), each.type, field) for each in kind}
    if of.is_list(kind) and isinstance(value, list):
        return [_taken(each, kind.value_type, field) for each in value]
    number = isinstance(value, int | Decimal) and not isinstance(value, bool)
    if of.is_floating(kind) and number:
        return _finite(float(value), field)
    if of.is_decimal(kind) and (number or isinstance(value, str)):
        return _decimal(value, field)
    if of.is_boolean(kind) or isinstance(value, bool):
        fits = of.is_boolean(kind) and isinstance(value, bool)
    elif of.is_integer(kind):
        fits = isinstance(value, int)
    else:
        fits = (of.is_string(kind) or of.is_temporal(kind)) and isinstance(value, str)
    if not fits:
        raise _misfit(field, f"at {field.expression[:150]} there is {SPOKEN.get(type(value), 'a fraction')}")
    return value


def _finite(value: float, field: fields.Field[Any]) -> float:
    if value in (float("inf"), float("-inf")):
        raise _misfit(field, "a number of it is too large")
    return value


def _decimal(value: Any, field: fields.Field[Any]) -> Decimal:
    try:
        found = Decimal(value)
    except InvalidOperation:
        found = Decimal("NaN")
    if not found.is_finite():
        raise _misfit(field, "a text of it is not a number")
    return found


# ----------------------------------------------------------------------------------------------------------------------------- XML
_BRACED = re.compile(r"""("[^"]*"|'[^']*')|Q?\{([^{}]*)\}(?=[\w*])""")  # a text, which is passed over, or a namespace


class XPath:
    """An XPath 1.0 expression, in which a namespace stands in braces: `/{http://…}order/{http://…}id`."""

    def __init__(self, text: str) -> None:
        from lxml import etree

        spaces = dict[str, str]()

        def named(found: re.Match[str]) -> str:
            return found[0] if found[1] else f"{spaces.setdefault(found[2], f'n{len(spaces)}')}:" if found[2] else ""

        plain = _BRACED.sub(named, text)
        try:
            self.find = etree.XPath(plain, namespaces={prefix: uri for uri, prefix in spaces.items()} or None, smart_strings=False)
            self.find(etree.fromstring("<a/>"))  # a prefix that nothing declares is met only here
        except etree.XPathError as e:
            raise UsageError(
                f"{quoted(text, 200)} is not an XPath: {scrub(str(e), 100)}. Write for example /order/@id or //line/sku."
            ) from None
        self.text = etree.XPath("string()", smart_strings=False)

    def of(self, document: Any) -> list[str]:
        """The texts that it finds."""
        found: Any = self.find(document)
        if isinstance(found, list):
            return [each if isinstance(each, str) else str(self.text(each)) for each in found]
        if isinstance(found, bool):
            return ["true" if found else "false"]
        if isinstance(found, float):
            return [] if found != found else [str(int(found)) if found.is_integer() else repr(found)]  # noqa: PLR0124  # not a number
        return [found]


class XmlDocuments(DocumentForm):
    """XML: all is text, and read as what the columns are."""

    def parsed(self, document: bytes) -> Any:
        """Its tree, within the limits of `transform="xml"`; nothing is fetched, and no entity is expanded."""
        from lxml import etree

        content, _ = checked(document)
        parser = etree.XMLParser(
            encoding="utf-8", resolve_entities=False, no_network=True, load_dtd=False, huge_tree=True, remove_pis=False, ns_clean=False
        )
        try:
            return etree.fromstring(content, parser)
        except etree.XMLSyntaxError as e:
            raise BadContent(f"malformed XML (line {e.lineno}, column {e.offset})") from None

    def value(self, field: fields.Field[XPath], document: Any) -> Any:
        """The value that an XPath finds."""
        found = field.found.of(document)
        if field.takes_all:
            return [self._text(each, field.type.value_type) for each in found]
        if len(found) > 1:
            raise _several(field, len(found))
        return self._text(found[0], field.type) if found else None

    def _text(self, found: str, kind: pa.DataType) -> str | None:
        return found if pa.types.is_string(kind) or found.strip() else None

    def read_as(self, kind: pa.DataType) -> pa.DataType:
        """All is text."""
        return pa.list_(pa.string()) if pa.types.is_list(kind) else pa.string()


# ------------------------------------------------------------------------------------------------------------------------- decoder
@dataclass(frozen=True)
class Documents(Decoder):
    """Decodes JSON or XML by the expressions of columns, name → "path: type"."""

    said: tuple[tuple[str, str], ...] = ()

    READ: ClassVar[Any]
    FORM: ClassVar[type[DocumentForm]]

    def form(self, frame: Frame | None, found: Found | None) -> Form:
        """All documents have the same."""
        return _form(type(self), self.said)

    def told(self) -> list[str]:
        """With the expressions and types."""
        return [*super().told(), fields.said(_form(type(self), self.said).fields)]


@functools.lru_cache(maxsize=100)
def _form(kind: type[Documents], said: tuple[tuple[str, str], ...]) -> DocumentForm:
    return kind.FORM(fields.fields(dict(said), kind.READ))


class JsonByPath(Documents):
    """Those of JSON."""

    name: ClassVar[str] = "json"
    kind: ClassVar[str] = "JSON"
    READ: ClassVar[Any] = staticmethod(paths.path)
    FORM: ClassVar[type[DocumentForm]] = JsonDocuments

    def whole(self, content: bytes) -> list[bytes]:
        """As `transform="json"`: one document, or JSON lines."""
        return json.whole(content)

    def documents(self, content: bytes) -> list[tuple[int, bytes]]:
        """One document, or JSON lines."""
        return json.documents(content)


class XmlByPath(Documents):
    """Those of XML."""

    name: ClassVar[str] = "xml"
    READ: ClassVar[Any] = XPath
    FORM: ClassVar[type[DocumentForm]] = XmlDocuments

    def whole(self, content: bytes) -> list[bytes]:
        """As `transform="xml"`: one document."""
        magic.check(content, self.name)
        return [content]


def by_path(kind: str, columns: Any) -> Documents:
    """The decoder of a call's `columns=`; UsageError for wrong ones."""
    made: type[Documents] = {"json": JsonByPath, "xml": XmlByPath}[kind]
    fields.fields(columns, made.READ)  # says what is wrong
    said = tuple(columns.items())
    form = _form(made, said)
    if kind == "xml" and (nested := next((f for f in form.fields if pa.types.is_nested(getattr(f.type, "value_type", f.type))), None)):
        nested_ok = pa.types.is_list(nested.type) and not pa.types.is_nested(nested.type.value_type)
        if not nested_ok:
            with about("columns"):
                raise UsageError(
                    f"the column {nested.name!r} is {type_text(nested.type, nested.name)}, and XML holds texts. Name each part."
                )
    return made(columns=form.columns, said=said)
