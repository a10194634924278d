"""5 KB objects in one's own region, 5 ms an answer, where the processor is the limit: quire, and whoever else copies or reads them.

    python tests/benchmarks/region.py --files 30000
    python tests/benchmarks/region.py --files 30000 --azure
    python tests/benchmarks/region.py --files 30000 --peers quire     # without the others
    python tests/benchmarks/region.py --files 30000 --tls             # by https, with a certificate of a local CA

End to end: `quire.consolidate` into a few files on local disk (list, plan, read on condition of the version, check, ledger, commit) with
a session of two cores, whose start does not count, and `rclone copy`, which writes as many files. Reading alone: `Store.read_many` as one
task does it, obstore, and s3fs or adlfs at their best, asynchronous; none of these writes or checks anything. The processor time is that
of all of a way's processes, the JVM's with it, and of none of the server's, which has its share of the same cores. obstore and s3fs are
installed beside this environment, in one of their own.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from accounts import SIZE, account
from bucketserver import ETAG as S3_ETAG
from common import (
    Result,
    Verdict,
    alternate,
    arguments,
    cpu_seconds,
    data_bytes,
    listed,
    machine,
    median,
    serving,
    session,
    table,
    workplace,
)
from objects import adlfs_gathers, quire_reads, timed, wanted
from objects_s3 import options, s3fs_gathers

DELAY, FAR = 0.005, 0.14  # seconds before an answer
PEERS = ("obstore==0.12.1", "arro3-core==0.9.1", "s3fs==2026.9.0")
WHOLE, COPY = "quire.consolidate", "rclone copy, 256 transfers"
READ, OB, FS, AWAY = "quire, one task", "obstore, 256 at once", "fsspec, asynchronous", "quire, one task at 140 ms"
SHARE = {FS: 10, OB: 2}  # of the files


def peers() -> str:
    """The Python that has the peers; they are installed if they are not there yet."""
    place = Path(sys.prefix) / "bench-region"
    done = place / "done"
    if not done.exists() or done.read_text() != " ".join(PEERS):
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
        pip = [str(place / "bin" / "python"), "-m", "pip", "install", "-q", "--no-cache-dir", "--disable-pip-version-check"]
        subprocess.run([*pip, *PEERS], check=True)
        done.write_text(" ".join(PEERS))
    return str(place / "bin" / "python")


@contextmanager
def place(azure: bool, delay: float, files: int, certificate: str = "") -> Iterator[dict[str, Any]]:
    """The server, and how to reach what it has; `certificate`: see `blobserver.serve`."""
    if azure:
        with account(files, azurite=False, delay=delay, certificate=certificate) as (string, etag):
            yield {"url": "abfs://src", "given": {"connection_string": string}, "etag": etag}
    else:
        with serving("bucketserver.py", delay=delay, size=SIZE, blobs=files, certificate=certificate) as port:
            given = options(port)
            given["endpoint_url"] = given["endpoint_url"].replace("http:", "https:" if certificate else "http:")
            yield {"url": "s3://src", "given": given, "etag": S3_ETAG, "port": port}


def certified(at: Path) -> str:
    """A directory with the certificate of 127.0.0.1, its key, and the CA that has signed it, which all ways believe from now on."""
    ec, plain = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"], {"check": True, "capture_output": True}
    (at / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    for command in (
        ["req", "-x509", *ec, "-days", "2", "-subj", "/CN=a local CA", "-keyout", "ca.key", "-out", "ca"],
        ["req", *ec, "-subj", "/CN=127.0.0.1", "-keyout", "key", "-out", "asked"],
        [
            "x509",
            "-req",
            "-in",
            "asked",
            "-CA",
            "ca",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-days",
            "2",
            "-extfile",
            "names",
            "-out",
            "cert",
        ],
    ):
        subprocess.run(["openssl", *command], cwd=at, **plain)  # type: ignore[call-overload]
    os.environ |= dict.fromkeys(("SSL_CERT_FILE", "AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "RCLONE_CA_CERT"), str(at / "ca"))
    return str(at)


def measure(way: str, job: dict[str, Any]) -> Result:
    """One way, once."""
    files, out = max(1000, job["files"] // SHARE.get(way, 1)), Path(job["out"])
    if way == WHOLE:
        return consolidated(job, files, out)
    if way == COPY:
        return copied(job, files, out)
    if way in (READ, AWAY):
        from quire.storage import bare

        store = bare(job["url"], job["given"])
        return timed(quire_reads(store, wanted(store, job["etag"], files)), files, files * SIZE)
    if way == OB:
        return timed(obstore_reads(job, files), files, files * SIZE)
    string = job["given"].get("connection_string")
    return timed(adlfs_gathers(string, files) if string else s3fs_gathers(job["port"], files), files, files * SIZE)


def consolidated(job: dict[str, Any], files: int, out: Path) -> Result:
    """All that quire does."""
    import quire

    spark = session()
    started, cpu = time.monotonic(), cpu_seconds()
    report = quire.consolidate(f"{job['url']}/b", str(out), spark=spark, source_options=job["given"], transform="raw", progress=False)
    took, used = time.monotonic() - started, cpu_seconds() - cpu
    assert (report.files, report.quarantined_count, report.deferred) == (files, 0, ()), report
    assert data_bytes(out) >= files * SIZE
    return {"seconds": round(took, 2), "files_per_second": round(files / took), "cpu_us": round(used / files * 1e6)}


def copied(job: dict[str, Any], files: int, out: Path) -> Result:
    """rclone with what makes it fast, and without a comparison of checksums, which this server's would not stand."""
    command = ["rclone", "copy", "bench:src/b", str(out), "--transfers", "256", "--checkers", "64", "--ignore-checksum", "--no-check-dest"]
    started, cpu = time.monotonic(), cpu_seconds()
    subprocess.run([*command, "--multi-thread-streams", "0", "-q", "--config", "/dev/null"], env=rclone(job["given"]), check=True)
    took, used = time.monotonic() - started, cpu_seconds() - cpu
    assert sum(1 for _ in out.iterdir()) == files
    return {"seconds": round(took, 2), "files_per_second": round(files / took), "cpu_us": round(used / files * 1e6)}


