"""Holds the running server against its own description of JQ: the document is valid, and every call behaves as it says.

Usage: jq_description.py URL
"""

import json
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

from openapi_spec_validator import validate

# Per call, beside the borders of every field, which are tried one by one.
EXAMPLES = 4


def only_json(value):
    """The tester speaks JSON; the other encoding of each body goes."""
    if isinstance(value, dict):
        return {key: only_json(part) for key, part in value.items() if key != "application/msgpack"}
    if isinstance(value, list):
        return [only_json(part) for part in value]
    return value


def main(url):
    document = json.load(urllib.request.urlopen(url + "/openapi.json"))
    validate(document)
    document = only_json(document)
    # Nobody waits for polls here.
    document["components"]["parameters"]["pollTimeout"]["schema"]["maximum"] = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "openapi.json"
        path.write_text(json.dumps(document))
        tester = Path(sys.executable).with_name("schemathesis")
        checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
        command = [tester, "run", path, "--url", url, "--header", "Accept: application/json", "--checks", checks]
        command += ["--phases", "examples,coverage,fuzzing", "--max-examples", str(EXAMPLES), "--seed", "7"]
        command += ["--suppress-health-check", "all", "--no-color", "--request-timeout", "10"]
        sys.exit(subprocess.run(command, cwd=folder).returncode)


main(sys.argv[1])
