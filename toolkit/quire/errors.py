"""The errors that a user of quire meets, and the rules for what may stand in them.

    QuireError                exit 3   failed; the next run goes on
    ├── UsageError            exit 2   a wrong argument, or a source and destination that do not fit
    │   └── RefusedError      exit 2   right words, but doing it would lose, hide or mix data
    ├── TooManyQuarantined    exit 1   more were to be quarantined than max_quarantined allows; nothing was committed
    ├── AllQuarantined        exit 4   nothing of the input could be processed: all of it is quarantined, which is committed
    ├── DataLossError         exit 2   records were removed at their source before they were read; nothing was committed
    ├── FormatError           exit 2   an object below _quire/ is damaged, hostile, or of a newer quire
    └── StorageError          exit 3   the store could not do it (permission, space, network)
        ├── NotFoundError     exit 3   the object is not there
        └── TransientError    exit 3   it may go well next time (busy, time-out, connection lost): it was tried for a minute

    Interrupted               exit 130 a KeyboardInterrupt that came while quire was at work

A message says what was wrong, where, and what to do, in one line; a notebook shows this line alone, and the frames by `%tb`. No secret is
ever in it: `scrub` takes them out of any text that comes from elsewhere.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar


class _OneLine(BaseException):
    """In a notebook it is one line; who asks once more, by `%tb`, is shown the frames."""

    _told = False

    def _render_traceback_(self) -> list[str]:
        """IPython's view of it, instead of its own traceback."""
        from IPython.core.getipython import get_ipython

        shell: Any = get_ipython()
        if shell is None:
            return [f"{type(self).__name__}: {self}"]
        if self._told:
            frames: list[str] = shell.InteractiveTB.structured_traceback(type(self), self, self.__traceback__, tb_offset=1)
            return frames
        self._told = True
        return ["".join(shell.InteractiveTB.get_exception_only(type(self), self)).rstrip() + " (%tb shows where)"]


class QuireError(_OneLine, Exception):
    """The base of every error of quire; `exit_code` is the shell's.

        try:
            quire.consolidate("/data/in", "/data/out", max_quarantined=10)
        except quire.UsageError as e:           # a wrong argument: change e.argument
            ...
        except quire.RefusedError:              # data would be lost, hidden or mixed: choose another destination
            ...
        except quire.AllQuarantined as e:       # nothing could be processed: look at e.report
            ...
        except quire.TooManyQuarantined:        # nothing was committed: repair the files, or allow more
            ...
        except quire.DataLossError:             # records are gone at their source: on_data_loss="record" goes on
            ...
        except quire.FormatError:               # an object of quire's is damaged: the message says which
            ...
        except quire.NotFoundError:             # the object is not there
            ...
        except (quire.TransientError, quire.StorageError):    # call again
            ...
        except quire.QuireError:                # the next run goes on
            ...

    A message says what was wrong, where, and what to do; it holds no secret.
    """

    exit_code: ClassVar[int] = 3

    def __init__(self, *args: object) -> None:
        super().__init__(*(printable(hide(arg)) if isinstance(arg, str) else arg for arg in args))


class UsageError(QuireError, ValueError):
    """A wrong argument: nothing was read or written. `argument` names it where that is known, `option` the option of a store.

    `missing`: a source is not there, as its name is a slip, or its disk is not mounted yet.
    """

    exit_code = 2
    argument: str | None = None
    option: str | None = None
    missing = False


class RefusedError(UsageError):
    """Understood, but refused because data would be lost, hidden or mixed.

    `last_copies`: paths of purged files, where it would have deleted the last copy of these; of very many, the first.
    """

    last_copies: tuple[str, ...] = ()


class TooManyQuarantined(QuireError):
    """More was to be quarantined than `max_quarantined` allows; nothing was committed."""

    exit_code = 1


class AllQuarantined(QuireError):
    """Nothing of the input could be processed: all of it is quarantined, with the reasons, and that is committed.

    `report` is what the call would have returned. A call that gives `max_quarantined` allows it, and returns the report.
    """

    exit_code = 4

    def __init__(self, *args: object, report: Any = None) -> None:
        super().__init__(*args)
        self.report = report


class TopicsFailed(QuireError):
    """Some topics of a call that have a destination each could not be loaded, or all; the others were.

    `report` is what the call would have returned, with why each has failed. The exit code is 3, where another try may help, else that of
    the first topic that has failed.

        try:
            quire.load("kafka://host:9092/orders,users", "/data/{topic}")
        except quire.TopicsFailed as e:
            for topic, why in e.report.errors.items():
                print(topic, why)
    """

    def __init__(self, *args: object, report: Any = None, exit_code: int = QuireError.exit_code) -> None:
        super().__init__(*args)
        self.report = report
        self.exit_code = exit_code  # type: ignore[misc]  # of what has failed, not of the kind


class DataLossError(QuireError):
    """Records that were to be read are gone at their source, by its retention; nothing was committed, and no other try brings them back."""

    exit_code = 2


class FormatError(QuireError):
    """An object of quire's own is damaged, hostile, or written by a newer quire."""

    exit_code = 2


class StorageError(QuireError):
    """The store refused or failed; what was committed before stays."""


class NotFoundError(StorageError):
    """The object is not there."""


class TransientError(StorageError):
    """The store did not answer, or asked to come again: whether a change happened is not known. `wait`: seconds it asked for."""

    tried = False  # for as long as patience lasts: nobody is to begin that again

    def __init__(self, *args: object, wait: float = 0.0) -> None:
        super().__init__(*args)
        self.wait = wait


