"""Which network addresses an image may be fetched from.

The default takes public unicast addresses only. What is special by RFC 6890 and its registries is refused, and every
form that carries an IPv4 address inside an IPv6 one, since it may lead back to a refused address.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

DestinationFilter = Callable[[str, str], bool]
"""`(host, address) -> allowed`: the host of the URL and one address that it stands for, such as `10.0.0.1`. Anything
but `True`, and any exception, refuses the address."""

_REFUSED_V4 = [
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared, a provider's own
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # a cloud's metadata service on a public address
        "169.254.0.0/16",  # link-local, most metadata services
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # AMT
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
]
# Of IPv6 only global unicast is allowed. That leaves out loopback, IPv4-mapped and IPv4-compatible addresses, both
# NAT64 prefixes, private, link-local and multicast ones.
_GLOBAL_V6 = IPv6Network("2000::/3")
_REFUSED_V6 = [
    IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments, Teredo among them
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4
        "2620:4f:8000::/48",  # AS112
        "3ffe::/16",  # a network for tests, given back
        "3fff::/20",  # documentation
    )
]
_ISATAP = (0x00005EFE, 0x02005EFE)  # upper half of an interface id whose lower half is an IPv4 address


def is_public(address: str) -> bool:
    """Whether `address` is a public unicast address. What is no address at all is not."""
    try:
        found = ip_address(address)
    except ValueError:
        return False
    if found.version == 4:
        return not any(found in network for network in _REFUSED_V4)
    if getattr(found, "scope_id", None) is not None or found not in _GLOBAL_V6:
        return False
    if (int(found) >> 32) & 0xFFFFFFFF in _ISATAP:
        return False
    return not any(found in network for network in _REFUSED_V6)


def public_address(host: str, address: str) -> bool:
    """The default filter: every public address, whatever host it was found under."""
    return is_public(address)


def any_address(host: str, address: str) -> bool:
    """A filter that refuses nothing. Only for URLs that nobody else can write."""
    return True


def within(*networks: str) -> DestinationFilter:
    """A filter that allows public addresses, and those of `networks`, such as `10.1.0.0/16`, on top.

    Raises:
        ValueError: a network that cannot be read.
    """
    allowed = [ip_network(network) for network in networks]

    def allows(host: str, address: str) -> bool:
        return is_public(address) or any(ip_address(address) in network for network in allowed)

    return allows
