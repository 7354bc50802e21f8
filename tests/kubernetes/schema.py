"""JobSet's own schema, which is no part of this repository."""

import functools
from typing import Any

import jsonschema
import pytest
import yaml

from tests.harness import REPOSITORY

CRD = REPOSITORY.parent / "shared" / "kubernetes" / "jobset-crd.yaml"


@functools.cache
def schema() -> Any:
    """JobSet's schema, which admits no unknown field."""
    if not CRD.exists():
        pytest.skip(f"JobSet's CustomResourceDefinition is not there: {CRD}")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    crd = yaml.load(CRD.read_text(), loader)
    (version,) = crd["spec"]["versions"]
    own = version["schema"]["openAPIV3Schema"]
    _make_strict(own)
    own["properties"]["metadata"] = {"type": "object"}  # the API server checks it
    return jsonschema.Draft202012Validator(own)


def _make_strict(part: Any) -> None:
    if isinstance(part, dict):
        if "properties" in part and "x-kubernetes-preserve-unknown-fields" not in part:
            part.setdefault("additionalProperties", False)
        for inner in part.values():
            _make_strict(inner)
    elif isinstance(part, list):
        for inner in part:
            _make_strict(inner)


def problems(jobset: Any) -> list[str]:
    return [error.message for error in schema().iter_errors(jobset)]
