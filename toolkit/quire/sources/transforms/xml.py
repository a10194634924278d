"""XML: one document becomes one line that says the same. Checked by a parser, and folded without building a tree.

The parser (expat) only decides whether the document is well-formed; the text between its tags is never rebuilt, so nothing
that quire does not know about can get lost. Nothing is fetched, and entities do not exist here: a document that uses one beyond
those that every parser knows is refused before its first element is read, so none is ever expanded.
"""

from __future__ import annotations

import codecs
import re
from typing import NoReturn
from xml.parsers import expat

from quire.sources.transforms.content import BadContent

MAX_DEPTH = 1_000
"""Levels of elements."""

MAX_ATTRIBUTES = 100_000
"""Attributes of one tag."""

MAX_TOKEN = 8 << 20
"""Bytes of one tag, comment or instruction. Text and CDATA may be as long as a document (`max_file_size`)."""

_CHUNK = 1 << 20
_BLANKS = b" \t\r\n"

_DECLARATION = re.compile(
    rb"<\?xml[ \t\r\n]+version[ \t\r\n]*=[ \t\r\n]*(?:\"([^\"<>]*)\"|'([^'<>]*)')"
    rb"(?:[ \t\r\n]+encoding[ \t\r\n]*=[ \t\r\n]*(?:\"([^\"<>]*)\"|'([^'<>]*)'))?"
)
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,39}")
# Codecs of Python's own that no XML document can mean.
_NO_ENCODINGS = frozenset({"idna", "mbcs", "oem", "punycode", "raw-unicode-escape", "undefined", "unicode-escape", "utf-7"})


def xml(content: bytes) -> bytes:
    r"""Return one well-formed document as one line of UTF-8, without a newline in or after it.

    Encoding      a byte order mark, else the declared encoding, else UTF-8. The declaration is dropped, as the output is UTF-8 and
                  XML 1.0, except for its version if that is not 1.0, and for `standalone="yes"` beside a DOCTYPE.
    Line breaks   `\r\n` and `\r` count as `\n`, as in any XML parser. In text, `\n` becomes `&#10;`. In tags and in
                  attribute values it becomes a space, which is what every parser makes of it there. In comments and
                  processing instructions it becomes a space. CDATA that holds a line break becomes escaped text. A
                  reference such as `&#13;` or `&#10;` stays as it is.
    White space   Between two tags, comments or instructions, white space that holds a line break is dropped, unless the
                  element has other text as well (then its white space is text too) or `xml:space="preserve"` is in force.
                  White space without a line break stays; what stands before and after the document goes.
    DOCTYPE       stays as it is, on one line, with its identifiers and its internal subset; nothing is fetched. Where the subset
                  speaks of `xml:space`, all white space between tags stays.
    Entities      `&amp;` and the other four, and references by number; a document that uses any other is refused.

    Namespaces are not checked. Raises BadContent if the content is empty, not well-formed, not what its encoding says, uses an
    entity, or passes MAX_DEPTH, MAX_ATTRIBUTES or MAX_TOKEN.
    """
    document, end = checked(content)
    prefix, start = _declaration(document, doctype=end > 0)
    head, body = _broken(document[start:end].lstrip(_BLANKS)), _broken(document[max(start, end) :].rstrip(_BLANKS))
    if not head:
        body = body.lstrip(_BLANKS)
    if b"\n" not in head and b"\n" not in body:
        return prefix + head + body
    return prefix + (_with_doctype(head, body) if head else _folded(body))


def checked(content: bytes) -> tuple[bytes, int]:
    """The document in UTF-8, whatever it declares, and where its DOCTYPE ends (0: it has none); BadContent as `xml`."""
    document = _utf8(content)
    if not document.strip(_BLANKS):
        raise BadContent("empty")
    return document, _check(document)


# --- encoding -------------------------------------------------------------------------------------------------------------


def _utf8(content: bytes) -> bytes:
    """The document in UTF-8 without a byte order mark; its declaration may still name the old encoding."""
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            document = _recoded(content, encoding, len(mark))
            break
    else:
        if content.startswith((b"<\0", b"\0<")):
            encoding = "utf-16-le" if content[0] else "utf-16-be"
            document = _recoded(content, encoding, 0)
        else:
            return _as_declared(content)
    declared = _declared(document)
    if declared is not None and _codec(declared) not in (encoding, encoding[:6]):
        raise BadContent(f"encoding: declared as {declared}, but the first bytes are {encoding.upper()}'s (byte offset 0)")
    return document


