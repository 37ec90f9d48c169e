"""A bucket on 127.0.0.1 that answers as a test says: a folder's files as objects, and refusals.

For what a real server cannot be brought to do at a given moment. Signatures are not checked.
"""

from __future__ import annotations

import hashlib
import re
import sys
import urllib.parse
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape

sys.path.insert(0, str(Path(__file__).parent))
import answering

BUCKET = "bucket"


@dataclass(frozen=True)
class Asked:
    """A request, taken apart."""

    method: str
    bucket: str
    key: str  # empty: the bucket itself
    query: dict[str, str]
    headers: dict[str, str]  # names in lower case

    @property
    def is_list(self) -> bool:
        """Tell whether the bucket is to be listed."""
        return "list-type" in self.query

    @property
    def region(self) -> str:
        """The region that it is signed for."""
        scope = re.search(r"Credential=[^/]+/\d+/([^/]+)/", self.headers.get("authorization", ""))
        return scope[1] if scope else ""


@dataclass(frozen=True)
class Refusal:
    """An answer that S3 gives instead of what was asked for."""

    status: int
    code: str
    more: str = ""  # further elements
    headers: dict[str, str] = field(default_factory=dict)


class ScriptedS3(answering.Server):
    """The server. ``rule`` may refuse a request; it is called before anything else."""

    def __init__(self, root: Path) -> None:
        """Serve the files below ``root`` as the objects of the bucket."""
        super().__init__(_Handler)
        self.root = root
        self.rule: Callable[[Asked], Refusal | None] = lambda _: None
        self.asked: list[Asked] = []

    def options(self) -> dict[str, str]:
        """Return the storage_options that lead here."""
        return {
            "endpoint": self.url,
            "region": "us-east-1",
            "access_key_id": "scripted",
            "secret_access_key": "scripted-secret-key",
            "dialect": "s3",
            "retry_budget": "300ms",
        }

    def environment(self) -> dict[str, str]:
        """Return the variables that lead AWS tools here."""
        return {
            "AWS_ENDPOINT_URL_S3": self.url,
            "AWS_ACCESS_KEY_ID": "scripted",
            "AWS_SECRET_ACCESS_KEY": "scripted-secret-key",
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
            "HEADRACE_S3_DIALECT": "s3",
        }


class _Handler(answering.Handler):
    server: ScriptedS3

    def answer(self) -> None:
        parts = urllib.parse.urlsplit(self.path)
        bucket, _, key = urllib.parse.unquote(parts.path).lstrip("/").partition("/")
        query = dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True))
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(self.command, bucket, key, query, headers)
        self.server.asked.append(asked)
        refusal = self.server.rule(asked)
        if refusal is None and bucket != BUCKET:
            refusal = Refusal(404, "NoSuchBucket")
        if refusal is not None:
            self.refuse(refusal)
        elif asked.is_list:
            self.list(asked)
        else:
            self.give(asked)

    def refuse(self, refusal: Refusal) -> None:
        body = (
            f"<Error><Code>{refusal.code}</Code><Message>as the test says</Message>"
            f"{refusal.more}</Error>"
        )
        self.send(refusal.status, refusal.headers, body.encode())

    def list(self, asked: Asked) -> None:
        prefix, delimiter = asked.query.get("prefix", ""), asked.query.get("delimiter", "")
        body, common = "", set()
        root = self.server.root
        names = sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file())
        for name in names:
            if not name.startswith(prefix):
                continue
            cut = name.find(delimiter, len(prefix)) if delimiter else -1
            if cut >= 0:
                common.add(name[: cut + 1])
                continue
            data = (root / name).read_bytes()
            body += (
                f"<Contents><Key>{escape(name)}</Key><Size>{len(data)}</Size>"
                f'<ETag>"{hashlib.md5(data).hexdigest()}"</ETag></Contents>'
            )
        for name in sorted(common):
            body += f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
        body = f"<ListBucketResult><IsTruncated>false</IsTruncated>{body}</ListBucketResult>"
        self.send(200, {"Content-Type": "application/xml"}, body.encode())

    def give(self, asked: Asked) -> None:
        path = self.server.root / asked.key
        if not asked.key or not path.is_file():
            return self.refuse(Refusal(404, "NoSuchKey"))
        data = path.read_bytes()
        etag = f'"{hashlib.md5(data).hexdigest()}"'
        status, headers, body = answering.read(data, etag, self.headers)
        if status == 412:
            return self.refuse(Refusal(412, "PreconditionFailed"))
        if status == 416:
            return self.refuse(Refusal(416, "InvalidRange"))
        return self.send(status, headers, body)


def running(root: Path) -> AbstractContextManager[ScriptedS3]:
    """Serve the files below ``root`` until the end of the block."""
    return answering.running(ScriptedS3(root))
