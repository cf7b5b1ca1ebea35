"""Pushes in the application's own transaction.

`WINDLASS_BIN` is the server, `WINDLASS_TEST_STORE_URL` its PostgreSQL store (`postgres://…?schema=…`), and
`DATABASE_URL` the same database for psycopg.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import unittest
from typing import Any
from urllib.parse import parse_qs, urlsplit

from common import PATIENCE_S, info

from windlass import NotFound, Windlass, dev

STORE, DATABASE = os.environ.get("WINDLASS_TEST_STORE_URL"), os.environ.get("DATABASE_URL")


@unittest.skipUnless(STORE and DATABASE and os.environ.get("WINDLASS_BIN"), "needs a PostgreSQL store")
class Transactions(unittest.TestCase):
    def test_the_job_exists_if_the_transaction_commits(self) -> None:
        psycopg = importlib.import_module("psycopg")
        schema = parse_qs(urlsplit(str(STORE)).query).get("schema", ["windlass"])[0]
        with dev.server(["--store", str(STORE)]) as server:
            app = Windlass(server.url)

            @app.task(queue="mail", retry=5, unique=lambda to, **_: to)
            def send(to: str, n: int = 0) -> str:
                return f"sent to {to}"

            async def push_async() -> Any:
                connection = await psycopg.AsyncConnection.connect(DATABASE)
                async with connection, connection.transaction():
                    return (await send.within(connection, schema=schema).push("ann")).id

            with psycopg.connect(DATABASE, autocommit=True) as connection:
                with connection.transaction():
                    kept = send.within(connection, schema=schema).push(to="bob", n=1)
                    with self.assertRaises(NotFound):
                        kept.info()
                with connection.transaction(force_rollback=True):
                    discarded = send.options(priority=-5).within(connection, schema=schema).push("eve")
            with self.assertRaises(NotFound):
                discarded.info()
            shown = info(app, kept.id)
            self.assertEqual(shown["payload"], {"to": "bob", "n": 1})
            self.assertEqual((shown["queue"], shown["max_attempts"]), ("mail", 5))
            self.assertEqual(shown["unique"]["key"], "send:bob")
            other = asyncio.run(push_async())
            with app.working(2):
                self.assertEqual(kept.wait(PATIENCE_S), "sent to bob")
                self.assertEqual(app.job(other).wait(PATIENCE_S), "sent to ann")

    def test_names_of_schemas(self) -> None:
        app = Windlass("http://127.0.0.1:1")

        @app.task
        def work() -> None: ...

        with self.assertRaises(ValueError):
            work.within(object(), schema='x"; DROP').push()


if __name__ == "__main__":
    unittest.main()
