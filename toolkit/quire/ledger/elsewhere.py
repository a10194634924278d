"""Claims whose rows go into a database: it says which claim they are of, in one transaction with them, and the ledger follows.

The block puts a number and a token beside its rows, in a table in which a number stands once. The number is one more than the last one
there when the claim began, so of the claims that began from the same state one alone gets its rows in. The token names the job and its
plan: the splits, frozen. A claim that begins asks for the last number first, and commits in the ledger what the database has committed,
so all that the database holds is in the ledger that its own splits are compared with, or its number is taken. Nobody gives such a claim
up unasked: a process that nobody knows of may just be putting its rows in.
"""

from __future__ import annotations

from collections.abc import Callable

from quire.commit import names, protocol
from quire.commit.entries import Commit, PlanHead
from quire.commit.log import Log
from quire.errors import QuireError, RefusedError, UsageError, about, quoted, scrub

Committed = Callable[[], "tuple[int, str] | None"]
GIVEN_UP = "given up"  # stands as a token for a number that nobody can use any more
AGAIN = "The claim stays open: call again, and it goes on with the same splits."


def token_of(head: PlanHead) -> str:
    """The token of a claim's job: another one for each plan, also of a ledger that was begun anew."""
    return f"{head.job}-{head.plan}"


def asked(committed: Committed) -> tuple[int, str]:
    """The last number and token that the database holds, or (0, "")."""
    with about("committed"):
        if not callable(committed):
            raise UsageError(f"committed={quoted(committed)} is not a function that asks the database for its last (number, token).")
        said = committed()
        if said is None:
            return 0, ""
        if not isinstance(said, tuple | list) or len(said) != 2 or type(said[0]) is not int or not isinstance(said[1], str) or said[0] < 1:
            raise UsageError(f"committed() gave {quoted(said)}: it gives the (number, token) with the highest number, or None for none.")
        return said[0], said[1]


def open_of(log: Log, token: str) -> PlanHead | None:
    """The open job of a token, to be committed; None where there is none."""
    job = token.rpartition("-")[0]
    if token in ("", GIVEN_UP) or names.base_of(job) is None or log.outcome(job) is not None:
        return None
    head = protocol.plan_head(log.store, job)
    return head if head is not None and token_of(head) == token else None


def check_known(log: Log, token: str) -> None:
    """RefusedError where the database holds rows of a claim that the ledger has not committed, and cannot."""
    job = token.rpartition("-")[0]
    if token in ("", GIVEN_UP) or (names.base_of(job) is not None and isinstance(log.outcome(job), Commit)):
        return
    known = names.base_of(job) is not None and log.outcome(job) is not None
    raise RefusedError(
        f"the database holds rows of claim {scrub(token, 80)!r}, which the ledger {log.store.url} "
        f"{'has given up' if known else 'does not know'}: another claim would write its splits again. Look whether they belong to this "
        f"ledger, delete these rows, and set this token to {GIVEN_UP!r}, in one transaction; then call again."
    )


def check_there(log: Log, head: PlanHead, number: int, committed: Committed) -> None:
    """QuireError where a block has ended and the database does not hold its token."""
    said = asked(committed)
    if said == (number, token_of(head)) or isinstance(log.refresh().outcome(head.job), Commit):
        return  # others may have committed it in the ledger meanwhile, and more after it
    shown = f"({said[0]}, {said[1]!r})" if said[1] else "None"
    raise QuireError(
        f"the claim's block has ended, and the database does not hold its token. committed() gave {scrub(shown, 120)}, and expected was "
        f"({number}, {token_of(head)!r}). Store c.commit_number and c.commit_token in the transaction that writes the rows. {AGAIN}"
    )
