"""Objects in S3: their https address, and the signature (SigV4) of a request if there are credentials."""

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
    """An AWS access key, its secret, and a session token."""

    key: str
    secret: str
    token: str | None


def credentials() -> Credentials | None:
    """Credentials from AWS's environment variables, else from the profile in the shared credentials file, else None."""
    key = os.environ.get("AWS_ACCESS_KEY_ID")
    secret = os.environ.get("AWS_SECRET_ACCESS_KEY")
    if key and secret:
        return Credentials(key, secret, os.environ.get("AWS_SESSION_TOKEN"))
    path = Path(
        os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")
    ).expanduser()
    profiles = configparser.ConfigParser(interpolation=None)
    try:
        profiles.read(path, encoding="utf-8")
        section = profiles[os.environ.get("AWS_PROFILE", "default")]
        return Credentials(
            section["aws_access_key_id"],
            section["aws_secret_access_key"],
            section.get("aws_session_token"),
        )
    except (configparser.Error, KeyError, OSError, UnicodeDecodeError):
        return None


def own_endpoint() -> str | None:
    """The S3 endpoint that the environment sets in place of Amazon's, or None."""
    return (
        os.environ.get("AWS_ENDPOINT_URL_S3")
        or os.environ.get("AWS_ENDPOINT_URL")
        or None
    )


def address_of(
    url: str, version_id: str | None = None, endpoint: str | None = None
) -> str:
    """The https address of ``s3://bucket/key`` at ``endpoint``, else the environment's endpoint, else Amazon's.

    >>> address_of("s3://lab/a b.nc", "v1")
    'https://lab.s3.amazonaws.com/a%20b.nc?versionId=v1'
    >>> address_of("s3://lab/a.nc", endpoint="https://s3.example.org")
    'https://s3.example.org/lab/a.nc'
    """
    if url.startswith("s3://"):
        parts = urlsplit(url)
        endpoint = endpoint or own_endpoint()
        key = quote(parts.path.lstrip("/"))
        if endpoint:
            url = f"{endpoint.rstrip('/')}/{parts.netloc}/{key}"
        else:
            url = f"https://{parts.netloc}.s3.amazonaws.com/{key}"
    if version_id:
        return f"{url}?versionId={quote(version_id)}"
    return url


def region_of(address: str, stated: str | None = None) -> str | None:
    """The region for signing a request to this address; None if requests to it must not be signed.

    Only Amazon's hosts and the environment's endpoint receive a signature, because specs may come from strangers.
    """
    host = urlsplit(address).netloc
    endpoint = own_endpoint()
    amazon = HOST.fullmatch(host)
    if amazon is None and (endpoint is None or host != urlsplit(endpoint).netloc):
        return None
    default = (
        os.environ.get("AWS_REGION")
        or os.environ.get("AWS_DEFAULT_REGION")
        or DEFAULT_REGION
    )
    return stated or (amazon and amazon["region"]) or default


def signed(
    address: str,
    headers: Mapping[str, str],
    own: Credentials,
    region: str,
    *,
    now: datetime | None = None,
) -> dict[str, str]:
    """The headers of a GET request with an empty body, with AWS's signature version 4 added.

    https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
    """
    parts = urlsplit(address)
    timestamp = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
    result = {**headers, "x-amz-content-sha256": EMPTY, "x-amz-date": timestamp}
    if own.token:
        result["x-amz-security-token"] = own.token
    signed_headers = {name.lower(): value.strip() for name, value in result.items()} | {
        "host": parts.netloc
    }
    names = ";".join(sorted(signed_headers))
    lines = "".join(
        f"{name}:{signed_headers[name]}\n" for name in sorted(signed_headers)
    )
    pairs = sorted(parse_qsl(parts.query, keep_blank_values=True))
    query = "&".join(
        f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}"
        for name, value in pairs
    )
    request = "\n".join(("GET", parts.path or "/", query, lines, names, EMPTY))
    scope = f"{timestamp[:8]}/{region}/s3/aws4_request"
    text = "\n".join(
        (
            "AWS4-HMAC-SHA256",
            timestamp,
            scope,
            hashlib.sha256(request.encode()).hexdigest(),
        )
    )
    key = f"AWS4{own.secret}".encode()
    for step in scope.split("/"):
        key = hmac.new(key, step.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    return result | {
        "Authorization": f"AWS4-HMAC-SHA256 Credential={own.key}/{scope}, SignedHeaders={names}, Signature={signature}"
    }
