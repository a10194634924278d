"""XML into one line: what is kept, what is folded, what is refused."""

from __future__ import annotations

import contextlib
import re
import socket
import time
import tracemalloc
from pathlib import Path
from sys import modules
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from quire.sources.transforms import BadContent, xml

# The face has a function of the same name as the module.
MODULE: Any = modules["quire.sources.transforms.xml"]


def reason(content: bytes) -> str:
    with pytest.raises(BadContent) as caught:
        xml(content)
    return caught.value.reason


def parsed(content: bytes) -> Any:
    return etree.fromstring(content, etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=True))


def c14n(tree: Any) -> bytes:
    return bytes(etree.tostring(tree, method="c14n", with_comments=True))


# --- what is folded -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("<a/>", "<a/>"),
        ('<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n<a>\n  <b>x</b>\n\n  <c/>\n</a>\n', "<a><b>x</b><c/></a>"),
        ("<?xml version='1.1'?>\n<a/>", '<?xml version="1.1"?><a/>'),
        ("<a>\n</a>", "<a></a>"),
        ("<a> </a>", "<a> </a>"),
        ("<a> <b/>\n</a>", "<a> <b/></a>"),
        ("<a>x\ny</a>", "<a>x&#10;y</a>"),
        ("<a>\n x\n</a>", "<a>&#10; x&#10;</a>"),
        ("<a>x\r\ny\rz&#13;</a>", "<a>x&#10;y&#10;z&#13;</a>"),
        ("<a>&#10;</a>", "<a>&#10;</a>"),
        ("<a>&#10;\n<b/>\n</a>", "<a>&#10;&#10;<b/>&#10;</a>"),
        ("<a\n  b='1'\r\n  c=\"x\ny\"\n>\n<d\n/>\n</a\n>", "<a   b='1'   c=\"x y\" ><d /></a >"),
        ("<a b='x&#10;y &#13; &#9;'>\n</a>", "<a b='x&#10;y &#13; &#9;'></a>"),
        # the white space of an element with text of its own is text
        ("<p>See <b>x</b>\n<i>y</i></p>", "<p>See <b>x</b>&#10;<i>y</i></p>"),
        ("<p>\n<b>x</b>\n<i>y</i> z</p>", "<p>&#10;<b>x</b>&#10;<i>y</i> z</p>"),
        ("<p>\n<b/> z</p>", "<p>&#10;<b/> z</p>"),
        ("<p>\n<b>x</b>></p>", "<p>&#10;<b>x</b>></p>"),
        ("<q>\n<p>x<b/></p>\n</q>", "<q><p>x<b/></p></q>"),
        ("<a>x >\n<b/></a>", "<a>x >&#10;<b/></a>"),
        ("<a b='>'>\n<c/>\n</a>", "<a b='>'><c/></a>"),
        ('<a b="/">\n<c d="x/y">z/</c>\n</a>', '<a b="/"><c d="x/y">z/</c></a>'),
        # xml:space
        ("<a xml:space='preserve'>\n<b>\n</b>\n</a>", "<a xml:space='preserve'>&#10;<b>&#10;</b>&#10;</a>"),
        (
            "<a xml:space='preserve'><b xml:space = 'default'>\n<c/></b>\n</a>",
            "<a xml:space='preserve'><b xml:space = 'default'><c/></b>&#10;</a>",
        ),
        ("<a b=\" xml:space='preserve'\">\n<b/></a>", "<a b=\" xml:space='preserve'\"><b/></a>"),
        ("<a>\n<b xml:space='preserve'/>\n</a>", "<a><b xml:space='preserve'/></a>"),
        # CDATA, comments, instructions
        ("<a><![CDATA[x<y]]></a>", "<a><![CDATA[x<y]]></a>"),
        ("<a>\n<![CDATA[x]]>\n</a>", "<a>&#10;<![CDATA[x]]>&#10;</a>"),
        ("<a><![CDATA[x<\n&]>]]>]</a>", "<a>x&lt;&#10;&amp;]&gt;]</a>"),
        ("<a>]]<![CDATA[\n>]]></a>", "<a>]]&#10;&gt;</a>"),
        ("<a><![CDATA[<\n]]><b/>\n</a>", "<a>&lt;&#10;<b/>&#10;</a>"),
        ("<a>\n<!-- x\r\ny > <z> -->\n<b/></a>", "<a><!-- x y > <z> --><b/></a>"),
        ("<a>\n<?p x\n> <z ?>\n</a>", "<a><?p x > <z ?></a>"),
        ("<!-- a\n-->\n<?p\nq?>\n<!DOCTYPE\na >\n<a>\n<b/></a>\n<!-- c\n-->\n", "<!-- a --><?p q?><!DOCTYPE a ><a><b/></a><!-- c -->"),
        ("<!-- a\n-->\n<a>\n<b/></a>", "<!-- a --><a><b/></a>"),
        ("<!DOCTYPE html>\n<html>\n</html>", "<!DOCTYPE html><html></html>"),
        ("<a>\u2028\u0085\n\u2028</a>", "<a>\u2028\u0085&#10;\u2028</a>"),
        ("<u:a>\n<b/></u:a>", "<u:a><b/></u:a>"),
    ],
)
def test_one_line(content: str, expected: str) -> None:
    assert xml(content.encode()).decode() == expected
    assert xml(expected.encode()).decode() == expected


