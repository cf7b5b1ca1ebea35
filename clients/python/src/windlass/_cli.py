"""`windlass-worker module:app`: a worker on the command line."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import logging
import os
import sys
from collections.abc import Sequence

from ._app import Windlass
from ._errors import WindlassError


class BadTarget(Exception):
    """The argument names no application."""


def load(target: str) -> Windlass:
    """Application named by `module:attribute`; the attribute is `app` unless given."""
    module, _, attribute = target.partition(":")
    sys.path.insert(0, os.getcwd())
    if importlib.util.find_spec(module.partition(".")[0]) is None:
        raise BadTarget(f"there is no module {module} here")
    app = getattr(importlib.import_module(module), attribute or "app", None)
    if not isinstance(app, Windlass):
        raise BadTarget(f"{target} is not an application; write module:app")
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a worker until SIGTERM or Ctrl-C."""
    parser = argparse.ArgumentParser(prog="windlass-worker", description="Works on the jobs of an application.")
    parser.add_argument("app", help="the application, such as shop.jobs:app")
    parser.add_argument("--concurrency", "-c", type=int, default=10, help="jobs that run at once (10)")
    parser.add_argument("--queue", "-q", action="append", help="queue to work on; may be repeated (those of the tasks)")
    parser.add_argument("--lease", default="30s", help="time after which a dead worker loses its jobs (30s)")
    parser.add_argument("--grace", default="30s", help="time that running jobs have at the end (30s)")
    parser.add_argument("--log", default="info", help="least level of messages (info)")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=options.log.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        load(options.app).work(
            options.concurrency, queues=options.queue, lease=options.lease, grace=options.grace
        )
    except (BadTarget, WindlassError) as error:
        print(f"windlass-worker: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
