"""Many runs of one program, several at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import Any

from pando.errors import BatchError
from pando.programs.client import Stopper
from pando.programs.result import Result

One = Callable[[Mapping[str, Any], Stopper], Result]


def run_all(
    one: One, arguments: Sequence[Mapping[str, Any]], concurrency: int, *, progress_bar: bool
) -> list[Result | Exception]:
    """A result or an exception for each, in order. An interrupt ends all of them."""
    stopper = [Stopper() for _ in arguments]
    pool = ThreadPoolExecutor(concurrency, "pando-batch")
    futures = [pool.submit(one, *pair) for pair in zip(arguments, stopper, strict=True)]
    try:
        with _bar(len(futures), progress_bar) as advance:
            for _ in as_completed(futures):
                advance()
        return [_outcome(future) for future in futures]
    finally:
        for each in stopper:
            each.stop()
        pool.shutdown(cancel_futures=True)


def raise_failures(outcomes: Sequence[Result | Exception]) -> None:
    """Raises BatchError if there is one, with all outcomes in it."""
    failed = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    if failed:
        raise BatchError(outcomes) from failed[0]


def _outcome(future: Future[Result]) -> Result | Exception:
    error = future.exception()
    if error is None:
        return future.result()
    if isinstance(error, Exception):
        return error
    raise error


@contextmanager
def _bar(total: int, is_shown: bool) -> Iterator[Callable[[], None]]:
    if not is_shown:
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=total)
        yield lambda: progress.advance(task)