# --- encodings ------------------------------------------------------------------------------------------------------------

TEXT = '<?xml version="1.0" encoding="{}"?>\n<a>\n<b c="{}">{}</b></a>'


@pytest.mark.parametrize(
    ("declared", "codec", "letters"),
    [
        ("UTF-8", "utf-8", "é€𝄞"),
        ("utf-8", "utf-8-sig", "é€𝄞"),
        ("utf8", "utf-8", "é"),
        ("UTF-16", "utf-16", "é€𝄞"),
        ("utf-16le", "utf-16-le", "é€"),
        ("UTF-16", "utf-16-be", "é€"),
        ("UTF-32", "utf-32", "é€𝄞"),
        ("ISO-8859-1", "latin-1", "éß"),
        ("iso-8859-15", "iso-8859-15", "é€"),
        ("windows-1252", "cp1252", "é€“"),
        ("US-ASCII", "ascii", "e"),
        ("Shift_JIS", "shift_jis", "日本ソ"),
        ("EUC-JP", "euc_jp", "日本"),
        ("GB18030", "gb18030", "中€"),
        ("Big5", "big5", "中文"),
        ("KOI8-R", "koi8-r", "привет"),
    ],
)
def test_the_declared_encoding_is_honoured(declared: str, codec: str, letters: str) -> None:
    assert xml(TEXT.format(declared, letters, letters).encode(codec)).decode() == f'<a><b c="{letters}">{letters}</b></a>'


