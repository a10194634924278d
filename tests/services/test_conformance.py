"""Every kind of store under the promises of `storage.base.Store`."""

from services.conformance import *  # noqa: F403 (the tests, by whatever names they have)
