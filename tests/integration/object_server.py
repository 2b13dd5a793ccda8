#!/usr/bin/env python3
"""An S3 server with faults, for tests: moto's server behind a proxy. Runs in a virtual environment that has moto[server].

Like Amazon's server, the proxy checks signatures (by botocore's code), the SHA-256 of bodies, and the times of requests.
moto checks none of these. Also like Amazon's, it writes blanks in listed keys as "+".

It also serves temporary credentials, as the services of rented machines do: IMDSv2 at /latest/, and a container's at
/-/container. POST /-/lifetime sets the seconds after which they end; 0: there are none, which is so at the begin.
GET /-/issued returns how often they were given out, and how many requests came with ended ones.

Arguments: buckets to make. Or `--front PORT MOTO_PORT`: only the proxy, at PORT (0: any), before the moto of another
process. Such a proxy can be killed and started again, like a server with its data on disks.

Prints the port of the proxy and that of moto when it serves. Ends with its standard input. POST /-/faults sets the faults: a list of
{"kind", "count", "method", "match"}; `match` is a regular expression for the path with its query. GET /-/faults returns those
that are left, GET /-/requests the requests so far. Kinds:

    500, 503       an answer with this status; 503 is SlowDown
    reset          the connection ends without an answer
    lost-answer    the request is carried out, and the connection ends without an answer
    hang           no answer for 60 s
    slow           the answer trickles, 1 KiB each 0.5 s
    truncated      half of the body of the answer
    damaged        a bit of the answer's body is changed
    bad-digest     the body is refused as damaged on its way
    expired        the credentials are refused as expired
    early          a completion or copy is answered 200, with an error in the text
    forged         the request is refused with a message of several lines
    foreign        the listing has a key that was not asked for
    shifted        the answer has the range one byte later
    redirect       the answer names the server itself as the place of the object
    skew           the server's clock is an hour ahead from now on; "unskew" ends that
"""

import datetime
import hashlib
import http.client
import http.server
import json
import re
import socket
import sys
import threading
import time
import urllib.parse

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from moto.server import ThreadedMotoServer

SECRETS = {"TESTKEY": "a/secret+of=the test", "OTHERKEY": "another", "TEMPKEY": "of a role"}
SKEW_MAX = datetime.timedelta(minutes=15)
TIME = "%Y%m%dT%H%M%SZ"


class State:
    def __init__(self):
        self.lock = threading.Lock()
        self.faults = []
        self.requests = []
        self.skew = datetime.timedelta()
        self.lifetime = 0
        self.issued = 0
        self.ended_uses = 0

    def issue(self):
        """Returns the next temporary credentials. Their token says when they end."""
        with self.lock:
            self.issued += 1
            end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=self.lifetime)
            return {"Code": "Success", "AccessKeyId": "TEMPKEY", "SecretAccessKey": SECRETS["TEMPKEY"],
                    "Token": f"token-{end.timestamp()}", "Expiration": end.strftime("%Y-%m-%dT%H:%M:%SZ")}

    def take_fault(self, method, path):
        with self.lock:
            self.requests.append(f"{method} {path}")
            for fault in self.faults:
                if fault.get("method", method) != method or not re.search(fault.get("match", ""), path):
                    continue
                fault["count"] = fault.get("count", 1) - 1
                if fault["count"] <= 0:
                    self.faults.remove(fault)
                return fault["kind"]
        return None

    def now(self):
        return datetime.datetime.now(datetime.timezone.utc) + self.skew


STATE = State()
MOTO_PORT = None


def error(status, code, message="by the test"):
    text = f"<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>{message}</Message></Error>"
    return status, {"Content-Type": "application/xml"}, text.encode()


def fault_of_signature(method, path, headers, body):
    """Returns the error that Amazon's server answers to a wrong signature; None: it is right."""
    found = re.fullmatch(
        r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d+)/([^/]+)/s3/aws4_request, ?SignedHeaders=([^,]+), ?Signature=(\w+)",
        headers.get("Authorization", ""))
    if not found:
        return error(403, "AccessDenied")
    key, _, region, signed, signature = found.groups()
    if key not in SECRETS:
        return error(403, "InvalidAccessKeyId")
    if abs(datetime.datetime.strptime(headers["X-Amz-Date"] + "+0000", TIME + "%z") - STATE.now()) > SKEW_MAX:
        return error(403, "RequestTimeTooSkewed")
    if key == "TEMPKEY":
        token = re.fullmatch(r"token-([0-9.]+)", headers.get("x-amz-security-token", ""))
        if not token:
            return error(403, "InvalidToken")
        if float(token[1]) < datetime.datetime.now(datetime.timezone.utc).timestamp():
            STATE.ended_uses += 1
            return error(400, "ExpiredToken")
    if hashlib.sha256(body).hexdigest() != headers["x-amz-content-sha256"]:
        return error(400, "XAmzContentSHA256Mismatch")
    names = signed.split(";")
    unsigned = [name for name in headers if name.lower().startswith("x-amz-") and name.lower() not in names]
    if unsigned or "host" not in names:
        return error(403, "AccessDenied")
    request = AWSRequest(method, f"http://{headers['Host']}{path}",
                         {name: headers[name] for name in names if name != "host"})
    request.context["timestamp"] = headers["X-Amz-Date"]
    auth = S3SigV4Auth(Credentials(key, SECRETS[key]), "s3", region)
    auth.payload = lambda _: headers["x-amz-content-sha256"]
    right = auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)
    return None if right == signature else error(403, "SignatureDoesNotMatch")


