"""Parameters of a task: from the arguments of a call to a payload, and back."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any

from ._codec import is_rebuilt, rebuilt
from ._errors import BadPayload

# Parameters that the worker supplies.
INJECTED = ("job", "ctx")

_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Parameters:
    """Parameters of a function, without `job` and `ctx`."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        whole = inspect.signature(fn)
        self.injected = [name for name in INJECTED if name in whole.parameters]
        own = [parameter for name, parameter in whole.parameters.items() if name not in INJECTED]
        self.signature = whole.replace(parameters=own)
        self.names = frozenset(parameter.name for parameter in own if parameter.kind in _BY_NAME)
        self.required = frozenset(
            parameter.name
            for parameter in own
            if parameter.kind in _BY_NAME and parameter.default is inspect.Parameter.empty
        )
        self.var_keyword = self._of_kind(inspect.Parameter.VAR_KEYWORD)
        self.var_positional = self._of_kind(inspect.Parameter.VAR_POSITIONAL)
        self.positional_only = self._all_of_kind(inspect.Parameter.POSITIONAL_ONLY)
        #: Parameters that are passed by name, and nothing else.
        self.is_simple = not (self.var_keyword or self.var_positional or self.positional_only)
        self.rebuilt = _rebuilt(fn, self.names)

    def _all_of_kind(self, kind: Any) -> list[str]:
        return [parameter.name for parameter in self.signature.parameters.values() if parameter.kind is kind]

    def _of_kind(self, kind: Any) -> str | None:
        return next(iter(self._all_of_kind(kind)), None)

    def payload(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by name, without defaults. Raises `TypeError` as a call of the function would."""
        if not args and self.is_simple and self.required <= kwargs.keys() <= self.names:
            return dict(kwargs)
        bound = dict(self.signature.bind(*args, **kwargs).arguments)
        if self.var_keyword is not None:
            bound.update(bound.pop(self.var_keyword, {}))
        return bound

    def call(self, payload: Any) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword arguments for a payload. Raises `BadPayload` if it does not fit."""
        given = self._named(payload)
        for name, kind in self.rebuilt.items():
            if name in given:
                given[name] = rebuilt(kind, given[name])
        if self.is_simple and self.required <= given.keys() <= self.names:
            return [], given
        args = [given.pop(name) for name in self.positional_only if name in given]
        if self.var_positional is not None and self.var_positional in given:
            leading = [name for name in self.signature.parameters if name in given and name != self.var_positional]
            args += [given.pop(name) for name in leading if self._is_positional(name)]
            args += given.pop(self.var_positional)
        try:
            self.signature.bind(*args, **given)
        except TypeError as error:
            raise BadPayload(f"the payload does not fit the task: {error}") from error
        return args, given

    def _is_positional(self, name: str) -> bool:
        return self.signature.parameters[name].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD

    def _named(self, payload: Any) -> dict[str, Any]:
        if isinstance(payload, dict):
            return dict(payload)
        if payload is None and not self.required:
            return {}
        # Pushed by another client: a list of arguments, or a single one.
        try:
            return dict(self.signature.bind(*(payload if isinstance(payload, list) else [payload])).arguments)
        except TypeError as error:
            raise BadPayload(f"the payload does not fit the task: {error}") from error


def _rebuilt(fn: Callable[..., Any], names: frozenset[str]) -> dict[str, Any]:
    """Parameters whose annotation is a dataclass or a model."""
    try:
        hints = typing.get_type_hints(fn)
    except Exception:  # Names that exist only for type checkers.
        return {}
    return {name: hints[name] for name in names if is_rebuilt(hints.get(name))}