def rclone(given: dict[str, Any]) -> dict[str, str]:
    """The environment in which rclone reaches an account as `bench:`."""
    if "connection_string" in given:
        found = dict(part.split("=", 1) for part in given["connection_string"].strip(";").split(";"))
        # As an emulator: else rclone 1.60 puts the account before a host that it is given.
        kind = {"TYPE": "azureblob", "USE_EMULATOR": "true", "ENDPOINT": found["BlobEndpoint"]}
    else:
        kind = {
            "TYPE": "s3", "PROVIDER": "Other", "ACCESS_KEY_ID": given["key"], "SECRET_ACCESS_KEY": given["secret"],
            "ENDPOINT": given["endpoint_url"], "REGION": "us-east-1", "LIST_VERSION": "2", "FORCE_PATH_STYLE": "true",
        }  # fmt: skip
    # Without a variable that this rclone cannot follow where it goes by plain http.
    inherited = {name: value for name, value in os.environ.items() if name != "AWS_CA_BUNDLE"}
    return inherited | {f"RCLONE_CONFIG_BENCH_{name}": value for name, value in kind.items()}


def obstore_at(given: dict[str, Any], container: str) -> Any:
    """obstore's store of a container or bucket."""
    from obstore.store import AzureStore, S3Store  # type: ignore[import-not-found]  # of the peers' environment

    http = {"allow_http": True}
    if "connection_string" in given:
        found = dict(part.split("=", 1) for part in given["connection_string"].strip(";").split(";"))
        return AzureStore(
            container,
            account_name=found["AccountName"],
            account_key=found["AccountKey"],
            endpoint=found["BlobEndpoint"],
            client_options=http,
        )
    return S3Store(
        container, access_key_id=given["key"], secret_access_key=given["secret"], endpoint=given["endpoint_url"], region="us-east-1",
        client_options=http,
    )  # fmt: skip


