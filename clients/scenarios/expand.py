"""Scenarios of the YAML files: variables, series, and copies with a change. README.md describes the format."""

import copy
import re
from pathlib import Path

import yaml

HOLE = re.compile(r"\{(\w+)\}")
FIELDS = {"name", "about", "for", "set", "insert", "flow", "push", "do", "expect", "within_s", "needs"}


def load(folder):
    """Scenarios of all files, in order; names are unique."""
    found = {}
    for file in sorted(Path(folder).glob("*.yaml")):
        for entry in yaml.safe_load(file.read_text())["scenarios"]:
            for scenario in expand(entry):
                name = scenario["name"]
                if name in found:
                    raise ValueError(f"{file.name}: the name {name} is used twice")
                found[name] = {**scenario, "file": file.stem}
    return list(found.values())


def expand(entry):
    """Scenarios of one entry: one for each value of the variables in `for`."""
    unknown = set(entry) - FIELDS
    if unknown:
        raise ValueError(f"{entry.get('name')}: unknown fields {sorted(unknown)}")
    series = entry.get("for") or {}
    sizes = {len(values) for values in series.values()}
    if len(sizes) > 1:
        raise ValueError(f"{entry['name']}: the lists in `for` have different lengths")
    scenarios = []
    for index in range(sizes.pop() if sizes else 1):
        scenario = copy.deepcopy({key: value for key, value in entry.items() if key != "for"})
        values = {name: values[index] for name, values in series.items()}
        scenario = filled(scenario, values)
        for path, value in (scenario.pop("set", None) or {}).items():
            place, last = reach(scenario, path)
            place[last] = value
        for path, value in (scenario.pop("insert", None) or {}).items():
            place, last = reach(scenario, path)
            place.insert(last, value)
        scenarios.append(scenario)
    return scenarios


def reach(value, path):
    """List or map that holds the place of a dotted path, and the last part of the path."""
    *parts, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    for part in parts:
        value = value[part] if isinstance(part, int) else value.setdefault(part, {})
    return value, last


def filled(value, values):
    """Copy with variables in place of `{name}`. A text that is one variable becomes its value; unknown ones stay."""
    if isinstance(value, str):
        whole = HOLE.fullmatch(value)
        if whole and whole[1] in values:
            return values[whole[1]]
        return HOLE.sub(lambda hole: str(values.get(hole[1], hole[0])), value)
    if isinstance(value, dict):
        if set(value) == {"text", "times"}:
            return filled(value["text"], values) * value["times"]
        return {filled(key, values): filled(item, values) for key, item in value.items()}
    if isinstance(value, list):
        return [filled_item for item in value for filled_item in series(item, values)]
    return value


def series(item, values):
    """Items of a list for one item of the file: `{each: {i: [1, 3]}, give: …}` stands for three."""
    if not (isinstance(item, dict) and set(item) == {"each", "give"}):
        return [filled(item, values)]
    ((name, (first, last)),) = item["each"].items()
    return [filled(item["give"], {**values, name: number}) for number in range(first, last + 1)]
