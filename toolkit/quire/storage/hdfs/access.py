"""Access to HDFS by WebHDFS: its URLs, and the options that reach a namenode.

Options have the names that fsspec's `webhdfs` gave them, so that one dictionary serves both: `user`, `token` (a delegation token, by
which one comes into a cluster with Kerberos), `password` (a gateway's, with `user`), `proxy_to`, `use_https`, `session_verify`,
`session_cert`, `data_proxy`; `timeout`, the seconds without a byte; and `namenodes`, those of a name service, as in
`{"cluster": ["nn1:9870", "nn2:9870"]}`: each of these hosts in a URL then means the service, whichever of its namenodes is active.
Where there is neither user nor token, the variable HADOOP_USER_NAME names the user, as for Hadoop's own programs; without it the namenode
decides who one is.
"""

from __future__ import annotations

import base64
import os
import re
import ssl
from collections.abc import Callable, Mapping
from typing import Any

from quire.errors import UsageError, scrub
from quire.storage.http import trusted
from quire.storage.options import names, spelled, text

PORT = 9870  # of a namenode's web server, unless it is set otherwise
SILENCE = 60.0  # seconds without a byte

_HOST = re.compile(r"([A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9._-]*[A-Za-z0-9]|\[[0-9A-Fa-f:.]+\])(?::(\d{1,5}))?")
_NAMES = (
    "user", "token", "password", "proxy_to", "use_https", "session_verify", "session_cert", "data_proxy", "kerberos", "kerb_kwargs",
    "timeout", "namenodes",
)  # fmt: skip


# ------------------------------------------------------------------------------------------------------------------------- URLs
def normalise(scheme: str, rest: str) -> str:
    """One URL for one place, from what follows `scheme:` → `webhdfs://host:port/path`. Raises UsageError."""
    where, _, path = rest.removeprefix("//").partition("/")
    said = scrub(f"{scheme}:{rest}", 200)
    if "@" in where:
        raise UsageError(f"{said!r} carries who you are: a URL is written into plans and reports. Give it as the option user.")
    match = _HOST.fullmatch(where)
    if not rest.startswith("//") or not match or not 0 < int(match[2] or PORT) < 65536:
        raise UsageError(f"{said!r} names no namenode. Write webhdfs://host:{PORT}/path, with the port of the namenode's web page.")
    if re.search(r"[?&](?:delegation|user\.name|op)=", path):
        raise UsageError(f"{said.partition('?')[0]!r} is a request, not a place. Write webhdfs://host:{PORT}/path.")
    parts = names(said, path)
    if any(":" in name for name in parts):
        raise UsageError(f"{said!r} has a ':' in its path, which no name in HDFS holds. Check the spelling.")
    return "/".join([f"webhdfs://{match[1].lower()}:{int(match[2] or PORT)}", *parts])


def canonical(url: str, options: Mapping[str, object] | None) -> str:
    """A normalised URL by its name service, where the options say which one the host belongs to: who is active may change."""
    netloc, path = parts(url)
    found = next((service for service, hosts in _services(options).items() if netloc in (service, *hosts)), netloc)
    return f"webhdfs://{found}{path}"


def _services(options: Mapping[str, object] | None) -> dict[str, tuple[str, ...]]:
    """The option `namenodes`: each name service as a URL names it, and the addresses of its namenodes. Raises UsageError."""
    given = (options or {}).get("namenodes")
    if given is None:
        return {}
    try:
        if isinstance(given, Mapping) and all(isinstance(hosts, list | tuple) and hosts for hosts in given.values()):
            return {_netloc(service): tuple(map(_netloc, hosts)) for service, hosts in given.items()}
    except (TypeError, UsageError):
        pass
    raise UsageError("the option namenodes is a dictionary of name services and their hosts: {'cluster': ['nn1:9870', 'nn2:9870']}.")


def _netloc(host: str) -> str:
    if not _HOST.fullmatch(host):
        raise TypeError
    return parts(normalise("webhdfs", f"//{host}"))[0]


def parts(url: str) -> tuple[str, str]:
    """A normalised URL → host with port, absolute path (without a slash at its end, so empty for the root)."""
    where, slash, path = url.removeprefix("webhdfs://").partition("/")
    return where, slash + path


