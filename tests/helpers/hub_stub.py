"""A local replacement for the Hugging Face hub.

It serves FOLDER/models/ID and FOLDER/datasets/ID over HTTP, each in a single commit.
"""

import contextlib
import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

RESOLVE = re.compile(
    r"/(?P<kind>datasets/)?(?P<id>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<path>.+)"
)
API = re.compile(
    r"/api/(?P<kind>models|datasets)/(?P<id>[^/]+/[^/]+?)"
    r"(/(?P<what>revision|tree|paths-info)/(?P<revision>[^/]+)(?P<path>/.*)?)?"
)

LEGACY = re.compile(r"^(/api/models)?/bert-base-uncased/")  # the hub redirects this old id


def commit_of(repo_id):
    """Return the only commit of a repository, the same in every run."""
    return hashlib.sha1(repo_id.encode()).hexdigest()


def tree(repo, under="", recursive=False):
    """Return the entries of a folder in the format of the hub."""
    found = sorted((repo / under).rglob("*") if recursive else (repo / under).iterdir())
    return [
        {
            "type": "directory" if path.is_dir() else "file",
            "path": path.relative_to(repo).as_posix(),
            "size": 0 if path.is_dir() else path.stat().st_size,
            "oid": hashlib.sha1(str(path).encode()).hexdigest(),
        }
        for path in found
    ]


class Handler(BaseHTTPRequestHandler):
    """A request handler for the folder `root`, which `serve` sets."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        """Print nothing, so that the output of the tests stays readable."""

    def do_HEAD(self):
        self.do_GET()

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        match = API.fullmatch(unquote(urlsplit(self.path).path))
        repo = (
            self.repository(match["kind"], match["id"])
            if match and match["what"] == "paths-info"
            else None
        )
        if repo is None:
            return self.missing("RepoNotFound")
        paths = (
            json.loads(body)["paths"] if body.startswith("{") else parse_qs(body).get("paths", [])
        )
        self.answer_json([entry for entry in tree(repo, recursive=True) if entry["path"] in paths])

    def do_GET(self):
        address = urlsplit(self.path)
        path = LEGACY.sub(r"\1/google-bert/bert-base-uncased/", unquote(address.path))
        match = RESOLVE.fullmatch(path) or API.fullmatch(path)
        if match is None:
            return self.missing("EntryNotFound")
        repo = self.repository((match["kind"] or "models").strip("/"), match["id"])
        if repo is None:
            return self.missing("RepoNotFound")
        if match["revision"] not in (None, "main", commit_of(match["id"])):
            return self.missing("RevisionNotFound")
        if match.re is RESOLVE:
            return self.answer_file(repo / match["path"], match["id"])
        if match["what"] == "tree":
            under = (match["path"] or "").strip("/")
            recursive = parse_qs(address.query).get("recursive", ["false"])[0].lower() in (
                "true",
                "1",
            )
            return (
                self.answer_json(tree(repo, under, recursive))
                if (repo / under).is_dir()
                else self.missing("EntryNotFound")
            )
        files = [
            {"rfilename": entry["path"]}
            for entry in tree(repo, recursive=True)
            if entry["type"] == "file"
        ]
        self.answer_json(
            {
                "id": match["id"],
                "modelId": match["id"],
                "sha": commit_of(match["id"]),
                "private": False,
                "gated": False,
                "disabled": False,
                "downloads": 0,
                "likes": 0,
                "tags": [],
                "siblings": files,
            }
        )

    def repository(self, kind, repo_id):
        folder = self.root / kind / repo_id
        return folder if folder.is_dir() else None

    def missing(self, code):
        self.answer(
            json.dumps({"error": code}).encode(),
            status=404,
            **{"X-Error-Code": code, "X-Error-Message": code},
        )

    def answer_json(self, value):
        self.answer(json.dumps(value).encode(), **{"Content-Type": "application/json"})

    def answer_file(self, path, repo_id):
        if not path.is_file():
            return self.missing("EntryNotFound")
        data = path.read_bytes()
        headers = {
            "X-Repo-Commit": commit_of(repo_id),
            "ETag": f'"{hashlib.sha256(data).hexdigest()}"',
            "Accept-Ranges": "bytes",
        }
        part = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if part is None:
            return self.answer(data, **headers)
        start, stop = int(part[1]), min(int(part[2] or len(data)) + 1, len(data))
        self.answer(
            data[start:stop],
            status=206,
            **headers,
            **{"Content-Range": f"bytes {start}-{stop - 1}/{len(data)}"},
        )

    def answer(self, data, status=200, **headers):
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


@contextlib.contextmanager
def serve(folder):
    """Yield the address of a running hub. The hub stops when the context ends."""
    handler = type("FolderHandler", (Handler,), {"root": Path(folder)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
    ).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