def _as_declared(content: bytes) -> bytes:
    declared = _declared(content)
    if declared is None or declared.lower() == "utf-8":
        return content
    encoding = _codec(declared)
    if encoding == "utf-8":
        return content
    document = _recoded(content, encoding, 0)
    if not document.startswith(b"<?xml"):
        raise BadContent(f"encoding: declared as {declared}, but it is not (byte offset 0)")
    return document


def _declared(document: bytes) -> str | None:
    match = _DECLARATION.match(document)
    name = match and (match.group(3) if match.group(3) is not None else match.group(4))
    return None if name is None else name.decode("ascii", "backslashreplace")


def _codec(declared: str) -> str:
    """Python's name of a declared encoding."""
    try:
        if not _NAME.fullmatch(declared):
            raise LookupError
        if declared.lower() in ("iso-10646-ucs-2", "ucs-2"):
            return "utf-16"
        name = codecs.lookup(declared).name.replace("_", "-")
        b" ".decode(name, "ignore")  # raises LookupError for codecs that are not of text, such as zlib's
    except (LookupError, UnicodeError):
        name = "undefined"
    if name in _NO_ENCODINGS:
        raise BadContent(f"encoding: unknown encoding {declared[:40]!r} (line 1)")
    return name


def _recoded(content: bytes, encoding: str, skip: int) -> bytes:
    if encoding == "utf-8":
        return content[skip:]
    try:
        return content[skip:].decode(encoding).encode("utf-8")
    except UnicodeDecodeError as error:
        raise BadContent(f"encoding: not valid {encoding.upper()} (byte offset {error.start + skip})") from None
    except UnicodeError:
        raise BadContent(f"encoding: not valid {encoding.upper()}") from None


# --- well-formedness ------------------------------------------------------------------------------------------------------


class _RefusedError(Exception):
    """Well-formed so far, but of a kind that is not taken; the message says which."""


def _check(document: bytes) -> int:
    """Where the DOCTYPE ends; 0 without one. BadContent unless the UTF-8 document is well-formed and within the limits."""
    parser, end = expat.ParserCreate("UTF-8"), 0

    def doctype() -> None:
        nonlocal end
        end = parser.CurrentByteIndex + 1  # it stands at the ">"
        for defaults in _DEFAULTS.finditer(document, 0, end):
            _refuse_entities(document, *defaults.span())
        _refuse_entities(document, end, len(document))

    parser.EndDoctypeDeclHandler = doctype
    if document.count(b"<") > MAX_DEPTH or document.count(b"=") > MAX_ATTRIBUTES:
        _limit_elements(parser)
    try:
        if len(document) <= _CHUNK:
            parser.Parse(document, True)
        else:
            _parse_in_chunks(parser, document)
    except expat.ExpatError as error:
        _raise_malformed(document, error)
    except _RefusedError as error:
        place = f"line {parser.CurrentLineNumber}, column {parser.CurrentColumnNumber + 1}"
        raise BadContent(f"refused XML: {error} ({place})") from None
    return end


_KNOWN = frozenset({b"amp", b"lt", b"gt", b"quot", b"apos"})
_PASSED_OVER = {b"<!--": b"-->", b"<![CDATA[": b"]]>", b"<?": b"?>"}
_REFERENCE = re.compile(rb"<!--|<!\[CDATA\[|<\?|&([^&;#<>\"' \t\r\n]{1,200});")


# The values that a subset gives to attributes.
_DEFAULTS = re.compile(rb"<!ATTLIST(?:[^>\"']|\"[^\"]*+\"|'[^']*+')*+>")


def _refuse_entities(document: bytes, start: int, end: int) -> None:
    """Refuse a document that uses an entity; in one that is not well-formed any may be missed."""
    at = start
    while found := _REFERENCE.search(document, at, end):
        at, name = found.end(), found[1]
        if name is None:
            at = document.find(_PASSED_OVER[found[0]], at, end)
            if at < 0:
                return
        elif name not in _KNOWN:
            line = document.count(b"\n", 0, found.start()) + 1
            raise BadContent(
                f"refused XML: the entity {name.decode('utf-8', 'replace')!r} is used, and none is taken that its DOCTYPE would have to "
                f"define (line {line})"
            )


