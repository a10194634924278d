"""A Delta log as its protocol says to read it: what its newest commit offers. It shares no code with quire."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

COMMIT = re.compile(r"_delta_log/([0-9]{20})\.json")


def commits(there: Mapping[str, bytes]) -> list[list[dict[str, Any]]]:
    """The actions of each commit; an AssertionError where one is missing. An empty object is a write that was cut off."""
    found = {int(at[1]): there[name] for name in there if (at := COMMIT.fullmatch(name)) and there[name]}
    assert sorted(found) == list(range(len(found))), f"the Delta log has a gap: {sorted(found)}"
    return [[json.loads(line) for line in found[number].splitlines()] for number in range(len(found))]


def offered(there: Mapping[str, bytes]) -> dict[str, dict[str, Any]]:
    """Data file → its `add`, of the files that the table has; an AssertionError for one that is added twice, or was not there.

    With new columns each that is there may be added once more, as one that tells nothing new: its values are of another type by now.
    """
    files = dict[str, dict[str, Any]]()
    versions = []
    for actions in commits(there):
        versions += [action["txn"]["version"] for action in actions if "txn" in action]
        stated, here = any("metaData" in action for action in actions), set[str]()
        for action in actions:
            if said := action.get("add"):
                name = unquote(said["path"])
                assert name not in here, f"{name} was added twice"
                assert name not in files or (stated and not said["dataChange"]), f"{name} was added twice"
                here.add(name)
                files[name] = said
            if said := action.get("remove"):
                name = unquote(said["path"])
                assert name in files, f"{name} was removed, and is not there"
                assert name not in here, f"{name} was added and removed by one commit"
                del files[name]
    assert versions == sorted(set(versions)), "each version once, in their order"
    return files
