"""Speed of the library: pushes no-op jobs and works on them, with one process and a real server (`WINDLASS_BIN`).

    WINDLASS_BIN=target/release/windlass python clients/python/benchmarks/noop.py [JOBS] [CONCURRENCY]
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time

from windlass import Windlass, dev

logging.basicConfig(level=logging.WARNING)


def shown(what: str, count: int, seconds: float) -> None:
    print(f"{what:<40}{count:>8} jobs  {seconds:7.2f} s  {count / seconds:>9,.0f} per second")


def main(count: int, concurrency: int) -> None:
    with dev.server() as server:
        app = Windlass(server.url)
        done = 0

        @app.task
        async def noop(n: int) -> None:
            nonlocal done
            done += 1
            if done == count:
                worker.stop()

        worker = app.worker(concurrency=concurrency)
        single = count // 10
        start = time.perf_counter()
        for n in range(single):
            noop.push(n=n)
        shown("push, one by one, blocking", single, time.perf_counter() - start)
        start = time.perf_counter()
        noop.push_many({"n": n} for n in range(count - 2 * single))
        shown("push_many", count - 2 * single, time.perf_counter() - start)

        async def at_once() -> None:
            for start in range(0, single, 100):
                await asyncio.gather(*(noop.push(n=n) for n in range(start, start + 100)))
            await app.aclose()

        start = time.perf_counter()
        asyncio.run(at_once())
        shown("push, a hundred coroutines at once", single, time.perf_counter() - start)
        start = time.perf_counter()
        asyncio.run(worker.run())
        shown(f"work, concurrency {concurrency}", done, time.perf_counter() - start)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000, int(sys.argv[2]) if len(sys.argv) > 2 else 100)
