"""Object stores: one small protocol, one module for each provider.

`store_for(url)` gives the store at a URL; `RetryPolicy` says when to try again; every error is a
`StoreError`. No provider's client is imported before its scheme is used.
"""

from streaming.storage.base import Body, ObjectInfo, Store
from streaming.storage.errors import (
    AccessDenied,
    MissingPackage,
    NotFound,
    ObjectChanged,
    StoreError,
    Throttled,
    UnknownScheme,
)
from streaming.storage.registry import register_store, schemes, store_for
from streaming.storage.retry import RetryPolicy
from streaming.storage.urls import is_local, local_path, scheme_of

__all__ = [
    "AccessDenied",
    "Body",
    "MissingPackage",
    "NotFound",
    "ObjectChanged",
    "ObjectInfo",
    "RetryPolicy",
    "Store",
    "StoreError",
    "Throttled",
    "UnknownScheme",
    "is_local",
    "local_path",
    "register_store",
    "scheme_of",
    "schemes",
    "store_for",
]
