"""Makes the sample tree that lies beside this script: `python sample_data/make.py [DIRECTORY]`.

The tree is small enough to look at, and has what a real one has and a test tree often has not: damaged and empty files,
several encodings, names that need care, hidden files, directories like partitions, and files that are alike.
README.md says what is in it. The same tree comes out each time, byte for byte.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from quire.samples.devices import DIRT, SHAPES, Stock, build

HERE = Path(__file__).parent / "devices"

# directory -> number of files, shapes that they take in turn, mean size in bytes
FOLDERS: dict[str, tuple[int, tuple[str, ...], int]] = {
    "dt=2026-11-20": (90, ("telemetry",), 1500),
    "dt=2026-11-21": (60, ("telemetry", "telemetry in UTF-16"), 1800),
    "inventory": (40, ("inventory",), 1200),
    "events/2026/11": (70, ("events",), 1000),
    "Werk Süd/Halle 3": (24, ("inventory", "telemetry", "events"), 1300),
}

# directory -> kinds of damage of the files that come in addition, named after the kind
DAMAGED: dict[str, tuple[str, ...]] = {
    "dt=2026-11-20": (*DIRT, "truncated", "empty"),
    "inventory": ("mismatched tags", "wrong encoding"),
    "events/2026/11": ("truncated", "empty", "garbage"),
}

# all in one directory: what a URL, a glob, a shell or a CSV would take for something else
ODD_NAMES = (
    "Gerät 7 ü.xml",
    "測定-01.xml",
    "100% d'accord.xml",
    "%41.xml",
    "A.xml",
    "a+b & c.xml",
    "x#1.xml",
    "[1-3]{4,5}.xml",
    "semi;colon, comma=equals.xml",
    " leading space.xml",
    "$HOME ~ `id`.xml",
    "UPPER.XML",
    "no suffix",
    "two..dots.v1.xml",
    "emoji 🛰.xml",
    "n" * 120 + ".xml",
)

HIDDEN = {"dt=2026-11-20/_SUCCESS": b"", "dt=2026-11-21/.part.tmp": b"<telemetry", "_temporary/0/part-0.xml": b"<telemetry>"}


def contents() -> dict[str, bytes]:
    """Return path below the root, with `/` -> content, for every file of the tree."""
    rng = random.Random("sample data")
    files: dict[str, bytes] = {}
    sequence = 0
    for folder, (number, shapes, size) in FOLDERS.items():
        for k in range(number):
            sequence += 1
            moment, device = _moment(folder, sequence), 100 + k % 12
            template = build(shapes[k % len(shapes)], rng.randrange(size * 3 // 5, size * 7 // 5), rng)
            files[f"{folder}/dev-{device:05d}-{sequence:06d}.xml"] = bytes(template.fill(device, sequence, moment, rng.randrange(99_000)))
    stock = Stock(1200, seed=7)
    for folder, kinds in DAMAGED.items():
        for kind in kinds:
            sequence += 1
            content = stock.damaged(kind, rng.getrandbits(60), 99, sequence, _moment(folder, sequence))
            files[f"{folder}/dev-00099-{sequence:06d} {kind}.xml"] = content
    for k, name in enumerate(ODD_NAMES):
        sequence += 1
        shape = list(SHAPES)[k % len(SHAPES)]
        files[f"odd names/{name}"] = bytes(build(shape, 900, rng).fill(7, sequence, _moment("", sequence), 21_375))
    same = min(files)
    for k in (1, 2):
        files[f"inventory/same as {same.replace('/', ' ')} ({k}).xml"] = files[same]
    return files | HIDDEN


def drop() -> dict[str, bytes]:
    """Return name -> content of the CSV files that partners have dropped: two orders of columns, two encodings, and two wrong records."""
    rng, files = random.Random("drop"), dict[str, bytes]()
    for k in range(40):
        names = ["id", "city", "fare", "at"] if k % 4 else ["at", "id", "fare", "city"]
        rows = []
        for i in range(rng.randrange(5, 12)):
            city = rng.choice(['"Köln"', "Berlin", '"Hague; the"', ""])
            rows.append({"id": f"{100 * k + i}", "city": city, "fare": f"{rng.randrange(9_000) / 100:.2f}", "at": _moment("", 12 * k + i)})
        if k == 9:
            rows[2]["fare"] = "12,50"
        lines = [";".join(names), *(";".join(row[name] for name in names) for row in rows)]
        if k == 23:
            lines.insert(3, "2300;Berlin")
        files[f"partner-{k % 5}-{k:03}.csv"] = "".join(f"{line}\r\n" for line in lines).encode("utf-16" if k % 7 == 6 else "utf-8")
    return files


def _moment(folder: str, sequence: int) -> str:
    day = folder.removeprefix("dt=") if folder.startswith("dt=") else "2026-11-22"
    seconds = 487 * sequence % 86_400
    return f"{day}T{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{sequence:03d}Z"


def main(target: Path) -> None:
    """Write the tree to `target`, which must not exist or be empty."""
    if target.exists() and any(target.iterdir()):
        sys.exit(f"{target} is not empty: remove it first, or name another directory")
    files = contents() if target.name != "drop" else drop()
    for path, content in files.items():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        (target / path).write_bytes(content)
    print(f"{len(files)} files, {sum(map(len, files.values())):,} bytes, in {target}")


if __name__ == "__main__":
    for place in (Path(sys.argv[1]),) if len(sys.argv) > 1 else (HERE, HERE.parent / "drop"):
        main(place)
