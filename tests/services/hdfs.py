"""HDFS: a namenode and a datanode, each a process, on free loopback ports. Their jars are those that `make test-services` got."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from xml.sax.saxutils import escape

from quire.spark.java import find_java
from services.ports import free_ports

JARS = Path(sys.prefix) / "hdfs" / "jars"
PATIENCE = 120.0  # seconds until they take files
SUPERUSER = getpass.getuser()  # who starts a namenode may do anything in it
USER = "alice"  # who has a directory of her own, and no other rights
HOME = "/user/alice"

_NAMENODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
_DATANODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"
_ADMIN = "org.apache.hadoop.hdfs.tools.DFSAdmin"
_LOG = """\
log4j.rootLogger=WARN, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{HH:mm:ss} %p %c{1}: %m%n
"""


class Cluster:
    """A file system of its own; what a test does to its processes, it does by these."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.rpc, self.http = free_ports(2)
        self.netloc = f"127.0.0.1:{self.http}"
        self.url = f"webhdfs://{self.netloc}"
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        _configure(place, self.rpc, self.http)

    def start(self, which: str) -> None:
        with (self.place / f"{_short(which)}.log").open("ab") as log:
            self.running[which] = subprocess.Popen(_java(self.place, which), stdout=log, stderr=log, cwd=self.place)

    def stop(self, which: str, how: int = signal.SIGTERM) -> None:
        """End a process, by its own id."""
        process = self.running.pop(which)
        process.send_signal(how)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def admin(self, *words: str) -> str:
        """What an administrator does at a shell: `hdfs dfsadmin …`."""
        done = subprocess.run(_java(self.place, _ADMIN, *words), capture_output=True, text=True, timeout=PATIENCE, cwd=self.place)
        if done.returncode:
            raise RuntimeError(f"dfsadmin {words}: {done.stdout} {done.stderr[-2000:]}")
        return done.stdout

    def request(self, method: str, op: str, path: str, **query: str) -> None:
        """As the superuser."""
        asked = "&".join(f"{name}={value}" for name, value in {"op": op, "user.name": SUPERUSER, **query}.items())
        urllib.request.urlopen(urllib.request.Request(f"http://{self.netloc}/webhdfs/v1{path}?{asked}", method=method), timeout=30).close()

    def wait(self) -> None:
        """Until the namenode is out of safe mode and the datanode takes files."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and all(process.poll() is None for process in self.running.values()):
            try:
                address = f"http://{self.netloc}/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
                with urllib.request.urlopen(address, timeout=5) as answer:
                    (state,) = json.load(answer)["beans"]
            except (OSError, ValueError):
                state = {}
            if state.get("FSState") == "Operational" and state.get("NumLiveDataNodes") == 1:
                return
            time.sleep(0.2)
        logs = "\n".join(path.read_text("utf-8", "replace")[-1500:] for path in sorted(self.place.glob("*.log")))
        raise RuntimeError(f"HDFS did not start ({[process.poll() for process in self.running.values()]}): {logs}")


@contextmanager
def hdfs() -> Iterator[Cluster]:
    """Run HDFS with an empty directory of Alice's in it."""
    if not JARS.is_dir():
        raise RuntimeError("HDFS's jars are not there: `make test-services` gets them with Maven")
    place = Path(tempfile.mkdtemp(prefix="quire-hdfs-"))
    try:
        cluster = Cluster(place)
        made = subprocess.run(_java(place, _NAMENODE, "-format", "-nonInteractive"), capture_output=True, text=True, cwd=place)
        if made.returncode:
            raise RuntimeError(f"the namenode could not be formatted ({made.returncode}): {made.stderr[-2000:]}")
        try:
            cluster.start(_NAMENODE)
            cluster.start(_DATANODE)
            cluster.wait()
            cluster.request("PUT", "MKDIRS", HOME)
            cluster.request("PUT", "SETOWNER", HOME, owner=USER)
            yield cluster
        finally:
            for which in list(cluster.running):
                cluster.stop(which)
    finally:
        shutil.rmtree(place, ignore_errors=True)


NAMENODE, DATANODE = _NAMENODE, _DATANODE


def _short(which: str) -> str:
    return which.rpartition(".")[2].lower()


def _java(place: Path, main: str, *words: str) -> list[str]:
    # The quick compiler alone: they live for a minute.
    flags = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-Djava.io.tmpdir={place}"]
    return [os.path.join(find_java().home, "bin", "java"), *flags, "-cp", f"{place / 'conf'}:{JARS}/*", main, *words]


def _configure(place: Path, rpc: int, http: int) -> None:
    settings: Mapping[str, object] = {
        "fs.defaultFS": f"hdfs://127.0.0.1:{rpc}",
        "hadoop.tmp.dir": place / "tmp",
        "dfs.namenode.name.dir": f"file://{place}/name",
        "dfs.datanode.data.dir": f"file://{place}/data",
        "dfs.namenode.rpc-address": f"127.0.0.1:{rpc}",
        "dfs.namenode.http-address": f"127.0.0.1:{http}",
        # The datanode tells the namenode which ports it has got.
        "dfs.datanode.address": "127.0.0.1:0",
        "dfs.datanode.http.address": "127.0.0.1:0",
        "dfs.datanode.ipc.address": "127.0.0.1:0",
        "dfs.datanode.hostname": "127.0.0.1",
        "dfs.replication": 1,
        "dfs.namenode.safemode.extension": 0,
        "dfs.namenode.safemode.min.datanodes": 1,
        "dfs.namenode.edits.noeditlogchannelflush": "true",  # power cuts are not what is tested here
        "dfs.heartbeat.interval": 1,
        "dfs.ls.limit": 100,  # names a page, so that listings have many
        # A writer asks whether its last block has arrived; the first "not yet" would cost 400 ms a file.
        "dfs.client.block.write.locateFollowingBlock.initial.delay.ms": 5,
        "dfs.client.block.write.locateFollowingBlock.retries": 12,
    }
    conf = place / "conf"
    for page in ("hdfs", "datanode", "static"):  # their web pages, which nobody looks at, must have a place
        (conf / "webapps" / page).mkdir(parents=True)
    written = "".join(f"<property><name>{name}</name><value>{escape(str(value))}</value></property>\n" for name, value in settings.items())
    for name in ("core-site.xml", "hdfs-site.xml"):
        (conf / name).write_text(f"<configuration>\n{written}</configuration>\n")
    (conf / "log4j.properties").write_text(_LOG)