def _limit_elements(parser: expat.XMLParserType) -> None:
    depth = 0

    def start(_name: str, attributes: list[str]) -> None:
        nonlocal depth
        depth += 1
        if depth > MAX_DEPTH:
            raise _RefusedError(f"more than {MAX_DEPTH} levels of elements")
        if len(attributes) > 2 * MAX_ATTRIBUTES:
            raise _RefusedError(f"a tag with more than {MAX_ATTRIBUTES:,} attributes")

    def end(_name: str) -> None:
        nonlocal depth
        depth -= 1

    parser.ordered_attributes = True
    parser.StartElementHandler = start
    parser.EndElementHandler = end


def _parse_in_chunks(parser: expat.XMLParserType, document: bytes) -> None:
    """Parse so that no token is looked at again and again: expat starts a token that is not complete from its beginning."""
    view = memoryview(document)
    for start in range(0, len(view), _CHUNK):
        end = min(start + _CHUNK, len(view))
        parser.Parse(view[start:end], end == len(view))
        if end - parser.CurrentByteIndex > MAX_TOKEN:
            raise _RefusedError(f"a tag, comment or instruction of more than {MAX_TOKEN >> 20} MiB")


def _raise_malformed(document: bytes, error: expat.ExpatError) -> NoReturn:
    if error.code == expat.errors.codes[expat.errors.XML_ERROR_NO_MEMORY]:
        raise MemoryError("no memory left to parse a document") from None
    try:
        document.decode("utf-8")
    except UnicodeDecodeError as wrong:
        raise BadContent(f"encoding: not valid UTF-8 (byte offset {wrong.start})") from None
    place = f"line {error.lineno}, column {error.offset + 1}"
    raise BadContent(f"malformed XML: {expat.ErrorString(error.code)} ({place})") from None


# --- folding --------------------------------------------------------------------------------------------------------------


def _declaration(document: bytes, *, doctype: bool) -> tuple[bytes, int]:
    """The part of the declaration that must stay, and where it ends."""
    match = _DECLARATION.match(document)
    if match is None:
        return b"", 0
    version, end = match.group(1) or match.group(2), document.index(b"?>") + 2
    alone = b' standalone="yes"' if doctype and _ALONE.search(document, match.end(), end) else b""
    return (b"" if version == b"1.0" and not alone else b'<?xml version="%s"%s?>' % (version, alone)), end


_ALONE = re.compile(rb"standalone[ \t\r\n]*=[ \t\r\n]*[\"']yes")


def _broken(text: bytes) -> bytes:
    """Text whose lines end as every parser sees them."""
    return text.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in text else text


def _with_doctype(head: bytes, body: bytes) -> bytes:
    """Fold what ends with a DOCTYPE, and what comes behind it."""
    before = _MISC.match(head)
    start = before.end() if before else 0
    doctype = head[start:].replace(b"\n", b" ")
    rest = body.lstrip(_BLANKS)
    blanks = body[: len(body) - len(rest)]
    folded = _fold(rest, preserve=True) if b"xml:space" in doctype else _folded(rest)
    return _fold(head[:start]) + doctype + (b"" if b"\n" in blanks else blanks) + folded


_MISC = re.compile(rb"(?:[ \t\n]*(?:<!--.*?-->|<\?.*?\?>))*[ \t\n]*", re.DOTALL)


def _folded(body: bytes) -> bytes:
    prolog = _PROLOG.match(body) if body.startswith((b"<!", b"<?")) else None
    start = prolog.end() if prolog else 0
    simple = _fold_simple(body[start:])
    return _fold(body) if simple is None else _fold(body[:start]) + simple


_PROLOG = re.compile(rb"(?:[ \t\n]*(?:<!--.*?-->|<\?.*?\?>|<![^>]*>))*[ \t\n]*", re.DOTALL)
_BETWEEN_TAGS = re.compile(rb">(?:[ \t]*\n[ \t\n]*)?<")
# From where a tag or a text begins, so that each byte is looked at once, however many slashes it holds.
_TEXT_AFTER_SLASH = re.compile(rb"[<>\0][^<>\0/]*+/[^<>\0]*+>[^<]")
_TEXT_AFTER_END = re.compile(rb"(?:[<\0]/[^<>\0]*+|/)>[^<]")


