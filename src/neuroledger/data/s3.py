"""Objects of S3 by https: their address, and the signature of a request where somebody has credentials (SigV4)."""

from __future__ import annotations

import configparser
import hashlib
import hmac
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, quote, urlsplit

__all__ = ["Credentials", "address_of", "credentials", "region_of", "signed"]

EMPTY: Final = hashlib.sha256(b"").hexdigest()
HOST: Final = re.compile(
    r"(?:[\w.-]+\.)?s3[.-](?:dualstack\.)?(?:(?P<region>[a-z]{2}(?:-[a-z]+)+-\d)\.)?amazonaws\.com"
)
DEFAULT_REGION: Final = "us-east-1"


class Credentials(NamedTuple):
    """Whose requests are signed."""

    key: str
    secret: str
    token: str | None


def credentials() -> Credentials | None:
    """Those of the environment, as the AWS tools read them: its variables, else the profile of the shared file; or None."""
    own = [os.environ.get(f"AWS_{name}") for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN")]
    if own[0] and own[1]:
        return Credentials(own[0], own[1], own[2])
    path = Path(os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")).expanduser()
    held = configparser.ConfigParser(interpolation=None)
    try:
        held.read(path, encoding="utf-8")
        section = held[os.environ.get("AWS_PROFILE", "default")]
        return Credentials(
            section["aws_access_key_id"], section["aws_secret_access_key"], section.get("aws_session_token")
        )
    except (configparser.Error, KeyError, OSError, UnicodeDecodeError):
        return None


def own_endpoint() -> str | None:
    """The service that the environment names in the place of Amazon's."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None


def address_of(url: str, version_id: str | None = None, endpoint: str | None = None) -> str:
    """The https address of ``s3://bucket/key``, at ``endpoint`` or where the environment says, else Amazon's.

    >>> address_of("s3://lab/a b.nc", "v1")
    'https://lab.s3.amazonaws.com/a%20b.nc?versionId=v1'
    >>> address_of("s3://lab/a.nc", endpoint="https://s3.example.org")
    'https://s3.example.org/lab/a.nc'
    """
    if url.startswith("s3://"):
        parts = urlsplit(url)
        place = endpoint or own_endpoint()
        key = quote(parts.path.lstrip("/"))
        url = (
            f"{place.rstrip('/')}/{parts.netloc}/{key}"
            if place
            else f"https://{parts.netloc}.s3.amazonaws.com/{key}"
        )
    return f"{url}?versionId={quote(version_id)}" if version_id else url


def region_of(address: str, stated: str | None = None) -> str | None:
    """The region in which a request to this address is signed; None where none of ours may be signed.

    Only Amazon's hosts and the endpoint of the environment are trusted with a signature: a spec is a stranger's text.
    """
    host = urlsplit(address).netloc
    endpoint = own_endpoint()
    known = HOST.fullmatch(host)
    if known is None and (endpoint is None or host != urlsplit(endpoint).netloc):
        return None
    named = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return stated or (known and known["region"]) or named or DEFAULT_REGION


def signed(
    address: str, headers: Mapping[str, str], own: Credentials, region: str, *, now: datetime | None = None
) -> dict[str, str]:
    """The headers of a GET request with AWS's signature, version 4, of an empty body.

    https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
    """
    parts = urlsplit(address)
    stamp = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
    whole = {**headers, "Host": parts.netloc, "x-amz-content-sha256": EMPTY, "x-amz-date": stamp}
    if own.token:
        whole["x-amz-security-token"] = own.token
    lower = {
        name.lower(): value.strip() for name, value in sorted(whole.items(), key=lambda one: one[0].lower())
    }
    names = ";".join(sorted(lower))
    pairs = sorted(parse_qsl(parts.query, keep_blank_values=True))
    query = "&".join(f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in pairs)
    lines = "".join(f"{name}:{lower[name]}\n" for name in sorted(lower))
    request = "\n".join(("GET", parts.path or "/", query, lines, names, EMPTY))
    scope = f"{stamp[:8]}/{region}/s3/aws4_request"
    text = "\n".join(("AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(request.encode()).hexdigest()))
    key = f"AWS4{own.secret}".encode()
    for step in scope.split("/"):
        key = hmac.new(key, step.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    del whole["Host"]
    return whole | {
        "Authorization": f"AWS4-HMAC-SHA256 Credential={own.key}/{scope}, SignedHeaders={names}, Signature={signature}"
    }
