"""Every error has a face, and the inside of a 5xx stays inside."""

from __future__ import annotations

import pytest

from gateway import errors
from gateway.errors import FACES, GatewayError, InvalidRequest, ModelNotFound, public_body


def kinds(kind: type[GatewayError]) -> list[type[GatewayError]]:
    return [kind, *(deeper for child in kind.__subclasses__() for deeper in kinds(child))]


def test_every_error_that_can_be_raised_has_a_face() -> None:
    assert set(kinds(GatewayError)) - set(FACES) == {GatewayError, errors.Unavailable}


def test_the_tree_in_the_docstring_is_complete() -> None:
    assert errors.__doc__ is not None
    for kind in kinds(GatewayError):
        assert kind.__name__ in errors.__doc__


@pytest.mark.parametrize("kind", [kind for kind, face in FACES.items() if face.status >= 500])
def test_the_inside_of_a_5xx_is_not_told(kind: type[GatewayError]) -> None:
    told = public_body(kind("secret", param="secret")).error
    assert "secret" not in f"{told.message} {told.param}"
    assert told.type == "server_error"


def test_a_4xx_tells_its_text_param_and_code() -> None:
    told = public_body(InvalidRequest("too hot", param="temperature")).error
    assert (told.message, told.param, told.code) == ("too hot", "temperature", "invalid_value")
    assert public_body(ModelNotFound("x")).error.param == "model"


def test_whoever_may_try_again_is_told_when() -> None:
    waits = {kind for kind, face in FACES.items() if face.retry_after_s is not None}
    unavailable = {kind for kind, face in FACES.items() if face.status == 503}
    assert waits == unavailable | {errors.QueueFull}
