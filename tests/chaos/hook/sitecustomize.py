"""Python imports this at its start, because it lies in PYTHONPATH: in drivers, and in Spark's Python workers.

An audit hook sees each system call about files, and each request to a store, just before it is made, and quire knows nothing of
it. It writes down the last one (a file in CHAOS_HOOK that outlives the process), and stops the process by SIGSTOP at the one that
an order names. What happens to the stopped process (SIGKILL, SIGCONT) is decided outside, by the test.
"""

import contextlib
import json
import mmap
import os
import re
import signal
import sys
import threading
import urllib.parse

# event → which argument is the path that it is about
EVENTS = {
    "open": 0, "os.link": 1, "os.mkdir": 0, "os.remove": 0, "os.rename": 1, "os.rmdir": 0, "os.scandir": 0, "shutil.rmtree": 0,
}  # fmt: skip
REQUEST = re.compile(rb"(GET|HEAD|PUT|POST|DELETE) (\S+) HTTP/1\.1\r\n")
OF_PARTS = ("partNumber", "uploads", "uploadId")  # in queries of S3
LENGTH = 512


class Hook:
    """What the hook of one process knows."""

    def __init__(self, folder, source, dest):
        self.folder, self.roots = folder, (("S", source), ("D", dest))
        self.role = "worker" if "pyspark.daemon" in sys.orig_argv or "pyspark.worker" in sys.orig_argv else "driver"
        self.pid = self.seen = self.matched = 0
        self.trace = None
        self.stamp, self.order, self.due = None, None, ""
        self.local = threading.local()

    def __call__(self, event, args):
        at = EVENTS.get(event)
        sends = event == "http.client.send"
        if (at is None and not sends) or getattr(self.local, "busy", False):
            return
        self.local.busy = True
        try:
            text = self.request(args[1]) if sends else self.subject(event, args, at)
            if text is not None:
                with contextlib.suppress(OSError):
                    self.look(text)
        finally:
            self.local.busy = False

    def subject(self, event, args, at):
        """Such as `os.rename D/part-…`; None: it is about no file of ours."""
        path = args[at]
        if event == "shutil.rmtree" and args[1] is not None:  # a name in a directory that is open
            path = os.path.join(os.readlink(f"/proc/self/fd/{args[1]}"), path)
        if not isinstance(path, str):
            return None
        for name, root in self.roots:
            if path.startswith(root) and path[len(root) : len(root) + 1] in ("", "/"):
                below = path[len(root) :].replace("/.hoodie/_quire", "/_quire", 1)  # of a table, by the names that all know
                return f"{event} {name}{below}" + (kind(args[0]) if event == "os.link" else "")
        # Within a tree that is being removed, names are relative.
        return f"{event} {path}" if event in ("os.remove", "os.rmdir") and not path.startswith("/") else None

    def request(self, data):
        """Such as `PUT D/_quire/log/… block`, or `body of PUT D/_quire/log/… commit`; None: it is about nothing of ours."""
        if not isinstance(data, bytes):
            return None
        found = REQUEST.match(data)
        if found is None:
            told = re.search(rb'"kind": ?"(\w+)"', data[:200])
            self.local.kind = told[1].decode() if told else ""
            return f"body of {self.local.asked} {self.local.kind}".strip() if getattr(self.local, "asked", None) else None
        target = urllib.parse.urlsplit(found[2].decode())
        query = {k: v[0] for k, v in urllib.parse.parse_qs(target.query, keep_blank_values=True).items()}
        what = query.get("comp") or query.get("op") or next((name for name in OF_PARTS if name in query), "")
        path = query.get("destination") or f"{urllib.parse.unquote(target.path).rstrip('/')}/{query.get('prefix', '')}".rstrip("/")
        self.local.asked = None
        for name, root in self.roots:
            if root in path:
                self.local.asked = f"{found[1].decode()} {name}{path.partition(root)[2]} {what}".strip()
                # HDFS renames what it has got before.
                return f"{self.local.asked} {getattr(self.local, 'kind', '')}".strip() if what == "RENAME" else self.local.asked
        return None

    def look(self, text):
        if self.pid != os.getpid():  # a worker is a fork of Spark's daemon
            self.pid, self.seen = os.getpid(), 0
            fd = os.open(f"{self.folder}/trace-{self.pid}", os.O_CREAT | os.O_RDWR, 0o600)
            os.ftruncate(fd, LENGTH)
            self.trace = mmap.mmap(fd, LENGTH)
            os.close(fd)
        self.seen += 1
        if (self.due and not text.startswith(f"body of {self.due}")) or self.ordered(text):
            self.due = ""
            self.stop(text)
        if not re.match(r"(open|os.remove) D/_quire/tmp/|open D(/[^.]*)?$", text):
            self.write(text)

    def write(self, text):
        self.trace[:] = f"{self.seen} {text}".encode(errors="replace")[:LENGTH].ljust(LENGTH)

    def ordered(self, text):
        """Whether an order says to stop here."""
        try:
            status = os.stat(f"{self.folder}/order")
        except FileNotFoundError:
            self.order = self.stamp = None
            return False
        if (status.st_ino, status.st_mtime_ns) != self.stamp:
            with open(f"{self.folder}/order") as file:
                self.order = json.load(file)
            self.stamp, self.matched = (status.st_ino, status.st_mtime_ns), 0
        order = self.order
        if order["role"] not in (self.role, "any") or not re.search(order["match"], text):
            return False
        self.matched += 1
        if self.matched != order["skip"] + 1:
            return False
        if order["after"]:
            self.due = text  # at the next call, or after the body of this request: this one is made by then
            return False
        return True

    def stop(self, text):
        try:
            fd = os.open(f"{self.folder}/stopped-{self.order['id']}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except FileExistsError:
            return  # another worker was the first
        self.write(text)
        os.write(fd, f"{os.getpid()} {text}\n".encode(errors="replace"))
        os.close(fd)
        os.kill(os.getpid(), signal.SIGSTOP)


def kind(temporary):
    """What sort of entry is put into the log."""
    with contextlib.suppress(OSError):
        fd = os.open(temporary, os.O_RDONLY)
        found = re.search(rb'"kind": ?"(\w+)"', os.read(fd, 200))
        os.close(fd)
        return f" {found[1].decode()}" if found else ""
    return ""


def install():
    if os.environ.get("CHAOS_PARENT") == str(os.getppid()):
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # if the test is killed itself, so is its driver
    hook = Hook(*(os.environ[f"CHAOS_{name}"] for name in ("HOOK", "SOURCE", "DEST")))
    sys.addaudithook(hook)


if "CHAOS_HOOK" in os.environ:
    install()
