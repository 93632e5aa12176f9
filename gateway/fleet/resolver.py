"""Asks the name service, beside the event loop: one thread for all questions of a gateway.

A thread of its own, for a name service that hangs would keep one of the pool's; the end of the
process does not wait for it. While it hangs, nothing piles up: no further thread, and no second
question for a name that is being asked.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Lock, Thread
from typing import NamedTuple


class Question(NamedTuple):
    """Whose addresses are wanted, with which port."""

    host: str
    port: int


Answer = Future[list[str]]


def addresses_of(question: Question) -> list[str]:
    """Every address of a name as HOST:PORT, in order. Raises OSError."""
    host, port = question
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # a label that is empty or too long
        raise OSError(f"{host!r} is no name: {error}") from error
    return sorted({_address(str(info[4][0]), port) for info in infos})


class Resolver:
    """Its thread is there before anything is asked, and asks one question after the other."""

    def __init__(self, ask: Callable[[Question], list[str]] = addresses_of):
        self._ask = ask
        self._lock = Lock()
        self._open: dict[Question, Answer] = {}
        self._waiting: SimpleQueue[Question] = SimpleQueue()
        Thread(target=self._answer, name="resolve", daemon=True).start()

    def resolve(self, host: str, port: int) -> Answer:
        """The name's addresses as HOST:PORT, or OSError; whoever asks meanwhile has the same."""
        question = Question(host, port)
        with self._lock:
            answer = self._open.get(question)
            if answer is None:
                answer = self._open[question] = Future()
                answer.set_running_or_notify_cancel()  # whoever gives up waiting does not end it
                self._waiting.put(question)
        return answer

    def _answer(self) -> None:
        while True:
            question = self._waiting.get()
            answer = self._open[question]
            try:
                found = self._ask(question)
            except Exception as error:
                self._close(question)
                answer.set_exception(error)
            else:
                self._close(question)
                answer.set_result(found)

    def _close(self, question: Question) -> None:
        """It is asked anew by whoever wants to know it from now on."""
        with self._lock:
            del self._open[question]


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
