"""A simulated store, for tests of the protocol: it counts operations, breaks at the one asked for, and hands over between drivers.

`World` wraps every store that quire opens; its `Kind` says what the store promises. An `Actor` is a process: one driver with its
attempts. A fault may hit an actor at its k-th operation (or at its k-th change, since nothing happens between changes that
another could see):

    before, after   the process dies before or after the effect; every later operation of it fails as well
    torn            a write into an open file, or the body of a request: half of the bytes are there when the process dies
    begun           a request whose body was announced: none of it has come when the process dies
    ambiguous       the effect happened, the answer is an error after which one tries again
    transient       no effect, and such an answer
    late            no effect yet, and such an answer; the effect comes when others have gone on
    away            such an answer, to this operation and to all that follow
    refused         no effect, the answer is an error that says not to come again
    power: …        the machine stops before the operation (kind disk): what was not synced is lost, or names stay, or some

An observer looks at the destination after each change, and `check` at the end; neither shares code with quire.
"""

from quire.storage import memory
from sim.disk import LEFT, Disk
from sim.drivers import Scheduler, run
from sim.kinds import KINDS, TABLES, UNFIT, Kind, of_tables
from sim.stores import SimSink, SimStore
from sim.witness import Log, Observer, Tree, check, expected, forget_all, objects
from sim.world import DEST, POWER, SOURCE, Actor, Crash, Endless, World, about, always, below, doing, first_writes, never

__all__ = [
    "DEST", "KINDS", "LEFT", "POWER", "SOURCE", "TABLES", "UNFIT", "Actor", "Crash", "Disk", "Endless", "Kind", "Log", "Observer",
    "Scheduler", "SimSink", "SimStore", "Tree", "World", "about", "always", "below", "check", "doing", "expected", "first_writes",
    "forget_all", "memory", "never", "objects", "of_tables", "run",
]  # fmt: skip
