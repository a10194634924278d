"""JSON and JSON lines: each record becomes one compact line, with its keys, its numbers and its strings as they were written."""

from __future__ import annotations

import re
from json import JSONDecodeError, JSONDecoder, detect_encoding
from typing import NoReturn

from quire.sources.transforms.content import BadContent

_BLANKS = b" \t\r\n"
_CONSTANT = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|(NaN|-?Infinity)')


class _NotANumberError(Exception):
    """NaN or an infinity, which Python reads but JSON does not have."""


def _refuse(name: str) -> NoReturn:
    raise _NotANumberError(name)


# Numbers are kept as text: nothing is rounded, and a long one costs no quadratic conversion.
_DECODER = JSONDecoder(parse_float=str, parse_int=str, parse_constant=_refuse)


def json(content: bytes) -> list[bytes]:
    """Return the records of one file, each as one line of UTF-8 without a newline in or after it.

    A file is one document, over as many lines as it likes, or JSON lines, one document a line; blank lines do not count.
    An array is one document, not a list of records. Only the white space outside strings is taken out: the order of keys,
    keys that stand twice, escapes and the text of numbers stay as they are. UTF-8 with or without a byte order mark, UTF-16
    and UTF-32 are read.

    Raises BadContent if the file is empty, is not valid in its encoding, is not JSON (NaN and the infinities are not), or
    nests deeper than Python's recursion limit (about 900 levels). One bad line quarantines the whole file; the reason
    names the line.
    """
    data, text = _decoded(content)
    if not text.strip(" \t\r\n"):
        raise BadContent("empty")
    if _is_one_document(text):
        return [_compact(data, _BLANKS)]
    _check_lines(text)
    return [line for line in _compact(data, b" \t\r").split(b"\n") if line]


def _decoded(content: bytes) -> tuple[bytes, str]:
    """The content in UTF-8 without a byte order mark, and the same as text."""
    encoding = detect_encoding(content[:4])
    skip = 3 if encoding == "utf-8-sig" else 0
    encoding = "utf-8" if skip else encoding
    try:
        text = content[skip:].decode(encoding)
    except UnicodeDecodeError as error:
        raise BadContent(f"encoding: not valid {encoding.upper()} (byte offset {error.start + skip})") from None
    if encoding == "utf-8":
        return (content[skip:] if skip else content), text
    return text.encode(), text


def _is_one_document(text: str) -> bool:
    """True for one document, False where the file can only be JSON lines; BadContent where it is neither."""
    start = len(text) - len(text.lstrip(" \t\r\n"))
    end = len(text.rstrip(" \t\r\n"))
    try:
        _, stop = _DECODER.raw_decode(text, start)
    except JSONDecodeError as error:
        if "\n" in text[start : error.pos] and _second_line_stands_alone(text[start:end]):
            return False
        raise _malformed(error, error.lineno) from None
    except _NotANumberError as error:
        raise _not_a_number(text, error) from None
    except RecursionError:
        raise BadContent(f"nesting: more levels than can be read ({_place(text, start)})") from None
    if stop == end:
        return True
    if "\n" in text[start:stop]:
        raise BadContent(f"malformed JSON: a second document, and the first is not on one line ({_place(text, stop)})")
    return False


def _second_line_stands_alone(text: str) -> bool:
    """Whether the second line is a record by itself, so that the error is the first line's own."""
    second = next((line for line in text.split("\n")[1:] if line.strip()), "").strip(" \t\r")
    if second[:1] not in ("{", "["):
        return False
    try:
        return _DECODER.raw_decode(second)[1] == len(second)
    except (JSONDecodeError, _NotANumberError, RecursionError):
        return False


def _check_lines(text: str) -> None:
    """Raise BadContent for the first line that is not one document."""
    decode = _DECODER.raw_decode
    for number, whole in enumerate(text.split("\n"), 1):
        line = whole.strip(" \t\r")
        if not line:
            continue
        try:
            _, stop = decode(line)
            if stop != len(line):
                raise JSONDecodeError("Extra data", line, len(line) - len(line[stop:].lstrip(" \t\r")))
        except JSONDecodeError as error:
            raise _malformed(error, number, len(whole) - len(whole.lstrip(" \t\r"))) from None
        except _NotANumberError as error:
            raise _not_a_number(whole, error, number) from None
        except RecursionError:
            raise BadContent(f"nesting: more levels than can be read (line {number})") from None


def _malformed(error: JSONDecodeError, line: int, shift: int = 0) -> BadContent:
    return BadContent(f"malformed JSON: {error.msg} (line {line}, column {error.colno + shift})")


def _not_a_number(text: str, error: _NotANumberError, line: int | None = None) -> BadContent:
    position = next((match.start(1) for match in _CONSTANT.finditer(text) if match.group(1)), 0)
    place = _place(text, position) if line is None else f"line {line}, column {position + 1}"
    return BadContent(f"malformed JSON: {error} is not a JSON number ({place})")


def _place(text: str, position: int) -> str:
    position += len(text[position:]) - len(text[position:].lstrip(" \t\r\n"))
    return f"line {text.count(chr(10), 0, position) + 1}, column {position - text.rfind(chr(10), 0, position)}"


def _compact(data: bytes, blanks: bytes) -> bytes:
    """Take `blanks` out of valid JSON except from its strings.

    Splitting at the quotes gives what is outside and inside strings by turns; escaped quotes and backslashes are hidden
    behind control characters, which valid JSON has nowhere.
    """
    escapes = b"\\" in data
    hidden = data.replace(b"\\\\", b"\x00").replace(b'\\"', b"\x01") if escapes else data
    parts = hidden.split(b'"')
    parts[::2] = b'"'.join(parts[::2]).translate(None, blanks).split(b'"')
    compact = b'"'.join(parts)
    return compact.replace(b"\x01", b'\\"').replace(b"\x00", b"\\\\") if escapes else compact
