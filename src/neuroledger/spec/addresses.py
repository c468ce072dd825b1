"""Addresses that a text may not name: with a secret, of this machine or its network, or out of a folder."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from neuroledger.errors import Severity

__all__ = ["KEPT", "said_of", "secret", "texts"]

ADDRESS: Final = re.compile(r"\b(?:[a-z][a-z0-9+.-]*://|file:)[^\s\"'<>`]+", re.IGNORECASE)
HERE: Final = re.compile(r"(?:.*\.)?(?:localhost|local|internal|intranet|lan|corp|home\.arpa)|[^.:]*")
SECRET: Final = re.compile(
    r"(?i)(?:x-(?:amz|goog)-(?:signature|credential|security-token)|awsaccesskeyid|(?:access|auth|id)?_?token|api_?key"
    r"|sig|signature|password|passwd|secret|key-pair-id)"
)
# What a configuration of DVC may keep in `.dvc/config.local` alone, or not at all.
KEPT: Final = re.compile(
    r"(?im)^\s*(password|secret_access_key|session_token|account_key|sas_token|connection_string|client_secret"
    r"|gdrive_client_secret|access_key_id)\s*="
)
Said = tuple[Severity, str, str]


def secret(address: str) -> Said | None:
    """What secret an address carries, as an error with what to do; None where it carries none."""
    parts = urlsplit(address)
    if "@" in parts.netloc:
        words = f"the address at {parts.hostname} carries a name or password, which everybody could read"
        return "error", words, "remove it, and change the password; settings of the remote keep such things"
    if any(SECRET.fullmatch(name) for name, _ in parse_qsl(parts.query)):
        return (
            "error",
            f"the address at {parts.hostname} carries a key or signature",
            "name the public address",
        )
    return None


def doubtful(address: str) -> Said | None:
    """What is wrong with one address, how severely, and what to do; None for a plain public one."""
    parts = urlsplit(address)
    _ = parts.port
    host, path = (parts.hostname or "").rstrip(".").lower(), unquote(unquote(parts.path))
    if found := secret(address):
        return found
    if parts.scheme == "file":
        return "error", f"{address[:200]!r} is a file of whoever reads it", "name a public address"
    if "\\" in path or any(ord(each) < 32 for each in path) or ".." in path.split("/"):
        return (
            "error",
            f"the address at {host} leads out of its folder by {parts.path[:200]!r}",
            "write it plainly",
        )
    if not host.isascii():
        return "error", f"the host {host!r} has letters that look like others", "write it in ASCII (xn--…)"
    if parts.scheme != "s3" and (HERE.fullmatch(host) or not _public(host)):
        words = f"{host or address[:200]!r} is of the machine, or the network, of whoever fetches it"
        return "warning", words, "name a public address"
    return None


def said_of(text: str, rule: Callable[[str], Said | None] = doubtful) -> Iterator[Said]:
    """What a rule says of the addresses in a text; one that cannot be parsed is an error."""
    for address in ADDRESS.findall(text):
        try:
            said = rule(address)
        except ValueError as error:
            said = "error", f"{address[:200]!r} is no address ({error})", "correct it"
        if said is not None:
            yield said


def texts(plain: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Every text of plain data, names of fields too, with its place."""
    if isinstance(plain, dict):
        for key, value in plain.items():
            yield (*at, str(key)), str(key)
            yield from texts(value, (*at, str(key)))
    elif isinstance(plain, list):
        for number, value in enumerate(plain):
            yield from texts(value, (*at, number))
    elif isinstance(plain, str):
        yield at, plain


def _public(host: str) -> bool:
    """Whether a host is a name, or an address of the public network in any of the ways to write one."""
    found: IPv4Address | IPv6Address
    try:
        found = ip_address(host.partition("%")[0])
    except ValueError:
        try:
            found = ip_address(socket.inet_aton(host))  # 127.1, 0x7f000001, 2130706433
        except OSError:
            return True
    if isinstance(found, IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour or (found.teredo or (None, None))[1]
        if found.packed[:12] == bytes.fromhex("0064ff9b0000000000000000"):
            inner = IPv4Address(found.packed[12:])
        found = inner or found
    return found.is_global and not found.is_multicast
