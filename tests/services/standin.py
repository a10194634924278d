"""In libhdfs' place: a directory on disk that answers as a namenode does where the two differ. There is no libhdfs in any package index."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from pyarrow import fs


class Namenode:
    """What `pyarrow.fs.HadoopFileSystem` offers, over a directory."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.disk = fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem())
        self.lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.disk, name)

    def move(self, old: str, new: str) -> None:
        """A name that is taken is not replaced; the namenode tells no reason."""
        with self.lock:
            taken, parent = self.disk.get_file_info([new, new.rpartition("/")[0] or "/"])
            if taken.type != fs.FileType.NotFound or parent.type != fs.FileType.Directory:
                raise OSError(f"HDFS rename failed: {old} to {new}")
            self.disk.move(old, new)
