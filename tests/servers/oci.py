"""The used part of Oracle Cloud's Object Storage, with requests' signatures verified.

Signatures are those of draft-cavage-http-signatures with RSA and SHA-256; which headers have to be
signed is as the service demands it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import uuid
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import NameOID

from tests.servers.rest import Answer, Request, SmallServer, bytes_answer, etag_of, json_answer

TENANCY = "ocid1.tenancy.oc1..tests"
USER = "ocid1.user.oc1..tester"
REGION = "eu-frankfurt-1"


def new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def pem(key: rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def fingerprint(key: rsa.RSAPrivateKey) -> str:
    der = key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return _colons(hashlib.md5(der).hexdigest())


def _colons(text: str) -> str:
    return ":".join(text[i : i + 2] for i in range(0, len(text), 2))


def write_config(folder: Path, key: rsa.RSAPrivateKey, region: str = REGION) -> Path:
    """What `oci setup config` would leave behind."""
    (folder / "key.pem").write_bytes(pem(key))
    config = folder / "config"
    config.write_text(
        f"[DEFAULT]\nuser={USER}\nfingerprint={fingerprint(key)}\nkey_file={folder / 'key.pem'}\n"
        f"tenancy={TENANCY}\nregion={region}\n"
    )
    return config


@dataclass
class Upload:
    bucket: str
    name: str
    parts: dict[int, bytes] = field(default_factory=dict)


class OCIServer(SmallServer):
    """One tenancy; the namespace is `tests`.

    Args:
        key: The user's key: requests signed by it are the user's.
    """

    namespace = "tests"
    page = 3
    """Names on a page, where less is not asked for."""

    def __init__(self, key: rsa.RSAPrivateKey) -> None:
        super().__init__()
        self.keys: dict[str, rsa.RSAPublicKey] = {
            f"{TENANCY}/{USER}/{fingerprint(key)}": key.public_key()
        }
        self.buckets: dict[str, dict[str, bytes]] = {}
        self.read_only: set[str] = set()
        self.uploads: dict[str, Upload] = {}
        self.machine = Machine()

    def answer(self, request: Request) -> Answer:
        if request.path.startswith("/opc/v2/"):
            return self.machine.metadata(request)
        if request.path == "/v1/x509":
            return self._federate(request)
        wrong = self.wrong_signature(request)
        if wrong:
            return _error(401, "NotAuthenticated", wrong)
        if request.path.rstrip("/") == "/n":
            return json_answer(self.namespace)
        match = re.fullmatch(r"/n/([^/]+)/b/([^/]+)(?:/(o|u)(?:/(.*))?)?/?", request.quoted)
        if match is None:
            return _error(404, "NotFound", f"no such resource: {request.target}")
        namespace, bucket, kind, name = (unquote(part or "") for part in match.groups())
        if namespace != self.namespace:
            return _error(404, "NamespaceNotFound", f"You do not have authorization: {namespace}")
        if bucket not in self.buckets:
            return _error(404, "BucketNotFound", f"Either the bucket {bucket} is not there or …")
        if request.method in ("PUT", "POST", "DELETE") and bucket in self.read_only:
            return _error(403, "NotAuthorized", "You do not have authorization to do this")
        with self.lock:
            if kind == "u":
                return self._upload(request, bucket, name)
            if kind == "o":
                return self._object(request, bucket, name) if name else self._list(request, bucket)
            return json_answer({"name": bucket})

    def wrong_signature(self, request: Request) -> str:
        """What is wrong with a request's signature; "" if nothing is."""
        given = request.headers.get("authorization", "")
        fields = dict(re.findall(r'(\w+)="([^"]*)"', given))
        if not given.startswith("Signature ") or fields.get("algorithm") != "rsa-sha256":
            return "there is no signature"
        public = self.keys.get(fields["keyId"])
        if public is None:
            return f"the key is not known: {fields['keyId']}"
        signed = fields["headers"].split()
        needed = {"date", "(request-target)", "host"}
        if request.method == "POST":
            needed |= {"content-length", "content-type", "x-content-sha256"}
            digest = base64.b64encode(hashlib.sha256(request.body).digest()).decode()
            if request.headers.get("x-content-sha256") != digest:
                return "x-content-sha256 is not that of the body"
        if not needed <= set(signed):
            return f"these have to be signed: {sorted(needed)}"
        age = datetime.now(timezone.utc) - parsedate_to_datetime(request.headers["date"])
        if abs(age) > timedelta(minutes=5):
            return "the date is off"
        target = f"{request.method.lower()} {request.target}"
        text = "\n".join(
            f"{name}: {target if name == '(request-target)' else request.headers[name]}"
            for name in signed
        )
        try:
            public.verify(
                base64.b64decode(fields["signature"]),
                text.encode(),
                padding.PKCS1v15(),
                hashes.SHA256(),
            )
        except InvalidSignature:
            return "the signature does not verify"
        return ""

    def _object(self, request: Request, bucket: str, name: str) -> Answer:
        objects = self.buckets[bucket]
        if request.method == "PUT":
            wrong = _damaged(request)
            if not wrong:
                objects[name] = request.body
            return wrong or Answer(200, b"", {"etag": etag_of(request.body)})
        if name not in objects:
            return _error(404, "ObjectNotFound", f"The object '{name}' does not exist", request)
        if request.method == "DELETE":
            del objects[name]
            return Answer(204)
        data = objects[name]
        if request.headers.get("if-match") not in (None, etag_of(data)):
            return _error(412, "IfMatchFailed", "The If-Match header does not match", request)
        return bytes_answer(request, data, {"etag": etag_of(data)})

    def _list(self, request: Request, bucket: str) -> Answer:
        query = request.query
        names = [
            name
            for name in sorted(self.buckets[bucket])
            if name.startswith(query.get("prefix", "")) and name >= query.get("start", "")
        ]
        limit = int(query.get("limit", self.page))
        found: dict[str, Any] = {"objects": [{"name": name} for name in names[:limit]]}
        if names[limit:]:
            found["nextStartWith"] = names[limit]
        return json_answer(found)

    def _upload(self, request: Request, bucket: str, name: str) -> Answer:
        if not name:
            upload_id = uuid.uuid4().hex
            self.uploads[upload_id] = Upload(bucket, request.json()["object"])
            details = {"uploadId": upload_id, "object": request.json()["object"], "bucket": bucket}
            return json_answer({**details, "namespace": self.namespace})
        upload_id = request.query["uploadId"]
        upload = self.uploads.get(upload_id)
        if upload is None or upload.name != name:
            return _error(404, "NoSuchUpload", "The upload is not known")
        if request.method == "DELETE":
            del self.uploads[upload_id]
            return Answer(204)
        if request.method == "PUT":
            wrong = _damaged(request)
            if not wrong:
                upload.parts[int(request.query["uploadPartNum"])] = request.body
            return wrong or Answer(200, b"", {"etag": etag_of(request.body)})
        parts = request.json()["partsToCommit"]
        for part in parts:
            if etag_of(upload.parts[part["partNum"]]) != part["etag"]:
                return _error(400, "InvalidUploadPart", f"part {part['partNum']} has another ETag")
        data = b"".join(upload.parts[part["partNum"]] for part in parts)
        self.buckets[bucket][name] = data
        del self.uploads[upload_id]
        return Answer(200, b"", {"etag": etag_of(data)})

    def _federate(self, request: Request) -> Answer:
        """Give a machine a token for the key that it has made for this session."""
        asked = request.json()
        known = self.machine.certificate.public_bytes(serialization.Encoding.DER)
        if base64.b64decode(asked["certificate"]) != known:
            return _error(401, "NotAuthenticated", "the certificate is not that of a machine")
        public = serialization.load_der_public_key(base64.b64decode(asked["publicKey"]))
        assert isinstance(public, rsa.RSAPublicKey)
        expires = datetime.now(timezone.utc) + timedelta(minutes=20)
        jwk = {"kty": "RSA", "n": _number(public.public_numbers().n), "e": _number(65537)}
        claims = {"exp": int(expires.timestamp()), "jwk": json.dumps(jwk), "tenant": TENANCY}
        token = ".".join((_part({"alg": "none"}), _part(claims), "unsigned"))
        self.keys[f"ST${token}"] = public
        return json_answer({"token": token})