def obstore_reads(job: dict[str, Any], files: int) -> Iterator[float]:
    """Its asynchronous reads of whole objects, in one loop."""
    store = obstore_at(job["given"], "src")

    async def run(names: list[str]) -> int:
        import obstore  # type: ignore[import-not-found]

        free = asyncio.Semaphore(256)

        async def one(name: str) -> int:
            async with free:
                return len(await obstore.get_range_async(store, name, start=0, length=SIZE))

        return sum(await asyncio.gather(*(one(name) for name in names)))

    asyncio.run(run(["b/00000000"]))
    yield 0
    found = asyncio.run(run([f"b/{i:08}" for i in range(files)]))
    yield time.monotonic()
    yield found


def main() -> int:
    """Run all ways alternately, and print the ratios."""
    args = arguments(
        __doc__,
        files={"type": int, "default": 30_000},
        rounds={"type": int, "default": 3},
        azure={"action": "store_true"},
        tls={"action": "store_true"},
        peers={"choices": ("all", "quire"), "default": "all"},
    )
    if args.way:
        job = json.loads(args.job)
        python = job["python"] if args.way == OB or (args.way == FS and not job["azure"]) else sys.executable
        if python != sys.executable:
            os.execv(python, [python, __file__, *sys.argv[1:]])
        print(json.dumps(measure(args.way, job)), flush=True)
        os._exit(0)  # loops of peers may still run
    others = args.peers == "all"
    python = peers() if others else sys.executable
    print(f"{machine()}; {', '.join(PEERS) if others else 'no peers'}; {SIZE:,} bytes an object, {args.files:,} objects", flush=True)
    ways = [WHOLE, COPY, READ, OB, FS] if others else [WHOLE, READ]
    if others and not shutil.which("rclone"):
        ways.remove(COPY)
        print("rclone is not there, so nobody copies beside quire: apt-get install rclone")
    if others and args.tls:
        ways.remove(FS)  # it is by far the slowest
    with workplace(args.at) as at:
        job: dict[str, Any] = {"files": args.files, "azure": args.azure, "python": python}
        certificate = ""
        if args.tls:
            (at / "certificate").mkdir()
            certificate = certified(at / "certificate")
        with place(args.azure, DELAY, args.files, certificate) as there:
            found = alternate(__file__, ways, args.rounds, at, **job, **there)
        with place(args.azure, FAR, args.files, certificate) as there:
            found |= alternate(__file__, [AWAY], args.rounds, at, **job, **there)
    return judge(found, others)


def judge(found: dict[str, list[Result]], others: bool) -> int:
    """What was promised."""
    middle = {way: {key: median([r[key] for r in results]) for key in results[0]} for way, results in found.items()}
    rows = [
        [way, f"{m['files_per_second']:,.0f}", listed([r["files_per_second"] for r in found[way]]), f"{m['cpu_us']:.0f}"]
        for way, m in middle.items()
    ]
    print("\n" + table(["way", "files/s", "rounds", "CPU µs a file"], rows))
    verdict = Verdict()

    def check(promise: str, ours: str, theirs: tuple[str, ...]) -> None:
        speed = middle[ours]["files_per_second"] / max(middle[way]["files_per_second"] for way in theirs)
        cpu = min(middle[way]["cpu_us"] for way in theirs) / middle[ours]["cpu_us"]
        verdict.check(f"{promise}, files/s", "≥ 1.5 ×", f"{speed:.2f} ×", speed >= 1.5)
        verdict.check(f"{promise}, processor time", "≥ 1.5 ×", f"{cpu:.2f} ×", cpu >= 1.5)

    if others:
        if COPY in middle:
            check("end to end, to rclone", WHOLE, (COPY,))
        check("reading, to the best of the others", READ, tuple(way for way in (OB, FS) if way in middle))
    verdict.check("CPU of one task's reading", "≤ 80 µs", f"{middle[READ]['cpu_us']:.0f} µs", middle[READ]["cpu_us"] <= 80)
    far = middle[AWAY]["files_per_second"]
    verdict.check("one task at 140 ms", "≥ 1,700 files/s", f"{far:,.0f}", far >= 1700)
    return verdict.end()


if __name__ == "__main__":
    sys.exit(main())
