"""The description of `proud serve` for other programs."""

from __future__ import annotations

from typing import Any

import proud
from proud.data.walk import FORMATS

TEXT = {"type": "string"}
NUMBER = {"type": "number"}
ANSWER = {
    "type": "object",
    "required": ["label", "confidence", "warnings"],
    "properties": {
        "label": TEXT | {"description": "the most likely class"},
        "confidence": NUMBER | {"description": "its calibrated probability", "minimum": 0, "maximum": 1},
        "set": {"type": "array", "items": TEXT, "description": "prediction set, most likely class first"},
        "abstain": {"type": "boolean", "description": "whether the answer is too uncertain to act on"},
        "warnings": {"type": "array", "items": TEXT, "description": "what is known to be wrong with the model"},
    },
}
ERRORS = {
    "400": "the body is empty or was not sent completely",
    "401": "the token is missing or wrong",
    "408": "the body did not arrive in time",
    "413": "the body is too large",
    "422": "the body is not an image that can be used",
    "503": "too many requests in progress: come back after the seconds in Retry-After",
}


def description(classes: tuple[str, ...], most_bytes: int) -> dict[str, Any]:
    """OpenAPI 3.1."""
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    answer = {"application/json": {"schema": {"$ref": "#/components/schemas/Answer"}}}
    predict = {
        "summary": "Classify one image",
        "requestBody": {
            "required": True,
            "description": f"The image file itself: {', '.join(FORMATS)}; at most {most_bytes:,} bytes.",
            "content": {"image/*": {}, "application/octet-stream": {}},
        },
        "responses": {"200": {"description": "the answer", "content": answer}}
        | {code: {"description": text, "content": error} for code, text in ERRORS.items()},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "proud serve", "version": proud.__version__},
        "security": [{"token": []}],
        "paths": {
            "/predict": {"post": predict},
            "/health": {"get": plain("Whether the service is up; needs no token", "application/json")},
            "/metrics": {"get": plain("Counters for Prometheus", "text/plain")},
        },
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                "Answer": ANSWER | {"description": f"classes: {', '.join(classes)}"},
                "Error": {"type": "object", "required": ["error"], "properties": {"error": TEXT}},
            },
        },
    }


def plain(summary: str, kind: str) -> dict[str, Any]:
    return {"summary": summary, "responses": {"200": {"description": "OK", "content": {kind: {}}}}}
