"""Files to fetch, and a web server to fetch them from."""

import contextlib
import hashlib
import http.server
import io
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from otprune.training.data.download import Remote

Contents = dict[str, bytes]


def silent(what: str, done: int, total: int) -> None:
    pass


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def write(folder: Path, contents: Contents) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return folder


def tar_of(contents: Contents, *others: tarfile.TarInfo) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        for member in others:
            tar.addfile(member)
    return buffer.getvalue()


def remote(url: str, content: bytes) -> Remote:
    return Remote(url, len(content), sha256(content))


@contextlib.contextmanager
def served(contents: Contents, announced: int | None = None) -> Iterator[str]:
    """A web server for the length of a `with` block; `announced` is a length that it only claims to send."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = contents.get(self.path.removeprefix("/"))
            if content is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(announced or len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
