"""A source that grows, a destination, drivers that are killed, and what is checked after each recovery."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from moments import RENAMES, Hook, Lies, Moment, data_files, look, name_of, names
from processes import Driver, Place, wait_until
from tale import Count, Tale, count, grow

import checker
import quire

# What the stories take turns in.
SETTINGS: list[dict[str, Any]] = [
    {},
    {"committer": "rename_v2"},
    {"compression": "zstd"},
    {"layout": "directories"},
    {"planner": "hash", "parts": 3},
    {"compression": "gzip", "committer": "rename_v2", "layout": "directories"},
]


S = TypeVar("S", bound="Story")


class Story:
    """One source and one destination."""

    def __init__(self, name: str, base: Path, tale: Tale, settings: dict[str, Any] | None = None, target: int = 12_000) -> None:
        self.name, self.tale, self.rng = name, tale, tale.rng(name)
        self.place = Place(base)
        self.source, self.dest, self.hook = self.place.source, self.place.dest, Hook(self.place.hook)
        self.settings = {"target_size": f"{target} B", **(settings or {})}
        self.committer = self.settings.get("committer", "rename")
        self.waves = 0
        self.names = dict[int, str]()  # of processes, by their ids, where they do different things
        self.calls = 400  # about files, that a driver makes from start to end
        self.lasts = 0.4  # seconds from its first call to its end

    # ------------------------------------------------------------------------------------------------------------- what there is
    def add(self, files: int) -> None:
        """New files in the source."""
        grow(self.source, self.waves, files, self.rng)
        self.waves += 1

    def lies(self) -> Lies:
        """What lies in the destination now."""
        return look(self.dest)

    def count(self) -> Count:
        """Lines, by those who know neither ledger nor log."""
        return count(self.source, self.dest)

    def hold(self, settled: bool) -> None:
        """Every byte, by an independent reader of the log; if all is settled, nothing is left over either. Else AssertionError."""
        checker.check(self.source, self.dest, settled=settled)

    def order(self, card: Moment | str, role: str = "any") -> None:
        """Let the next process that comes to a moment stop there; for "call" before any call about a file."""
        if isinstance(card, Moment):
            self.hook.order(card.match, self.rng.randint(0, card.most), card.after, role)
        elif card == "call":
            self.hook.order(".", self.rng.randint(1, self.calls), role=role)

    # -------------------------------------------------------------------------------------------------------------------- kills
    def struck(self, victim: str, call: str, moment: Moment | None = None, *, stopped: bool = False, pid: int = 0) -> None:
        """Write down what has just been done to a process."""
        name = moment.name if moment else name_of(call, self.committer)
        if moment in RENAMES and self.committer == "rename_v2":
            name = "task commit"
        where = f"{moment}; next: {call}" if moment and moment.after else call
        self.tale.struck(self.name, victim, name, where, self.lies(), stopped=stopped, pid=pid)

    def wait_stopped(self, driver: Driver, card: Moment, role: str) -> tuple[int, str]:
        """Files arrive until a process of a driver that goes on and on has come to a moment, and has stopped there."""
        self.order(card, role)
        for _ in range(20):
            self.add(self.rng.randint(80, 160))
            with suppress(AssertionError):
                found = self.hook.wait([driver], 5)
                if found:
                    return found
                break
        raise AssertionError(f"{self.name}: no process came to {card}:\n{driver.said()[-3000:]}")

    def strike(self, drivers: list[Driver], card: Moment | str) -> Driver | None:
        """Kill one of some drivers without Spark: the first that comes to a moment, or at a time, drawn. None: all ended well before."""
        if card == "time":
            victim = drivers[0]
            wait_until(lambda: self.hook.last(victim.pid)[0] or not victim.running(), 60, "a first call")
            time.sleep(self.rng.uniform(0, self.lasts))
        else:
            found = self.hook.wait(drivers)
            victim = next((d for d in drivers if found and d.pid == found[0]), drivers[0])
        victim.kill()
        if victim.popen.returncode != -signal.SIGKILL:
            victim.end()  # it was faster, and must have come to a good end
            return None
        call = self.hook.last(victim.pid)[1]
        self.struck(self.names.get(victim.pid, "driver"), call, card if isinstance(card, Moment) else None, pid=victim.pid)
        return victim

    # ------------------------------------------------------------------------------------------------------------------ recovery
    def recover(self, by: str = "quire.consolidate") -> Count:
        """Go on in this process where the killed ones stopped, and count."""
        source, dest = self.place.urls
        options = {"storage_options": self.settings.get("storage_options")}
        if self.rng.random() < 0.3 and self.lies() != Lies():  # the first one may have died before it began anything
            abort = self.rng.choice((None, "open"))
            quire.recover(dest, abort=abort, **options)
            by = f"quire.recover(abort={abort!r}), then {by}"
        quire.consolidate(source, dest, spark=quire.LocalRunner(), progress=False, **self.settings)
        if not self.lies().at_rest():
            # A job of another intent, or a plan that nobody froze: by the protocol these stay until somebody gives them up.
            quire.recover(dest, abort="open", **options)
            by += ", then quire.recover(abort='open')"
        return self.check(by)

    def check(self, by: str, *, settled: bool = True, late: float = 0) -> Count:
        """An independent count of lines, then of every byte, and, if all is settled, that nothing is left over.

        Somebody whom nobody waits for any more may write so `late`, in seconds; what he leaves is invisible, and goes with the next round.
        """
        found = self.count()
        self.tale.recovered(self.name, by, found)
        assert (found.lost, found.double) == (0, 0), f"{self.name}, seed {self.tale.seed}: {found}"
        self.hold(settled=False)
        end = time.monotonic() + late
        while settled:
            try:
                self.hold(settled=True)
                break
            except AssertionError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.3)
        return found

    def wait_gathered(self, driver: Driver, seconds: float = 90) -> None:
        """Wait until a driver that goes on and on has gathered all that there is, and cleaned."""

        def gathered() -> bool:
            assert driver.running(), f"{self.name}: a driver ended:\n{driver.said()[-3000:]}"
            return self.lies().at_rest() and self.count().lost == 0

        wait_until(gathered, seconds, f"{self.name}: all is gathered; {self.lies()}; {driver.said()[-2000:]}")

    def visible(self) -> dict[str, bytes]:
        """The log, and the data files with their content; with rename_v2, which shows more, those that are committed."""
        shown = set(data_files(self.dest))
        if self.committer == "rename_v2":
            shown &= set(checker.look(self.dest).data)
        shown |= {f"_quire/log/{name}" for name in names(self.dest / "_quire/log") if name.endswith(".entry")}
        return {name: (self.dest / name).read_bytes() for name in shown}


@contextmanager
def story(name: str, base: Path, tale: Tale, settings: dict[str, Any] | None = None, target: int = 12_000) -> Iterator[Story]:
    """A story on local disk."""
    with told(Story(name, base / name.replace(" ", "-"), tale, settings, target)) as made:
        yield made


@contextmanager
def told(made: S) -> Iterator[S]:
    """A story that leaves nothing behind, but, if it goes wrong, its evidence beside the tale."""
    name, tale = made.name, made.tale
    try:
        yield made
    except BaseException as error:
        kept = tale.path.with_name(f"{tale.path.stem}-{tale.seed}-{made.place.base.name}")
        shutil.make_archive(str(kept), "tar", made.place.base)
        tale.say(f"{name} went wrong: {str(error)[:500]!r}; source, destination and what the drivers said: {kept}.tar")
        raise
    finally:
        shutil.rmtree(made.place.base, ignore_errors=True)