@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "utf-16"])
def test_without_a_declaration(codec: str) -> None:
    assert xml("<a>é</a>\n".encode(codec)).decode() == "<a>é</a>"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (TEXT.format("klingon-1", "", "").encode(), "encoding: unknown encoding 'klingon-1' (line 1)"),
        (TEXT.format("zlib", "", "").encode(), "encoding: unknown encoding 'zlib' (line 1)"),
        (TEXT.format("unicode_escape", "", "").encode(), "encoding: unknown encoding 'unicode_escape' (line 1)"),
        (TEXT.format("UTF-7", "", "").encode(), "encoding: unknown encoding 'UTF-7' (line 1)"),
        (TEXT.format("../../x", "", "").encode(), "encoding: unknown encoding '../../x' (line 1)"),
        (TEXT.format("é", "", "").encode(), None),
        (TEXT.format("UTF-16", "", "").encode(), None),
        (TEXT.format("cp037", "", "").encode(), "encoding: declared as cp037, but it is not (byte offset 0)"),
        (
            TEXT.format("ISO-8859-1", "", "").encode("utf-8-sig"),
            "encoding: declared as ISO-8859-1, but the first bytes are UTF-8's (byte offset 0)",
        ),
        (TEXT.format("UTF-8", "", "").encode("utf-16"), "encoding: declared as UTF-8, but the first bytes are UTF-16-LE's (byte offset 0)"),
        (TEXT.format("UTF-16BE", "", "").encode("utf-16"), None),
        (TEXT.format("UTF-8", "", "é").encode("latin-1"), "encoding: not valid UTF-8 (byte offset 51)"),
        (TEXT.format("US-ASCII", "", "é").encode(), "encoding: not valid ASCII (byte offset 54)"),
        (b"<a>\xed\xa0\x80</a>", "encoding: not valid UTF-8 (byte offset 3)"),
        (b"<a>\xc0\xbc</a>", "encoding: not valid UTF-8 (byte offset 3)"),
        (b"\xff\xfe<\0a\0/\0>", "encoding: not valid UTF-16-LE (byte offset 8)"),
        (b"\xff\xfe\x00\xd8<\0", None),
    ],
)
def test_unknown_and_lying_encodings(content: bytes, expected: str | None) -> None:
    found = reason(content)
    assert found.startswith("encoding: ")
    assert expected is None or found == expected


# --- what is refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b" \r\n", b"\xef\xbb\xbf", b"\xff\xfe"])
def test_an_empty_document(content: bytes) -> None:
    assert reason(content) == "empty"


@pytest.mark.parametrize(
    "doctype",
    [
        "<!DOCTYPE a SYSTEM 'x.dtd'>", '<!DOCTYPE a PUBLIC "-//X//Y" "http://localhost/x.dtd">', "<!DOCTYPE a []>", "<!DOCTYPE a [ ] >",
        "<!DOCTYPE a [<!ENTITY b 'x'>]>", "<!DOCTYPE a [<!ENTITY b SYSTEM 'x'>]>", "<!DOCTYPE a [<!ENTITY % b '<!ENTITY c \"d\">'> %b;]>",
        "<!DOCTYPE a SYSTEM 'x' [<!ATTLIST a b CDATA 'c]>&amp;&#10;'> <!-- ]> ' \" --> <?p ]> ?> <!NOTATION n SYSTEM '>'>]>",
        "<!DOCTYPE a [<!ENTITY b '&c;'> <!ENTITY c '&b;'>]>",
    ],
)  # fmt: skip
def test_a_doctype_stays_on_its_line(doctype: str) -> None:
    for content, expected in (
        (f"{doctype}<a>x &amp; &#10;</a>", f"{doctype}<a>x &amp; &#10;</a>"),
        (
            f"<?xml version='1.0' standalone='yes'?>\n{doctype}\n<a>\n<b/>\n</a>\n",
            f'<?xml version="1.0" standalone="yes"?>{doctype}<a><b/></a>',
        ),
        (
            f"<?xml version='1.1'?><!-- x\n-->\r\n<?p\n?>{doctype} <!-- y\r\n--> <a>z\n</a> ",
            f'<?xml version="1.1"?><!-- x --><?p ?>{doctype} <!-- y --> <a>z&#10;</a>',
        ),
        (doctype.replace(" ", "\r\n") + "\n\n<a>&lt;\n</a>", f"{doctype}<a>&lt;&#10;</a>"),
    ):
        assert xml(content.encode()).decode() == expected, content
        assert xml(expected.encode()).decode() == expected
        if "SYSTEM" not in doctype and "%" not in doctype:
            assert c14n(parsed(expected.encode()).getroottree()), "another parser takes it, too"


