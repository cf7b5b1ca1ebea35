"""Push inside the caller's own PostgreSQL transaction, with psycopg 3 (or psycopg2)."""

from __future__ import annotations

import inspect
import re
from typing import Any

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*\Z")


def push(schema: str, name: str, payload: str, options: str) -> tuple[str, list[str]]:
    """Statement that pushes a job, and its parameters."""
    if not _NAME.match(schema):
        raise ValueError(f"{schema!r} is not the name of a schema")
    return f'SELECT "{schema}".push(%s::text, %s::jsonb, %s::jsonb)', [name, payload, options]


def execute(connection: Any, statement: tuple[str, list[str]]) -> Any:
    """Id of the pushed job; an awaitable if the connection is asynchronous."""
    cursor = connection.cursor()
    executed = cursor.execute(*statement)
    if inspect.isawaitable(executed):
        return _execute_async(cursor, executed)
    try:
        return int(cursor.fetchone()[0])
    finally:
        cursor.close()


async def _execute_async(cursor: Any, executed: Any) -> int:
    try:
        await executed
        row = await cursor.fetchone()
        return int(row[0])
    finally:
        await cursor.close()
