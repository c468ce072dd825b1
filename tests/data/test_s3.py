"""Objects of S3: signed for people with credentials, anonymous elsewhere; a service on loopback checks signatures."""

from __future__ import annotations

import hashlib
import hmac
import http.server
import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import pytest
from pydantic import ValidationError

from neuroledger.cli import main
from neuroledger.data.fetch import fetch_files, fetch_stated
from neuroledger.data.gate.validate import validate
from neuroledger.data.package import Terms, package_stimuli
from neuroledger.data.s3 import Credentials, address_of, credentials, region_of, signed
from neuroledger.engine.plan import plan
from neuroledger.engine.session import Request
from neuroledger.errors import IntegrityError, UnavailableError
from neuroledger.spec.base import SourceFile, Stated
from neuroledger.spec.catalog import open_catalog
from tests.engine.lab import Lab, build
from tests.hostile.proposals.corpus import point

KEY, SECRET, REGION = (
    "AKIDEXAMPLE",
    "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
    "eu-test-7",
)
CONTENT = bytes(range(256)) * 40


class Service(http.server.BaseHTTPRequestHandler):
    """Buckets by path; private ones answer requests whose signature is right, others with 403."""

    objects: ClassVar[dict[str, bytes]] = {}
    private: ClassVar[set[str]] = set()
    seen: ClassVar[list[tuple[str, bool]]] = []
    breaks: ClassVar[int] = 0
    token: ClassVar[str | None] = None
    refusal: ClassVar[int] = 403
    region: ClassVar[str | None] = None

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        path, version = (
            unquote(parts.path).lstrip("/"),
            dict(parse_qsl(parts.query)).get("versionId"),
        )
        name = f"{path}@{version}" if version else path
        allowed = self._allowed(parts)
        type(self).seen.append((path, allowed))
        bucket = path.split("/")[0]
        if allowed is False and "Authorization" in self.headers:
            self.send_response(self.refusal, "SignatureDoesNotMatch")
            if self.region:
                self.send_header("x-amz-bucket-region", self.region)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if bucket in self.private and not allowed:
            self.send_error(403, "AccessDenied")
            return
        if name not in self.objects:
            self.send_error(404, "NoSuchKey")
            return
        wanted = self.headers.get("Range")
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        body = self.objects[name][start:]
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if type(self).breaks:
            type(self).breaks -= 1
            body = body[: len(body) // 2]
        self.wfile.write(body)

    def _allowed(self, parts: Any) -> bool:
        said = re.fullmatch(
            r"AWS4-HMAC-SHA256 Credential=(\w+)/(\d{8})/([\w-]+)/s3/aws4_request, SignedHeaders=([\w;-]+), Signature=(\w+)",
            self.headers.get("Authorization", ""),
        )
        if said is None or said[1] != KEY or said[3] != REGION:
            return False
        if self.token and (
            "x-amz-security-token" not in said[4]
            or self.headers["x-amz-security-token"] != self.token
        ):
            return False
        pairs = sorted(parse_qsl(parts.query, keep_blank_values=True))
        query = "&".join(
            f"{quote(a, safe='-_.~')}={quote(b, safe='-_.~')}" for a, b in pairs
        )
        headers = "".join(
            f"{name}:{self.headers[name].strip()}\n" for name in said[4].split(";")
        )
        body = hashlib.sha256(b"").hexdigest()
        request = f"GET\n{parts.path}\n{query}\n{headers}\n{said[4]}\n{body}"
        scope = f"{said[2]}/{REGION}/s3/aws4_request"
        digest = hashlib.sha256(request.encode()).hexdigest()
        key = f"AWS4{SECRET}".encode()
        for step in scope.split("/"):
            key = hmac.new(key, step.encode(), "sha256").digest()
        text = f"AWS4-HMAC-SHA256\n{self.headers['x-amz-date']}\n{scope}\n{digest}"
        return hmac.compare_digest(
            hmac.new(key, text.encode(), "sha256").hexdigest(), said[5]
        )

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    for name in (
        "ACCESS_KEY_ID",
        "SECRET_ACCESS_KEY",
        "SESSION_TOKEN",
        "PROFILE",
        "REGION",
        "DEFAULT_REGION",
        "ENDPOINT_URL_S3",
    ):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.delenv("NEUROLEDGER_MIRROR", raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    Service.objects, Service.private, Service.seen, Service.breaks = (
        {},
        {"closed"},
        [],
        0,
    )
    Service.token, Service.refusal, Service.region = None, 403, None
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{running.server_address[1]}"
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        yield address
        running.shutdown()


def own(monkeypatch: pytest.MonkeyPatch, secret: str = SECRET) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)


def pin(url: str, content: bytes = CONTENT, **fields: Any) -> SourceFile:
    return SourceFile(
        url=url, size=len(content), sha256=hashlib.sha256(content).hexdigest(), **fields
    )


PUBLISHED = {
    (
        "/test.txt",
        "bytes=0-9",
    ): "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
    (
        "/?lifecycle",
        None,
    ): "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
    (
        "?lifecycle",
        None,
    ): "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
    (
        "/?max-keys=2&prefix=J",
        None,
    ): "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
    (
        "/?prefix=J&max-keys=2",
        None,
    ): "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
}


@pytest.mark.parametrize(("path", "wanted"), PUBLISHED)
def test_signatures_are_those_that_the_service_publishes_as_examples(
    path: str, wanted: str | None
) -> None:
    given = Credentials(
        "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", None
    )
    found = signed(
        f"https://examplebucket.s3.amazonaws.com{path}",
        {"Range": wanted} if wanted else {},
        given,
        "us-east-1",
        now=datetime(2013, 5, 24, tzinfo=UTC),
    )
    assert found["Authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, SignedHeaders=host;"
        f"{'range;' if wanted else ''}x-amz-content-sha256;x-amz-date, Signature={PUBLISHED[path, wanted]}"
    )
    assert found.get("Range") == wanted and found["x-amz-date"] == "20130524T000000Z"


def test_addresses_regions_and_who_is_trusted_with_a_signature(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("ENDPOINT_URL", "ENDPOINT_URL_S3", "REGION", "DEFAULT_REGION"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    assert (
        address_of("s3://b/k a", "v") == "https://b.s3.amazonaws.com/k%20a?versionId=v"
    )
    assert region_of("https://b.s3.eu-central-1.amazonaws.com/k") == "eu-central-1"
    assert region_of("https://b.s3.amazonaws.com/k", "ap-south-1") == "ap-south-1"
    for stranger in (
        "https://s3.amazonaws.com.evil.org/k",
        "https://evil.org/s3.amazonaws.com",
        "https://minio.lab/b/k",
        "https://evil.org\\@b.s3.amazonaws.com/k",  # a client goes to what stands before the backslash
        "https://key@b.s3.amazonaws.com/k",
    ):
        assert region_of(stranger) is None
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://minio.lab")
    assert region_of(address_of("s3://b/k")) == "us-east-1"
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-north-1")
    assert region_of("https://minio.lab/b/k") == "eu-north-1"
    monkeypatch.setenv("AWS_REGION", "eu-west-3")
    assert region_of("https://minio.lab/b/k") == "eu-west-3"
    assert (
        region_of("https://b.s3.dualstack.ap-south-1.amazonaws.com/k") == "ap-south-1"
    )
    assert region_of("https://minio.lab/b/k", "us-gov-east-1") == "us-gov-east-1"
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "https://objects.lab/")
    assert address_of("s3://b/f/k") == "https://objects.lab/b/f/k"
    assert (
        region_of("https://objects.lab/b/f/k") == "eu-west-3"
        and region_of("https://minio.lab/b/k") is None
    )
    assert (
        address_of("s3://b/k", endpoint="https://minio.lab/") == "https://minio.lab/b/k"
    )
    assert (
        address_of("https://example.org/s3://b", "v&1")
        == "https://example.org/s3://b?versionId=v%261"
    )


def test_credentials_come_from_variables_or_from_a_profile(
    service: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert credentials() is None
    (tmp_path / "credentials").write_text(
        "[default]\naws_access_key_id = A\naws_secret_access_key = B\n[lab]\naws_access_key_id = C\n"
        "aws_secret_access_key = D%\naws_session_token = E\n"
    )
    assert credentials() == Credentials("A", "B", None)
    monkeypatch.setenv("AWS_PROFILE", "lab")
    assert credentials() == Credentials("C", "D%", "E")
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    assert credentials() is None
    (tmp_path / "credentials").write_bytes(b"[nobody]\n\xff")
    assert credentials() is None, (
        "a damaged file of credentials does not prevent the download of public objects"
    )
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    assert credentials() is None, "a key without its secret cannot sign"
    own(monkeypatch)
    assert credentials() == Credentials(KEY, SECRET, None)
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of today")
    assert credentials() == Credentials(KEY, SECRET, "of today")


def test_without_a_named_file_credentials_are_those_in_the_home_folder(
    service: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("AWS_SHARED_CREDENTIALS_FILE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert credentials() is None
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(
        "[default]\naws_access_key_id = A\naws_secret_access_key = B\n"
    )
    assert credentials() == Credentials("A", "B", None)


def test_a_temporary_key_is_signed_with_its_session_token(
    service: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    Service.objects, Service.token = {"closed/a.bin": CONTENT}, "of today"
    own(monkeypatch)
    closed = {"a.bin": pin("s3://closed/a.bin", region=REGION)}
    with pytest.raises(UnavailableError, match="403"):
        fetch_files(tmp_path, tmp_path / "out", closed)
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of today")
    fetch_files(tmp_path, tmp_path / "out", closed)
    assert (tmp_path / "out" / "a.bin").read_bytes() == CONTENT


def test_public_objects_need_no_account_and_private_ones_do(
    service: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    Service.objects = {"open/a+b.bin": CONTENT, "closed/c.bin@v/1 ~": CONTENT}
    fetch_files(tmp_path, tmp_path / "out", {"a.bin": pin("s3://open/a+b.bin")})
    closed = {"c.bin": pin("s3://closed/c.bin", version_id="v/1 ~", region=REGION)}
    with pytest.raises(
        UnavailableError,
        match=r"403.*set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
    ):
        fetch_files(tmp_path, tmp_path / "out", closed)
    own(monkeypatch, "another secret")
    with pytest.raises(UnavailableError, match="403"):
        fetch_files(tmp_path, tmp_path / "out", closed)
    own(monkeypatch)
    Service.breaks = 1
    fetch_files(tmp_path, tmp_path / "out", closed)
    assert (tmp_path / "out" / "c.bin").read_bytes() == CONTENT, (
        "resumed with a signed range"
    )
    assert Service.seen[-1] == ("closed/c.bin", True)


def test_credentials_without_a_right_to_a_public_object_do_not_hide_it(
    service: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    Service.objects = {"open/a.bin": CONTENT}
    own(monkeypatch, "of another account")
    fetch_files(
        tmp_path, tmp_path / "out", {"a.bin": pin("s3://open/a.bin", region=REGION)}
    )
    assert [allowed for _, allowed in Service.seen] == [False, False]


@pytest.mark.parametrize("refusal", [301, 307, 400, 403])
def test_a_request_is_signed_again_for_the_region_that_the_service_names(
    service: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, refusal: int
) -> None:
    Service.objects, Service.refusal, Service.region = (
        {"closed/a.bin": CONTENT},
        refusal,
        REGION,
    )
    own(monkeypatch)
    fetch_files(tmp_path, tmp_path / "out", {"a.bin": pin("s3://closed/a.bin")})
    assert Service.seen == [("closed/a.bin", False), ("closed/a.bin", True)]


def test_a_spec_can_name_an_endpoint_but_gets_no_signature_for_it(
    service: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    Service.objects = {"open/a.bin": CONTENT}
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://s3.own.example")
    own(monkeypatch)
    fetch_files(
        tmp_path, tmp_path / "out", {"a.bin": pin("s3://open/a.bin", endpoint=service)}
    )
    assert Service.seen == [("open/a.bin", False)]
    assert "endpoint" not in pin("s3://open/a.bin").model_dump(), (
        "absent fields do not change the identity of a spec"
    )


def test_a_file_of_which_only_sha1_is_known_is_compared_with_it(
    service: str, tmp_path: Path
) -> None:
    Service.objects = {"open/a.bin": CONTENT}
    right, wrong = hashlib.sha1(CONTENT).hexdigest(), "0" * 40
    fetch_stated(
        tmp_path, tmp_path / "out", {"a.bin": Stated(url="s3://open/a.bin", sha1=right)}
    )
    assert (tmp_path / "out" / "a.bin").read_bytes() == CONTENT
    with pytest.raises(
        IntegrityError,
        match=f"SHA-1 {right} where its publisher states {wrong}.*the download was deleted",
    ):
        fetch_stated(
            tmp_path,
            tmp_path / "other",
            {"a.bin": Stated(url="s3://open/a.bin", sha1=wrong)},
        )
    assert not list((tmp_path / "other").iterdir()) and not list(
        (tmp_path / ".cache" / "downloads").iterdir()
    )


def test_a_wrong_sha1_with_a_right_sha256_is_refused(
    service: str, tmp_path: Path
) -> None:
    Service.objects = {"open/a.bin": CONTENT}
    with pytest.raises(IntegrityError, match="SHA-1"):
        fetch_files(
            tmp_path, tmp_path / "out", {"a.bin": pin("s3://open/a.bin", sha1="0" * 40)}
        )
    assert not (tmp_path / "out" / "a.bin").exists()
    (tmp_path / "out").mkdir(exist_ok=True)
    (tmp_path / "out" / "a.bin").write_bytes(CONTENT)
    with pytest.raises(IntegrityError, match="SHA-1"):
        fetch_files(
            tmp_path, tmp_path / "out", {"a.bin": pin("s3://open/a.bin", sha1="0" * 40)}
        )


# A private data set: from what its publisher states to a score


def stated(lab: Lab, bucket: str) -> None:
    """The data set of the lab, known by what its publisher states alone."""
    downloads = {}
    for path in sorted(lab.data.iterdir()):
        Service.objects[f"{bucket}/{path.name}"] = path.read_bytes()
        said = {
            "url": f"s3://{bucket}/{path.name}",
            "sha1": hashlib.sha1(path.read_bytes()).hexdigest(),
            "region": REGION,
        }
        downloads[path.name] = said
        path.unlink()
    lab.dataset(
        files={},
        downloads=downloads,
        access="private",
        expectations={},
        unavailable="private upstream",
    )


def test_private_data_are_unavailable_without_credentials_and_scored_with_them(
    service: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    repository: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lab = build(tmp_path / "lab", repository)
    monkeypatch.chdir(lab.root)
    stated(lab, "closed")
    before = (lab.root / "specs" / "datasets" / "lab.yaml").read_text()
    assert main(["fetch", "lab"]) == 1 and "403" in capsys.readouterr().err
    assert main(["import", "brainscore", "lab.V4-ridge"]) == 4
    assert (
        lab.root / "specs" / "datasets" / "lab.yaml"
    ).read_text() == before and not list(lab.data.iterdir())
    assert main(["run", "--suite", "lab"]) == 0
    own(monkeypatch)
    capsys.readouterr()
    assert main(["import", "brainscore", "lab.V4-ridge"]) == 0, capsys.readouterr()
    spec = open_catalog(lab.root).dataset("lab")
    assert (
        spec.unavailable is None
        and spec.expectations.assembly
        and spec.files["responses.nc"].sha1
    )
    assert (
        spec.files["responses.nc"].url == "s3://closed/responses.nc"
        and not spec.files["responses.nc"].dvc
    )
    assert main(["import", "brainscore", "lab.V4-ridge"]) == 0
    assert validate(open_catalog(lab.root), "lab").success
    assert main(["run", "--suite", "lab"]) == 0
    (record,) = (lab.root / "results" / "records").rglob("pixels4.json")
    kept = record.read_text()
    assert json.loads(kept)["status"] == "scored"
    for path in lab.data.iterdir():
        path.unlink()
    planned = plan(
        open_catalog(lab.root), benchmarks=["lab.V4-ridge"], request=Request()
    )
    assert (
        not planned.jobs
        and "private and missing" in planned.unavailable["lab.V4-ridge"]
    )
    lab.spec(
        "benchmarks",
        "lab.V4-ridge",
        **{
            **json.loads(
                json.dumps(
                    {
                        "parent": "V4",
                        "dataset": "lab",
                        "paradigm": {"name": "recording", "region": "V4"},
                        "metric": "ridge",
                        "ceiling": "internal_consistency",
                        "version": 2,
                    }
                )
            )
        },
    )
    assert main(["run", "--suite", "lab"]) == 0
    assert record.read_text() == kept, "a committed record stays"


def test_a_publishers_wrong_sha1_leaves_nothing_behind(
    service: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    repository: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lab = build(tmp_path / "lab", repository)
    monkeypatch.chdir(lab.root)
    stated(lab, "open")
    Service.objects["open/stimuli.csv"] = b"stimulus_id,filename\n"
    assert main(["import", "brainscore", "lab"]) == 4
    assert "SHA-1" in capsys.readouterr().err
    assert (
        not list(lab.data.iterdir())
        and open_catalog(lab.root).dataset("lab").files == {}
    )
    text = (lab.root / "specs" / "datasets" / "lab.yaml").read_text()
    sha1 = hashlib.sha1(Service.objects["open/stimuli.csv"]).hexdigest()
    old = open_catalog(lab.root).dataset("lab").downloads["stimuli.csv"].sha1
    (lab.root / "specs" / "datasets" / "lab.yaml").write_text(
        text.replace(str(old), sha1)
    )
    assert main(["fetch", "lab"]) == 1, "what the reader cannot read is not pinned"
    assert (
        not list(lab.data.iterdir())
        and open_catalog(lab.root).dataset("lab").files == {}
    )


def test_private_bytes_never_reach_the_repositorys_remote(
    tmp_path: Path,
    repository: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lab = build(tmp_path / "lab", repository)
    monkeypatch.chdir(lab.root)
    subprocess.run(["git", "init", "-q"], check=True)
    subprocess.run([sys.executable, "-m", "dvc", "init", "-q"], check=True)
    assert main(["export", "brainscore", "lab", "--out", str(tmp_path / "out")]) == 0
    files = [str(path) for path in sorted((tmp_path / "out").iterdir())]
    assert (
        main(
            [
                "import",
                "brainscore",
                "secret",
                *files,
                "--access",
                "private",
                "--degrees",
                "8",
            ]
        )
        == 0
    )
    assert not list((lab.root / "data" / "secret").glob("*.dvc"))
    spec = open_catalog(lab.root).dataset("secret")
    assert spec.degrees == 8 and spec.access == "private"
    assert not any(pinned.dvc for pinned in spec.files.values())
    lab.dataset(
        access="private",
        files={
            name: {**one, "dvc": True, "url": None} for name, one in lab.pins().items()
        },
    )
    assert main(["check"]) == 1
    assert "spec.private" in capsys.readouterr().out
    (tmp_path / "t.csv").write_text("stimulus_id\na\n")
    terms = Terms(
        lambda *_: {"name": "netcdf", "assembly": None, "archive": None},
        "CC0-1.0",
        "private",
    )
    package_stimuli(lab.open(), "mine", tmp_path / "t.csv", None, terms)
    assert not list((lab.root / "data" / "mine").glob("*.dvc"))
    assert not lab.open().dataset("mine").files["stimuli.csv"].dvc


def test_an_object_that_was_tampered_with_is_called_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "repo"
    root.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    (root / ".dvc").mkdir()
    (root / "a.bin").write_bytes(CONTENT)
    point(Lab(root), root / "a.bin")
    remote = root / ".dvcstore"
    (held,) = [path for path in remote.rglob("*") if path.is_file()]

    def configure(url: str) -> None:
        (root / ".dvc" / "config").write_text(
            f"[core]\n    remote = r\n['remote \"r\"']\n    url = {url}\n    verify = true\n"
        )

    configure(str(remote))
    source = SourceFile(
        dvc=True, size=len(CONTENT), sha256=hashlib.sha256(CONTENT).hexdigest()
    )

    def pull() -> None:
        (root / "a.bin").unlink(missing_ok=True)
        shutil.rmtree(root / ".dvc" / "cache", ignore_errors=True)
        fetch_files(root, root, {"a.bin": source})

    pull()
    held.chmod(0o644)
    held.write_bytes(CONTENT[:-1] + b"!")
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(remote))
    monkeypatch.setattr(
        http.server.SimpleHTTPRequestHandler, "log_message", lambda *_: None
    )
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        configure(f"http://127.0.0.1:{running.server_address[1]}/")
        with pytest.raises(IntegrityError, match="tampered"):
            pull()
        running.shutdown()
    configure(str(remote))
    with pytest.raises(IntegrityError, match="tampered"):
        pull()
    with pytest.raises(UnavailableError, match="the remote does not have it"):
        pull()


def test_a_pointer_made_by_import_url_is_fetched_from_its_source(
    service: str, tmp_path: Path
) -> None:
    Service.objects = {"open/a.bin": CONTENT}
    root = tmp_path / "repo"
    root.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    for words in (
        ("init", "-q"),
        ("import-url", "-q", f"{service}/open/a.bin", "a.bin"),
    ):
        subprocess.run(
            [sys.executable, "-m", "dvc", *words],
            cwd=root,
            check=True,
            capture_output=True,
        )
    (root / "a.bin").unlink()
    shutil.rmtree(root / ".dvc" / "cache")
    source = SourceFile(
        dvc=True, size=len(CONTENT), sha256=hashlib.sha256(CONTENT).hexdigest()
    )
    fetch_files(root, root, {"a.bin": source})
    assert (root / "a.bin").read_bytes() == CONTENT


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://localhost:x@evil.org/",
        "http://localhost.evil.org",
        "http://127.0.0.1@evil.org",
    ],
)
def test_an_endpoint_without_encryption_is_this_machine(endpoint: str) -> None:
    pin = {"sha256": "0" * 64, "size": 1, "url": "s3://b/k"}
    for here in ("http://localhost:9000", "http://127.0.0.1/s3", "https://minio.lab"):
        assert SourceFile.model_validate(pin | {"endpoint": here}).endpoint == here
    with pytest.raises(ValidationError):
        SourceFile.model_validate(pin | {"endpoint": endpoint})