def test_white_space_stays_where_the_doctype_says_so() -> None:
    doctype = "<!DOCTYPE a [<!ATTLIST b xml:space (default|preserve) 'preserve'>]>"
    content = f"{doctype}\n<a>\n<b>\n<c/></b><d xml:space='default'>\n<c/></d></a>"
    assert xml(content.encode()).decode() == f"{doctype}<a>&#10;<b>&#10;<c/></b><d xml:space='default'><c/></d></a>"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"<a>\n<b></a>", "malformed XML: mismatched tag (line 2, column 6)"),
        (b"<a>\r\n\r\n<b></a>", "malformed XML: mismatched tag (line 3, column 6)"),
        (b"<a/>x", "malformed XML: junk after document element (line 1, column 5)"),
        (b"<a/><b/>", "malformed XML: junk after document element (line 1, column 5)"),
        (b"<a", "malformed XML: unclosed token (line 1, column 1)"),
        (b"<a>", "malformed XML: no element found (line 1, column 4)"),
        (b"<a b='1' b='2'/>", "malformed XML: duplicate attribute (line 1, column 10)"),
        (b"<a>&b;</a>", "malformed XML: undefined entity (line 1, column 4)"),
        (b"<!DOCTYPE a [<!ENTITY b>]><a/>", "malformed XML: syntax error (line 1, column 24)"),
        (b"<!DOCTYPE a [<!-- ><a/>", None),
        (b"<!DOCTYPE a SYSTEM><a/>", None),
        (b"<a>\x01</a>", None),
        (b"<a>&#0;</a>", None),
        (b"<a>&#xD800;</a>", None),
        (b"<a>\xef\xbf\xbf</a>", None),
        (b"<a>]]></a>", None),
        (b"<a><!-- -- --></a>", None),
        (b"<a b='<'/>", None),
        (b" <?xml version='1.0'?><a/>", None),
        (b"text", None),
        (b"\0", None),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", None),
    ],
)
def test_what_is_not_well_formed(content: bytes, expected: str | None) -> None:
    found = reason(content)
    assert expected is None or found == expected


LAUGHS = (
    b'<!DOCTYPE lolz [<!ENTITY lol "lol">'
    + b"".join(b'<!ENTITY lol%d "%s">' % (i, (b"&lol%d;" % (i - 1) if i > 1 else b"&lol;") * 10) for i in range(1, 12))
    + b"]><lolz>&lol11;</lolz>"
)
QUADRATIC = b'<!DOCTYPE a [<!ENTITY b "' + b"x" * 200_000 + b'">]><a>' + b"&b;" * 200_000 + b"</a>"
PARAMETER = b"<!DOCTYPE a [<!ENTITY % b '<!ENTITY c \"d\">'> %b;]><a>&c;</a>"
RECURSIVE = b"<!DOCTYPE a [<!ENTITY b '&c;'><!ENTITY c '&b;'>]><a>&b;</a>"


IN_ATTRIBUTE = LAUGHS.replace(b"<lolz>&lol11;</lolz>", b"<lolz a='&lol11;'/>")
IN_DEFAULT = LAUGHS.replace(b"]><lolz>&lol11;</lolz>", b"<!ATTLIST lolz a CDATA '>&lol2;'>]><lolz/>")


@pytest.mark.parametrize(
    "content",
    [
        LAUGHS, QUADRATIC, PARAMETER, RECURSIVE, IN_ATTRIBUTE, IN_DEFAULT, b"<!DOCTYPE a><a>&b;</a>", b"<!DOCTYPE a SYSTEM 'x'><a>&b;</a>",
        b"<!DOCTYPE a SYSTEM 'x'><a b='&nbsp;'/>", b"<!DOCTYPE a SYSTEM 'x'><a><![CDATA[&b;]]><!-- &c; --><?p &d;?>&nbsp;</a>",
        b"<!DOCTYPE a [<!ENTITY amp '&#38;#38;'><!ENTITY b 'x'>]><a>&amp;&b;</a>",
    ],
)  # fmt: skip
def test_entities_are_never_expanded(content: bytes) -> None:
    tracemalloc.start()
    started = time.perf_counter()
    found = reason(content)
    seconds, peak = time.perf_counter() - started, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert re.fullmatch(r"refused XML: the entity '(b|c|nbsp|lol\d*)' is used, and none is taken .* \(line 1\)", found)
    assert seconds < 1
    assert peak < 10_000_000


