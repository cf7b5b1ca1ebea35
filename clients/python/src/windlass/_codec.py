"""JSON as it travels: payloads, results of jobs and of steps."""

from __future__ import annotations

import dataclasses
import enum
import json
import pathlib
import uuid
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any


def _default(value: object) -> Any:
    """Form of a value for which JSON has none."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (uuid.UUID, Decimal, pathlib.PurePath)):
        return str(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} is not JSON serializable")


_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_default)
#: JSON text of a value.
dumps = _encoder.encode
#: Value of JSON text.
loads = json.loads


def sendable(text: str) -> str:
    """The text itself. Raises `UnicodeEncodeError` if it has no encoding: names of files may contain lone surrogates."""
    if not text.isascii():
        text.encode()
    return text


def plain(value: Any) -> Any:
    """Value as it is after a journey through JSON."""
    return loads(dumps(value))


def rebuilt(kind: Any, value: Any) -> Any:
    """Value for a parameter whose annotation is a dataclass or a Pydantic model."""
    if isinstance(value, dict):
        validate = getattr(kind, "model_validate", None)
        if callable(validate):
            return validate(value)
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            return kind(**value)
    return value


def is_rebuilt(kind: Any) -> bool:
    """True if values of this annotation are rebuilt from JSON objects."""
    return isinstance(kind, type) and (dataclasses.is_dataclass(kind) or hasattr(kind, "model_validate"))