def _fold_simple(body: bytes) -> bytes | None:
    r"""Fold an element of nothing but tags and texts, in which each element holds either elements or text; else return None.

    This is `_fold` for the usual document, several times as fast. `><` is written as `\0` for a moment, a character that
    XML does not have, so that what is left of `<` and `>` are the ends of texts:
    as many `>` as `<`              no text or attribute holds a `>`, so each one ends a tag
    each `<` but the first is `</`  no text stands before a child
    no `/…>` before a text          no text stands after a child; first a quick look that takes attributes' slashes for it
    """
    if (b"!" in body and b"<!" in body) or (b"?" in body and b"<?" in body) or b"xml:space" in body:
        return None
    marked = _BETWEEN_TAGS.sub(b"\0", body)
    opened = marked.count(b"<")
    if opened != marked.count(b">") or opened - 1 != marked.count(b"</"):
        return None
    if _TEXT_AFTER_SLASH.search(marked) and _TEXT_AFTER_END.search(marked):
        return None
    folded = marked.replace(b"\0", b"><")
    if b"\n" not in folded:
        return folded
    return b"<".join([_tag_and_text(piece) if b"\n" in piece else piece for piece in folded.split(b"<")])


def _tag_and_text(piece: bytes) -> bytes:
    tag, end, text = piece.partition(b">")
    return tag.replace(b"\n", b" ") + end + text.replace(b"\n", b"&#10;")


_TOKEN = re.compile(
    rb"[^<]+|</[^>]*>|<[^!?][^>\"']*(?:(?:\"[^\"]*\"|'[^']*')[^>\"']*)*>|<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>|<![^>]*>", re.DOTALL
)
# A name, and its value if it has one: an element's name is passed over at once, and not looked at from each of its bytes.
_ATTRIBUTE = re.compile(rb"([^\s=\"'<>/]++)(?:\s*+=\s*+(\"[^\"]*+\"|'[^']*+'))?")


class _Element:
    """An open element: where white space stands that may have to go, and what keeps it."""

    __slots__ = ("blanks", "keeps_blanks", "preserve")

    def __init__(self, preserve: bool) -> None:
        self.preserve = preserve
        self.keeps_blanks = preserve
        self.blanks: list[int] = []


def _fold(body: bytes, *, preserve: bool = False) -> bytes:
    """Fold any document that the parser has taken; time and memory are linear in its length. `preserve`: what elements begin with."""
    tokens: list[bytes] = _TOKEN.findall(body)
    # The outermost element stands for the document itself: its white space always goes.
    element = _Element(False)
    outer: list[_Element] = []
    for position, token in enumerate(tokens):
        kind = token[:2]
        if kind[0] != 0x3C:  # "<"
            if not token.isspace():
                element.keeps_blanks = True
            elif b"\n" in token:
                element.blanks.append(position)
        elif kind == b"</":
            _drop_blanks(element, tokens)
            element = outer.pop()
        elif kind == b"<!":
            if token.startswith(b"<![CDATA["):
                element.keeps_blanks = True
        elif kind != b"<?" and not token.endswith(b"/>"):
            inherited = element.preserve or (preserve and not outer)
            outer.append(element)
            element = _Element(_preserves(token, inherited) if b"xml:space" in token else inherited)
    _drop_blanks(element, tokens)
    return b"".join([_on_one_line(token) if b"\n" in token else token for token in tokens])


def _drop_blanks(element: _Element, tokens: list[bytes]) -> None:
    if not element.keeps_blanks:
        for position in element.blanks:
            tokens[position] = b""


def _on_one_line(token: bytes) -> bytes:
    if token.startswith(b"<![CDATA["):
        token = token[9:-3].replace(b"&", b"&amp;").replace(b"<", b"&lt;").replace(b">", b"&gt;")
    return token.replace(b"\n", b" " if token.startswith(b"<") else b"&#10;")


def _preserves(tag: bytes, inherited: bool) -> bool:
    for name, value in _ATTRIBUTE.findall(tag):
        if name == b"xml:space":
            return bool(value[1:-1] != b"default")
    return inherited
