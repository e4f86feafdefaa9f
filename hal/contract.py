"""The version of the op contract, and which versions a backend may state.

The contract stays at version 0 while it is being made. From version 1 on a backend may implement the current
version or the one before it.
"""

from __future__ import annotations

from .errors import BackendError

CONTRACT_VERSION = 0


def accepted_versions(current: int = CONTRACT_VERSION) -> tuple[int, ...]:
    """Contract versions that a backend may implement: the current one and, once there is one, its predecessor."""
    return (current,) if current <= 1 else (current - 1, current)


def check_contract(backend: str, version: int, current: int = CONTRACT_VERSION) -> None:
    """Refuse a backend that implements another contract.

    Raises:
        BackendError: `version` is not among `accepted_versions(current)`.
    """
    accepted = accepted_versions(current)
    if version not in accepted:
        raise BackendError(
            f"backend {backend!r} implements op contract version {version}; this installation accepts "
            f"{', '.join(map(str, accepted))}"
        )
