"""Signatures of winners: which machines a team trusts, whoever else may write to its store.

A winner is signed with the team's secret, ``$GRAPHOPT_STORE_KEY``, for the environment it was measured in.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Mapping
from typing import Any, Final

VARIABLE: Final = "GRAPHOPT_STORE_KEY"


def sign(here: Mapping[str, Any], fingerprint: str, decisions: str) -> str:
    """The signature of decisions about a module; "" where there is no secret.

    Args:
        here: the environment, as `graphopt.store.Store.here` has it.
        fingerprint: of the module.
        decisions: encoded.
    """
    key = os.environ.get(VARIABLE, "")
    if not key:
        return ""
    text = json.dumps([*(here[name] for name in sorted(here)), fingerprint, decisions])
    return hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()


def is_signed(here: Mapping[str, Any], fingerprint: str, decisions: str, signature: str) -> bool:
    """True if a signature was made with our secret; never without one."""
    ours = sign(here, fingerprint, decisions)
    return bool(ours) and hmac.compare_digest(ours.encode(), signature.encode(errors="replace"))
