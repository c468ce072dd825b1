"""A limit in time on a whole exchange with a server: connecting, handshakes, headers, body and trailers."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Self

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

__all__ = ["Exchange"]


class Exchange:
    """Connections that end at one moment, however slowly their bytes arrive.

    A timeout of a socket limits one wait only, so that a server which sends a byte before each timeout is never stopped.
    Here every connection is shut at the moment itself, and whatever was reading from it fails.
    """

    def __init__(self, until: float) -> None:
        self.expired = False
        self._watched: list[socket.socket] = []
        self._connections: list[HTTPConnection] = []
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self.lasts(until)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the clock, and close what was watched."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            # Those of responses without a body are neither closed with them nor returned to their pool.
            for owner in self._connections:
                owner.close()
            for connection in self._watched:
                connection.close()
            self._connections.clear()
            self._watched.clear()

    def lasts(self, until: float) -> None:
        """Set the moment at which the exchange ends, in seconds of `time.monotonic`."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            seconds = min(max(0.0, until - time.monotonic()), threading.TIMEOUT_MAX)
            self._timer = threading.Timer(seconds, self._end)
            self._timer.daemon = True
            self._timer.start()

    def pool(self, proxy: str | None) -> urllib3.PoolManager:
        """Return a pool whose connections end with the exchange, through a proxy if one is given."""
        pool = urllib3.PoolManager() if proxy is None else urllib3.ProxyManager(proxy)
        exchange = self

        class Plain(HTTPConnection):
            def _new_conn(self) -> socket.socket:
                return exchange._watch(self, super()._new_conn())

        class Secure(HTTPSConnection):
            def _new_conn(self) -> socket.socket:
                return exchange._watch(self, super()._new_conn())

        class PlainPool(urllib3.HTTPConnectionPool):
            ConnectionCls = Plain

        class SecurePool(urllib3.HTTPSConnectionPool):
            ConnectionCls = Secure

        pool.pool_classes_by_scheme = {"http": PlainPool, "https": SecurePool}
        return pool

    def _watch(self, owner: HTTPConnection, connection: socket.socket) -> socket.socket:
        """Watch a new connection by a second handle: the first is given to TLS before its handshake begins."""
        with self._lock:
            self._connections.append(owner)
            self._watched.append(connection.dup())
        if self.expired:
            self._end()
        return connection

    def _end(self) -> None:
        with self._lock:
            self.expired = True
            for connection in self._watched:
                with suppress(OSError):  # the server has closed it
                    connection.shutdown(socket.SHUT_RDWR)
