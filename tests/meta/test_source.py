"""Edits of the reference's source: the suites see them, but for places that are listed with a reason.

One place per operator and module here; `python -m mutation.sweep` tries all of them.
"""

from __future__ import annotations

import zlib

import pytest
from mutation.source import EDITS, FOLDER, Site, sites, users_of
from mutation.sweep import judged, listed

import deepinfer.ops  # noqa: F401 - defines the specs
from deepinfer.hal.catalog import CATALOG

CATALOG.load("reference")
MODULES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")
SITES = {module: [s for s in sites(module) if users_of(module, s.function)] for module in MODULES}
LISTED = listed()


def chosen() -> list[Site]:
    """Of every operator and module the place whose name has the lowest hash: no edit elsewhere chooses another one."""
    found = []
    for places in SITES.values():
        for operator in EDITS:
            fitting = [s for s in places if s.operator == operator]
            found += sorted(fitting, key=lambda s: zlib.crc32(s.id.encode()))[:1]
    return [site for site in found if site.id not in LISTED]


CHOSEN = chosen()


@pytest.mark.parametrize("site", CHOSEN, ids=[site.id for site in CHOSEN])
def test_an_edit_is_seen(site: Site) -> None:
    verdict = judged(site)
    assert verdict is not None
    assert verdict.finding is not None, f"line {site.line}: {verdict.where}; an equal program goes to equivalent.txt"


def test_listed_places_exist_and_have_a_reason() -> None:
    known = {site.id for places in SITES.values() for site in places}
    assert not sorted(set(LISTED) - known)
    assert all(len(reason) > 10 for reason in LISTED.values())


def test_every_operator_has_places() -> None:
    assert {site.operator for places in SITES.values() for site in places} == set(EDITS)
