"""Which addresses are public."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepinfer.recipe.images.addresses import any_address, is_public, public_address, within

PUBLIC = ["1.1.1.1", "8.8.8.8", "93.184.216.34", "172.15.255.255", "172.32.0.0", "100.63.255.255", "2606:4700::1111"]
REFUSED = [
    "127.0.0.1",
    "127.255.255.254",
    "0.0.0.0",
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "169.254.169.254",  # metadata of most clouds
    "100.100.100.200",  # metadata in the shared range
    "168.63.129.16",  # metadata on a public address
    "192.0.0.192",
    "100.64.0.1",
    "192.0.2.1",
    "192.88.99.1",
    "198.18.0.1",
    "198.51.100.7",
    "203.0.113.9",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::7f00:1",
    "::ffff:127.0.0.1",
    "::ffff:8.8.8.8",
    "64:ff9b::7f00:1",
    "64:ff9b::808:808",
    "64:ff9b:1::a00:1",
    "100::1",
    "2001::1",  # Teredo
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:808:808::1",
    "3fff::1",
    "2606:4700::5efe:7f00:1",  # ISATAP
    "2606:4700::200:5efe:a00:1",
    "fc00::1",
    "fd00:ec2::254",  # metadata
    "fe80::1",
    "fe80::1%eth0",
    "2606:4700::1%eth0",
    "fec0::1",
    "ff02::1",
    "",
    "localhost",
    "1.1.1.1.1",
    "2130706433",
    "0x7f.1",
]


@pytest.mark.parametrize("address", PUBLIC)
def test_public(address: str) -> None:
    assert is_public(address) and public_address("host", address)


@pytest.mark.parametrize("address", REFUSED)
def test_refused(address: str) -> None:
    assert not is_public(address)
    assert not public_address("public.example", address)


@given(st.ip_addresses())
def test_nothing_passes_that_the_standard_library_knows_to_be_special(address: object) -> None:
    found = ip_address(str(address))
    if not found.is_global or found.is_multicast or found.is_reserved or found.is_loopback or found.is_link_local:
        assert not is_public(str(address))


@given(st.integers(0, 2**32 - 1), st.sampled_from(["::ffff:{}", "::{}", "64:ff9b::{}"]))
def test_ipv4_inside_ipv6_never_passes(number: int, form: str) -> None:
    assert not is_public(form.format(ip_address(number)))
    assert not is_public(f"2002:{number >> 16:x}:{number & 0xFFFF:x}::1")


def test_widening() -> None:
    allows = within("10.1.0.0/16", "fd00::/8")
    assert allows("h", "10.1.2.3") and allows("h", "fd12::1") and allows("h", "8.8.8.8")
    assert not allows("h", "10.2.0.1") and not allows("h", "127.0.0.1") and not allows("h", "::ffff:10.1.2.3")
    assert any_address("h", "127.0.0.1")
    with pytest.raises(ValueError):
        within("10.1.0.1/16")
