"""Refuse addresses in texts that contain a secret, point to a private machine or network, or leave their folder."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from neuroledger.errors import Severity

__all__ = ["KEPT", "said_of", "secret", "texts"]

ADDRESS: Final = re.compile(
    r"\b(?:[a-z][a-z0-9+.-]*://|file:)[^\s\"'<>`]+", re.IGNORECASE
)
HERE: Final = re.compile(
    r"(?:.*\.)?(?:localhost|local|internal|intranet|lan|corp|home\.arpa)|[^.:]*"
)
SECRET: Final = re.compile(
    r"(?i)(?:x-(?:amz|goog)-(?:signature|credential|security-token)|awsaccesskeyid|(?:access|auth|id)?_?token|api_?key"
    r"|sig|signature|password|passwd|secret|key-pair-id)"
)
# Options of DVC that must not be committed; `.dvc/config.local` may contain them.
KEPT: Final = re.compile(
    r"(?im)^\s*(password|secret_access_key|session_token|account_key|sas_token|connection_string|client_secret"
    r"|gdrive_client_secret|access_key_id)\s*="
)
Said = tuple[Severity, str, str]


def secret(address: str) -> Said | None:
    """The error for a secret in an address, as severity, message and advice; None if there is no secret."""
    parts = urlsplit(address)
    if "@" in parts.netloc:
        words = f"the address at {parts.hostname} contains a user name or password, which everybody could read"
        return (
            "error",
            words,
            "remove it, and change the password; store such settings in the remote's configuration",
        )
    if any(SECRET.fullmatch(name) for name, _ in parse_qsl(parts.query)):
        words = f"the address at {parts.hostname} contains a key or signature"
        return "error", words, "give the public address"
    return None


def doubtful(address: str) -> Said | None:
    """The problem with an address, as severity, message and advice; None for a plain public address."""
    parts = urlsplit(address)
    _ = parts.port  # raises ValueError for an invalid port
    host = (parts.hostname or "").rstrip(".").lower()
    if problem := secret(address):
        return problem
    if parts.scheme == "file":
        words = f"{address[:200]!r} is a file on the reader's own machine"
        return "error", words, "give a public address"
    if _leads_out(unquote(unquote(parts.path))):
        words = f"the address at {host} leads out of its folder by {parts.path[:200]!r}"
        return "error", words, "remove `..`, backslashes and control characters"
    if not host.isascii():
        words = f"the host {host!r} has non-ASCII letters, which can imitate others"
        return "error", words, "write it in ASCII (xn--…)"
    if parts.scheme != "s3" and (HERE.fullmatch(host) or not _is_public(host)):
        words = f"{host or address[:200]!r} is on a private machine or network"
        return "warning", words, "give a public address"
    return None


def _leads_out(path: str) -> bool:
    is_control = any(ord(character) < 32 for character in path)
    return is_control or "\\" in path or ".." in path.split("/")


def said_of(text: str, rule: Callable[[str], Said | None] = doubtful) -> Iterator[Said]:
    """Yield the problems that a rule finds in the addresses of a text; an address that cannot be parsed is an error."""
    for address in ADDRESS.findall(text):
        try:
            problem = rule(address)
        except ValueError as error:
            problem = (
                "error",
                f"{address[:200]!r} is not an address ({error})",
                "correct it",
            )
        if problem is not None:
            yield problem


def texts(
    plain: object, at: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield every text in plain data, including keys, with its location."""
    if isinstance(plain, dict):
        for key, value in plain.items():
            yield (*at, str(key)), str(key)
            yield from texts(value, (*at, str(key)))
    elif isinstance(plain, list):
        for number, value in enumerate(plain):
            yield from texts(value, (*at, number))
    elif isinstance(plain, str):
        yield at, plain


def _is_public(host: str) -> bool:
    """Whether a host is a name, or an address of the public network in any notation."""
    address: IPv4Address | IPv6Address
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        try:
            address = ip_address(
                socket.inet_aton(host)
            )  # 127.1, 0x7f000001, 2130706433
        except OSError:
            return True
    if isinstance(address, IPv6Address):
        inner = (
            address.ipv4_mapped
            or address.sixtofour
            or (address.teredo or (None, None))[1]
        )
        if address.packed[:12] == bytes.fromhex("0064ff9b0000000000000000"):
            inner = IPv4Address(address.packed[12:])
        address = inner or address
    return address.is_global and not address.is_multicast