class Machine:
    """What a machine of the cloud is told about itself, at OCI_METADATA_BASE_URL."""

    def __init__(self) -> None:
        self.key = new_key()
        now = datetime.now(timezone.utc)
        name = x509.Name(
            [
                x509.NameAttribute(NameOID.COMMON_NAME, "a machine"),
                x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, f"opc-tenant:{TENANCY}"),
            ]
        )
        self.certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(self.key.public_key())
            .serial_number(1)
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .sign(self.key, hashes.SHA256())
        )

    def metadata(self, request: Request) -> Answer:
        if request.headers.get("authorization") != "Bearer Oracle":
            return Answer(401)
        certificate = self.certificate.public_bytes(serialization.Encoding.PEM)
        found = {
            "instance/region": REGION.encode(),
            "identity/cert.pem": certificate,
            "identity/intermediate.pem": certificate,
            "identity/key.pem": pem(self.key),
        }
        data = found.get(request.path.removeprefix("/opc/v2/"))
        return Answer(404) if data is None else Answer(200, data)


def _part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _number(value: int) -> str:
    data = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _damaged(request: Request) -> Answer | None:
    digest = base64.b64encode(hashlib.md5(request.body).digest()).decode()
    if request.headers.get("content-md5", digest) == digest:
        return None
    return _error(400, "UnmatchedContentMD5", "The Content-MD5 is not that of the body")


def _error(status: int, code: str, message: str, request: Request | None = None) -> Answer:
    answer = json_answer({"code": code, "message": message}, status)
    return answer if request is None or request.method != "HEAD" else Answer(status)