def test_a_bomb_in_another_encoding() -> None:
    assert "entity 'lol11'" in reason(LAUGHS.decode().encode("utf-16"))
    assert "entity 'lol11'" in reason(
        b'<?xml version="1.0" encoding="utf-16le"?>'.decode().encode("utf-16-le") + LAUGHS.decode().encode("utf-16-le")
    )


def test_nothing_is_read_and_nothing_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise AssertionError("connected")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    secret = tmp_path / "secret.txt"
    secret.write_text("s3cr3t")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        http = f"http://127.0.0.1:{server.getsockname()[1]}/x.dtd"
        for url in (secret.as_uri(), http):
            for document in (
                f'<!DOCTYPE a [<!ENTITY b SYSTEM "{url}">]><a>&b;</a>',
                f'<!DOCTYPE a SYSTEM "{url}"><a>&b;</a>',
                f'<!DOCTYPE a [<!ENTITY % b SYSTEM "{url}"> %b;]><a>&c;</a>',
            ):
                found = reason(document.encode())
                assert found.startswith("refused XML: the entity ")
                assert "s3cr3t" not in found
            for document in (f'<!DOCTYPE a PUBLIC "-//X//Y" "{url}"><a/>', f'<!DOCTYPE a [<!ENTITY % b SYSTEM "{url}"> %b;]><a/>'):
                assert xml(document.encode()).decode() == document
        # an inclusion and a schema are mere elements and attributes
        include = f'<a xmlns:xi="http://www.w3.org/2001/XInclude"><xi:include href="{http}"/><?xml-stylesheet href="{http}"?></a>'
        assert xml(include.encode()).decode() == include
        with pytest.raises(TimeoutError):
            server.accept()


def test_attributes_are_limited() -> None:
    most = MODULE.MAX_ATTRIBUTES
    tag = b"".join(b" a%d=''" % i for i in range(most))
    assert xml(b"<a%s/>" % tag)
    assert reason(b"<x><a%s b=''/></x>" % tag).startswith("refused XML: a tag with more than 100,000 attributes (line 1, column ")


def test_depth_is_limited() -> None:
    limit = MODULE.MAX_DEPTH
    deepest = b"<a>\n" * limit + b"</a>\n" * limit
    assert xml(deepest) == b"<a>" * limit + b"</a>" * limit
    assert reason(b"<a>" + deepest + b"</a>").startswith(f"refused XML: more than {limit} levels of elements (line 1000, column ")
    started = time.perf_counter()
    assert "levels" in reason(b"<a>" * 1_000_000)
    assert time.perf_counter() - started < 2
    wide = b"<a>" + b"<b><c/></b>" * 2_000 + b"</a>"
    assert xml(wide) == wide


def test_long_tokens_are_limited_and_long_texts_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "_CHUNK", 1_000)
    monkeypatch.setattr(MODULE, "MAX_TOKEN", 8_000)
    for token in (b"<!-- %s -->", b"<?p %s?>", b'<b c="%s"/>'):
        assert "a tag, comment or instruction of more than" in reason(b"<a>" + token % (b"x" * 20_000) + b"</a>")
        short = b"<a>" + token % (b"x" * 7_000) + b"</a>"
        assert xml(short) == short
    for text in (b"x" * 50_000, b"<![CDATA[" + b"x" * 50_000 + b"]]>", b"\xc3\xa9" * 30_000, b"<b/>" * 20_000):
        document = b"<a>" + text + b"</a>"
        assert xml(document) == document


@pytest.mark.parametrize(
    "content",
    [
        b"<a>" + b"\n" * 300_000 + b"x</a>",
        b"<a>" + b">\n " * 100_000 + b"</a>",
        b"<a>" + b" \t" * 200_000 + b"\n</a>",
        b"<a>" + b"/>" * 200_000 + b"\n<b/></a>",
        b"<a><![CDATA[" + b"]\n" * 200_000 + b"]]></a>",
        b"<a>" + b"<!-->\n-->" * 50_000 + b"</a>",
        b"<a " + b"".join(b"\nb%d='>'" % i for i in range(30_000)) + b"/>",
        b"<a>" + b"\n<b c='/'>/</b>" * 30_000 + b"</a>",
    ],
)
def test_time_is_linear(content: bytes) -> None:
    started = time.perf_counter()
    with contextlib.suppress(BadContent):
        xml(content)
    assert time.perf_counter() - started < 2