class Interrupted(_OneLine, KeyboardInterrupt):
    """Ctrl-C, or ■ in a notebook, while quire was at work."""

    exit_code: ClassVar[int] = 130

    def __init__(self, text: str = "what was committed is safe, and the same call goes on with the rest") -> None:
        super().__init__(text)


def choose(value: object, allowed: Iterable[str], what: str, more: str = "") -> str:
    """Return `value` if it is one of `allowed`, else raise UsageError that names the nearest one; `more` is said at its end."""
    names = list(allowed)
    if isinstance(value, str) and value in names:
        return value
    near = difflib.get_close_matches(str(value), names, n=1, cutoff=0.4)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    with about(what):
        raise UsageError(f"unknown {what} {quoted(value)}: it is one of {', '.join(names)}.{hint}{more}")


@contextmanager
def about(argument: str) -> Iterator[None]:
    """A UsageError from here on is about this argument, so that a form can say it beside its field."""
    try:
        yield
    except UsageError as e:
        e.argument = argument  # the outermost knows it best: to one who parses a URL it is a scheme, to the user it is the source
        raise


def printable(text: str) -> str:
    """Text as one line, whatever names stand in it: line breaks, control and invisible characters as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


_NAMED = (
    r"(?:(?:(?<![a-z])|(?<=%3f))(?:sig|sas|pass|kms)|signature|token|delegation|secret|password|passwd|passphrase|pwd|credentials?"
    r"|(?:access|account|shared|api|private|storage|secret|encryption|customer|master|signing)[_.-]?(?:access)?[_.-]?key)"
)
# The name of an option: whatever stands before the word, and what is joined to it behind, as an account in fs.azure.account.key.name.
_WORDS = rf"{_NAMED}(?:[._-][\w.-]*)?['\"]?\s*(?:[=:]|%3d)\s*"
_AZURE = "|".join(rf"(?<={scheme}://)" for scheme in ("abfs", "abfss", "wasb", "wasbs"))
_QUOTED_AZURE = _AZURE.replace("://", "%3a%2f%2f")
_KEYS = ("key", "token", "secret", "pass", "pwd", "sig", "sas", "kms", "credential", "delegation")
_DOTTED = str.maketrans("İı", "ii")
# Each pattern with the words of which a text has one, in any case, where the pattern has something to hide: nearly no text has one.
_SECRETS = (
    # user:password@ or token@ in a URL; what stands there in a URL of Azure storage is a container, if it looks like one
    (("@",), re.compile(rf"(?<=://)(?!(?:{_AZURE})[a-z0-9$-]{{1,63}}@)[^/\s]*@"), "***@"),
    # The same within a URL that is quoted in another one
    (("%40",), re.compile(rf"(?<=%3a%2f%2f)(?!(?:{_QUOTED_AZURE})[a-z0-9$-]{{1,63}}%40)(?:(?!%2f)[^/\s])*%40", re.IGNORECASE), "***%40"),
    (("private key",), re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)", re.DOTALL), "***"),
    # Options that hold others, and headers that say who asks: all that follows is theirs.
    (("sasl.",), re.compile(r"(sasl\.(?:oauthbearer|jaas)[\w.]*['\"]?\s*[=:]\s*)(?!\*\*\*)[^\r\n]+", re.IGNORECASE), r"\1***"),
    (
        ("bearer", "basic", "digest", "negotiate", "sharedkey"),
        re.compile(r"\b(bearer|basic|digest|negotiate|sharedkey|sharedkeylite)\s+[A-Za-z0-9+/.:_~=-]{8,}", re.IGNORECASE), r"\1 ***",
    ),
    # SAS signatures, tokens and keys as query parameters or options
    (_KEYS, re.compile(rf"({_WORDS})(['\"])(?:(?!\2)[^\\]|\\.)*(?:\2|$)", re.IGNORECASE), r"\1\2***\2"),
    (_KEYS, re.compile(rf"({_WORDS})[^\s&;,'\"}}]+", re.IGNORECASE), r"\1***"),
    # Variables of an environment as a listing shows them, with a blank between name and value.
    (_KEYS, re.compile(r"\b((?:[A-Z0-9]+_)+(?:KEY|SECRET|TOKEN|PASSWORD|PASSPHRASE)|(?i:api[_-]?key))[ \t]+[^\s=:]\S{5,}"), r"\1 ***"),
)  # fmt: skip


def hide(text: str) -> str:
    """The text without anything that looks like a secret."""
    folded = text.translate(_DOTTED).casefold()  # as the patterns compare: also the long s, the sign of kelvin, an i with or without a dot
    for words, pattern, replacement in _SECRETS:
        if any(word in folded for word in words):
            text = pattern.sub(replacement, text)
    return text


def scrub(text: str, limit: int = 300) -> str:
    """One line of at most `limit` characters without control characters and without anything that looks like a secret."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    line = hide(line)
    return line if len(line) <= limit else line[: limit - 1] + "…"


def encodable(text: str) -> bool:
    """Whether a text can be stored: it holds no half of a character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def quoted(value: object, limit: int = 300) -> str:
    """A wrong argument as it may be repeated: of what holds other things, which may be secrets, the type alone."""
    simple = value is None or isinstance(value, str | bytes | int | float | os.PathLike)
    return scrub(repr(value), limit) if simple else f"a {type(value).__name__}"