# ---------------------------------------------------------------------------------------------------------------------- options
class Access:
    """A namenode, and who asks it."""

    def __init__(self, netloc: str, options: Mapping[str, Any]) -> None:
        given = {name: value for name, value in options.items() if value is not None}
        spelled(given, _NAMES, "HDFS")
        if given.get("kerberos") or given.get("kerb_kwargs"):
            raise UsageError(
                "quire does not sign in by Kerberos itself. Get a delegation token (hdfs fetchdt --webservice http://namenode file), "
                "and give it as the option token."
            )
        said = {name: text(given, name) for name in ("user", "token", "password", "proxy_to")}
        if said["token"] and (said["user"] or said["proxy_to"]):
            raise UsageError("a delegation token says who asks. Give the option token without user and proxy_to.")
        self.namenodes = _services(given).get(netloc, (netloc,))
        self.netloc, self.secure = self.namenodes[0], bool(given.get("use_https"))
        self._unknown = set[str]()  # namenodes that DNS did not know when they were asked last
        self.query: dict[str, str] = {}
        self.headers = {"User-Agent": "quire"}  # for the namenode; what it sends us on to gets them on the same host alone
        user = said["user"] or ("" if said["token"] else os.environ.get("HADOOP_USER_NAME", ""))
        if said["password"]:
            if not self.secure:
                raise UsageError("a password is not sent over plain http: anybody could read it. Give use_https=True, or leave it out.")
            if not said["user"]:
                raise UsageError("a password needs the option user beside it.")
            self.headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:{said['password']}".encode()).decode()
        elif user:
            self.query["user.name"] = user
        if said["token"]:
            self.query["delegation"] = said["token"]
        if said["proxy_to"]:
            self.query["doas"] = said["proxy_to"]
        self.user = said["proxy_to"] or user
        self.timeout = _seconds(given.get("timeout", SILENCE))
        self.moved: Callable[[str], str] = _moves(given.get("data_proxy"))
        self._verify, self._cert = given.get("session_verify", True), given.get("session_cert")
        self._trust: ssl.SSLContext | None = None

    def __repr__(self) -> str:
        return f"Access({self.netloc!r})"

    def turn(self, failed: str, unknown: bool = False) -> bool:
        """Ask the next namenode from now on, where this one has failed and there are others: whether it is worth another try.

        It is not where DNS knows none of them (`unknown`: not this one): the names are misspelt.
        """
        if len(self.namenodes) < 2 or failed not in self.namenodes:
            return False
        (self._unknown.add if unknown else self._unknown.discard)(failed)
        if failed == self.netloc:  # else another thread has turned
            self.netloc = self.namenodes[(self.namenodes.index(failed) + 1) % len(self.namenodes)]
        return len(self._unknown) < len(self.namenodes)

    def heard(self) -> None:
        """A namenode has answered: which ones were unknown before is of no account, for names come and go with their machines."""
        self._unknown.clear()

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names of all namenodes, without ports."""
        return tuple(dict.fromkeys(netloc.rpartition(":")[0] for netloc in self.namenodes))

    @property
    def base(self) -> str:
        """The part of a URL before the path."""
        return f"{'https' if self.secure else 'http'}://{self.netloc}/webhdfs/v1"

    def trust(self) -> ssl.SSLContext:
        """The trusted certificates, and our own."""
        if self._verify is True and not self._cert:
            return trusted()
        if self._trust is None:
            try:
                made = ssl.create_default_context(cafile=self._verify if isinstance(self._verify, str) else None)
                if self._verify is False:
                    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
                if self._cert:
                    made.load_cert_chain(*([self._cert] if isinstance(self._cert, str) else self._cert))
            except (OSError, TypeError) as e:
                raise UsageError(f"session_verify and session_cert name files of certificates: {scrub(str(e), 150)}.") from None
            self._trust = made
        return self._trust


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 86400:
        raise UsageError(f"the option timeout of HDFS is a number of seconds, not {scrub(repr(value), 80)}")
    return float(value)


def _moves(given: object) -> Callable[[str], str]:
    """`data_proxy`: where a datanode is really reached, where the cluster calls it by a name that is known inside alone."""
    if given is None or callable(given):
        return given or (lambda address: address)
    if not isinstance(given, Mapping) or not all(isinstance(x, str) for pair in given.items() for x in pair):
        raise UsageError("the option data_proxy is a dictionary of addresses, or a function of one.")
    places = dict(given)

    def moved(address: str) -> str:
        scheme, _, rest = address.partition("://")
        where, slash, path = rest.partition("/")  # the names alone: a file may be called like a host
        for name, place in places.items():
            where = where.replace(name, place, 1)
        return f"{scheme}://{where}{slash}{path}"

    return moved
