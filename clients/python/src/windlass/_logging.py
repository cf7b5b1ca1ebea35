"""Python's logging in handlers, also written to the log of the job."""

from __future__ import annotations

import logging

from ._context import current_job


class JobLogHandler(logging.Handler):
    """Adds the messages of a handler to the log of its job: `logging.getLogger().addHandler(JobLogHandler())`."""

    def emit(self, record: logging.LogRecord) -> None:
        """Adds a message to the log of the current job."""
        job = current_job()
        # The library's own messages are about the worker.
        if job is None or record.name == "windlass":
            return
        try:
            job.log(self.format(record))
        except Exception:
            self.handleError(record)