class Proxy(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def date_of_answer(self):
        return self.date_time_string(STATE.now().timestamp())

    def answer(self, status, headers, body, length=None):
        self.send_response_only(status)
        self.send_header("Date", self.date_of_answer())
        for name, value in headers.items():
            if name.lower() not in ("content-length", "date", "connection", "transfer-encoding", "server"):
                self.send_header(name, value)
        # The answer to HEAD has the length of the body that GET has.
        own = headers.get("Content-Length") if self.command == "HEAD" else None
        self.send_header("Content-Length", own or str(len(body) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def end_connection(self):
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def control(self, body):
        if self.path == "/-/faults" and self.command == "POST":
            with STATE.lock:
                STATE.faults = json.loads(body)
            for fault in STATE.faults:
                if fault["kind"] in ("skew", "unskew"):
                    STATE.skew = datetime.timedelta(hours=1 if fault["kind"] == "skew" else 0)
                    STATE.faults = []
        if self.path == "/-/lifetime":
            STATE.lifetime = json.loads(body)
            return self.answer(200, {}, b"")
        if self.path == "/-/issued":
            return self.answer(200, {}, json.dumps([STATE.issued, STATE.ended_uses]).encode())
        shown = STATE.requests if self.path == "/-/requests" else STATE.faults
        self.answer(200, {"Content-Type": "application/json"}, json.dumps(shown).encode())

    def serve_credentials(self):
        """Returns false for another path."""
        roles = "/latest/meta-data/iam/security-credentials/"
        if self.path == "/-/container":
            right = STATE.lifetime and self.headers.get("Authorization") == "of the container"
            text = json.dumps(STATE.issue()) if right else ""
        elif self.path == "/latest/api/token":
            right = self.command == "PUT" and self.headers.get("X-aws-ec2-metadata-token-ttl-seconds")
            text = "session"
        elif self.path in (roles, roles + "a%20role"):
            right = STATE.lifetime and self.headers.get("X-aws-ec2-metadata-token") == "session"
            text = "a role\n" if self.path == roles else json.dumps(STATE.issue())
        else:
            return False
        self.answer(200 if right else 401, {}, text.encode() if right else b"")
        return True

    def forward(self, body, changed=()):
        connection = http.client.HTTPConnection("127.0.0.1", MOTO_PORT, timeout=60)
        headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"} | dict(changed)
        connection.request(self.command, self.path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        # moto has an exception instead of this answer.
        if answer.status == 500 and "uploadId=" in self.path and self.command in ("PUT", "POST"):
            return error(404, "NoSuchUpload")
        if "list-type=2" in self.path:
            content = re.sub(rb"<Key>[^<]*</Key>", lambda key: key[0].replace(b"%20", b"+"), content)
        return answer.status, dict(answer.getheaders()), content

    def serve(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.serve_credentials():
            return None
        if self.path.startswith("/-/"):
            return self.control(body)
        kind = STATE.take_fault(self.command, self.path)
        if kind == "500":
            return self.answer(*error(500, "InternalError"))
        if kind == "503":
            return self.answer(*error(503, "SlowDown"))
        if kind == "bad-digest":
            return self.answer(*error(400, "BadDigest"))
        if kind == "expired":
            return self.answer(*error(400, "ExpiredToken"))
        if kind == "early":
            return self.answer(200, *error(500, "InternalError")[1:])
        if kind == "forged":
            return self.answer(*error(403, "AccessDenied", "first line\nsecond line\x1b[2J"))
        if kind == "shifted":
            begin, end = map(int, re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"]).groups())
            status, headers, content = self.forward(body, {"Range": f"bytes={begin + 1}-{end + 1}"})
            return self.answer(status, headers, content)
        if kind == "redirect":
            return self.answer(307, {"Location": f"http://{self.headers['Host']}{self.path}"}, b"")
        if kind == "reset":
            return self.end_connection()
        if kind == "hang":
            time.sleep(60)
            return self.end_connection()
        refusal = fault_of_signature(self.command, self.path, self.headers, body)
        if refusal:
            return self.answer(*refusal)
        status, headers, content = self.forward(body)
        if kind == "foreign":
            content = content.replace(b"</ListBucketResult>", b"<Contents><Key>!</Key></Contents></ListBucketResult>")
        if kind == "lost-answer":
            return self.end_connection()
        if kind == "truncated":
            self.answer(status, headers, content[:len(content) // 2], len(content))
            return self.end_connection()
        if kind == "damaged" and content:
            content = bytes([content[0] ^ 1]) + content[1:]
        if kind == "slow":
            self.answer(status, headers, b"", len(content))
            for at in range(0, len(content), 1024):
                self.wfile.write(content[at:at + 1024])
                time.sleep(0.5)
            return None
        return self.answer(status, headers, content)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = serve


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        pass  # a client that left


def main():
    global MOTO_PORT
    port = 0
    if sys.argv[1:2] == ["--front"]:
        port, MOTO_PORT = map(int, sys.argv[2:])
    else:
        start_moto(sys.argv[1:])
    proxy = Server(("127.0.0.1", port), Proxy)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    print(proxy.server_address[1], MOTO_PORT, flush=True)
    sys.stdin.read()


def start_moto(buckets):
    global MOTO_PORT
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    MOTO_PORT = moto.get_host_and_port()[1]
    for bucket in buckets:
        connection = http.client.HTTPConnection("127.0.0.1", MOTO_PORT)
        connection.request("PUT", "/" + urllib.parse.quote(bucket), headers={
            "Authorization": "AWS4-HMAC-SHA256 Credential=TESTKEY/20260101/us-east-1/s3/aws4_request, "
                             "SignedHeaders=host, Signature=0"})
        assert connection.getresponse().status == 200


if __name__ == "__main__":
    main()
