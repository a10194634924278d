"""The ledger that users open: what has been processed, by which commit, into which data file, and the verbs that change it."""

from quire.ledger.ledger import Ledger, Location, Summary
from quire.ledger.verify import Verified

__all__ = ["Ledger", "Location", "Summary", "Verified"]