# --- properties -----------------------------------------------------------------------------------------------------------

# The generator writes two documents at once: the one to fold, and one for the reference, in which what is text although it
# may look like white space is marked by characters that are not white space, so that a tree can tell them apart.
NEWLINE, RETURN, CDATA = "\ue00a", "\ue00d", "\ue001"

characters = st.sampled_from([*"ab<>&]'\"/!?-; \t\n\n\r", "\r\n", "é", "€", "𝄞", "\u2028", "\u0085", "]]>", "xml:space"])
blank = st.sampled_from(["\n", "\n  ", " ", "\r\n\t", "\r", "\n\n", ""])
gap = st.sampled_from([" ", "\n", "\r\n  ", "\t"])
loose = st.sampled_from(["", " ", "\n"])
Pair = tuple[str, str]


def both(text: str) -> Pair:
    return text, text


def join(pairs: list[Pair]) -> Pair:
    return "".join(a for a, _ in pairs), "".join(b for _, b in pairs)


def escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("]]>", "]]&gt;")


texts = st.lists(characters, min_size=1, max_size=5).map(lambda parts: both(escape("".join(parts))))
references = st.sampled_from([("&#10;", NEWLINE), ("&#xA;", NEWLINE), ("&#13;", RETURN), ("&amp;", "&amp;"), ("&#x41;", "A")])
cdata = (
    st.lists(characters, max_size=5)
    .map(lambda parts: "".join(parts).replace("]]>", ""))
    .map(lambda text: (f"<![CDATA[{text}]]>", f"{CDATA}<![CDATA[{text}]]>"))
)
words = st.lists(st.sampled_from([*"ab<>&'\" \n\r]", "é"]), max_size=5).map("".join)
comments = words.map(lambda text: both(f"<!--{text}-->"))
instructions = words.map(lambda text: both(f"<?p {text.strip()}?>"))
blanks = blank.map(both)
misc = comments | instructions


@st.composite
def attributes(draw: st.DrawFn) -> Pair:
    parts = []
    for name in draw(st.lists(st.sampled_from(["b", "c", "xml:space"]), unique=True, max_size=3)):
        quote = draw(st.sampled_from("'\""))
        if name == "xml:space":
            value = both(draw(st.sampled_from(["preserve", "default"])))
        else:
            literal = texts.map(lambda pair: both(pair[0].replace("'", "").replace('"', "")))
            value = join(draw(st.lists(literal | references, max_size=3)))
        opened = f"{draw(gap)}{name}{draw(loose)}={draw(loose)}{quote}"
        parts.append((f"{opened}{value[0]}{quote}", f"{opened}{value[1]}{quote}"))
    return join([*parts, both(draw(loose))])


@st.composite
def elements(draw: st.DrawFn, content: st.SearchStrategy[list[Pair]]) -> Pair:
    inside, outside = draw(content), draw(attributes())
    if not inside and draw(st.booleans()):
        return join([both("<x"), outside, both("/>")])
    return join([both("<x"), outside, both(">"), *inside, both(f"</x{draw(loose)}>")])


