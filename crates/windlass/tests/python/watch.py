"""Checks the dashboard and the alert rules against the page of metrics of a real server, given on standard input.

Every query must parse, name only metrics that the server exposes, and use only labels that these have. A label with a
fixed value must have that value among its possible ones where the page shows all of them (state, outcome, kind).
"""

import json
import re
import sys

import promql_parser
import yaml
from prometheus_client.parser import text_string_to_metric_families

dashboard_path, alerts_path = sys.argv[1:]

# Labels that the scrape adds, and the metric that Prometheus makes itself.
TARGET_LABELS = {"job", "instance"}
labels = {"up": set(TARGET_LABELS)}
values = {}
for family in text_string_to_metric_families(sys.stdin.read()):
    for sample in family.samples:
        labels.setdefault(sample.name, set(TARGET_LABELS)).update(sample.labels)
        for label, value in sample.labels.items():
            values.setdefault((sample.name, label), set()).add(value)
COMPLETE = {"state", "outcome", "kind"}


def check_selector(selector, where):
    """Labels of a selector, all of which its metric has."""
    name = selector.name
    assert name in labels, f"{where}: the server has no metric {name}"
    for matcher in selector.matchers.matchers:
        assert matcher.name in labels[name], f"{where}: {name} has no label {matcher.name}"
        if matcher.name in COMPLETE:
            for value in matcher.value.split("|"):
                assert value in values[name, matcher.name], f"{where}: no {name} has {matcher.name}={value}"
    return labels[name]


def check(expr, where):
    """Checks an expression; returns the labels of its result."""
    kind = type(expr).__name__
    if kind == "VectorSelector":
        return check_selector(expr, where)
    if kind == "MatrixSelector":
        return check_selector(expr.vector_selector, where)
    if kind == "NumberLiteral" or kind == "StringLiteral":
        return set()
    if kind == "AggregateExpr":
        inside = check(expr.expr, where)
        if expr.modifier is None:
            return inside if expr.op in ("topk", "bottomk") or "topk" in str(expr.op) else set()
        asked = set(expr.modifier.labels)
        assert asked <= inside, f"{where}: no label {asked - inside}"
        return asked
    if kind == "Call":
        return set().union(*(check(arg, where) for arg in expr.args))
    if kind == "BinaryExpr":
        return check(expr.lhs, where) | check(expr.rhs, where)
    if kind in ("ParenExpr", "UnaryExpr", "SubqueryExpr"):
        return check(expr.expr, where)
    raise AssertionError(f"{where}: {kind} is not expected")


def parsed(text, where):
    try:
        return promql_parser.parse(text)
    except ValueError as error:
        raise AssertionError(f"{where}: {error}: {text}") from error


def check_legend(legend, found, where):
    for label in re.findall(r"\{\{\s*(\w+)\s*\}\}", legend):
        assert label in found, f"{where}: the legend shows {label}, which the result does not have"


dashboard = json.load(open(dashboard_path))
ids, queries = set(), 0
variables = {variable["name"] for variable in dashboard["templating"]["list"]}
for variable in dashboard["templating"]["list"]:
    if variable["type"] == "query":
        where = f"variable {variable['name']}"
        selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"]).groups()
        assert label in check(parsed(selector.replace("$", ""), where), where), f"{where}: no label {label}"
for panel in dashboard["panels"]:
    assert panel["id"] not in ids and panel["title"], f"panel {panel['id']}"
    ids.add(panel["id"])
    for target in panel.get("targets", []):
        where = f"panel {panel['title']!r}"
        text = target["expr"].replace("$__rate_interval", "5m")
        for name in re.findall(r"\$(\w+)", text):
            assert name in variables, f"{where}: no variable {name}"
        found = check(parsed(re.sub(r"\$\w+", "x", text), where), where)
        check_legend(target["legendFormat"], found, where)
        queries += 1

rules = 0
for group in yaml.safe_load(open(alerts_path))["groups"]:
    assert group["name"]
    for rule in group["rules"]:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}, rule
        where = f"alert {rule['alert']}"
        assert re.fullmatch(r"\d+[smhd]", rule.get("for", "0s")), where
        assert rule["labels"]["severity"] in ("critical", "warning", "info"), where
        found = check(parsed(rule["expr"], where), where)
        for text in rule["annotations"].values():
            for label in re.findall(r"\$labels\.(\w+)", text):
                assert label in found, f"{where}: the text shows {label}, which the result does not have"
        assert set(rule["annotations"]) == {"summary", "description"}, where
        rules += 1
print(json.dumps({"queries": queries, "rules": rules}))