def contents(inner: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    mixed = st.lists(inner | texts | references | cdata | misc | blanks, max_size=5)
    only_elements = st.lists(inner | blanks, max_size=6)
    return elements(mixed) | elements(only_elements)


roots = st.recursive(elements(st.lists(texts, max_size=1)), contents, max_leaves=8)


DOCTYPES = (
    "<!DOCTYPE x>", "<!DOCTYPE x\nPUBLIC '-//X//Y' 'x.dtd' >", "<!DOCTYPE x [<!ATTLIST x d CDATA 'e'>\n<!-- ]>\n' --><!ENTITY f '<'>]>",
)  # fmt: skip


@st.composite
def documents(draw: st.DrawFn) -> Pair:
    around = st.lists(misc | blanks, max_size=2)
    doctype = [both(draw(st.sampled_from(DOCTYPES)))] if draw(st.integers(0, 9)) == 0 else []
    declaration = [both('<?xml version="1.0" encoding="UTF-8"?>')] if draw(st.booleans()) else []
    return join([*declaration, *draw(around), *doctype, *draw(around), draw(roots), *draw(around)])


def reference(marked: str) -> bytes:
    """The canonical form of what `xml` should give, by way of a tree."""
    root = parsed(marked.encode())
    for node in [root, *root.itersiblings(), *root.itersiblings(preceding=True), *root.iterdescendants()]:
        if not isinstance(node.tag, str):
            node.text = (node.text or "").replace("\n", " ")
    for node in root.iter("x"):
        spaces = node.xpath("ancestor-or-self::*/@xml:space")
        pieces = [node.text or "", *(child.tail or "" for child in node)]
        if (spaces and spaces[-1] == "preserve") or any(piece.strip(" \t\n") for piece in pieces):
            continue
        node.text = node.text if node.text and "\n" not in node.text else None
        for child in node:
            child.tail = child.tail if child.tail and "\n" not in child.tail else None
    canonical = c14n(root.getroottree()).decode()
    return canonical.replace(NEWLINE, "\n").replace(RETURN, "\r").replace(CDATA, "").encode()


def flat(canonical: bytes) -> bytes:
    """References are spelt differently in texts and attributes."""
    return canonical.replace(b"&#xA;", b"\n").replace(b"&#xD;", b"\r")


@settings(max_examples=300, deadline=None)
@given(documents())
def test_any_tree_keeps_its_information(document: Pair) -> None:
    content, marked = document
    folded = xml(content.encode())
    assert b"\n" not in folded
    assert b"\r" not in folded
    assert flat(c14n(parsed(folded).getroottree())) == flat(reference(marked))
    assert xml(folded) == folded


@settings(max_examples=80, deadline=None)
@given(documents(), st.sampled_from(["utf-16", "gb18030", "utf-32"]))
def test_the_encoding_does_not_matter(document: Pair, encoding: str) -> None:
    text = document[0].removeprefix('<?xml version="1.0" encoding="UTF-8"?>')
    declared = f'<?xml version="1.0" encoding="{encoding}"?>' + text
    assert xml(declared.encode(encoding)) == xml(text.encode())


@settings(max_examples=150, deadline=None)
@given(st.recursive(elements(st.lists(texts | blanks, max_size=2)), contents, max_leaves=6))
def test_both_ways_of_folding_agree(document: Pair) -> None:
    body = document[0].replace("\r\n", "\n").replace("\r", "\n").encode()
    simple = MODULE._fold_simple(body)
    assert simple is None or simple == MODULE._fold(body)


def test_the_usual_document_goes_the_fast_way() -> None:
    body = b"<a>\n  <b c=\"x/y\"\n d='1'>text\nover lines</b>\n  <b/>\n  <b>\n  </b>\n</a>"
    assert MODULE._fold_simple(body) == MODULE._fold(body) == b"<a><b c=\"x/y\"  d='1'>text&#10;over lines</b><b/><b></b></a>"


@settings(max_examples=300, deadline=None)
@given(
    st.binary(max_size=60)
    | st.lists(st.sampled_from(["<a>", "</a>", "<a", "/>", ">", "\n", "x", "<!--", "-->", "<![CDATA[", "]]>", "&#10;"]))
    .map("".join)
    .map(str.encode)
)
def test_anything_else_is_bad_content_or_really_xml(content: bytes) -> None:
    try:
        folded = xml(content)
    except BadContent:
        return
    assert b"\n" not in folded
    assert b"\r" not in folded
    parsed(folded)
